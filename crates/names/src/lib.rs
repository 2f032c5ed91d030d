//! Host names, name patterns and their algebra.
//!
//! Everything that asks "is this the same name?", "does this wildcard cover that?" or "what do a listener and a
//! route have in common?" asks it here, so that planning, Gateway API semantics and the byte path cannot disagree.
//!
//! Room rule: values in, values out. No Kubernetes, no sockets, no I/O.

mod hostname;
mod pattern;
mod sni_pattern;

pub use hostname::{Hostname, InvalidHostname, MAX_HOSTNAME_LEN, MAX_LABEL_LEN, is_dns_label};
pub use pattern::HostPattern;
pub use sni_pattern::{InvalidSniHostname, SNI_PATTERNS_ANNOTATION, SniHostname, SniPattern};
