//! From what people write to what must exist.
//!
//! Room rule: no I/O, no async, no clock, no environment, and never an `Err` for a user's mistake: that is a condition.

pub mod arbitrate;
pub mod claim;
pub mod merge;
mod output;
mod world;

pub use output::{Apply, Event, FIELD_MANAGER, ObjectRef, Plan, StatusWrite};
pub use world::{Config, Served, TenantApi, TenantApps, TlsRouteVersion, World, Zone};

/// Decides everything; the same world always gives the same plan.
pub fn plan(_world: &World) -> Plan {
    Plan::default()
}
