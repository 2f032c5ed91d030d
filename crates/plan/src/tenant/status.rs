use portreeve_api::conditions;
use portreeve_api::names::tenant as derived;
use portreeve_api::tenant::{SecretKeyReference, TenantPhase, TenantStatus};
use portreeve_api::{Condition, GatewayReference, Time};
use portreeve_names::Hostname;

use super::lower::NameCase;
use super::shards::is_made_by_us;
use super::workload::waiting_for;
use super::{Rendered, Shards, TenantCase, checks, dial, dns};
use crate::acknowledgement::{EntryStatus, gateway_entry, listener, pending, route, tls_route_statuses};
use crate::app::has_key;
use crate::condition::{Conditions, Finding, Reason, foremost};
use crate::gateway::{HTTPS_PORT, SharedGateway};
use crate::object::{Key, Kind};
use crate::output::{Event, StatusWrite};
use crate::settled::{Alarm, Settled, WatchedListener, not_found};
use crate::tenancy::{Placement, TenantApi, TenantIsolation};

/// The status of a tenant, if it has to be written, and the events that go with it.
pub(crate) fn status(
    settled: &Settled<'_, '_>,
    shards: &Shards<'_>,
    case: &TenantCase<'_>,
    rendered: &Rendered,
    alarm: &mut Alarm,
) -> (Option<StatusWrite>, Vec<Event>) {
    let nothing = TenantStatus::default();
    let before = case.tenant.status().unwrap_or(&nothing);
    let report = TenantReport { settled, shards, case, rendered, before };
    let about = case.tenant.identity().object_ref();
    let (api, apps) = (report.api(), report.apps(alarm));
    let (phase, ready) = report.phase(api.as_ref(), apps.as_ref());
    let generation = case.tenant.source.metadata.generation;
    let mut conditions = Conditions::new(&before.conditions, generation, settled.view.now);
    let message = ready.message.clone();
    conditions.add(conditions::READY, ready);
    for (type_, part) in [(conditions::API_ROUTING_READY, api), (conditions::APPS_ROUTING_READY, apps)] {
        if let Some(part) = part {
            conditions.add(type_, part);
        }
    }
    for (type_, fault) in [
        (conditions::NAME_VALID, case.deprecation.clone()),
        (conditions::APPS_PROJECTED, report.projection()),
        (conditions::NAMESPACE_CURRENT, report.former_namespaces()),
    ] {
        if let Some(fault) = fault {
            conditions.add(type_, fault);
        }
    }
    for (type_, part) in report.networking(alarm) {
        conditions.add(type_, part);
    }
    let mut events = conditions.events(&about);
    let taken = rendered.overwritten.as_ref().filter(|_| rendered.withheld.is_none());
    events.extend(taken.map(|overwritten| overwritten.event(about.clone())));
    let is_ready = phase == TenantPhase::Ready;
    let after = TenantStatus {
        phase: Some(phase),
        message: Some(message),
        observed_generation: generation,
        kubeconfig_secret_ref: report.kubeconfig(phase),
        api_server_url: report.api_server_url(is_ready),
        apps_domain: report.apps_domain(is_ready),
        apps_gateway: report.apps_gateway(),
        conditions: conditions.finish(),
        claims: report.claims(),
    };
    let write = (after != *before)
        .then(|| StatusWrite { object: about, status: serde_json::to_value(&after).unwrap_or_default() });
    (write, events)
}

struct TenantReport<'s, 'a> {
    settled: &'s Settled<'s, 'a>,
    shards: &'s Shards<'a>,
    case: &'s TenantCase<'a>,
    rendered: &'s Rendered,
    before: &'s TenantStatus,
}

impl TenantReport<'_, '_> {
    /// Refused, being made, or usable. The phase follows the virtual cluster; whether the gateways serve its names is
    /// in conditions of their own.
    fn phase(&self, api: Option<&Finding>, apps: Option<&Finding>) -> (TenantPhase, Finding) {
        if let Some(refusal) = &self.case.refusal {
            return (TenantPhase::Failed, refusal.clone());
        }
        if let Some(refusal) = &self.rendered.quota {
            return (TenantPhase::Failed, refusal.clone());
        }
        for (part, reason) in [(api, Reason::NetworkingFailed), (apps, Reason::AppsNetworkingFailed)] {
            if let Some(refusal) = part.filter(|part| is_refusal(part.reason)) {
                return (TenantPhase::Failed, reason.because(refusal.message.clone()));
            }
        }
        if let Some(failure) = &self.rendered.provision.failure {
            return (TenantPhase::Failed, failure.clone());
        }
        match waiting_for(self.settled.view, &self.case.tenant) {
            None => (TenantPhase::Ready, Reason::Provisioned.because("vCluster is ready")),
            Some(waiting) => (TenantPhase::Provisioning, Reason::Provisioning.because(waiting)),
        }
    }

    /// `AppsProjected`, present only while it is not so.
    fn projection(&self) -> Option<Finding> {
        let version = self.rendered.provision.too_old.as_ref()?;
        Some(Reason::ChartTooOld.because(format!(
            "version {version} of the vCluster chart knows no Gateways and syncs no HTTPRoutes: set spec.vcluster.version to \
             0.35.0 or later"
        )))
    }

    /// `NamespaceCurrent`, present only while it is not so.
    fn former_namespaces(&self) -> Option<Finding> {
        let (left, now) = (self.rendered.former.join(", "), &self.case.tenant.namespace);
        (!left.is_empty()).then(|| {
            Reason::FormerNamespaceLeft.because(format!(
                "the tenant was in namespace {left} before and is made anew in {now}; what runs there goes on: delete the \
                 namespace when nothing in it is needed, or set spec.targetNamespace back"
            ))
        })
    }

    /// `APIRoutingReady`
    fn api(&self) -> Option<Finding> {
        let (api, name) = (self.settled.view.world.config.tenant_api.as_ref()?, self.case.api.as_ref()?);
        let refused = self.refused(name);
        if let Some(refusal) = refused {
            return Some(refusal);
        }
        let served = &self.settled.view.world.served;
        let unsupported = Kind::TlsRoute.unserved(served).map(|why| Reason::TlsRouteUnsupported.because(why));
        let no_grants = Kind::ReferenceGrant.unserved(served).map(|why| Reason::RefNotPermitted.because(why));
        let foreign = self.rendered.blocked(Kind::ReferenceGrant).or_else(|| self.rendered.blocked(Kind::TlsRoute));
        let isolation = self.settled.view.gateway(&name.gateway).and_then(|gateway| self.isolation(gateway, api));
        let findings = [unsupported, no_grants, foreign, isolation, self.api_route(api)];
        let accepted = || Reason::RouteAccepted.because("the gateway passes connections through to the API server");
        Some(foremost(findings.into_iter().flatten()).unwrap_or_else(accepted))
    }

    fn refused(&self, name: &NameCase) -> Option<Finding> {
        let verdict = name.claim.and_then(|claim| self.settled.judgement.refusal(claim));
        let view = self.settled.view;
        let apps = view.world.config.tenant_apps.as_ref();
        let is_coming = apps.is_some_and(|apps| is_made_by_us(apps, &name.gateway)) && view.world.served.gateways;
        let gateway = || (view.gateway(&name.gateway).is_none() && !is_coming).then(|| not_found(view, &name.gateway));
        self.case.refusal.clone().or(name.refusal.clone()).or(verdict).or_else(gateway)
    }

    fn api_route(&self, api: &TenantApi) -> Option<Finding> {
        let parent = self.rendered.api_parent.clone()?;
        let name = derived::api_tls_route(self.case.tenant.name);
        let live = self.settled.view.tls_route(&api.gateway_namespace, &name);
        let generation = self.settled.generation(&Key::new(Kind::TlsRoute, &api.gateway_namespace, name));
        route(&live.map(tls_route_statuses).unwrap_or_default(), &[parent], generation)
    }

    /// Whether the API Gateway keeps tenants apart.
    fn isolation(&self, gateway: SharedGateway<'_>, api: &TenantApi) -> Option<Finding> {
        let hostname = Hostname::parse(&derived::api_hostname(self.case.tenant.name, &api.domain)).ok()?;
        let fault = checks::api_fault(self.settled.view, gateway, api, &hostname)?;
        Some(Reason::GatewayNotIsolated.because(checks::say(&api.gateway(), &fault)))
    }

    /// `AppsRoutingReady`
    fn apps(&self, alarm: &mut Alarm) -> Option<Finding> {
        let (apps, name) = (self.settled.view.world.config.tenant_apps.as_ref()?, self.case.apps.as_ref()?);
        let refused = self.refused(name);
        if let Some(refusal) = refused {
            return Some(refusal);
        }
        let unserved = Kind::Certificate.unserved(&self.settled.view.world.served);
        let unsupported = unserved.map(|why| Reason::CertificateFailed.because(why));
        let in_set = apps.placement == Placement::ListenerSet;
        let no_sets = Kind::ListenerSet.unserved(&self.settled.view.world.served).filter(|_| in_set);
        let findings = [
            unsupported,
            no_sets.map(|why| Reason::ListenerSetUnsupported.because(why)),
            self.rendered.blocked(Kind::Certificate),
            self.rendered.blocked(Kind::ListenerSet),
            self.rendered.withheld.clone(),
            self.settled.certificate(&apps.gateway_namespace, &derived::apps_certificate(self.case.tenant.name)),
            self.listener(name, alarm),
            self.listener_in_set(name, alarm),
        ];
        let programmed = || Reason::ListenersProgrammed.because("the tenant's listener is programmed");
        Some(foremost(findings.into_iter().flatten()).unwrap_or_else(programmed))
    }

    /// Once programmed, the entry stays so until it says otherwise or changes: other tenants' entries change the
    /// Gateway all the time.
    fn listener(&self, name: &NameCase, alarm: &mut Alarm) -> Option<Finding> {
        self.rendered.entries.iter().find(|(gateway, _)| *gateway == name.gateway)?;
        let section = derived::apps_listener(self.case.tenant.name);
        let key = Key::new(Kind::Gateway, &name.gateway.namespace, &*name.gateway.name);
        let since = self.settled.entry_generation(&key, &section, self.was_programmed());
        let entry = self.settled.view.gateway(&name.gateway).and_then(|gateway| gateway_entry(gateway, &section));
        let finding = listener(entry, &section, since)?;
        let secret = derived::apps_certificate(self.case.tenant.name);
        let certificate = std::iter::once((&*name.gateway.namespace, secret.as_str()));
        let is_about_to_notice =
            entry.is_some_and(EntryStatus::misses_certificate) && self.settled.are_new(certificate, alarm);
        Some(if is_about_to_notice { pending(&section) } else { finding })
    }

    fn listener_in_set(&self, name: &NameCase, alarm: &mut Alarm) -> Option<Finding> {
        let set = self.rendered.listener_set.as_ref()?;
        let section = derived::apps_listener(self.case.tenant.name);
        let (gateway, recorded) = (&name.gateway, self.was_programmed());
        let watched = WatchedListener { set, section: &section, gateway, port: HTTPS_PORT, recorded };
        foremost(self.settled.listener(&watched, alarm))
    }

    fn was_programmed(&self) -> Option<i64> {
        self.previous(conditions::APPS_ROUTING_READY).is_some_and(|before| before.status == "True").then_some(0)
    }

    /// The conditions that have no part in Ready.
    fn networking(&self, alarm: &mut Alarm) -> Vec<(&'static str, Finding)> {
        let (view, tenant) = (self.settled.view, self.case.tenant.name);
        let config = &view.world.config;
        if self.case.refusal.is_some() {
            return Vec::new();
        }
        let overwritten = self.rendered.overwritten.as_ref().filter(|_| self.rendered.withheld.is_some());
        let moving = self.case.moving.as_ref();
        let wakes = moving.and_then(|moving| moving.as_ref().ok()?.wake_at);
        for at in wakes.into_iter().chain(overwritten.map(|overwritten| overwritten.put_back)) {
            alarm.set(at);
        }
        let api = config.tenant_api.as_ref();
        let reachable = api.map(|api| dial::reachable(view, api, self.case, self.rendered));
        let home = self.case.apps.as_ref().filter(|apps| apps.refusal.is_none());
        let record = config.tenant_apps.as_ref().filter(|_| self.rendered.needs_record);
        let conditions = [
            (conditions::API_SERVER_REACHABLE, reachable),
            (conditions::APPS_ISOLATED, home.and_then(|home| self.shards.isolation(&home.gateway))),
            (conditions::APPS_DNS_READY, record.map(|apps| dns::finding(view, apps, tenant))),
            (
                conditions::NETWORK_ISOLATED,
                config.tenant_isolation.as_ref().map(|config| self.network_isolation(config)),
            ),
            (
                conditions::MOVING,
                moving.map(|moving| match moving {
                    Ok(moving) => self.second_refusal().unwrap_or_else(|| moving.progress.clone()),
                    Err(refusal) => refusal.clone(),
                }),
            ),
        ];
        conditions.into_iter().filter_map(|(type_, finding)| Some((type_, finding?))).collect()
    }

    /// Why the tenant may not have a place on the Gateway to which it moves.
    fn second_refusal(&self) -> Option<Finding> {
        let refusal = self.settled.judgement.refusal(self.case.second.as_ref()?.claim?)?;
        Some(Reason::MoveBlocked.because(refusal.message))
    }

    fn network_isolation(&self, config: &TenantIsolation) -> Finding {
        if config.except.iter().any(|name| name == self.case.tenant.name) {
            return Reason::IsolationDisabled.because("the platform leaves this tenant's namespace open");
        }
        let kinds = [Kind::NetworkPolicy, Kind::ClusterNetworkPolicy, Kind::AdminNetworkPolicy];
        let foreign = kinds.into_iter().find_map(|kind| self.rendered.blocked(kind));
        foreign.unwrap_or_else(|| Reason::Isolated.because("NetworkPolicies close the tenant's namespace"))
    }

    fn previous(&self, type_: &str) -> Option<&Condition> {
        self.before.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Told once the virtual cluster can be used, and kept when it fails later.
    fn kubeconfig(&self, phase: TenantPhase) -> Option<SecretKeyReference> {
        let was_told = phase == TenantPhase::Failed && self.before.kubeconfig_secret_ref.is_some();
        if phase != TenantPhase::Ready && !was_told {
            return None;
        }
        let name = derived::kubeconfig_secret(self.case.tenant.name);
        let secret = self.settled.view.secret(&self.case.tenant.namespace, &name)?;
        let key = Some(derived::KUBECONFIG_KEY.to_owned());
        has_key(secret, derived::KUBECONFIG_KEY).then_some(SecretKeyReference { name: Some(name), key })
    }

    /// Once published, it stays while the name is the tenant's.
    fn api_server_url(&self, is_ready: bool) -> Option<String> {
        let api = self.settled.view.world.config.tenant_api.as_ref()?;
        self.granted(self.case.api.as_ref())?;
        let url = derived::api_server_url(self.case.tenant.name, &api.domain);
        (is_ready || self.before.api_server_url.as_ref() == Some(&url)).then_some(url)
    }

    fn apps_domain(&self, is_ready: bool) -> Option<String> {
        let apps = self.settled.view.world.config.tenant_apps.as_ref()?;
        self.granted(self.case.apps.as_ref())?;
        let domain = derived::apps_domain(self.case.tenant.name, &apps.domain);
        (is_ready || self.before.apps_domain.as_ref() == Some(&domain)).then_some(domain)
    }

    /// The Gateway that the virtual cluster is shown; the record lasts while the name is kept.
    fn apps_gateway(&self) -> Option<GatewayReference> {
        let name = self.case.apps.as_ref()?;
        if self.granted(Some(name)).is_none() {
            return self.before.apps_gateway.clone();
        }
        let arrives = self.case.moving.as_ref().and_then(|moving| moving.as_ref().ok()).filter(|moving| moving.arrives);
        let arrives = arrives.filter(|_| self.granted(self.case.second.as_ref()).is_some());
        let gateway = arrives.map_or(&name.gateway, |moving| &moving.other);
        Some(GatewayReference { name: gateway.name.to_string(), namespace: gateway.namespace.to_string() })
    }

    fn granted(&self, name: Option<&NameCase>) -> Option<usize> {
        name?.claim.filter(|claim| self.settled.judgement.is_granted(*claim))
    }

    fn claims(&self) -> Vec<portreeve_api::Claim> {
        let names = [&self.case.api, &self.case.apps, &self.case.second].into_iter().flatten();
        let claims: Vec<usize> = names.filter_map(|name| name.claim).collect();
        self.settled.judgement.record(&claims, &Time(self.settled.view.now))
    }
}

/// Whether somebody has to change something before the name can be served, as opposed to a gateway that has to answer.
fn is_refusal(reason: Reason) -> bool {
    reason <= Reason::CertificateFailed && reason != Reason::GatewayNotIsolated
}
