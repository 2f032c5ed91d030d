//! Keycloak, in a host of its own, with a realm to sign in to.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::bed::Bed;

/// The realm of every bed.
pub const REALM: &str = "nebari";
/// Who may do everything in Keycloak, and by which password.
pub const ADMIN: (&str, &str) = ("admin", "admin-of-the-bed");
/// The name by which those inside the cluster reach it, as a Service would have it.
pub const SERVICE: &str = "keycloak-keycloakx-http.keycloak.svc.cluster.local";
/// Its port.
pub const PORT: u16 = 8080;

/// Keycloak of a bed, for those who administer it.
#[derive(Clone, Debug)]
pub struct Keycloak {
    address: SocketAddr,
}

/// The program; its data is in the bed's folder and outlasts it.
pub(crate) fn command(bed: &Bed) -> anyhow::Result<Command> {
    let host = bed.host("keycloak")?;
    let home = bed.folder().join("keycloak");
    if !home.exists() {
        // It writes into its own folder; links cost nothing.
        let source = portreeve_programs::find("kc.sh")?.ancestors().nth(2).context("it lies in a folder")?.to_owned();
        let mut copy = Command::new("cp");
        copy.args(["-a", "--link"]).arg(&source).arg(&home);
        if !copy.status()?.success() {
            ensure!(Command::new("cp").arg("-a").arg(source).arg(&home).status()?.success(), "failed to copy Keycloak");
        }
    }
    let mut command = host.command(home.join("bin/kc.sh"));
    command.args(["start", "--optimized", "--http-enabled=true", "--hostname-backchannel-dynamic=false"]);
    command.arg(format!("--http-port={PORT}")).arg(format!("--hostname=http://{}:{PORT}", host.address()));
    command.args(["--log-level=warn,org.keycloak.events:debug", "--cache=local"]);
    command.env("KC_BOOTSTRAP_ADMIN_USERNAME", ADMIN.0).env("KC_BOOTSTRAP_ADMIN_PASSWORD", ADMIN.1);
    command.env("JAVA_OPTS_KC_HEAP", "-Xms64m -Xmx400m");
    Ok(command)
}

/// Lets every program of the bed that reads the bed's `hosts` file find it by [`SERVICE`].
pub(crate) fn prepare(bed: &Bed) -> anyhow::Result<()> {
    let address = bed.host("keycloak")?.address();
    Ok(fs::write(bed.folder().join("hosts"), format!("127.0.0.1 localhost\n{address} {SERVICE}\n"))?)
}

/// Fails until it answers.
pub(crate) async fn ask(bed: &Bed) -> anyhow::Result<()> {
    let keycloak = bed.keycloak()?;
    let (status, body) = keycloak.send(Method::GET, "/realms/master", None, None).await?;
    ensure!(status == 200, "/realms/master answers {status}: {body}");
    Ok(())
}

/// Makes the realm.
pub(crate) async fn make_realm(bed: &Bed) -> anyhow::Result<()> {
    let keycloak = bed.keycloak()?;
    let realm = json!({
        "realm": REALM, "enabled": true, "sslRequired": "none",
        "accessTokenLifespan": 300, "ssoSessionIdleTimeout": 1800,
    });
    keycloak.admin(Method::POST, "", Some(realm)).await?;
    // Who signs in for the first time is not asked for the rest of a profile.
    keycloak.user("alice", &["staff"]).await?;
    keycloak.user("bob", &[]).await?;
    Ok(())
}

impl Bed {
    /// The bed's Keycloak; the builder must have been asked for it.
    pub fn keycloak(&self) -> anyhow::Result<Keycloak> {
        Ok(Keycloak { address: (self.host("keycloak")?.address(), PORT).into() })
    }
}

impl Keycloak {
    /// Where browsers, and the test process, reach it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a user whose password is the name, in groups that are made where they are not there.
    pub async fn user(&self, name: &str, groups: &[&str]) -> anyhow::Result<()> {
        let user = json!({
            "username": name, "enabled": true, "emailVerified": true, "groups": groups,
            "email": format!("{name}@example.test"), "firstName": name, "lastName": "Test",
            "credentials": [{"type": "password", "value": name, "temporary": false}],
        });
        for group in groups {
            let found = self.admin(Method::GET, &format!("/{REALM}/groups?search={group}&exact=true"), None).await?;
            if found.as_array().is_none_or(Vec::is_empty) {
                self.admin(Method::POST, &format!("/{REALM}/groups"), Some(json!({"name": group}))).await?;
            }
        }
        self.admin(Method::POST, &format!("/{REALM}/users"), Some(user)).await.map(drop)
    }

    /// The client of that ID, as the administrator sees it.
    pub async fn client(&self, client_id: &str) -> anyhow::Result<Option<Value>> {
        let found = self.admin(Method::GET, &format!("/{REALM}/clients?clientId={client_id}"), None).await?;
        Ok(found.get(0).cloned())
    }

    /// Posts a form to an endpoint of the realm by which visitors and programs sign in, such as `token` or `auth/device`.
    ///
    /// # Errors
    ///
    /// When the answer is no success.
    pub async fn post_form(&self, endpoint: &str, form: &[(&str, &str)]) -> anyhow::Result<Value> {
        let form: Vec<_> = form.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let path = format!("/realms/{REALM}/protocol/openid-connect/{endpoint}");
        let (status, answer) = self.send(Method::POST, &path, None, Some(Content::Form(form.join("&")))).await?;
        ensure!(status == 200, "{endpoint} answers {status}: {answer}");
        Ok(serde_json::from_str(&answer)?)
    }

    /// Asks the administrators' interface, below `/admin/realms`.
    ///
    /// # Errors
    ///
    /// When the answer is no success.
    pub async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let form = format!("grant_type=password&client_id=admin-cli&username={}&password={}", ADMIN.0, ADMIN.1);
        let token = "/realms/master/protocol/openid-connect/token";
        let (status, answer) = self.send(Method::POST, token, None, Some(Content::Form(form))).await?;
        ensure!(status == 200, "no token: {status} {answer}");
        let token: Value = serde_json::from_str(&answer)?;
        let token = token["access_token"].as_str().context("there is a token")?;
        let path = format!("/admin/realms{path}");
        let (status, answer) = self.send(method.clone(), &path, Some(token), body.map(Content::Json)).await?;
        ensure!((200..300).contains(&status), "{method} {path} answers {status}: {answer}");
        Ok(serde_json::from_str(&answer).unwrap_or_default())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        content: Option<Content>,
    ) -> anyhow::Result<(u16, String)> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.address.to_string());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match content {
            Some(Content::Form(form)) => {
                request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
                form
            }
            Some(Content::Json(value)) => {
                request = request.header(CONTENT_TYPE, "application/json");
                value.to_string()
            }
            None => String::new(),
        };
        let answer = sender.send_request(request.body(Full::<Bytes>::from(body))?).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        connection.abort();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

enum Content {
    Form(String),
    Json(Value),
}
