//! The routing table: what is served on which socket, and how a name or a request finds its way.
//!
//! A [`Table`] is a finished answer: every rule of precedence has been applied when it is built, so serving is
//! look-ups only. It is immutable; a change is a new table.
//!
//! Room rule: no Kubernetes, no sockets, no I/O. Identities are opaque text that the maker of the table chose; they
//! only come out again in logs and explanations.

mod address_block;
mod backend;
mod certificate;
pub mod client_hello;
mod host_map;
mod http_route;
mod listener;
mod login;
pub mod proxy_protocol;

pub use address_block::{AddressBlock, InvalidAddressBlock};
pub use backend::{Backend, BackendFault, BackendOptions, Backends, Balance, Choice};
pub use certificate::{InvalidKeyPair, KeyPair};
pub use host_map::HostMap;
pub use http_route::{
    HeaderChange, HttpFilters, HttpMatch, HttpRequestHead, HttpRoute, HttpRoutes, PathChange, PathMatch, Redirect,
};
pub use listener::{HttpListener, ListenerId, Port, PortKey, RouteId, Table, TcpRoute, TlsListener, TlsService};
pub use login::{Callback, ClaimCheck, HeaderCheck, HeaderValueCheck, Login, Provider, Secret, whole};
