//! The apps Gateways, and which tenant is on which.

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::gateways::Gateway;
use portreeve_api::names::{self, labels, tenant as derived};

use super::Tenant;
use super::checks::{Home, apps_fault, say};
use super::entries::own_entries;
use crate::arbitrate::Rooms;
use crate::claim::GatewayName;
use crate::condition::{Finding, Reason};
use crate::gateway::SharedGateway;
use crate::object::Live;
use crate::tenancy::{GatewayTemplate, Placement, TenantApps};
use crate::view::{View, name_of};

/// Places that stay free on a shard for the platform's own listeners: no new tenant takes them.
const SPARE_PLACES: usize = 2;

/// The apps Gateways.
pub(crate) struct Shards<'a> {
    all: Vec<Shard<'a>>,
    /// The shard of each tenant that may have one, by its name.
    homes: BTreeMap<&'a str, Result<GatewayName, Finding>>,
    /// Why no tenant is put on what the template makes.
    template_fault: Option<String>,
}

/// One of them.
pub(super) struct Shard<'a> {
    pub(super) name: GatewayName,
    /// Absent where it is not there now.
    pub(super) object: Option<SharedGateway<'a>>,
    /// Whether Portreeve is about to make it.
    is_coming: bool,
    /// Why no tenant is put there.
    fault: Option<String>,
    /// Listeners that are not of these tenants.
    foreign: usize,
    tenants: usize,
}

impl<'a> Shards<'a> {
    /// Finds a place for every one of `tenants`, which are in order of age. Those of `refused` get none.
    pub(super) fn of(view: &View<'a>, tenants: &[Tenant<'a>], refused: &BTreeSet<&str>) -> Self {
        let Some(apps) = &view.world.config.tenant_apps else {
            return Self { all: Vec::new(), homes: BTreeMap::new(), template_fault: None };
        };
        // The namespace that a refused tenant asks for is none of a tenant, and may be the Gateway's own.
        let homes: Vec<Home<'_>> =
            tenants.iter().filter(|tenant| !refused.contains(tenant.name)).map(Home::of).collect();
        let wanted: BTreeSet<String> = tenants.iter().map(|tenant| derived::apps_listener(tenant.name)).collect();
        let shards = names_of_shards(view, apps).into_iter().map(|name| Shard::of(view, name, &homes, &wanted));
        let template_fault = apps.template.as_ref().and_then(|template| fault_of_template(view, template, &homes));
        let mut shards = Self { all: shards.collect(), homes: BTreeMap::new(), template_fault };
        let staying = || tenants.iter().filter(|tenant| !tenant.is_leaving() && !refused.contains(tenant.name));
        for tenant in staying() {
            if let Some(home) = shards.present(tenant, apps) {
                shards.settle(tenant.name, home, apps);
            }
        }
        for tenant in staying() {
            if !shards.homes.contains_key(tenant.name) {
                match shards.free(apps) {
                    Ok(home) => shards.settle(tenant.name, home, apps),
                    Err(finding) => _ = shards.homes.insert(tenant.name, Err(finding)),
                }
            }
        }
        shards
    }

    /// The shard of a tenant, or why it has none; absent for a tenant that may have none.
    pub(super) fn home(&self, tenant: &str) -> Option<&Result<GatewayName, Finding>> {
        self.homes.get(tenant)
    }

    pub(super) fn shard(&self, name: &GatewayName) -> Option<&Shard<'a>> {
        self.all.iter().find(|shard| shard.name == *name)
    }

    /// The shard of which this is the name, if a tenant can be moved there.
    pub(super) fn target(&self, apps: &TenantApps, name: &str) -> Result<GatewayName, String> {
        let name = GatewayName::new(&apps.gateway_namespace, name);
        let shard = self.shard(&name).filter(|shard| shard.object.is_some());
        let shard = shard.ok_or_else(|| format!("Gateway {name} is not there, or is no apps Gateway"))?;
        match &shard.fault {
            Some(fault) => Err(say(&name, fault)),
            None => Ok(name),
        }
    }

    /// All of them, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = GatewayName> {
        self.all.iter().map(|shard| shard.name.clone())
    }

    /// Whether one more tenant fits.
    pub(super) fn has_room(&self, name: &GatewayName) -> bool {
        self.shard(name).is_some_and(|shard| shard.room() > 0)
    }

    /// The shards on which a tenant has an entry, in order.
    pub(super) fn with_entry_of(&self, tenant: &str) -> impl Iterator<Item = &GatewayName> {
        let section = derived::apps_listener(tenant);
        let has = move |shard: &&Shard<'_>| shard.object.is_some_and(|gateway| gateway.section(&section).is_some());
        self.all.iter().filter(has).map(|shard| &shard.name)
    }

    /// `AppsIsolated`, of a tenant that is on this shard.
    pub(super) fn isolation(&self, name: &GatewayName) -> Option<Finding> {
        let shard = self.shard(name).filter(|shard| shard.object.is_some() || shard.is_coming)?;
        Some(match &shard.fault {
            Some(fault) => Reason::GatewayNotIsolated.because(say(name, fault)),
            None => Reason::Isolated.because("no other listener of the Gateway admits routes of tenants"),
        })
    }

    /// How many entries of tenants each Gateway can take beside those of others.
    pub(crate) fn rooms(&self) -> Rooms {
        self.all.iter().map(|shard| (shard.name.clone(), shard.capacity())).collect()
    }

    /// Where a tenant is already: where its entry is (of several, where its status says), then where its status says.
    fn present(&self, tenant: &Tenant<'_>, apps: &TenantApps) -> Option<GatewayName> {
        let recorded = tenant.status().and_then(|status| status.apps_gateway.as_ref());
        let recorded = recorded.map(|gateway| GatewayName::new(&gateway.namespace, &gateway.name));
        let mut entries = self.with_entry_of(tenant.name).peekable();
        let first = entries.peek().copied().cloned();
        if let Some(recorded) = recorded {
            let has_entry = entries.any(|name| *name == recorded);
            let waits = self.shard(&recorded).is_some() || is_made_by_us(apps, &recorded);
            if has_entry || first.is_none() && waits {
                return Some(recorded);
            }
        }
        first
    }

    fn settle(&mut self, tenant: &'a str, home: GatewayName, apps: &TenantApps) {
        if let Some(shard) = self.all.iter_mut().find(|shard| shard.name == home) {
            shard.tenants += 1;
        } else {
            let is_coming = is_made_by_us(apps, &home);
            let fault = self.template_fault.clone().filter(|_| is_coming);
            self.all.push(Shard { name: home.clone(), object: None, is_coming, fault, foreign: 0, tenants: 1 });
        }
        self.homes.insert(tenant, Ok(home));
    }

    /// The emptiest shard with room; of equal ones the first.
    fn free(&self, apps: &TenantApps) -> Result<GatewayName, Finding> {
        let unlimited = apps.placement == Placement::ListenerSet;
        let is_there = |shard: &Shard<'_>| shard.object.is_some() || shard.is_coming;
        // Nobody knows how full one will be that somebody else has to make first.
        let waits = !self.all.iter().any(is_there);
        let open = self
            .all
            .iter()
            .filter(|shard| shard.fault.is_none() && (waits || is_there(shard)) && (unlimited || shard.room() > 0));
        if let Some(shard) = open.rev().max_by_key(|shard| shard.room()) {
            return Ok(shard.name.clone());
        }
        match &self.template_fault {
            None if apps.template.is_some() => return Ok(self.next_name(apps)),
            None => {}
            Some(fault) => {
                let why = format!("the template for the next apps Gateway: {fault}");
                return Err(Reason::GatewayNotIsolated.because(why));
            }
        }
        let all = || {
            let said = self.all.iter().map(|shard| {
                let absence = if is_there(shard) { "" } else { " is not there" };
                format!("{}{absence}", shard.name)
            });
            said.collect::<Vec<_>>().join(", ")
        };
        Err(match self.all.iter().find_map(|shard| Some((&shard.name, shard.fault.as_ref()?))) {
            Some((name, fault)) => Reason::GatewayNotIsolated
                .because(format!("no apps Gateway takes in new tenants; {}", say(name, fault))),
            None => Reason::TooManyListeners.because(format!(
                "no apps Gateway has room ({}): add another, configure a template for the next, or move tenants",
                all()
            )),
        })
    }

    fn next_name(&self, apps: &TenantApps) -> GatewayName {
        let names = (2..).map(|number| GatewayName::new(&apps.gateway_namespace, &numbered(apps, number)));
        let mut free = names.filter(|name| self.shard(name).is_none());
        free.next().unwrap_or_else(|| apps.gateway())
    }
}

impl<'a> Shard<'a> {
    fn of(view: &View<'a>, name: GatewayName, homes: &[Home<'_>], wanted: &BTreeSet<String>) -> Self {
        let object = view.gateway(&name);
        let fault = object.and_then(|gateway| apps_fault(view, gateway, homes));
        let foreign = object.map_or(0, |gateway| {
            let ours = own_entries(gateway);
            let entries = gateway.object.spec.listeners.iter().map(|listener| listener.name.as_str());
            entries.filter(|name| !wanted.contains(*name) && !ours.contains(*name)).count()
        });
        Self { name, object, is_coming: false, fault, foreign, tenants: 0 }
    }

    fn capacity(&self) -> usize {
        names::MAX_LISTENERS.saturating_sub(self.foreign)
    }

    /// For new tenants.
    fn room(&self) -> usize {
        self.capacity().saturating_sub(self.tenants + SPARE_PLACES)
    }
}

/// What would be wrong with a Gateway that is made from the template.
fn fault_of_template(view: &View<'_>, template: &GatewayTemplate, homes: &[Home<'_>]) -> Option<String> {
    let object = serde_json::json!({ "metadata": {}, "spec": template.spec });
    match serde_json::from_value::<Gateway>(object) {
        Ok(gateway) => apps_fault(view, SharedGateway { object: &gateway }, homes),
        Err(error) => Some(format!("spec is none of a Gateway: {error}")),
    }
}

/// Whether Portreeve has made a Gateway for tenants' apps.
pub(super) fn is_made(gateway: SharedGateway<'_>) -> bool {
    let labels = gateway.object.metadata.labels.as_ref();
    let says = labels.and_then(|labels| labels.get(labels::SHARD)).is_some_and(|value| value == labels::TRUE);
    says && Live::Gateway(gateway.object).bears_our_mark()
}

/// The first, then the others by name. The first is one even while it is away.
fn names_of_shards(view: &View<'_>, apps: &TenantApps) -> Vec<GatewayName> {
    let named = apps.more_gateways.iter().map(|name| GatewayName::new(&apps.gateway_namespace, name));
    let found = view.world.gateways.iter().filter(|gateway| {
        let (namespace, _) = name_of(&***gateway);
        let shared = SharedGateway { object: gateway };
        namespace == apps.gateway_namespace
            && (is_made(shared) || has_labels(shared, &apps.gateway_labels) || !own_entries(shared).is_empty())
    });
    let found = found.map(|gateway| {
        let (namespace, name) = name_of(&**gateway);
        GatewayName::new(namespace, name)
    });
    let others: BTreeSet<GatewayName> = named.chain(found).filter(|name| *name != apps.gateway()).collect();
    std::iter::once(apps.gateway()).chain(others).collect()
}

fn has_labels(gateway: SharedGateway<'_>, wanted: &BTreeMap<String, String>) -> bool {
    let labels = gateway.object.metadata.labels.as_ref();
    let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
    !wanted.is_empty() && wanted.iter().all(has)
}

/// Whether a Gateway that is not there is one that Portreeve would make again.
pub(super) fn is_made_by_us(apps: &TenantApps, name: &GatewayName) -> bool {
    let suffix = name.name.strip_prefix(&*apps.gateway_name).and_then(|rest| rest.strip_prefix('-'));
    apps.template.is_some()
        && *name.namespace == *apps.gateway_namespace
        && suffix.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn numbered(apps: &TenantApps, number: u32) -> String {
    format!("{}-{number}", apps.gateway_name)
}
