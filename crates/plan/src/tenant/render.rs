use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;

use portreeve_api::names::{labels, tenant as derived};
use serde_json::Value;

use super::entries::Overwritten;
use super::namespace::former_namespaces;
use super::provision::{PROVISION, Provision};
use super::quota::LIMITS;
use super::values::{Exposure, Projection};
use super::{Shards, Tenant, TenantCase};
use crate::acknowledgement::Parent;
use crate::body::{self, Backend, GATEWAY_API_V1, Metadata};
use crate::claim::{GatewayName, OwnerKind};
use crate::condition::Finding;
use crate::docket::Judgement;
use crate::object::{Key, Kind, Live, Maker};
use crate::prune::key_of;
use crate::tenancy::TenantApi;
use crate::view::{View, all_provisioned};
use crate::wanted::{Wanted, foreign};
use crate::world::Config;

/// What stays in a namespace that a tenant had before.
const FORMER: [Kind; 7] = [
    Kind::NetworkPolicy,
    Kind::ResourceQuota,
    Kind::LimitRange,
    Kind::ConfigMap,
    Kind::OciRepository,
    Kind::HelmRepository,
    Kind::HelmRelease,
];

/// What was made for a tenant, as far as its status needs to know.
#[derive(Default)]
pub(crate) struct Rendered {
    /// Objects that are wanted and cannot be had: their name is somebody else's, or the API server refuses them.
    pub(super) blocked: Vec<(Key, Finding)>,
    /// Why the tenant cannot be limited as it asks.
    pub(super) quota: Option<Finding>,
    /// What becomes of its virtual cluster.
    pub(crate) provision: Provision,
    /// The parent of the route to the API server, if that is wanted.
    pub(crate) api_parent: Option<Parent>,
    /// The tenant's entries of apps Gateways that are wanted: its home's, and while it moves another's.
    pub(crate) entries: Vec<(GatewayName, Value)>,
    /// Its ListenerSet, if that is where its listener is wanted.
    pub(crate) listener_set: Option<Key>,
    /// Why its entry is not wanted now, though it is granted.
    pub(crate) withheld: Option<Finding>,
    /// Who has taken its entry away.
    pub(crate) overwritten: Option<Overwritten>,
    /// Whether it needs a DNS record of its own.
    pub(crate) needs_record: bool,
    /// Namespaces that it had before, in order.
    pub(super) former: Vec<String>,
}

/// Turns what a tenant was granted into objects. Its entry of a Gateway is left to [`render_gateways`].
pub(crate) fn render<'a>(
    view: &View<'a>,
    case: &TenantCase<'a>,
    shards: &Shards<'a>,
    judgement: &Judgement,
    wanted: &mut Wanted<'_, 'a>,
) -> Rendered {
    let mut rendering = Rendering { view, shards, tenant: &case.tenant, wanted, rendered: Rendered::default() };
    if case.tenant.is_leaving() {
        return rendering.rendered;
    }
    if case.refusal.is_some() {
        rendering.keep(&LIMITS);
        rendering.keep(&PROVISION);
        return rendering.rendered;
    }
    rendering.namespace();
    rendering.keep_former();
    let is_limited = rendering.limits();
    let config = &view.world.config;
    let granted = |claim: Option<usize>| claim.is_some_and(|claim| judgement.is_granted(claim));
    if let (Some(api), Some(name)) = (&config.tenant_api, &case.api)
        && granted(name.claim)
    {
        rendering.api(api);
    }
    if let (Some(apps), Some(name)) = (&config.tenant_apps, &case.apps)
        && granted(name.claim)
    {
        let second = case.second.as_ref().filter(|second| granted(second.claim));
        rendering.apps(apps, case, &name.gateway, second.map(|second| &second.gateway));
    }
    if let Some(isolation) = &config.tenant_isolation {
        rendering.isolation(isolation, case);
    }
    // A virtual cluster without its limits, or for names that are not the tenant's, is not made.
    if is_limited && [&case.api, &case.apps].into_iter().flatten().all(|name| granted(name.claim)) {
        rendering.provision(&exposure(&view.world.config, case));
    } else {
        rendering.keep(&PROVISION);
    }
    rendering.rendered
}

fn exposure<'e>(config: &'e Config, case: &'e TenantCase<'_>) -> Exposure<'e> {
    let tenant = case.tenant.name;
    let api = config.tenant_api.as_ref();
    let apps = config.tenant_apps.as_ref().zip(case.apps.as_ref());
    Exposure {
        api: api.map(|api| (derived::api_hostname(tenant, &api.domain), derived::api_server_url(tenant, &api.domain))),
        apps: apps.map(|(apps, name)| Projection {
            gateway: &name.gateway,
            name: &apps.gateway_name,
            hosts: derived::apps_domain(tenant, &apps.domain),
        }),
    }
}

impl Rendered {
    /// Why an object of this kind cannot be had.
    pub(crate) fn blocked(&self, kind: Kind) -> Option<Finding> {
        self.blocked.iter().find(|(key, _)| key.kind == kind).map(|(_, why)| why.clone())
    }
}

pub(super) struct Rendering<'r, 'v, 'a> {
    pub(super) view: &'r View<'a>,
    pub(super) shards: &'r Shards<'a>,
    pub(super) tenant: &'r Tenant<'a>,
    pub(super) wanted: &'r mut Wanted<'v, 'a>,
    pub(super) rendered: Rendered,
}

impl<'a> Rendering<'_, '_, 'a> {
    /// One that was handed over stays when the tenant goes, so it gets the labels only.
    fn namespace(&mut self) {
        let handed_over = self
            .view
            .namespace(&self.tenant.namespace)
            .is_some_and(|namespace| !matches!(Live::Namespace(namespace).maker(), Maker::Uid(OwnerKind::Tenant, _)));
        let key = Key::new(Kind::Namespace, "", self.tenant.namespace.as_str());
        let mut metadata = self.metadata();
        metadata.owner.take_if(|_| handed_over);
        self.wanted.add_settled(key.clone(), body::object(&key, "v1", metadata, Value::Null));
    }

    fn api(&mut self, api: &TenantApi) {
        let Some(version) = self.view.world.served.tls_routes else { return };
        if !self.view.world.served.reference_grants {
            return;
        }
        if api.section.as_ref().is_some_and(|section| !self.view.may_borrow(&api.gateway(), section)) {
            return;
        }
        let (name, namespace) = (self.tenant.name, self.tenant.namespace.clone());
        let service = derived::api_service(name);
        let grant = Key::new(Kind::ReferenceGrant, &namespace, derived::API_REFERENCE_GRANT);
        let spec = body::reference_grant([Kind::TlsRoute], &api.gateway_namespace, &service);
        if !self.add(grant.clone(), body::object(&grant, GATEWAY_API_V1, self.metadata(), spec)) {
            return;
        }
        let parent = Parent {
            kind: Kind::Gateway.as_str(),
            namespace: api.gateway_namespace.clone(),
            name: api.gateway_name.clone(),
            section: api.section.clone(),
        };
        let route = Key::new(Kind::TlsRoute, &api.gateway_namespace, derived::api_tls_route(name));
        let hostname = derived::api_hostname(name, &api.domain);
        let backend = Backend { namespace: &namespace, name: &service, port: derived::API_PORT, weight: 1 };
        let spec = body::tls_route(from_ref(&parent), from_ref(&hostname), from_ref(&backend), &api.gateway_namespace);
        let metadata = Metadata { annotations: external_dns(hostname, api), ..self.metadata() };
        if self.add(route.clone(), body::object(&route, version.api_version(), metadata, spec)) {
            self.rendered.api_parent = Some(parent);
        }
    }

    /// What closes and limits a namespace that the tenant had before, and what makes the virtual cluster there, stay for
    /// as long as it does: nobody has said that what runs there is to go.
    fn keep_former(&mut self) {
        let former: BTreeSet<&str> = former_namespaces(self.view, self.tenant).collect();
        if former.is_empty() {
            return;
        }
        let owner = self.tenant.identity();
        let own = self.view.all_live().filter(|(kind, live)| {
            let namespace = live.metadata().namespace.as_deref().unwrap_or_default();
            FORMER.contains(kind) && former.contains(namespace) && live.maker().is(owner)
        });
        self.wanted.kept.extend(own.map(|(kind, live)| key_of(kind, live)));
        self.rendered.former = former.into_iter().map(str::to_owned).collect();
    }

    pub(super) fn metadata(&self) -> Metadata<'a> {
        let labels = labels::of_tenant(self.tenant.name);
        Metadata { labels, owner: Some(self.tenant.identity()), ..Metadata::default() }
    }

    /// What was made for the tenant earlier stays, of these kinds and wherever it is: a mistake costs nobody a virtual
    /// cluster.
    pub(super) fn keep(&mut self, kinds: &[Kind]) {
        let owner = self.tenant.identity();
        let own =
            all_provisioned(self.view.world).filter(|(kind, live)| kinds.contains(kind) && live.maker().is(owner));
        self.wanted.kept.extend(own.map(|(kind, live)| key_of(kind, live)));
    }

    /// Wants an object; false, and noted, when its name is somebody else's.
    pub(super) fn add(&mut self, key: Key, body: Value) -> bool {
        let added = self.wanted.add(self.tenant.identity(), &key, body);
        let foreign = || foreign(&key, "tenant");
        let blocked = if added { self.wanted.refusal(&key) } else { Some(foreign()) };
        self.rendered.blocked.extend(blocked.map(|why| (key, why)));
        added
    }
}

fn external_dns(hostname: String, api: &TenantApi) -> BTreeMap<String, String> {
    let target = api.external_dns_target.clone().map(|target| (labels::EXTERNAL_DNS_TARGET.to_owned(), target));
    [(labels::EXTERNAL_DNS_HOSTNAME.to_owned(), hostname)].into_iter().chain(target).collect()
}
