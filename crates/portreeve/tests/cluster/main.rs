//! End to end in a cluster: the real operator, the real API server, cert-manager and Envoy Gateway, real clients.

mod definitions;
mod support;
