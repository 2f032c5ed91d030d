//! Many owners on a real API server, with the operator as a process of its own: what `bench operator` measures, and what
//! `soak` runs for longer.

mod apps;
mod create;
mod limit;
mod owners;
mod platform;
mod process;
mod requests;
mod stub;
mod tenants;

pub(crate) use apps::Apps;
pub(crate) use create::{create_all, create_through, delete};
pub(crate) use limit::limit;
pub(crate) use owners::Owners;
pub(crate) use platform::{Gateway, Platform, build_operator};
pub(crate) use process::{Usage, usage};
pub(crate) use requests::{Writes, writes};
pub(crate) use tenants::{TENANTS, TenantPlatform, shard_names, tenant_name, tenants, tenants_on};
