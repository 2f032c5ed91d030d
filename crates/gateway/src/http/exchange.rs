//! One request and its answer.

use std::convert::Infallible;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::uri::Authority;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use portreeve_table::{
    HeaderChange, HttpFilters, HttpRequestHead, HttpRoute, HttpRoutes, PathMatch, Port, Redirect, Table, TlsService,
};
use tokio::time::timeout;

use crate::backend;
use crate::http::answer::{self, Answer};
use crate::http::body::{Download, Upload};
use crate::http::pool::SendError;
use crate::http::target::{self, Target};
use crate::http::upgrade::Upgrade;
use crate::http::{HttpConnection, headers};
use crate::login::{self, Admission, Visitor};
use crate::observe::{Access, Outcome, RequestRecord};

/// Answers one request; whatever happens, there is an answer, and a record when it ends.
pub(super) async fn exchange(
    connection: Arc<HttpConnection>,
    request: Request<Incoming>,
) -> Result<Response<Download>, Infallible> {
    let target = Target::of(&request);
    let access = connection.access.for_request(RequestRecord {
        host: target.as_ref().ok().and_then(|target| target.host.clone()),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        status: None,
    });
    let mut exchange = Exchange { connection: &connection, access };
    let answer = match target {
        Ok(target) => exchange.run(&target, request).await,
        Err(outcome) => Err(outcome),
    };
    Ok(exchange.finish(answer))
}

/// The state of one request.
struct Exchange<'a> {
    connection: &'a HttpConnection,
    access: Access,
}

/// What is to be done with a request: all that is needed, and nothing that keeps the table alive while it is done.
struct Way {
    /// Who must be let in first, where not everybody is.
    visitor: Option<Visitor>,
    /// Or why there is none, which is told to whoever is let in.
    step: Result<Step, Outcome>,
    response_headers: Vec<HeaderChange>,
}

enum Step {
    /// The route's own filter answers.
    Answer(Response<Answer>),
    Forward {
        /// In the order in which to try them.
        endpoints: Vec<SocketAddr>,
        http2: bool,
        /// Whether the backend may agree to an upgrade.
        upgrade: bool,
        timeout: Option<Duration>,
    },
}

impl Exchange<'_> {
    /// The steps of a request, up to the head of its answer.
    async fn run(&mut self, target: &Target, mut request: Request<Incoming>) -> Result<Response<Answer>, Outcome> {
        let Way { visitor, step, response_headers } = self.find_way(target, &mut request)?;
        let admission = match &visitor {
            // Boxed, so that it adds nothing to what other requests cost.
            Some(visitor) => match Box::pin(self.connection.shared.sign_in.admit(visitor)).await {
                Ok(admission) => admission,
                Err(refusal) => {
                    self.access.record.outcome = refusal.outcome;
                    return Ok((*refusal.response).map(Answer::Own));
                }
            },
            None => Admission::default(),
        };
        admission.introduce(request.headers_mut());
        let mut response = match step? {
            Step::Answer(response) => response,
            Step::Forward { endpoints, http2, upgrade, timeout: limit } => {
                let forward = self.forward(request, &endpoints, http2, upgrade);
                match limit {
                    Some(limit) => timeout(limit, forward).await.unwrap_or(Err(Outcome::BackendTimeout))?,
                    None => forward.await?,
                }
            }
        };
        headers::change(response.headers_mut(), &response_headers);
        admission.remember(response.headers_mut());
        Ok(response)
    }

    /// Everything that the table says, done; the request is then ready to go on.
    fn find_way(&mut self, target: &Target, request: &mut Request<Incoming>) -> Result<Way, Outcome> {
        let installed = self.connection.shared.installed();
        let routes = self.find_listener(&installed.table, target)?;
        let route = self.find_route(routes, target, request)?;
        if route.login.is_none() && Self::is_protected_in_disguise(routes, target, request) {
            return Err(Outcome::BadRequest);
        }
        let authority = target.authority.as_ref().map(Authority::as_str);
        let visitor = route.login.clone().map(|login| Visitor::take(login, authority, request));
        let step = match &route.filters.redirect {
            Some(redirect) => self.redirect(redirect, &route.matches.path, target, request).map(Step::Answer),
            None => self.choose(target, route, request),
        };
        Ok(Way { visitor, step, response_headers: route.filters.response_headers.clone() })
    }

    /// Chooses a backend and makes the request ready for it.
    fn choose<B>(&mut self, target: &Target, route: &HttpRoute, request: &mut Request<B>) -> Result<Step, Outcome> {
        let chosen = backend::choose(&self.connection.shared, &route.backends, &mut self.access.record)?;
        let http2 = chosen.options.http2;
        let upgrade = self.prepare(request, target, route, http2)?;
        Ok(Step::Forward { endpoints: chosen.endpoints, http2, upgrade, timeout: route.filters.timeout })
    }

    /// Under TLS, a host of another listener of the port is for another connection: it may have another certificate,
    /// or none here at all (GEP-3567).
    fn find_listener<'t>(&mut self, table: &'t Table, target: &Target) -> Result<&'t HttpRoutes, Outcome> {
        let record = &mut self.access.record;
        match (table.ports.get(&record.port), &self.connection.tls_listener) {
            (Some(Port::Http(listeners)), None) => {
                let listener = listeners.find(target.host.as_ref()).ok_or(Outcome::UnknownName)?;
                record.listener = Some(listener.id.clone());
                Ok(&listener.routes)
            }
            (Some(Port::Tls(listeners)), Some(opened_for)) => {
                let listener = listeners.find(target.host.as_ref()).ok_or(Outcome::UnknownName)?;
                match &listener.service {
                    TlsService::TerminateHttp { routes, .. } if listener.id == *opened_for => Ok(routes),
                    _ => Err(Outcome::Misdirected),
                }
            }
            _ => Err(Outcome::UnknownName),
        }
    }

    fn find_route<'t, B>(
        &mut self,
        routes: &'t HttpRoutes,
        target: &Target,
        request: &Request<B>,
    ) -> Result<&'t HttpRoute, Outcome> {
        let route = route_at(request.uri().path(), routes, target, request).ok_or(Outcome::NoRoute)?;
        self.access.record.route = Some(route.id.clone());
        Ok(route)
    }

    /// Whether the backend may take the request for one that needs sign-in.
    fn is_protected_in_disguise<B>(routes: &HttpRoutes, target: &Target, request: &Request<B>) -> bool {
        let Some(path) = target::plain_path(request.uri().path()) else { return false };
        route_at(&path, routes, target, request).is_some_and(|route| route.login.is_some())
    }

    fn redirect<B>(
        &mut self,
        redirect: &Redirect,
        matched: &PathMatch,
        target: &Target,
        request: &Request<B>,
    ) -> Result<Response<Answer>, Outcome> {
        let port = self.access.record.port.port;
        let location = answer::location(redirect, matched, target, request.uri(), self.scheme(), port);
        let answer = answer::redirect(location.ok_or(Outcome::BadRequest)?, redirect.status);
        self.access.record.outcome = Outcome::Served;
        Ok(answer)
    }

    /// Makes the request ready for the backend; says whether it still asks for an upgrade.
    fn prepare<B>(
        &self,
        request: &mut Request<B>,
        target: &Target,
        route: &HttpRoute,
        http2: bool,
    ) -> Result<bool, Outcome> {
        let HttpFilters { request_headers, hostname, path, .. } = &route.filters;
        if let Some(change) = path {
            let path = answer::changed_path(change, &route.matches.path, request.uri()).ok_or(Outcome::BadRequest)?;
            *request.uri_mut() = path.into();
        }
        let version = mem::replace(request.version_mut(), Version::HTTP_11);
        let headers = request.headers_mut();
        // What the client says about its connection goes first, so that it cannot remove what is said here.
        let takes_trailers = headers::takes_trailers(headers);
        let upgrade = headers::remove_hop_by_hop(headers);
        let upgrade = upgrade.filter(|to| version == Version::HTTP_11 && !http2 && !headers::is_http_or_tls(to));
        login::strip(headers);
        headers::join_cookies(headers);
        headers::set_forwarded(headers, target, self.access.record.peer.ip(), self.scheme());
        if let Some(hostname) = hostname {
            headers::set_host(headers, hostname);
        }
        headers::change(headers, request_headers);
        if http2 && takes_trailers {
            headers::set_takes_trailers(headers);
        }
        let asks = upgrade.is_some();
        if let Some(protocol) = upgrade {
            headers::set_upgrade(headers, protocol);
        }
        Ok(asks)
    }

    async fn forward(
        &mut self,
        mut request: Request<Incoming>,
        endpoints: &[SocketAddr],
        http2: bool,
        upgrade: bool,
    ) -> Result<Response<Answer>, Outcome> {
        let client = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let upload = Upload::new(body);
        let mut response = self.send(&parts, &upload, endpoints, http2).await?;
        *response.version_mut() = Version::default();
        let agreed = headers::remove_hop_by_hop(response.headers_mut());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response.map(|body| Answer::Backend(body, upload)));
        }
        let protocol = agreed.filter(|_| upgrade).ok_or(Outcome::BackendFailed)?;
        headers::set_upgrade(response.headers_mut(), protocol);
        let backend = hyper::upgrade::on(&mut response);
        Ok(response.map(|_| Answer::Tunnel { client, backend }))
    }

    /// The answer of the first endpoint that accepts a connection.
    async fn send(
        &mut self,
        parts: &Parts,
        upload: &Upload,
        endpoints: &[SocketAddr],
        http2: bool,
    ) -> Result<Response<Incoming>, Outcome> {
        for endpoint in endpoints {
            self.access.record.endpoint = Some(*endpoint);
            self.access.load = Some(Box::new(self.connection.shared.loads.add(*endpoint)));
            let request = Request::from_parts(parts.clone(), upload.clone());
            match self.connection.shared.pool.send(*endpoint, request, http2).await {
                Ok(response) => return Ok(response),
                Err(error @ SendError::Connect(_)) => tracing::debug!(%endpoint, ?error, "trying the next endpoint"),
                Err(error @ (SendError::Request(_) | SendError::Exchange(_))) => {
                    tracing::debug!(%endpoint, ?error, "a request failed");
                    return Err(upload.fault().unwrap_or(Outcome::BackendFailed));
                }
            }
        }
        Err(Outcome::Unreachable)
    }

    fn scheme(&self) -> &'static str {
        if self.connection.tls_listener.is_some() { "https" } else { "http" }
    }

    /// Notes what came of it, and hands the record to whatever ends last.
    fn finish(mut self, answer: Result<Response<Answer>, Outcome>) -> Response<Download> {
        let response = answer.unwrap_or_else(|outcome| {
            self.access.record.outcome = outcome;
            answer::refusal(outcome)
        });
        if let Some(request) = &mut self.access.record.request {
            request.status = Some(response.status());
        }
        let Self { connection, access } = self;
        response.map(|answer| match answer {
            Answer::Own(text) => Download::own(text, access),
            Answer::Backend(body, upload) => Download::backend(body, access, upload),
            Answer::Tunnel { client, backend } => {
                let (place, shared) = (connection.place.clone(), connection.shared.clone());
                connection.shared.tasks.spawn(Upgrade { client, backend, access, place, shared }.run());
                Download::upgraded()
            }
        })
    }
}

/// The route that takes the request if it asks for `path`.
fn route_at<'t, B>(path: &str, routes: &'t HttpRoutes, target: &Target, request: &Request<B>) -> Option<&'t HttpRoute> {
    let (query, method, headers) = (request.uri().query(), request.method(), request.headers());
    routes.find(target.host.as_ref(), &HttpRequestHead { path, query, method, headers })
}
