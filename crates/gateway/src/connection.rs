//! One client connection, from accept to end.

use std::sync::Arc;
use std::time::Duration;

use portreeve_table::proxy_protocol::ProxyHeader;
use portreeve_table::{HostMap, Port, TcpRoute, TlsListener, TlsService};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admission::Place;
use crate::backend::Chosen;
use crate::http::HttpConnection;
use crate::observe::{Access, Outcome};
use crate::preface::{Preface, Prefixed};
use crate::shared::{Installed, Shared};
use crate::{backend, http, preface, tls};

/// How long a client that was accepted just before a shutdown has to say what it wants: what it said may be on the way.
pub(crate) const LATE_TIME: Duration = Duration::from_secs(1);

/// Everything that belongs to one connection.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) access: Access,
    /// Given back when nothing of this connection is left, tunnels of upgraded requests included.
    pub(crate) place: Arc<Place>,
    /// Whether it must begin by saying whose connection it is.
    pub(crate) by_proxy: bool,
}

/// What becomes of a TLS connection: all that is needed, and nothing that keeps the table alive.
enum Service {
    Passthrough(Way),
    TerminateTcp(Arc<ServerConfig>, Way),
    TerminateHttp(Arc<ServerConfig>),
}

/// Where a tunnel goes, and how.
struct Way {
    chosen: Chosen,
    idle_timeout: Option<Duration>,
    /// What the backend hears before the client's first byte.
    greeting: Vec<u8>,
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
        let read = self.read_preface(stream, preface::speaks_http2).await;
        if let Err(Outcome::HelloTimeout | Outcome::HelloCutShort | Outcome::Aborted) = &read {
            // Browsers connect before they have anything to ask: that nothing was asked is no news.
            self.access.forget();
        }
        let Greeted { said: http2, stream, .. } = read?;
        http::serve(HttpConnection::new(self), stream, http2).await;
        Ok(())
    }

    async fn serve_tls(&mut self, stream: TcpStream) -> Result<(), Outcome> {
        // Everything but the open tunnel is boxed, so that it adds nothing to what that costs.
        let Some(mut tunnel) = Box::pin(self.begin(stream)).await? else { return Ok(()) };
        let Self { shared, access, .. } = self;
        let (record, idle_timeout) = (&mut access.record, tunnel.idle_timeout);
        shared.tunnels.carry(&mut tunnel.client, &mut tunnel.backend, record, idle_timeout).await
    }

    /// Everything up to an open tunnel; or to the very end, where TLS ends here.
    async fn begin(&mut self, stream: TcpStream) -> Result<Option<OpenTunnel>, Outcome> {
        let Greeted { said: server_name, stream, header } = self.read_preface(stream, preface::server_name).await?;
        self.access.record.server_name = server_name;
        let mut service = self.find_service(&self.shared.installed())?;
        if let Service::Passthrough(way) | Service::TerminateTcp(_, way) = &mut service
            && let Some(version) = way.chosen.options.proxy_protocol
        {
            way.greeting = self.greeting(header, &stream).encode(version);
        }
        match service {
            Service::Passthrough(way) => {
                self.place.settle();
                let (backend, idle_timeout) = (self.connect(&way).await?, way.idle_timeout);
                Ok(Some(OpenTunnel { client: stream, backend, idle_timeout }))
            }
            Service::TerminateTcp(config, way) => {
                self.terminate_tcp(stream, config, way).await?;
                Ok(None)
            }
            Service::TerminateHttp(config) => {
                self.terminate_http(stream, config).await?;
                Ok(None)
            }
        }
    }

    /// Reads the first bytes, for at most the time that a client has to say what it wants, and hardly beyond the start of a
    /// shutdown; a proxy's header takes its time from the same.
    async fn read_preface<T>(
        &mut self,
        stream: TcpStream,
        parse: fn(&[u8]) -> preface::Progress<T>,
    ) -> Result<Greeted<T>, Outcome> {
        let Self { shared, access, place, by_proxy } = self;
        let reading = async {
            let mut preface = Preface::new(stream);
            let header = if *by_proxy { Some(preface.read_proxy_header().await?) } else { None };
            if let Some(header) = &header {
                access.record.peer = header.addresses.map_or(access.record.peer, |(source, _)| source);
                place.count_for(access.record.peer.ip()).map_err(Outcome::Shed)?;
            }
            let said = preface.read(parse).await?;
            Ok(Greeted { said, stream: preface.into_stream(), header: header.map(Box::new) })
        };
        tokio::select! {
            read = timeout(shared.settings.hello_timeout, reading) => read.unwrap_or(Err(Outcome::HelloTimeout)),
            () = shared.tasks.drained_for(LATE_TIME) => Err(Outcome::Aborted),
        }
    }

    /// What the backend is told of the client: what a proxy said, or what the connection itself says.
    fn greeting(&self, header: Option<Box<ProxyHeader>>, stream: &Prefixed<TcpStream>) -> ProxyHeader {
        let mut header = header.map(|header| *header).unwrap_or_default();
        let own = || Some((self.access.record.peer, stream.local_addr().ok()?));
        header.addresses = header.addresses.or_else(own);
        header
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
            TlsService::Passthrough(routes) => Ok(Service::Passthrough(self.find_way(listener, routes)?)),
            TlsService::TerminateTcp { routes, .. } => {
                Ok(Service::TerminateTcp(installed.tls.find(&listener.id)?, self.find_way(listener, routes)?))
            }
            TlsService::TerminateHttp { .. } => Ok(Service::TerminateHttp(installed.tls.find(&listener.id)?)),
        }
    }

    fn find_way(&mut self, listener: &TlsListener, routes: &HostMap<TcpRoute>) -> Result<Way, Outcome> {
        let record = &mut self.access.record;
        let route = routes.find(record.server_name.as_ref()).ok_or(Outcome::NoRoute)?;
        record.route = Some(route.id.clone());
        let chosen = backend::choose(&self.shared, &route.backends, record)?;
        Ok(Way { chosen, idle_timeout: listener.idle_timeout, greeting: Vec::new() })
    }

    async fn terminate_tcp(
        &mut self,
        stream: Prefixed<TcpStream>,
        config: Arc<ServerConfig>,
        way: Way,
    ) -> Result<(), Outcome> {
        let mut client = tls::accept(config, stream, self.shared.settings.handshake_timeout).await?;
        self.place.settle();
        let mut backend = self.connect(&way).await?;
        let Self { shared, access, .. } = self;
        shared.tunnels.carry(&mut client, &mut backend, &mut access.record, way.idle_timeout).await
    }

    async fn terminate_http(&mut self, stream: Prefixed<TcpStream>, config: Arc<ServerConfig>) -> Result<(), Outcome> {
        let stream = tls::accept(config, stream, self.shared.settings.handshake_timeout).await?;
        let http2 = tls::chose_http2(&stream);
        http::serve(HttpConnection::new(self), stream, http2).await;
        Ok(())
    }

    /// A connection to the backend, which knows whose it is where it wants to.
    async fn connect(&mut self, way: &Way) -> Result<TcpStream, Outcome> {
        let Self { shared, access, .. } = self;
        let mut backend = backend::connect(shared, &way.chosen.endpoints, access).await?;
        backend.write_all(&way.greeting).await.map_err(|_| Outcome::BackendFailed)?;
        access.tunnel_opened();
        Ok(backend)
    }
}

/// TLS that is not touched, on its way.
struct OpenTunnel {
    client: Prefixed<TcpStream>,
    backend: TcpStream,
    idle_timeout: Option<Duration>,
}

/// A connection whose first bytes were understood.
struct Greeted<T> {
    said: T,
    stream: Prefixed<TcpStream>,
    /// Boxed, as few have one.
    header: Option<Box<ProxyHeader>>,
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
