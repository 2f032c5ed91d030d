//! One request and its answer.

use std::convert::Infallible;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use portreeve_table::{
    HeaderChange, HttpFilters, HttpRequestHead, HttpRoute, HttpRoutes, Port, Redirect, Table, TlsService,
};

use crate::backend;
use crate::http::answer::{self, Answer};
use crate::http::body::{Download, Upload};
use crate::http::pool::SendError;
use crate::http::target::Target;
use crate::http::upgrade::Upgrade;
use crate::http::{HttpConnection, headers};
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
    step: Step,
    response_headers: Vec<HeaderChange>,
}

enum Step {
    /// The route's own filter answers.
    Answer(Response<Answer>),
    Forward {
        /// In the order in which to try them.
        endpoints: Vec<SocketAddr>,
        /// Whether the backend may agree to an upgrade.
        upgrade: bool,
    },
}

impl Exchange<'_> {
    /// The steps of a request, up to the head of its answer.
    async fn run(&mut self, target: &Target, mut request: Request<Incoming>) -> Result<Response<Answer>, Outcome> {
        let Way { step, response_headers } = self.find_way(target, &mut request)?;
        let mut response = match step {
            Step::Answer(response) => response,
            Step::Forward { endpoints, upgrade } => self.forward(request, &endpoints, upgrade).await?,
        };
        headers::change(response.headers_mut(), &response_headers);
        Ok(response)
    }

    /// Everything that the table says, done; the request is then ready to go on.
    fn find_way(&mut self, target: &Target, request: &mut Request<Incoming>) -> Result<Way, Outcome> {
        let installed = self.connection.shared.installed();
        let routes = self.find_listener(&installed.table, target)?;
        let route = self.find_route(routes, target, request)?;
        let step = if let Some(redirect) = &route.filters.redirect {
            Step::Answer(self.redirect(redirect, target, request)?)
        } else {
            let turns = &self.connection.shared.turns;
            let endpoints = backend::choose(turns, &route.backends, &mut self.access.record)?;
            let upgrade = self.prepare(request, target, &route.filters);
            Step::Forward { endpoints, upgrade }
        };
        Ok(Way { step, response_headers: route.filters.response_headers.clone() })
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
        let head = HttpRequestHead {
            path: request.uri().path(),
            query: request.uri().query(),
            method: request.method(),
            headers: request.headers(),
        };
        let route = routes.find(target.host.as_ref(), &head).ok_or(Outcome::NoRoute)?;
        self.access.record.route = Some(route.id.clone());
        Ok(route)
    }

    fn redirect<B>(
        &mut self,
        redirect: &Redirect,
        target: &Target,
        request: &Request<B>,
    ) -> Result<Response<Answer>, Outcome> {
        let port = self.access.record.port.port;
        let location = answer::location(redirect, target, request.uri(), self.scheme(), port);
        let answer = answer::redirect(location.ok_or(Outcome::BadRequest)?, redirect.status);
        self.access.record.outcome = Outcome::Served;
        Ok(answer)
    }

    /// Makes the request ready for the backend; says whether it still asks for an upgrade.
    fn prepare<B>(&self, request: &mut Request<B>, target: &Target, filters: &HttpFilters) -> bool {
        let version = mem::replace(request.version_mut(), Version::HTTP_11);
        let headers = request.headers_mut();
        // What the client says about its connection goes first, so that it cannot remove what is said here.
        let upgrade = headers::remove_hop_by_hop(headers);
        let upgrade = upgrade.filter(|to| version == Version::HTTP_11 && !headers::is_http_or_tls(to));
        headers::join_cookies(headers);
        headers::set_forwarded(headers, target, self.access.record.peer.ip(), self.scheme());
        headers::change(headers, &filters.request_headers);
        let asks = upgrade.is_some();
        if let Some(protocol) = upgrade {
            headers::set_upgrade(headers, protocol);
        }
        asks
    }

    async fn forward(
        &mut self,
        mut request: Request<Incoming>,
        endpoints: &[SocketAddr],
        upgrade: bool,
    ) -> Result<Response<Answer>, Outcome> {
        let client = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let upload = Upload::new(body);
        let mut response = self.send(&parts, &upload, endpoints).await?;
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
    ) -> Result<Response<Incoming>, Outcome> {
        for endpoint in endpoints {
            self.access.record.endpoint = Some(*endpoint);
            let request = Request::from_parts(parts.clone(), upload.clone());
            match self.connection.shared.pool.send(*endpoint, request).await {
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
                let permit = connection.permit.clone();
                connection.shared.tasks.spawn(Upgrade { client, backend, access, permit }.run());
                Download::upgraded()
            }
        })
    }
}
