//! The interface for Keycloak's administrators, as far as it is needed. Tokens and secrets are in no text that it makes.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::time::timeout;

/// The largest answer that is read. A realm's scopes are some hundred kilobytes at most.
const MAX_ANSWER: usize = 16 << 20;
/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The realm of administrators.
const ADMIN_REALM: &str = "master";

/// Why the provider did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// It cannot be reached, or does not answer in time.
    #[error("the identity provider cannot be reached at {0}")]
    Unreachable(String),
    /// It does not know the administrator, or another password.
    #[error("the identity provider refuses the administrator's name and password")]
    Credentials,
    /// It refuses a request.
    #[error("the identity provider answers {status} to {request}{detail}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// Method and path, without a query.
        request: String,
        /// What it says of it, with a colon before it.
        detail: String,
    },
    /// A client or a Secret of that name is somebody else's.
    #[error("{0}")]
    Foreign(String),
    /// It answers something that is none of its own.
    #[error("the identity provider's answer to {0} cannot be read")]
    Unreadable(String),
    /// The Secret with the administrator's name and password, or the app's, cannot be had.
    #[error("{0}")]
    Secret(String),
}

/// Who administers.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) username: String,
    pub(crate) password: String,
}

/// A client of the provider's HTTP interface.
pub(crate) type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// One who may administer a realm.
pub(crate) struct Admin<'h> {
    http: &'h Http,
    url: &'h str,
    realm: &'h str,
    patience: Duration,
    token: String,
}

/// A client of HTTP and HTTPS that trusts whom the system trusts; nobody, where it has no authorities.
pub(crate) fn http() -> Http {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    Client::builder(TokioExecutor::new()).build(connector)
}

impl<'h> Admin<'h> {
    /// Signs in. The token is good for about a minute.
    pub(crate) async fn sign_in(
        http: &'h Http,
        (url, realm): (&'h str, &'h str),
        patience: Duration,
        credentials: &Credentials,
    ) -> Result<Self, Fault> {
        let path = format!("/realms/{ADMIN_REALM}/protocol/openid-connect/token");
        let form = [
            ("grant_type", "password"),
            ("client_id", "admin-cli"),
            ("username", &credentials.username),
            ("password", &credentials.password),
        ];
        let form: Vec<String> = form.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        let request = Request::post(format!("{url}{path}")).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request.body(form.join("&").into()).map_err(|_| Fault::Unreachable(url.to_owned()))?;
        let answer = send(http, url, patience, request).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED => return Err(Fault::Credentials),
            status => return Err(refused(status, &Method::POST, &path, &Value::Null)),
        }
        let token = answer.body["access_token"].as_str().ok_or_else(|| Fault::Unreadable(format!("POST {path}")))?;
        Ok(Self { http, url, realm, patience, token: token.to_owned() })
    }

    /// What is at a path below `/admin/realms/<realm>`.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Fault> {
        self.ask(Method::GET, path, None).await.map(|(body, _)| body)
    }

    /// Makes something, and returns its ID.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<String, Fault> {
        let (answer, location) = self.ask(Method::POST, path, Some(body)).await?;
        let id = answer["id"].as_str().map(str::to_owned).or(location);
        id.ok_or_else(|| Fault::Unreadable(format!("POST {path}")))
    }

    /// Writes something.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, Fault> {
        self.ask(Method::PUT, path, Some(body)).await.map(|(body, _)| body)
    }

    /// Removes something that may be gone already.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Fault> {
        match self.ask(Method::DELETE, path, None).await {
            Err(Fault::Refused { status: 404, .. }) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(Value, Option<String>), Fault> {
        let Self { http, url, realm, patience, token } = self;
        let full = format!("/admin/realms/{}{path}", encoded(realm));
        let request = Request::builder()
            .method(method.clone())
            .uri(format!("{url}{full}"))
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json");
        let content = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(content.into()).map_err(|_| Fault::Unreadable(format!("{method} {full}")))?;
        let answer = send(http, url, *patience, request).await?;
        if answer.status.is_success() {
            return Ok((answer.body, answer.location));
        }
        Err(refused(answer.status, &method, &full, &answer.body))
    }
}

struct Answer {
    status: StatusCode,
    body: Value,
    /// The last segment of where the new thing is.
    location: Option<String>,
}

async fn send(http: &Http, url: &str, patience: Duration, request: Request<Full<Bytes>>) -> Result<Answer, Fault> {
    let unreachable = || Fault::Unreachable(url.to_owned());
    let exchange = async {
        let answer = http.request(request).await.map_err(|error| {
            tracing::debug!("{error}: {:?}", std::error::Error::source(&error));
            unreachable()
        })?;
        let status = answer.status();
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|text| text.rsplit('/').next()).map(str::to_owned);
        let body = http_body_util::Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|_| unreachable())?.to_bytes();
        Ok(Answer { status, location, body: serde_json::from_slice(&body).unwrap_or_default() })
    };
    timeout(patience, exchange).await.map_err(|_| unreachable())?
}

/// Of what the provider says only the fields that are meant for people.
fn refused(status: StatusCode, method: &Method, path: &str, body: &Value) -> Fault {
    let path = path.split('?').next().unwrap_or_default();
    let said = ["errorMessage", "error_description", "error"].iter().find_map(|field| body[field].as_str());
    Fault::Refused {
        status: status.as_u16(),
        request: format!("{method} {path}"),
        detail: said.map(|said| format!(": {said}")).unwrap_or_default(),
    }
}

/// As part of a query, a form or a path.
pub(crate) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_in_a_form_stays_one_value() {
        assert_eq!(encoded("a b&c=d/é~").to_string(), "a%20b%26c%3Dd%2F%C3%A9~");
    }

    #[test]
    fn a_refusal_says_what_the_provider_says_to_people() {
        let said = refused(StatusCode::FORBIDDEN, &Method::GET, "/admin/x?a=b", &serde_json::json!({"error": "no"}));
        assert_eq!(said.to_string(), "the identity provider answers 403 to GET /admin/x: no");
    }
}
