//! The first bytes of a connection: read under a deadline, understood, and put back.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use portreeve_names::Hostname;
use portreeve_table::client_hello::{self, Hello};
use portreeve_table::proxy_protocol::{self, ProxyHeader, ProxyPreface};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::observe::Outcome;
use crate::tunnel::Side;

/// What every HTTP/2 connection starts with (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How much is asked of the socket at once; a usual ClientHello fits.
const READ_LEN: usize = 2048;

/// A stream whose first bytes were read already and are given again.
pub(crate) struct Prefixed<S> {
    prefix: Bytes,
    stream: S,
}

/// What the parsers below say: the value or why there is none, or how many more bytes they need at least.
pub(crate) type Progress<T> = ControlFlow<Result<T, Outcome>, usize>;

/// The server name that a TLS client asks for.
pub(crate) fn server_name(bytes: &[u8]) -> Progress<Option<Hostname>> {
    match client_hello::server_name(bytes) {
        Ok(Hello::Complete { server_name }) => ControlFlow::Break(Ok(server_name)),
        Ok(Hello::Incomplete { missing }) => ControlFlow::Continue(missing),
        Err(fault) => ControlFlow::Break(Err(Outcome::InvalidHello(fault))),
    }
}

/// Whether a client without TLS starts with HTTP/2 at once ("prior knowledge").
pub(crate) fn speaks_http2(bytes: &[u8]) -> Progress<bool> {
    if bytes.starts_with(HTTP2_PREFACE) {
        ControlFlow::Break(Ok(true))
    } else if HTTP2_PREFACE.starts_with(bytes) {
        ControlFlow::Continue(HTTP2_PREFACE.len() - bytes.len())
    } else {
        ControlFlow::Break(Ok(false))
    }
}

/// The first bytes of a connection, as far as they have come.
pub(crate) struct Preface {
    stream: TcpStream,
    bytes: BytesMut,
}

impl Preface {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: BytesMut::new() }
    }

    /// Reads until `parse` has its value; what it says is needed is waited for, and nothing is taken out.
    pub(crate) async fn read<T>(&mut self, parse: fn(&[u8]) -> Progress<T>) -> Result<T, Outcome> {
        let Self { stream, bytes } = self;
        // What is already here may be enough, but not before there is anything.
        let mut wanted = bytes.len().max(1);
        loop {
            while bytes.len() < wanted {
                bytes.reserve(READ_LEN.max(wanted - bytes.len()));
                if stream.read_buf(bytes).await.map_err(|_| Outcome::HelloCutShort)? == 0 {
                    return Err(Outcome::HelloCutShort);
                }
            }
            match parse(bytes) {
                ControlFlow::Break(value) => return value,
                ControlFlow::Continue(missing) => wanted = bytes.len() + missing,
            }
        }
    }

    /// Takes out the PROXY protocol header with which a proxy must begin.
    pub(crate) async fn read_proxy_header(&mut self) -> Result<ProxyHeader, Outcome> {
        let (header, len) = self.read(proxy_header).await?;
        self.bytes.advance(len);
        Ok(header)
    }

    /// The connection as if nothing had been read but what was taken out.
    pub(crate) fn into_stream(self) -> Prefixed<TcpStream> {
        Prefixed { prefix: self.bytes.freeze(), stream: self.stream }
    }
}

fn proxy_header(bytes: &[u8]) -> Progress<(ProxyHeader, usize)> {
    match proxy_protocol::parse(bytes) {
        Ok(ProxyPreface::Complete { header, len }) => ControlFlow::Break(Ok((header, len))),
        Ok(ProxyPreface::Incomplete { missing }) => ControlFlow::Continue(missing),
        Err(fault) => ControlFlow::Break(Err(Outcome::InvalidProxyHeader(fault))),
    }
}

impl Side for TlsStream<Prefixed<TcpStream>> {}

impl Side for Prefixed<TcpStream> {
    fn socket(&self) -> Option<&TcpStream> {
        self.prefix.is_empty().then_some(&self.stream)
    }
}

impl Prefixed<TcpStream> {
    /// Where the client's connection ends on this side.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..len]);
        self.prefix.advance(len);
        if self.prefix.is_empty() {
            self.prefix = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
