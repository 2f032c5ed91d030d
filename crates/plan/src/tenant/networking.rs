//! The names of a tenant's apps as objects, and what closes its namespace.

use std::collections::BTreeSet;

use portreeve_api::names::{labels, tenant as derived};
use portreeve_names::HostPattern;
use serde_json::{Value, json};

use super::render::Rendering;
use super::{TenantCase, dns, entries, isolation, moving, shards};
use crate::body::{
    self, ADMIN_NETWORK_POLICY_V1ALPHA1, CERTIFICATE_V1, CLUSTER_NETWORK_POLICY_V1ALPHA2, DNS_ENDPOINT_V1ALPHA1,
    GATEWAY_API_V1, Metadata, NETWORK_POLICY_V1,
};
use crate::claim::GatewayName;
use crate::condition::Reason;
use crate::gateway::HTTPS_PORT;
use crate::object::{Key, Kind};
use crate::tenancy::{Placement, TenantApps, TenantIsolation};

impl<'a> Rendering<'_, '_, 'a> {
    /// The certificate is written before the listener that shows it. All apps Gateways are in one namespace, so it is
    /// the same on each.
    pub(super) fn apps(
        &mut self,
        apps: &TenantApps,
        case: &TenantCase<'a>,
        home: &GatewayName,
        second: Option<&GatewayName>,
    ) {
        let domain = derived::apps_domain(self.tenant.name, &apps.domain);
        let Ok(hosts) = HostPattern::parse(&domain) else { return };
        let is_coming = apps.placement == Placement::Gateway && shards::is_made_by_us(apps, home);
        if !self.view.world.served.certificates || self.view.gateway(home).is_none() && !is_coming {
            return;
        }
        let secret = derived::apps_certificate(self.tenant.name);
        let certificate = Key::new(Kind::Certificate, &apps.gateway_namespace, secret.as_str());
        let mut spec = body::certificate(&secret, &domain, &apps.cluster_issuer);
        // By these the Secret is found when the tenant goes: issuers leave it where it is.
        spec["secretTemplate"] = json!({ "labels": labels::of_tenant(self.tenant.name) });
        if !self.add(certificate.clone(), body::object(&certificate, CERTIFICATE_V1, self.metadata(), spec)) {
            return;
        }
        let listener = derived::apps_listener(self.tenant.name);
        let entry = body::https_listener(&listener, &hosts, HTTPS_PORT, &secret, self.allowed_routes());
        match apps.placement {
            Placement::Gateway => {
                self.entry(home, &entry, true);
                if let Some(second) = second {
                    self.entry(second, &entry, false);
                }
            }
            Placement::ListenerSet => self.listener_set(apps, home, entry),
        }
        self.record(apps, case, home);
        if let Some(second) = second {
            self.copies(apps, case, [home, second]);
        }
    }

    /// Not one that the API server refuses, nor one that somebody takes away again and again.
    fn entry(&mut self, gateway: &GatewayName, entry: &Value, is_home: bool) {
        let section = derived::apps_listener(self.tenant.name);
        let rejected = self.view.world.rejected_entries.get(&(gateway.clone(), section.clone()));
        let mut withheld = rejected.map(|why| {
            Reason::ListenerRejected
                .because(format!("the API server refuses listener {section} on Gateway {gateway}: {why}"))
        });
        if is_home && withheld.is_none() {
            let overwritten = entries::overwritten(self.view, self.tenant, gateway);
            withheld = overwritten.as_ref().filter(|one| one.waits(self.view)).map(entries::Overwritten::finding);
            self.rendered.overwritten = overwritten;
        }
        match withheld {
            Some(finding) if is_home => self.rendered.withheld = Some(finding),
            Some(_) => {}
            None => self.rendered.entries.push((gateway.clone(), entry.clone())),
        }
    }

    fn listener_set(&mut self, apps: &TenantApps, gateway: &GatewayName, entry: Value) {
        if !self.view.world.served.listener_sets {
            return;
        }
        let key = Key::new(Kind::ListenerSet, &apps.gateway_namespace, derived::apps_listener(self.tenant.name));
        let spec = body::listener_set(gateway, vec![entry]);
        if self.add(key.clone(), body::object(&key, GATEWAY_API_V1, self.metadata(), spec)) {
            self.rendered.listener_set = Some(key);
        }
    }

    /// Where the addresses are those of the first Gateway, the platform's wildcard leads there; but not while the tenant
    /// moves, since whoever follows the one must not be left to the other.
    fn record(&mut self, apps: &TenantApps, case: &TenantCase<'_>, home: &GatewayName) {
        let moving = case.moving.as_ref().and_then(|moving| moving.as_ref().ok());
        let leads_to = moving.map_or(home, |moving| &moving.dns);
        let addresses = dns::addresses(self.view, leads_to);
        let is_followed =
            moving.is_some_and(|moving| *leads_to != *home || dns::addresses(self.view, &moving.other) != addresses);
        let differs = addresses != dns::addresses(self.view, &apps.gateway());
        if addresses.is_empty() || !(differs || is_followed) {
            return;
        }
        self.rendered.needs_record = true;
        if !self.view.world.served.dns_endpoints {
            return;
        }
        let key = dns::key(apps, self.tenant.name);
        let (spec, annotations) = dns::record(self.view, apps, self.tenant.name, &addresses);
        let metadata = Metadata { annotations, ..self.metadata() };
        self.add(key.clone(), body::object(&key, DNS_ENDPOINT_V1ALPHA1, metadata, spec));
    }

    /// Copies of the tenant's routes, once its listener is on both Gateways.
    fn copies(&mut self, apps: &TenantApps, case: &TenantCase<'_>, mut gateways: [&GatewayName; 2]) {
        let section = derived::apps_listener(self.tenant.name);
        let has_listener =
            |gateway: &GatewayName| self.view.gateway(gateway).is_some_and(|found| found.section(&section).is_some());
        let moving = case.moving.as_ref().and_then(|moving| moving.as_ref().ok());
        let Some(moving) = moving.filter(|_| gateways.into_iter().all(has_listener)) else { return };
        // So that a copy does not change when the one becomes the other.
        gateways.sort();
        for original in moving::routes_on(self.view, &self.tenant.namespace, &gateways) {
            let name = moving::copy_name(original);
            let live = self.view.http_route(&self.tenant.namespace, &name);
            let comes_first = moving::comes_first(self.view, moving.copies, live, gateways);
            let Some(spec) = moving::copy(original, self.tenant.name, apps, gateways, comes_first) else { continue };
            let key = Key::new(Kind::HttpRoute, &self.tenant.namespace, name);
            let precedence = if comes_first { "first" } else { "last" };
            let annotations = [(labels::PRECEDENCE.to_owned(), precedence.to_owned())].into();
            let metadata = Metadata { annotations, ..self.metadata() };
            self.add(key.clone(), body::object(&key, GATEWAY_API_V1, metadata, spec));
        }
    }

    /// Routes of the tenant's one namespace: its tenant label alone could be copied to another, its name cannot.
    fn allowed_routes(&self) -> Value {
        json!({
            "namespaces": {
                "from": "Selector",
                "selector": { "matchLabels": {
                    labels::TENANT: self.tenant.name,
                    labels::NAMESPACE_NAME: self.tenant.namespace,
                } },
            },
        })
    }

    /// The policies of the tenant's namespace.
    pub(super) fn isolation(&mut self, config: &TenantIsolation, case: &TenantCase<'_>) {
        if config.except.iter().any(|name| name == self.tenant.name) {
            return;
        }
        let cases = [&case.api, &case.apps, &case.second].into_iter().flatten();
        let gateways: BTreeSet<GatewayName> = cases.map(|name| name.gateway.clone()).collect();
        let isolation =
            isolation::Isolation { view: self.view, config, tenant: self.tenant, gateways, shards: self.shards };
        let all = (derived::ISOLATION_POLICY, Some(isolation.of_all()));
        let control_plane = (derived::CONTROL_PLANE_POLICY, isolation.of_control_plane());
        let kind = isolation::administrators_kind(self.view);
        let cluster_wide = kind.map(|kind| (kind, isolation.of_administrator(kind)));
        for (name, spec) in [all, control_plane] {
            if let Some(spec) = spec {
                let key = Key::new(Kind::NetworkPolicy, &self.tenant.namespace, name);
                self.add(key.clone(), body::object(&key, NETWORK_POLICY_V1, self.metadata(), spec));
            }
        }
        let Some((kind, policies)) = cluster_wide else { return };
        let api_version = match kind {
            Kind::ClusterNetworkPolicy => CLUSTER_NETWORK_POLICY_V1ALPHA2,
            _ => ADMIN_NETWORK_POLICY_V1ALPHA1,
        };
        for (name, spec) in policies {
            let key = Key::new(kind, "", name);
            self.add(key.clone(), body::object(&key, api_version, self.metadata(), spec));
        }
    }
}
