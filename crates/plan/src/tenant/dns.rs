//! DNS follows the shard: a record of a tenant's own where its Gateway has other addresses than the first, to which the
//! platform's wildcard leads.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use portreeve_api::DnsEndpoint;
use portreeve_api::names::{labels, tenant as derived};
use serde_json::{Value, json};

use crate::claim::GatewayName;
use crate::condition::{Finding, Reason};
use crate::gateway::SharedGateway;
use crate::object::{Key, Kind};
use crate::tenancy::TenantApps;
use crate::view::View;

/// How long external-dns may take between reading a record and telling the DNS server.
const PROPAGATION: SignedDuration = SignedDuration::from_secs(60);
/// [`TenantApps::dns_ttl`] where it is not given.
const TTL: u32 = 300;

/// A tenant's record as it is, in view of where it should lead.
pub(super) enum Published {
    /// It leads elsewhere, or external-dns has not taken it in.
    NotYet,
    /// External-dns has taken it in; when it did is noted by the next write.
    Now,
    /// Resolvers may still have the one before, until then.
    Until(Timestamp),
    /// Nobody has another one any more.
    Everywhere,
}

/// Where clients reach a Gateway, in order.
pub(super) fn addresses(view: &View<'_>, gateway: &GatewayName) -> Vec<String> {
    let mut addresses = view.gateway(gateway).map(SharedGateway::addresses).unwrap_or_default();
    addresses.sort();
    addresses
}

/// The tenant's record.
pub(super) fn key(apps: &TenantApps, tenant: &str) -> Key {
    Key::new(Kind::DnsEndpoint, &apps.gateway_namespace, derived::apps_dns_endpoint(tenant))
}

/// `spec` and annotations of a record that leads to these addresses. When it was published stays noted.
pub(super) fn record(
    view: &View<'_>,
    apps: &TenantApps,
    tenant: &str,
    addresses: &[String],
) -> (Value, BTreeMap<String, String>) {
    let name = derived::apps_domain(tenant, &apps.domain);
    let mut by_type: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for address in addresses {
        by_type.entry(record_type(address)).or_default().push(address);
    }
    let endpoints = by_type.into_iter().map(
        |(type_, targets)| json!({ "dnsName": name, "recordType": type_, "recordTTL": ttl(apps), "targets": targets }),
    );
    let spec = json!({ "endpoints": endpoints.collect::<Vec<_>>() });
    let published = live(view, apps, tenant)
        .filter(|live| leads_to(live, addresses))
        .and_then(|live| published_at(live).or_else(|| is_taken_in(live).then_some(view.now)));
    let annotations = published.map(|at| (labels::PUBLISHED_AT.to_owned(), at.to_string()));
    (spec, annotations.into_iter().collect())
}

/// How far the record is on its way to these addresses.
pub(super) fn published(view: &View<'_>, apps: &TenantApps, tenant: &str, addresses: &[String]) -> Published {
    let Some(live) = live(view, apps, tenant).filter(|live| leads_to(live, addresses) && is_taken_in(live)) else {
        return Published::NotYet;
    };
    let Some(at) = published_at(live) else { return Published::Now };
    let everywhere = at + SignedDuration::from_secs(ttl(apps).into()) + PROPAGATION;
    if everywhere > view.now { Published::Until(everywhere) } else { Published::Everywhere }
}

/// Whether the record that is there leads to these addresses.
pub(super) fn is_switched(view: &View<'_>, apps: &TenantApps, tenant: &str, addresses: &[String]) -> bool {
    live(view, apps, tenant).is_some_and(|live| leads_to(live, addresses))
}

/// `AppsDNSReady`, of a tenant that needs a record of its own.
pub(super) fn finding(view: &View<'_>, apps: &TenantApps, tenant: &str) -> Finding {
    let name = derived::apps_domain(tenant, &apps.domain);
    if let Some(why) = Kind::DnsEndpoint.unserved(&view.world.served) {
        return Reason::DnsUnsupported.because(format!(
            "the tenant's Gateway has other addresses than the first, and {why}; or publish {name} yourself"
        ));
    }
    match live(view, apps, tenant) {
        Some(live) if is_taken_in(live) => Reason::RecordPublished.because(format!("external-dns has taken in {name}")),
        _ => Reason::Pending.because(format!("waiting for external-dns to take in the record of {name}")),
    }
}

fn live<'a>(view: &View<'a>, apps: &TenantApps, tenant: &str) -> Option<&'a DnsEndpoint> {
    view.dns_endpoint(&apps.gateway_namespace, &derived::apps_dns_endpoint(tenant))
}

fn leads_to(record: &DnsEndpoint, addresses: &[String]) -> bool {
    let mut targets: Vec<&String> = record.spec.endpoints.iter().flat_map(|endpoint| &endpoint.targets).collect();
    targets.sort();
    targets.iter().copied().eq(addresses)
}

fn is_taken_in(record: &DnsEndpoint) -> bool {
    let observed = record.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
    observed >= record.metadata.generation.unwrap_or(1)
}

fn published_at(record: &DnsEndpoint) -> Option<Timestamp> {
    record.metadata.annotations.as_ref()?.get(labels::PUBLISHED_AT)?.parse().ok()
}

fn ttl(apps: &TenantApps) -> u32 {
    if apps.dns_ttl == 0 { TTL } else { apps.dns_ttl }
}

fn record_type(address: &str) -> &'static str {
    match address.parse() {
        Ok(IpAddr::V4(_)) => "A",
        Ok(IpAddr::V6(_)) => "AAAA",
        Err(_) => "CNAME",
    }
}
