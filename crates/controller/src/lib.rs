//! The cluster shell: what is known of a cluster goes into the planner, and what the planner says is written.
//!
//! Room rule: it decides nothing. What is wanted, refused or told comes from [`portreeve_plan::plan`]; here is only how the
//! cluster is read and written, and when.
//!
//! Read `engine` first: it is the loop. `reflect` is what is known, `gather` makes it what decisions read, `execute` writes,
//! `releases` runs the Helm client, `lease` says who may, `dial` connects to what is served, and `admin` answers those who run
//! it.

mod admin;
pub mod dial;
mod engine;
mod execute;
mod gather;
mod inspect;
mod jitter;
pub mod lease;
mod permissions;
mod provider;
mod reflect;
mod releases;
mod run;
mod snapshot;
mod tasks;
mod text;

pub use admin::{CertificateSource, NoCertificate};
pub use engine::EngineError;
pub use inspect::{Held, Inspection, inspect};
pub use permissions::{Duties, Rule, cluster_rules, helm_rules, lease_rules, metrics_rules};
pub use provider::{KeycloakAdmin, examine_keycloak};
pub use reflect::kind;
pub use releases::{ApiServerAddress, HelmSettings};
pub use run::{Fault, MetricsServer, Settings, run};
pub use snapshot::{Circumstances, Snapshot, snapshot};
pub use tasks::TaskEnded;
