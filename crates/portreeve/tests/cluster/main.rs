//! End to end in a cluster: the real operator, the real API server, cert-manager and Envoy Gateway, real clients.

mod contract;
mod definitions;
mod disruption;
mod support;
mod trouble;
