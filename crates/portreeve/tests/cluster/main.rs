//! End to end in a cluster: the real operator, the real API server, cert-manager and Envoy Gateway, real clients.

mod chart;
mod client;
mod commands;
mod contract;
mod dask;
mod definitions;
mod disruption;
mod login;
mod login_provider;
mod login_standalone;
mod login_takeover;
mod migration;
mod network_policies;
mod support;
mod tenants;
mod tenants_flux;
mod tenants_gitops;
mod tenants_isolation;
mod tenants_moving;
mod tenants_provisioning;
mod tenants_sharding;
mod trouble;
