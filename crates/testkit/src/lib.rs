//! Real parts for tests: etcd, the Kubernetes API server and its controllers, cert-manager, Envoy Gateway and Envoy, Keycloak,
//! each cluster in network namespaces of its own, so that tests run side by side.
//!
//! A [`Bed`] is one cluster. It needs root, for network namespaces; without, and without the programs that
//! `cargo xtask bed` installs, starting one fails and says so: no test is skipped.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use portreeve_testkit::{Bed, Channel, fixtures};
//!
//! let bed = Bed::builder().with_controller_manager().gateway_api(Channel::Standard).start().await?;
//! bed.apply(&fixtures::opted_in_namespace("team")).await?;
//! # Ok(())
//! # }
//! ```

mod bed;
pub mod clients;
mod envoy_gateway;
pub mod fixtures;
pub mod keycloak;
mod kubelet;
mod network;
mod network_policies;
mod objects;
mod operator;
mod part;
mod pki;
pub mod servers;
mod slot;
mod tenant;
pub mod tls;

pub use bed::{Bed, Builder, Channel, Part};
pub use kubelet::Kubelets;
pub use network::Host;
pub use objects::{condition, eventually, shown};
pub use operator::Operator;
pub use part::Running;
pub use tenant::TenantApiServer;
