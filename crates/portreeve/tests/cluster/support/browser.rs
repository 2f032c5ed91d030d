//! A scripted browser: it keeps cookies, follows redirects, and fills in Keycloak's form.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, COOKIE, HOST, LOCATION, SET_COOKIE};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use portreeve_testkit::tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Platform;

/// How long one answer may take on a machine that also compiles.
const PATIENCE: Duration = Duration::from_secs(15);
/// A browser gives up after about so many redirects.
const MOST_REDIRECTS: usize = 12;

/// One person's browser. Names of apps lead to the gateway.
pub(crate) struct Browser<'p> {
    platform: &'p Platform,
    /// By host, then by name.
    cookies: BTreeMap<String, BTreeMap<String, String>>,
    /// Sent with every request.
    headers: Vec<(&'static str, &'static str)>,
}

/// What a browser shows.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) location: Option<String>,
}

impl<'p> Browser<'p> {
    pub(crate) fn new(platform: &'p Platform) -> Self {
        Self { platform, cookies: BTreeMap::new(), headers: Vec::new() }
    }

    /// Sends a header with every request from now on.
    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The names of the cookies of a host.
    pub(crate) fn cookies(&self, host: &str) -> Vec<String> {
        self.cookies.get(host).map(|cookies| cookies.keys().cloned().collect()).unwrap_or_default()
    }

    /// The cookies of a host, by name.
    pub(crate) fn jar(&mut self, host: &str) -> &mut BTreeMap<String, String> {
        self.cookies.entry(host.to_owned()).or_default()
    }

    /// One request.
    pub(crate) async fn get(&mut self, url: &str) -> anyhow::Result<Page> {
        self.send(Method::GET, url, None).await
    }

    /// Follows redirects to where they end.
    pub(crate) async fn open(&mut self, url: &str) -> anyhow::Result<Page> {
        let page = self.get(url).await?;
        self.follow(page).await
    }

    /// Opens a page, signs in where it asks for it, and returns what is shown then.
    pub(crate) async fn sign_in(&mut self, url: &str, user: &str) -> anyhow::Result<Page> {
        let page = self.open(url).await?;
        self.fill_in(page, user).await
    }

    /// Signs in on a page of Keycloak, and returns what is shown then.
    pub(crate) async fn fill_in(&mut self, page: Page, user: &str) -> anyhow::Result<Page> {
        let action = form_action(&page.body).with_context(|| format!("no form to sign in at {page:?}"))?;
        let form = format!("username={user}&password={user}&credentialId=");
        let page = self.send(Method::POST, &action, Some(form)).await?;
        self.follow(page).await
    }

    /// Says yes to what a page asks for, where a device is to be let in.
    pub(crate) async fn accept(&mut self, page: &Page) -> anyhow::Result<Page> {
        let field = |name: &str| {
            let (_, rest) = page.body.split_once(name)?;
            rest.split('"').next().map(|value| value.replace("&amp;", "&"))
        };
        let code = field("name=\"code\" value=\"").with_context(|| format!("nothing is asked at {page:?}"))?;
        let (before, _) = page.body.split_once("name=\"code\"").unwrap_or_default();
        let action = before.rsplit_once("action=\"").and_then(|(_, rest)| rest.split('"').next());
        let action = action.context("the form leads nowhere")?.replace("&amp;", "&");
        let action = resolved(&page.url, action)?;
        let page = self.send(Method::POST, &action, Some(format!("code={code}&accept=Yes"))).await?;
        self.follow(page).await
    }

    /// Follows the redirects of a page.
    pub(crate) async fn follow(&mut self, mut page: Page) -> anyhow::Result<Page> {
        for _ in 0..MOST_REDIRECTS {
            let Some(location) = page.location.clone().filter(|_| (300..400).contains(&page.status)) else {
                return Ok(page);
            };
            page = self.get(&resolved(&page.url, location)?).await?;
        }
        bail!("more than {MOST_REDIRECTS} redirects, the last to {page:?}")
    }

    async fn send(&mut self, method: Method, url: &str, form: Option<String>) -> anyhow::Result<Page> {
        let (scheme, rest) = url.split_once("://").with_context(|| format!("{url} is no URL"))?;
        let (authority, path) =
            rest.split_once('/').map_or((rest, String::new()), |(authority, path)| (authority, path.to_owned()));
        let host = authority.split(':').next().unwrap_or_default().to_owned();
        let mut request = Request::builder().method(method).uri(format!("/{path}")).header(HOST, authority);
        let cookies: Vec<String> =
            self.cookies.get(&host).into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header(COOKIE, cookies.join("; "));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        if form.is_some() {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request.body(Full::<Bytes>::from(form.unwrap_or_default()))?;
        let answer = tokio::time::timeout(PATIENCE, async {
            match scheme {
                "https" => {
                    let connection = TcpStream::connect(self.platform.bed.gateway_address(443)?).await?;
                    exchange(tls::handshake(tls::any_certificate()?, &host, connection).await?, request).await
                }
                _ => exchange(TcpStream::connect(authority).await?, request).await,
            }
        });
        let (answer, body) = answer.await.with_context(|| format!("{url} does not answer"))??;
        self.keep_cookies(&host, &answer);
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok()).map(str::to_owned);
        Ok(Page { url: url.to_owned(), status: answer.status().as_u16(), body, location })
    }

    /// No cookie may be for more than its host.
    fn keep_cookies(&mut self, host: &str, answer: &Response<()>) {
        let jar = self.cookies.entry(host.to_owned()).or_default();
        for cookie in answer.headers().get_all(SET_COOKIE).iter().filter_map(|cookie| cookie.to_str().ok()) {
            let mut parts = cookie.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|first| first.split_once('=')) else { continue };
            let attributes: Vec<String> = parts.map(str::to_ascii_lowercase).collect();
            assert!(attributes.iter().all(|one| !one.starts_with("domain=")), "{host} sets {cookie}");
            let ends = attributes.iter().any(|one| one == "max-age=0" || one.starts_with("expires=thu, 01"));
            if ends || value.is_empty() || value == "deleted" {
                jar.remove(name);
            } else {
                jar.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(Response<()>, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    connection.abort();
    Ok((Response::from_parts(parts, ()), String::from_utf8_lossy(&body).into_owned()))
}

/// Where a link of a page leads.
fn resolved(page: &str, link: String) -> anyhow::Result<String> {
    if !link.starts_with('/') {
        return Ok(link);
    }
    let host = page.find("://").context("a URL has a scheme")? + 3;
    Ok(format!("{}{link}", &page[..page[host..].find('/').map_or(page.len(), |end| host + end)]))
}

fn form_action(body: &str) -> anyhow::Result<String> {
    let form = body.find("kc-form-login").context("the page has no such form")?;
    let start = body[..form].rfind("<form").unwrap_or(form);
    let (_, action) = body[start..].split_once("action=\"").context("the form leads nowhere")?;
    let action = action.split('"').next().unwrap_or_default().replace("&amp;", "&");
    ensure!(action.contains("://"), "the form leads to {action}");
    Ok(action)
}
