//! One client connection, from accept to end.

use std::net::SocketAddr;
use std::sync::Arc;

use portreeve_table::{HostMap, Port, TcpRoute, TlsService};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::http::HttpConnection;
use crate::observe::{Access, Outcome};
use crate::preface::Prefixed;
use crate::shared::{Installed, Shared};
use crate::tunnel::Side;
use crate::{backend, http, preface, tls, tunnel};

/// Everything that belongs to one connection.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) access: Access,
    /// Given back when nothing of this connection is left, tunnels of upgraded requests included.
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
}

/// What becomes of a TLS connection: all that is needed, and nothing that keeps the table alive.
enum Service {
    Passthrough(Vec<SocketAddr>),
    TerminateTcp(Arc<ServerConfig>, Vec<SocketAddr>),
    TerminateHttp(Arc<ServerConfig>),
}

impl Connection {
    /// Serves the connection to its end. What is not served is closed without a word.
    pub(crate) async fn serve(mut self, stream: TcpStream) {
        let result = match self.speaks_tls() {
            Some(true) => self.serve_tls(stream).await,
            Some(false) => Box::pin(self.serve_plain_http(stream)).await,
            None => Err(Outcome::UnknownName),
        };
        self.access.record.outcome = result.err().unwrap_or(Outcome::Served);
    }

    /// `None` if the port left the table after the connection was accepted.
    fn speaks_tls(&self) -> Option<bool> {
        let installed = self.shared.installed();
        installed.table.ports.get(&self.access.record.port).map(|port| matches!(port, Port::Tls(_)))
    }

    async fn serve_plain_http(&mut self, stream: TcpStream) -> Result<(), Outcome> {
        let connection = HttpConnection::new(self);
        let (http2, stream) = self.read_preface(stream, preface::speaks_http2).await?;
        http::serve(connection, stream, http2).await;
        Ok(())
    }

    async fn serve_tls(&mut self, stream: TcpStream) -> Result<(), Outcome> {
        let (server_name, stream) = self.read_preface(stream, preface::server_name).await?;
        self.access.record.server_name = server_name;
        let service = self.find_service(&self.shared.installed())?;
        // Where TLS ends is boxed, so that it adds nothing to what an untouched tunnel costs.
        match service {
            Service::Passthrough(endpoints) => self.tunnel(stream, &endpoints).await,
            Service::TerminateTcp(config, endpoints) => Box::pin(self.terminate_tcp(stream, config, endpoints)).await,
            Service::TerminateHttp(config) => Box::pin(self.terminate_http(stream, config)).await,
        }
    }

    async fn read_preface<T>(
        &self,
        stream: TcpStream,
        parse: fn(&[u8]) -> preface::Progress<T>,
    ) -> Result<(T, Prefixed<TcpStream>), Outcome> {
        let Shared { settings, tasks, .. } = &*self.shared;
        preface::read(stream, parse, settings.hello_timeout, &tasks.draining).await
    }

    /// The most specific listener takes the name, and only its own routes count (GEP-2643).
    fn find_service(&mut self, installed: &Installed) -> Result<Service, Outcome> {
        let record = &mut self.access.record;
        let Some(Port::Tls(listeners)) = installed.table.ports.get(&record.port) else {
            return Err(Outcome::UnknownName);
        };
        let nobody = if record.server_name.is_some() { Outcome::UnknownName } else { Outcome::NoServerName };
        let listener = listeners.find(record.server_name.as_ref()).ok_or(nobody)?;
        record.listener = Some(listener.id.clone());
        match &listener.service {
            TlsService::Passthrough(routes) => Ok(Service::Passthrough(self.find_endpoints(routes)?)),
            TlsService::TerminateTcp { routes, .. } => {
                Ok(Service::TerminateTcp(installed.tls.find(&listener.id)?, self.find_endpoints(routes)?))
            }
            TlsService::TerminateHttp { .. } => Ok(Service::TerminateHttp(installed.tls.find(&listener.id)?)),
        }
    }

    fn find_endpoints(&mut self, routes: &HostMap<TcpRoute>) -> Result<Vec<SocketAddr>, Outcome> {
        let record = &mut self.access.record;
        let route = routes.find(record.server_name.as_ref()).ok_or(Outcome::NoRoute)?;
        record.route = Some(route.id.clone());
        backend::choose(&self.shared.turns, &route.backends, record)
    }

    async fn terminate_tcp(
        &mut self,
        stream: Prefixed<TcpStream>,
        config: Arc<ServerConfig>,
        endpoints: Vec<SocketAddr>,
    ) -> Result<(), Outcome> {
        let stream = tls::accept(config, stream, self.shared.settings.handshake_timeout).await?;
        self.tunnel(stream, &endpoints).await
    }

    async fn terminate_http(&mut self, stream: Prefixed<TcpStream>, config: Arc<ServerConfig>) -> Result<(), Outcome> {
        let stream = tls::accept(config, stream, self.shared.settings.handshake_timeout).await?;
        let http2 = tls::chose_http2(&stream);
        http::serve(HttpConnection::new(self), stream, http2).await;
        Ok(())
    }

    async fn tunnel<S>(&mut self, mut client: S, endpoints: &[SocketAddr]) -> Result<(), Outcome>
    where
        S: Side,
    {
        let connect_timeout = self.shared.settings.connect_timeout;
        let mut backend = backend::connect(endpoints, connect_timeout, &mut self.access.record).await?;
        self.access.tunnel_opened();
        let traffic = &mut self.access.record.traffic;
        tunnel::carry(&mut client, &mut backend, traffic).await.map_err(|_| Outcome::Aborted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crate's documentation promises less than 2 KiB; the task around it takes some of that.
    #[test]
    fn an_open_tunnel_is_a_small_task() {
        let size = size_of_output(Connection::serve);
        assert!(size < 1536, "{size}");
    }

    fn size_of_output<F>(_: fn(Connection, TcpStream) -> F) -> usize {
        size_of::<F>()
    }
}
