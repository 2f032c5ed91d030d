//! The embedded gateway: sockets, TLS, HTTP and tunnels, driven by a [`Table`].
//!
//! [`Gateway`] is the one writer: it is given a table and the socket addresses of its ports, and makes it so. A new
//! table serves the next connection and the next HTTP request; what is already open is left alone.
//!
//! ```text
//! accept ── plain HTTP ───────────────────────────────► HTTP ── route per request ──► backend (HTTP/1.1 or h2c)
//!       └─ TLS: read the ClientHello, find the listener
//!              ├─ passthrough ── route by name ───────► tunnel: the bytes as they came ──► backend
//!              ├─ terminate, TCP ── route by name ────► tunnel: what was inside ─────────► backend
//!              ├─ terminate, HTTP ────────────────────► HTTP
//!              └─ nobody's name ──────────────────────► plain close, never a TLS alert
//! ```
//!
//! Where a route demands it, a request goes on only for a visitor who has signed in: see [`portreeve_table::Login`].
//!
//! Everything that ends is reported once to the [`Observer`], with the reason when it was not served.
//!
//! # What an open tunnel costs
//!
//! One task of less than 2 KiB, two sockets, and no buffer while it is idle or keeps up: bytes pass through a buffer
//! that all tunnels of a thread share. Only bytes that one side does not take are kept, at most 64 KiB for each
//! direction. There is no idle timeout unless the listener sets one; TCP keepalive finds dead peers in less than a minute.
//!
//! Room rule: no Kubernetes, no deciding. What the table does not say is not served.
//!
//! [`Table`]: portreeve_table::Table

mod admission;
mod backend;
mod connection;
mod gateway;
mod http;
mod listener;
mod load;
mod login;
mod monitor;
mod observe;
mod preface;
mod settings;
mod shared;
mod tls;
mod tunnel;
mod tunnels;

pub use gateway::Gateway;
pub use listener::BindError;
pub use login::SessionSecret;
pub use monitor::Monitor;
pub use observe::{AccessRecord, Limit, Observer, Outcome, Places, RequestRecord, Traffic};
pub use settings::Settings;
pub use tunnels::OpenTunnel;
