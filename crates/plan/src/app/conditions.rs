use k8s_openapi::api::core::v1::Secret;
use portreeve_api::ServiceReference;
use portreeve_api::names::nebari_app as derived;
use portreeve_api::nebari_app::RouteManagement;

use super::import::not_permitted;
use super::login::{nobody_signs_in, secret_fault};
use super::status::{AppReport, PUBLIC_ROUTES_IGNORED};
use super::{Auth, CertificateSource, Section};
use crate::acknowledgement::{http_route_statuses, route};
use crate::condition::{Finding, Reason, foremost};
use crate::object::{Key, Kind};
use crate::settled::{Alarm, WatchedListener, not_found};

impl AppReport<'_, '_> {
    /// `TLSReady`
    pub(super) fn tls(&self, alarm: &mut Alarm) -> Finding {
        if let Some(migration) = self.case.web.as_ref().and_then(|web| web.section.migration()) {
            return foremost(self.host_name()).unwrap_or_else(|| self.on_legacy(migration, alarm));
        }
        let certificate = self.case.app.web.as_ref().map_or(CertificateSource::Disabled, |web| web.certificate);
        match certificate {
            CertificateSource::Disabled => Reason::TlsDisabled.because("TLS is not enabled for this app"),
            CertificateSource::Shared => Reason::ClusterIssuerNotConfigured.because(
                "No ClusterIssuer configured and routing.tls.secretName not set; using the shared HTTPS listener",
            ),
            CertificateSource::Secret(secret) => {
                let findings = self.own_listener(self.secret(secret), alarm);
                let place = format!("{}/{secret}", self.case.app.namespace);
                let ready =
                    || Reason::UserProvidedSecretReady.because(format!("using pre-provisioned TLS secret {place}"));
                foremost(findings).unwrap_or_else(ready)
            }
            CertificateSource::Issuer(_) => {
                foremost(self.own_listener(self.certificate(), alarm)).unwrap_or_else(|| {
                    Reason::TlsConfigured.because("TLS certificate is ready and Gateway listener is configured")
                })
            }
        }
    }

    /// What is wrong with the app's HTTPS listener or its certificate.
    fn own_listener(&self, certificate: Option<Finding>, alarm: &mut Alarm) -> Vec<Finding> {
        let mut findings = self.host_name();
        if findings.is_empty() {
            findings.extend(certificate);
            findings.extend(self.https_listener(alarm));
        }
        findings
    }

    /// Why the app does not have its host name, or nothing that could serve it.
    fn host_name(&self) -> Vec<Finding> {
        let Some(web) = &self.case.web else { return Vec::new() };
        let verdict = web.claim.and_then(|claim| self.settled.judgement.refusal(claim));
        let refused = web.refusal.clone().into_iter().chain(verdict);
        let set = matches!(web.section, Section::Own(_)).then(|| self.no_listener_set()).flatten();
        refused.chain(set).collect()
    }

    /// Why the app has no ListenerSet although listeners are granted.
    pub(super) fn no_listener_set(&self) -> Option<Finding> {
        if let Some(why) = Kind::ListenerSet.unserved(&self.settled.view.world.served) {
            return Some(Reason::ListenerSetUnsupported.because(why));
        }
        self.rendered.blocked(Kind::ListenerSet, &derived::listener_set(self.case.app.name))
    }

    fn https_listener(&self, alarm: &mut Alarm) -> Vec<Finding> {
        let (Some(web), Some(set)) = (&self.case.web, self.listener_set()) else { return Vec::new() };
        let Section::Own(section) = &web.section else { return Vec::new() };
        let watched = WatchedListener {
            set: &set,
            section,
            gateway: &self.case.app.gateway,
            port: web.port,
            recorded: self.recorded_https(section),
        };
        let findings = self.settled.listener(&watched, alarm).into_iter();
        let contract = |finding: Finding| match finding.reason {
            Reason::ListenerConflicted => {
                self.unless_just_moved(Reason::GatewayListenerConflict.because(finding.message))
            }
            _ => finding,
        };
        findings.map(contract).collect()
    }

    fn secret(&self, name: &str) -> Option<Finding> {
        let namespace = self.case.app.namespace;
        let Some(secret) = self.settled.view.secret(namespace, name) else {
            let former = &self.case.app.gateway.namespace;
            let found = self.settled.view.secret(former, name).map(|_| format!("copy it there from {former}"));
            let found = found.unwrap_or_else(|| "create it".to_owned());
            return Some(Reason::UserProvidedSecretNotFound.because(format!(
                "TLS secret {namespace}/{name} not found; {found} and the listener will pick it up"
            )));
        };
        (!is_tls(secret)).then(|| {
            Reason::UserProvidedSecretInvalidType.because(format!(
                "TLS secret {namespace}/{name} must be of type kubernetes.io/tls, with tls.crt and tls.key"
            ))
        })
    }

    fn certificate(&self) -> Option<Finding> {
        let app = &self.case.app;
        let name = derived::certificate(app.name, app.namespace);
        if let Some(why) = Kind::Certificate.unserved(&self.settled.view.world.served) {
            return Some(Reason::CertificateFailed.because(format!("{why}, or set routing.tls.secretName")));
        }
        if let Some(foreign) = self.rendered.blocked(Kind::Certificate, &name) {
            return Some(foreign);
        }
        self.settled.certificate(app.namespace, &name)
    }

    /// `RoutingReady`
    pub(super) fn routing(&self) -> Finding {
        let app = &self.case.app;
        let Some(web) = &app.web else {
            return Reason::RoutingNotConfigured.because("Routing configuration not provided in spec");
        };
        let refused = self.host_name();
        if let Some(refusal) = foremost(refused) {
            return refusal;
        }
        let gateway = self.no_gateway();
        if web.management == RouteManagement::App {
            let choice = Reason::RoutingNotConfigured
                .because("routing.routeManagement is App: the app attaches its own HTTPRoutes");
            return gateway.unwrap_or(choice);
        }
        let routes = [derived::http_route(app.name), derived::public_http_route(app.name)];
        let permission = self.permission(Kind::HttpRoute, &app.source.spec.service);
        let routes = routes.iter().filter_map(|name| self.http_route(name));
        let unserved = Kind::HttpRoute.unserved(&self.settled.view.world.served);
        let unserved = unserved.map(|why| Reason::HttpRouteUnsupported.because(why));
        let refused = gateway.into_iter().chain(unserved).chain(self.rendered.closed.clone()).chain(permission);
        let findings = refused.chain(routes).chain(self.taken_over());
        foremost(findings).unwrap_or_else(|| {
            Reason::HttpRouteReady.because(if app.ignores_public_routes() {
                format!("HTTPRoute is configured and ready; {PUBLIC_ROUTES_IGNORED}")
            } else {
                "HTTPRoute is configured and ready".to_owned()
            })
        })
    }

    /// Why no route can be attached: the Gateway is away, or is there without the section that the app is served on.
    fn no_gateway(&self) -> Option<Finding> {
        let name = &self.case.app.gateway;
        let Some(gateway) = self.settled.view.gateway(name) else { return Some(not_found(self.settled.view, name)) };
        let Section::Borrowed(section) = &self.case.web.as_ref()?.section else { return None };
        gateway.section(section).is_none().then(|| {
            Reason::RouteNotAccepted
                .because(format!("Gateway {name} has no listener {section} for routes to attach to"))
        })
    }

    fn http_route(&self, name: &str) -> Option<Finding> {
        let key = Key::new(Kind::HttpRoute, self.case.app.namespace, name);
        let parents = self.rendered.parents.get(&key)?;
        let acknowledged = || {
            let live = self.settled.view.http_route(&key.namespace, name);
            route(&live.map(http_route_statuses).unwrap_or_default(), parents, self.settled.generation(&key))
        };
        self.rendered.blocked(Kind::HttpRoute, name).or_else(acknowledged)
    }

    /// Why a route of `kind` may not refer to a Service, if it may not.
    pub(super) fn permission(&self, kind: Kind, service: &ServiceReference) -> Option<Finding> {
        let app = &self.case.app;
        let namespace = service.namespace.as_deref().filter(|namespace| *namespace != app.namespace)?;
        let name = &service.name;
        let unserved = Kind::ReferenceGrant.unserved(&self.settled.view.world.served);
        if unserved.is_some() || !self.settled.view.may_refer(kind, app.namespace, namespace, name) {
            let why = unserved.unwrap_or_else(|| not_permitted(kind, app.namespace, namespace, name));
            return Some(Reason::RefNotPermitted.because(why));
        }
        self.rendered.blocked(Kind::ReferenceGrant, &derived::reference_grant(app.namespace, app.name, name))
    }

    /// `AuthReady`
    pub(super) fn auth(&self) -> Finding {
        let app = &self.case.app;
        let unprotectable = self.case.web.as_ref().and_then(|web| web.refusal.clone());
        let unprotectable = unprotectable.filter(|refusal| refusal.reason == Reason::AuthNeedsOperatorRoutes);
        let made = self.sign_in();
        let missing = match app.auth {
            Auth::Disabled => return Reason::AuthDisabled.because("Authentication is not enabled for this app"),
            Auth::Gateway | Auth::App if made.is_some() => unprotectable
                .or_else(|| foremost(self.host_name()).filter(|_| app.auth == Auth::Gateway))
                .or_else(|| made.and_then(|made| made.fault.clone())),
            Auth::Gateway => unprotectable.or_else(|| Some(nobody_signs_in(self.settled.view))),
            Auth::App => self.client_secret(),
        };
        missing.unwrap_or_else(|| {
            let provider = app.source.spec.auth.as_ref().map(|auth| auth.provider).unwrap_or_default();
            Reason::AuthConfigured.because(format!("Authentication configured with provider {}", provider.as_str()))
        })
    }

    /// An app that signs visitors in itself needs its client's Secret.
    fn client_secret(&self) -> Option<Finding> {
        let app = &self.case.app;
        secret_fault(self.settled.view, app, &derived::oidc_client_secret(app.name))
    }
}

/// Whether a Secret has a certificate and its key.
pub(super) fn is_tls(secret: &Secret) -> bool {
    let is_of_type = secret.type_.as_deref() == Some("kubernetes.io/tls");
    is_of_type && ["tls.crt", "tls.key"].into_iter().all(|key| has_key(secret, key))
}

/// Whether a Secret has something under a key, in either of the forms in which a manifest may write it.
pub(crate) fn has_key(secret: &Secret, key: &str) -> bool {
    let data = secret.data.as_ref().and_then(|data| data.get(key)).is_some_and(|value| !value.0.is_empty());
    data || secret.string_data.as_ref().and_then(|data| data.get(key)).is_some_and(|value| !value.is_empty())
}
