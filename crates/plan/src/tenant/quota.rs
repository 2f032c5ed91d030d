//! What a tenant may use: its ResourceQuota, and the LimitRange without which pods that say nothing would not be admitted.

use std::collections::BTreeMap;

use portreeve_api::names::tenant as derived;
use portreeve_api::tenant::TenantResources;
use serde_json::{Value, json};

use super::render::Rendering;
use crate::body;
use crate::condition::Reason;
use crate::object::{Key, Kind};
use crate::quantity;
use crate::world::Provisioner;

/// What limits a tenant.
pub(super) const LIMITS: [Kind; 2] = [Kind::ResourceQuota, Kind::LimitRange];

/// `spec.hard` of a ResourceQuota; empty: no quota.
type Hard = BTreeMap<&'static str, String>;

impl Rendering<'_, '_, '_> {
    /// Wants the quota and the limits. False when they cannot be had: no virtual cluster is made without them, and what is
    /// there stays.
    pub(super) fn limits(&mut self) -> bool {
        if self.view.world.config.provisioner == Provisioner::Nobody {
            return true;
        }
        let fault = match hard_limits(self.tenant.source.spec.resources.as_ref()) {
            Ok(hard) => self.quota(&hard),
            Err(fault) => {
                self.keep(&LIMITS);
                Some(format!("ensuring resource quota: {fault}"))
            }
        };
        self.rendered.quota = fault.map(|fault| Reason::QuotaFailed.because(fault));
        self.rendered.quota.is_none()
    }

    fn quota(&mut self, hard: &Hard) -> Option<String> {
        let (quota, limits) = self.limit_keys();
        let needs_defaults = hard.contains_key("limits.cpu") || hard.contains_key("limits.memory");
        if !hard.is_empty() {
            let body = body::object(&quota, "v1", self.metadata(), json!({ "hard": hard }));
            if !self.add(quota, body) {
                return self
                    .rendered
                    .blocked(Kind::ResourceQuota)
                    .map(|foreign| failed("resource quota", &foreign.message));
            }
        }
        if needs_defaults {
            let body = body::object(&limits, "v1", self.metadata(), defaults());
            if !self.add(limits, body) {
                return self.rendered.blocked(Kind::LimitRange).map(|foreign| failed("limit range", &foreign.message));
            }
        }
        None
    }

    fn limit_keys(&self) -> (Key, Key) {
        let Self { tenant, .. } = self;
        let key = |kind, name| Key::new(kind, &tenant.namespace, name);
        (
            key(Kind::ResourceQuota, derived::resource_quota(tenant.name)),
            key(Kind::LimitRange, derived::limit_range(tenant.name)),
        )
    }
}

fn failed(what: &str, why: &str) -> String {
    format!("ensuring {what}: {why}")
}

/// Quantities are written as the API server stores them.
fn hard_limits(resources: Option<&TenantResources>) -> Result<Hard, String> {
    let Some(TenantResources { cpu, memory, storage }) = resources else { return Ok(Hard::new()) };
    let fields: [(&str, &Option<String>, &[&'static str]); 3] = [
        ("cpu", cpu, &["requests.cpu", "limits.cpu"]),
        ("memory", memory, &["requests.memory", "limits.memory"]),
        ("storage", storage, &["requests.storage"]),
    ];
    let mut hard = Hard::new();
    for (field, text, names) in fields {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { continue };
        let quantity =
            quantity::canonical(text).map_err(|fault| format!("invalid spec.resources.{field} {text:?}: {fault}"))?;
        hard.extend(names.iter().map(|name| (*name, quantity.clone())));
    }
    Ok(hard)
}

/// `spec` of the LimitRange.
fn defaults() -> Value {
    json!({ "limits": [{
        "type": "Container",
        "default": { "cpu": "1", "memory": "1Gi" },
        "defaultRequest": { "cpu": "100m", "memory": "128Mi" },
    }] })
}
