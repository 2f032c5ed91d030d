//! From what people write to what must exist.
//!
//! Room rule: no I/O, no async, no clock, no environment, and never an `Err` for a user's mistake: that is a condition.
//!
//! [`plan`] is a list of steps, each a function of what the ones before have found:
//!
//! 1. *lower*: every NebariApp and Tenant is parsed once and says what it claims;
//! 2. *arbitrate*: all claims side by side, each with a verdict;
//! 3. *render*: what was granted becomes complete objects;
//! 4. *differ*: each is compared as soon as it is made, and kept only if it has to be written;
//! 5. *prune*: what was made earlier and is not wanted any more;
//! 6. *status*: what every owner is told, computed once.

mod absent;
mod acknowledgement;
mod app;
pub mod arbitrate;
mod audit;
mod body;
pub mod claim;
mod condition;
mod contains;
mod contest;
mod departure;
mod dials;
mod differ;
mod docket;
mod examine;
mod gateway;
mod isolation;
mod login;
pub mod merge;
mod object;
mod output;
mod prune;
mod quantity;
mod release;
mod selector;
mod settled;
mod steps;
mod takeover;
mod tenancy;
mod tenant;
mod text;
mod view;
mod wanted;
mod world;

pub use audit::{Fault, audit};
pub use contest::{OpenListener, listeners_open_to_all};
pub use dials::{GatewayPorts, ports_to_dial, remembered_dials, remembered_proofs};
pub use examine::{Advice, Severity, examine};
pub use login::{
    ClientProvision, ClientRemoval, Keycloak, Login, ProvidedClient, ProvidedGroup, ProvisionReport, RemovalReport,
};
pub use output::{
    ApiServerDial, Apply, Event, FIELD_MANAGER, ObjectRef, Patch, Plan, ReleaseAction, ReleaseStep, SecretCopy,
    StatusWrite, Takeover, VALUES_LABEL,
};
pub use steps::plan;
pub use tenancy::{DialResult, DnsServers, GatewayTemplate, Placement, TenantApi, TenantApps, TenantIsolation};
pub use world::{
    Absent, Config, DataPlane, EnvoyGatewayVersion, FluxCharts, LegacyListeners, Provisioner, Served, TlsRouteVersion,
    Unreadable, World, Zone,
};
