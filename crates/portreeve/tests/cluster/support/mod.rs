//! The operator, the platform that it runs on, and the teams whose apps it serves.

mod browser;
mod chromium;
pub(crate) mod dask;
mod exported;
mod intruder;
mod operator;
mod platform;
pub(crate) mod release;
mod scenarios;
mod team;
pub(crate) mod tenants;

pub(crate) use browser::{Browser, Page};
pub(crate) use chromium::Chromium;
pub(crate) use exported::{exported, policy_verdicts};
pub(crate) use intruder::Intruder;
pub(crate) use operator::Operator;
pub(crate) use platform::{ISSUER, Platform, issuer};
pub(crate) use scenarios::{say, side_by_side};
pub(crate) use team::{Expected, PORT, TLS_PORT, Team, WAY, has, message};

/// API version of NebariApp.
pub(crate) const NEBARI: &str = "reconcilers.nebari.dev/v1";

/// API version of Gateway, ListenerSet, HTTPRoute and TLSRoute.
pub(crate) const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";

/// API version of SecurityPolicy.
pub(crate) const ENVOY_GATEWAY: &str = "gateway.envoyproxy.io/v1alpha1";

/// API version of Certificate and ClusterIssuer.
pub(crate) const CERTIFICATES: &str = "cert-manager.io/v1";
