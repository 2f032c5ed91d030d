//! `routeImport`: Traefik's IngressRouteTCPs, said as TLSRoutes.

use std::collections::BTreeSet;
use std::slice::from_ref;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use portreeve_api::conditions::reasons;
use portreeve_api::names::{labels, nebari_app as derived};
use portreeve_api::nebari_app::{NotImported, TcpStatus};
use portreeve_api::traefik::{IngressRouteTcpRoute, IngressRouteTcpService};
use portreeve_api::{IngressRouteTcp, NebariAppStatus};
use portreeve_names::{HostPattern, Hostname};
use serde_json::json;

use super::lower::EntryListener;
use super::render::Rendering;
use super::{App, Entry};
use crate::body::{self, Backend, Metadata};
use crate::condition::{Finding, Reason, shortened};
use crate::docket::{Judgement, zone_refusal};
use crate::object::{Key, Kind};
use crate::output::{Event, ObjectRef};
use crate::text::label_value;
use crate::view::View;

/// The most backends that a TLSRoute may have (Gateway API, `maxItems`).
const MAX_BACKENDS: usize = 16;

/// The most rules that a status tells of.
const MAX_TOLD: usize = 16;

/// What became of everything that an entry imports.
#[derive(Default)]
pub(crate) struct Imports {
    /// The TLSRoutes that are wanted.
    pub(super) routes: Vec<Key>,
    /// The Services of the app's namespace that they lead to.
    pub(super) backends: BTreeSet<(String, u16)>,
    pub(super) refused: Vec<NotImported>,
}

/// One rule as a TLSRoute.
pub(super) struct ImportedRoute<'s> {
    pub(super) hostname: Hostname,
    pub(super) listener: &'s EntryListener,
    pub(super) backends: Vec<Backend<'s>>,
}

/// Reads the rules of IngressRouteTCPs for one entry.
pub(super) struct Importer<'s, 'a> {
    pub(super) view: &'s View<'a>,
    pub(super) app: &'s App<'a>,
    pub(super) entry: &'s Entry<'a>,
    pub(super) granted: &'s [&'s EntryListener],
    pub(super) judgement: &'s Judgement,
}

impl<'s, 'a> Importer<'s, 'a> {
    /// A rule as a TLSRoute, or why it cannot be one; `None` where it is for another entry of the app.
    pub(super) fn read(
        &self,
        source: &'a IngressRouteTcp,
        rule: &'a IngressRouteTcpRoute,
    ) -> Result<Option<ImportedRoute<'s>>, String> {
        if !source.spec.tls.as_ref().is_some_and(|tls| tls.passthrough) {
            return Err("tls.passthrough is not true, so TLS would not reach the Service".to_owned());
        }
        let hostname = server_name(&rule.rule)?;
        let hosts = HostPattern::Exact(hostname.clone());
        if !self.entry.covers(&hosts) {
            let other = self.app.entries.iter().any(|entry| entry.imports && entry.covers(&hosts));
            let outside = || format!("{hostname} is none of the entry's sniHostnames");
            return if other { Ok(None) } else { Err(outside()) };
        }
        if !rule.middlewares.is_empty() {
            return Err("it has middlewares, which a TLSRoute cannot say".to_owned());
        }
        self.may_serve(&hosts)?;
        let covering = self.granted.iter().copied().filter(|listener| listener.hosts.covers(&hosts));
        let listener = covering.max_by(|left, right| left.hosts.cmp(&right.hosts));
        let listener = listener.ok_or_else(|| format!("the listener for {hostname} is not granted"))?;
        Ok(Some(ImportedRoute { hostname, listener, backends: self.backends(rule)? }))
    }

    /// A listener for every name does not make every name the app's.
    fn may_serve(&self, hosts: &HostPattern) -> Result<(), String> {
        if let Some(refusal) = zone_refusal(&self.view.world.config.zones, self.app.namespace, hosts) {
            return Err(refusal.message);
        }
        let is_taken = self.judgement.is_of_another(hosts, self.app.owner.group());
        if is_taken { Err(format!("{hosts} belongs to another owner")) } else { Ok(()) }
    }

    fn backends(&self, rule: &'a IngressRouteTcpRoute) -> Result<Vec<Backend<'s>>, String> {
        if rule.services.is_empty() || rule.services.len() > MAX_BACKENDS {
            return Err(format!("a TLSRoute has at least one and at most {MAX_BACKENDS} Services"));
        }
        rule.services.iter().map(|service| self.backend(service)).collect()
    }

    fn backend(&self, service: &'a IngressRouteTcpService) -> Result<Backend<'s>, String> {
        const UNSAID: [&str; 3] = ["proxyProtocol", "serversTransport", "tls"];
        if let Some(field) = UNSAID.iter().find(|field| service.other.get(**field).is_some_and(|value| *value != false))
        {
            return Err(format!("{field} of Service {} cannot be said by a TLSRoute", service.name));
        }
        let own = self.app.namespace;
        let namespace = service.namespace.as_deref().unwrap_or(own);
        if namespace != own && !self.view.may_refer(Kind::TlsRoute, own, namespace, &service.name) {
            return Err(not_permitted(Kind::TlsRoute, own, namespace, &service.name));
        }
        let port = self.port(namespace, service)?;
        let weight = service.weight.unwrap_or(1);
        Ok(Backend { namespace, name: &service.name, port, weight })
    }

    /// Traefik knows a port of a Service by its number or its name; a TLSRoute by its number.
    fn port(&self, namespace: &str, service: &IngressRouteTcpService) -> Result<u16, String> {
        let name = &service.name;
        let found = self.view.service(namespace, name);
        let found = found.ok_or_else(|| format!("service {name} not found in namespace {namespace}"))?;
        let wanted = service.port.as_ref().ok_or_else(|| format!("no port of service {name} is given"))?;
        let mut ports = found.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let port = ports.find(|port| match wanted {
            IntOrString::Int(number) => port.port == *number,
            IntOrString::String(text) => port.name.as_ref() == Some(text) || text.parse() == Ok(port.port),
        });
        let number = port.and_then(|port| u16::try_from(port.port).ok());
        number.ok_or_else(|| match wanted {
            IntOrString::Int(number) => format!("service {name} does not expose port {number}"),
            IntOrString::String(text) => format!("service {name} does not expose port {text}"),
        })
    }
}

impl Rendering<'_, '_, '_> {
    /// Wants the TLSRoute of a rule. Its owner is the IngressRouteTCP, with which it goes; who made it, labels say.
    pub(super) fn imported_route(
        &mut self,
        entry: &Entry<'_>,
        source: &IngressRouteTcp,
        rule: &IngressRouteTcpRoute,
        route: &ImportedRoute<'_>,
        imports: &mut Imports,
    ) {
        let Some(version) = self.view.world.served.tls_routes else { return };
        let Some(parent) = self.own_parent(&route.listener.name) else { return };
        let (app, namespace) = (self.app.name, self.app.namespace);
        let metadata = &source.metadata;
        let source_name = metadata.name.as_deref().unwrap_or_default();
        let name = derived::imported_tls_route(app, entry.name, source_name, route.hostname.as_str());
        let key = Key::new(Kind::TlsRoute, namespace, name);
        if imports.routes.contains(&key) {
            return imports.refuse(source, rule, format!("another rule has {} already", route.hostname));
        }
        let spec = body::tls_route(from_ref(&parent), &[route.hostname.to_string()], &route.backends, namespace);
        let labels = labels::of_tcp_route(&label_value(app));
        let mut body = body::object(&key, version.api_version(), Metadata { labels, ..Metadata::default() }, spec);
        body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": IngressRouteTcp::api_version(&()),
            "kind": IngressRouteTcp::kind(&()),
            "name": source_name,
            "uid": metadata.uid,
        }]);
        if !self.add(key.clone(), body) {
            return imports.refuse(source, rule, format!("{} is there and was not made for this app", key.describe()));
        }
        for backend in &route.backends {
            self.refer(Kind::TlsRoute, backend);
            if backend.namespace == namespace {
                imports.backends.insert((backend.name.to_owned(), backend.port));
            }
        }
        self.expect(key.clone(), vec![parent]);
        imports.routes.push(key);
    }
}

/// Why a route may not refer to a Service of another namespace, and both ways out.
pub(super) fn not_permitted(kind: Kind, from: &str, namespace: &str, service: &str) -> String {
    format!(
        "service {service} of namespace {namespace} does not let a {} of namespace {from} refer to it: annotate the \
         service with nebari.dev/allow-from: {from}, or create a ReferenceGrant in namespace {namespace}",
        kind.as_str()
    )
}

/// The name in a rule that is one `HostSNI` of one name. Nothing else means what a TLSRoute can say.
fn server_name(rule: &str) -> Result<Hostname, String> {
    let argument = rule.trim().strip_prefix("HostSNI(").and_then(|rest| rest.strip_suffix(')'));
    let name = argument.and_then(|argument| ['`', '"'].into_iter().find_map(|quote| quoted(argument.trim(), quote)));
    let name = name.ok_or("only a match that is one HostSNI(`name`) can be a TLSRoute")?;
    Hostname::parse(name).map_err(|error| format!("HostSNI: {error}"))
}

fn quoted(text: &str, quote: char) -> Option<&str> {
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains(quote)).then_some(inner)
}

impl Imports {
    pub(super) fn refuse(&mut self, source: &IngressRouteTcp, rule: &IngressRouteTcpRoute, message: String) {
        let name = source.metadata.name.clone().unwrap_or_default();
        self.refused.push(NotImported { name, rule: shortened(rule.rule.clone()), message });
    }

    /// What the status lists.
    pub(super) fn told(&self) -> Vec<NotImported> {
        self.refused.iter().take(MAX_TOLD).cloned().collect()
    }

    /// `refused_by_gateway` is what is wrong with a route that was made.
    pub(super) fn finding(&self, refused_by_gateway: Option<Finding>) -> Finding {
        if let Some(first) = self.refused.first() {
            let more = if self.refused.len() > 1 { "; notImported lists more" } else { "" };
            return Reason::RouteNotImported.because(format!("{}{more}", describe(first)));
        }
        refused_by_gateway.unwrap_or_else(|| Reason::RoutesImported.because("every rule has become a TLSRoute"))
    }
}

fn describe(refused: &NotImported) -> String {
    format!("IngressRouteTCP {}, {}: {}", refused.name, refused.rule, refused.message)
}

/// An event for each rule that is newly told to be left out.
pub(super) fn events(before: &NebariAppStatus, after: &[TcpStatus], about: &ObjectRef) -> Vec<Event> {
    let known = |entry: &str, refused: &NotImported| {
        before.tcp.iter().any(|status| status.name == entry && status.not_imported.contains(refused))
    };
    let mut events = Vec::new();
    for status in after {
        let news = status.not_imported.iter().filter(|refused| !known(&status.name, refused));
        events.extend(news.map(|refused| Event {
            about: about.clone(),
            warning: true,
            reason: reasons::ROUTE_NOT_IMPORTED.to_owned(),
            message: format!("entry {}: {}", status.name, describe(refused)),
        }));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_one_server_name_or_none() {
        let name = |rule: &str| server_name(rule).map(|name| name.to_string());
        assert_eq!(name("HostSNI(`daskgateway-Team.0a`)"), Ok("daskgateway-team.0a".to_owned()));
        assert_eq!(name(" HostSNI( \"a.b\" ) "), Ok("a.b".to_owned()));
        for other in [
            "",
            "HostSNI(`*`)",
            "HostSNI(`*.a.b`)",
            "HostSNI(`a.b`, `c.d`)",
            "HostSNI(`a.b`) || HostSNI(`c.d`)",
            "HostSNI(`a.b`) && ClientIP(`10.0.0.1`)",
            "!HostSNI(`a.b`)",
            "HostSNIRegexp(`.*`)",
            "HostSNI(a.b)",
            "HostSNI(`10.0.0.1`)",
        ] {
            assert!(name(other).is_err(), "{other}");
        }
    }
}
