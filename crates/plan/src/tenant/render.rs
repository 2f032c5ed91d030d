use std::collections::BTreeMap;
use std::slice::from_ref;

use portreeve_api::names::{labels, tenant as derived};
use portreeve_names::HostPattern;
use serde_json::{Value, json};

use super::lower::own_entries;
use super::provision::{PROVISION, Provision};
use super::quota::LIMITS;
use super::values::{Exposure, Projection};
use super::{Tenant, TenantCase};
use crate::acknowledgement::Parent;
use crate::body::{self, Backend, CERTIFICATE_V1, GATEWAY_API_V1, Metadata};
use crate::claim::{GatewayName, OwnerKind};
use crate::condition::Finding;
use crate::docket::Judgement;
use crate::object::{Key, Kind, Live, Maker};
use crate::prune::key_of;
use crate::tenancy::{TenantApi, TenantApps};
use crate::view::{View, all_provisioned};
use crate::wanted::{Wanted, foreign};
use crate::world::Config;

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
    /// The tenant's entry of the apps Gateway, if that is wanted.
    pub(crate) entry: Option<(GatewayName, Value)>,
}

/// Turns what a tenant was granted into objects. Its entry of a Gateway is left to [`render_gateways`].
pub(crate) fn render<'a>(
    view: &View<'a>,
    case: &TenantCase<'a>,
    judgement: &Judgement,
    wanted: &mut Wanted<'_, 'a>,
) -> Rendered {
    let mut rendering = Rendering { view, tenant: &case.tenant, wanted, rendered: Rendered::default() };
    if case.tenant.is_leaving() {
        return rendering.rendered;
    }
    if case.refusal.is_some() {
        rendering.keep(&LIMITS);
        rendering.keep(&PROVISION);
        return rendering.rendered;
    }
    rendering.namespace();
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
        rendering.apps(apps);
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

/// One body for each Gateway that has entries of tenants, or has had: all entries together, since a body takes away
/// what it does not have.
pub(crate) fn render_gateways<'r>(
    view: &View<'_>,
    rendered: impl Iterator<Item = &'r Rendered>,
    wanted: &mut Wanted<'_, '_>,
) {
    let mut entries: BTreeMap<GatewayName, Vec<Value>> = BTreeMap::new();
    for (gateway, entry) in rendered.filter_map(|rendered| rendered.entry.clone()) {
        entries.entry(gateway).or_default().push(entry);
    }
    for object in &view.world.gateways {
        let metadata = &object.metadata;
        let (namespace, name) =
            (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
        let gateway = GatewayName::new(namespace, name);
        let mut own = entries.remove(&gateway).unwrap_or_default();
        let had = view.gateway(&gateway).is_some_and(|gateway| !own_entries(gateway).is_empty());
        if own.is_empty() && !had {
            continue;
        }
        own.sort_by_key(|entry| entry["name"].as_str().map(str::to_owned));
        let key = Key::new(Kind::Gateway, namespace, name);
        let spec = if own.is_empty() { Value::Null } else { json!({ "listeners": own }) };
        let mut body = body::object(&key, GATEWAY_API_V1, Metadata::default(), spec);
        if let Some(uid) = &metadata.uid {
            // So that a Gateway that is deleted meanwhile is not made anew with nothing but our entries.
            body["metadata"]["uid"] = uid.as_str().into();
        }
        wanted.add_settled(key, body);
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

    /// The certificate is written before the listener that shows it.
    fn apps(&mut self, apps: &TenantApps) {
        let domain = derived::apps_domain(self.tenant.name, &apps.domain);
        let Ok(hosts) = HostPattern::parse(&domain) else { return };
        if !self.view.world.served.certificates || self.view.gateway(&apps.gateway()).is_none() {
            return;
        }
        let secret = derived::apps_certificate(self.tenant.name);
        let certificate = Key::new(Kind::Certificate, &apps.gateway_namespace, secret.as_str());
        let mut spec = body::certificate(&secret, &domain, &apps.cluster_issuer);
        // By these the Secret is found when the tenant goes: issuers leave it where it is.
        spec["secretTemplate"] = json!({ "labels": labels::of_tenant(self.tenant.name) });
        if self.add(certificate.clone(), body::object(&certificate, CERTIFICATE_V1, self.metadata(), spec)) {
            let name = derived::apps_listener(self.tenant.name);
            let entry = body::https_listener(&name, &hosts, crate::gateway::HTTPS_PORT, &secret, self.allowed_routes());
            self.rendered.entry = Some((apps.gateway(), entry));
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

    pub(super) fn metadata(&self) -> Metadata<'a> {
        let labels = labels::of_tenant(self.tenant.name);
        Metadata { labels, annotations: BTreeMap::new(), owner: Some(self.tenant.identity()) }
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
