//! Outcomes as short texts: what is usual is left out, what is not is said.

use std::collections::BTreeSet;
use std::fmt::Write;

use gateway_api::gateways::GatewayStatusListeners;
use gateway_api::httproutes::HttpRouteStatusParents;
use gateway_api::listenersets::ListenerSetStatusListeners;
use gateway_api::tlsroutes::TlsRouteStatusParents;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portreeve_attach::{Attached, PolicyAncestor, StatusOf, trace};
use portreeve_table::{
    BackendOptions, Backends, HeaderChange, HttpRoute, HttpRoutes, KeyPair, PathMatch, Port, Table, TcpRoute,
    TlsService,
};

use super::input::Case;

/// The outcome of a case, as YAML.
pub(crate) fn outcome(case: &Case) -> String {
    let attached = case.attach();
    let warnings: Vec<_> =
        attached.warnings.iter().map(|warning| format!("{}: {}", warning.subject, warning.message)).collect();
    let mut text = block("statuses", &statuses(&attached));
    text += &block("table", &table(&attached.table));
    if !warnings.is_empty() {
        text += &block("warnings", &warnings.join("\n"));
    }
    if !case.questions.is_empty() {
        text += &block("traces", &traces(case));
    }
    text
}

fn block(name: &str, text: &str) -> String {
    let mut lines: Vec<_> = text.lines().map(|line| format!("  {line}").trim_end().to_owned()).collect();
    lines.insert(0, format!("{name}: |"));
    lines.join("\n") + "\n"
}

/// Each question, and the way hop by hop.
fn traces(case: &Case) -> String {
    let mut text = String::new();
    for question in &case.questions {
        let scheme = if question.tls { "tls" } else { "plain" };
        let name = question.name.as_ref().map_or("(no name)", |name| name.as_str());
        let request = question.request.as_ref().map(|request| format!(" {} {}", request.method, request.path));
        writeln!(text, "{scheme} {name}:{}{}", question.port, request.unwrap_or_default()).unwrap();
        for hop in trace(&case.objects, &case.settings, question).hops {
            let mark = if hop.ok { "" } else { "FAILS " };
            writeln!(text, "  {mark}{} {}: {}", hop.kind, hop.subject, hop.finding).unwrap();
            for line in hop.fix.iter().flat_map(|fix| fix.lines()) {
                writeln!(text, "    > {line}").unwrap();
            }
            if let Some(manifest) = &hop.manifest {
                writeln!(text, "    + {manifest}").unwrap();
            }
        }
    }
    text
}

fn statuses(attached: &Attached) -> String {
    let mut text = String::new();
    for status in &attached.gateway_classes {
        head(&mut text, "GatewayClass", status, status.status.conditions.iter().flatten(), "");
    }
    for status in &attached.gateways {
        let mut more = String::new();
        if let Some(sets @ 1..) = status.status.attached_listener_sets {
            write!(more, "; ListenerSets: {sets}").unwrap();
        }
        for address in status.status.addresses.iter().flatten() {
            write!(more, "; {}", address.value).unwrap();
        }
        head(&mut text, "Gateway", status, status.status.conditions.iter().flatten(), &more);
        for listener in status.status.listeners.iter().flatten() {
            entry(&mut text, &Entry::from(listener));
        }
    }
    for status in &attached.listener_sets {
        head(&mut text, "ListenerSet", status, status.status.conditions.iter().flatten(), "");
        for listener in status.status.listeners.iter().flatten() {
            entry(&mut text, &Entry::from(listener));
        }
    }
    for status in &attached.http_routes {
        head(&mut text, "HTTPRoute", status, [].iter(), "");
        for parent in &status.status.parents {
            entry(&mut text, &Entry::from(parent));
        }
    }
    for status in &attached.tls_routes {
        head(&mut text, "TLSRoute", status, [].iter(), "");
        for parent in &status.status.parents {
            entry(&mut text, &Entry::from(parent));
        }
    }
    for status in &attached.security_policies {
        head(&mut text, "SecurityPolicy", status, [].iter(), "");
        for ancestor in &status.status.ancestors {
            entry(&mut text, &Entry::from(ancestor));
        }
    }
    text
}

/// A line of a status: a listener or a parent.
struct Entry<'a> {
    name: String,
    conditions: &'a [Condition],
    more: String,
}

macro_rules! entry_from_listener {
    ($($listener:ty),*) => {$(
        impl<'a> From<&'a $listener> for Entry<'a> {
            fn from(listener: &'a $listener) -> Self {
                let kinds: Vec<_> = listener.supported_kinds.iter().flatten().map(|kind| kind.kind.as_str()).collect();
                let more = format!("; {}: {}", kinds.join("+"), listener.attached_routes);
                Self { name: listener.name.clone(), conditions: &listener.conditions, more }
            }
        }
    )*};
}

entry_from_listener!(GatewayStatusListeners, ListenerSetStatusListeners);

macro_rules! entry_from_parent {
    ($($parent:ty),*) => {$(
        impl<'a> From<&'a $parent> for Entry<'a> {
            fn from(parent: &'a $parent) -> Self {
                let reference = &parent.parent_ref;
                let mut name = format!("{} {}", reference.kind.as_deref().unwrap_or("(no kind)"), reference.name);
                for part in [&reference.namespace, &reference.section_name].into_iter().flatten() {
                    write!(name, " {part}").unwrap();
                }
                if let Some(port) = reference.port {
                    write!(name, " {port}").unwrap();
                }
                let foreign = parent.controller_name != super::input::CONTROLLER;
                let more = if foreign { format!("; of {}", parent.controller_name) } else { String::new() };
                Self { name, conditions: &parent.conditions, more }
            }
        }
    )*};
}

entry_from_parent!(HttpRouteStatusParents, TlsRouteStatusParents);

impl<'a> From<&'a PolicyAncestor> for Entry<'a> {
    fn from(ancestor: &'a PolicyAncestor) -> Self {
        let text = |field: &str| ancestor.ancestor_ref[field].as_str().unwrap_or_default();
        let foreign = ancestor.controller_name != super::input::CONTROLLER;
        let more = if foreign { format!("; of {}", ancestor.controller_name) } else { String::new() };
        Self { name: format!("{} {}", text("kind"), text("name")), conditions: &ancestor.conditions, more }
    }
}

fn head<'a, S>(
    text: &mut String,
    kind: &str,
    status: &StatusOf<S>,
    conditions: impl Iterator<Item = &'a Condition> + Clone,
    more: &str,
) {
    let namespace = status.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let line = format!("{kind} {namespace}{}: {}{more}", status.name, summary(conditions.clone()));
    writeln!(text, "{}", line.trim_end()).unwrap();
    messages(text, "  ", conditions);
}

fn entry(text: &mut String, entry: &Entry<'_>) {
    writeln!(text, "  {}: {}{}", entry.name, summary(entry.conditions.iter()), entry.more).unwrap();
    messages(text, "    ", entry.conditions.iter());
}

/// `Type` where it is as usual, else `Type=Status/Reason`.
fn summary<'a>(conditions: impl Iterator<Item = &'a Condition>) -> String {
    let shown = conditions.filter(|condition| condition.reason != "NoConflicts").map(|condition| {
        let Condition { type_, status, reason, .. } = condition;
        if status == "True" && type_ == reason { type_.clone() } else { format!("{type_}={status}/{reason}") }
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Each message once, however many conditions carry it.
fn messages<'a>(text: &mut String, indent: &str, conditions: impl Iterator<Item = &'a Condition>) {
    let mut said = BTreeSet::new();
    for condition in conditions.filter(|condition| !condition.message.is_empty()) {
        if said.insert(&condition.message) {
            writeln!(text, "{indent}- {}", condition.message).unwrap();
        }
    }
}

fn table(table: &Table) -> String {
    let mut text = String::new();
    for (key, port) in &table.ports {
        if let Some(blocks) = table.proxies.get(key) {
            let blocks: Vec<_> = blocks.iter().map(ToString::to_string).collect();
            writeln!(text, "{key} believes {}", blocks.join(" ")).unwrap();
        }
        match port {
            Port::Http(listeners) => {
                writeln!(text, "{key} HTTP").unwrap();
                for (hosts, listener) in listeners.iter() {
                    writeln!(text, "  {hosts} = {}", listener.id).unwrap();
                    http_routes(&mut text, &listener.routes);
                }
            }
            Port::Tls(listeners) => {
                writeln!(text, "{key} TLS").unwrap();
                for (hosts, listener) in listeners.iter() {
                    let idle = listener.idle_timeout.map(|time| format!(", idle {time:?}")).unwrap_or_default();
                    let service = service_name(&listener.service);
                    writeln!(text, "  {hosts} = {}, {service}{idle}", listener.id).unwrap();
                    service_routes(&mut text, &listener.service);
                }
            }
        }
    }
    text
}

fn service_name(service: &TlsService) -> String {
    let names = |pair: &KeyPair| pair.dns_names.join(" ");
    match service {
        TlsService::Passthrough(_) => "passthrough".to_owned(),
        TlsService::TerminateTcp { certificate, .. } => format!("terminate to TCP with {}", names(certificate)),
        TlsService::TerminateHttp { certificate, .. } => format!("terminate to HTTP with {}", names(certificate)),
    }
}

fn service_routes(text: &mut String, service: &TlsService) {
    match service {
        TlsService::Passthrough(routes) | TlsService::TerminateTcp { routes, .. } => {
            for (hosts, TcpRoute { id, backends }) in routes.iter() {
                writeln!(text, "    {hosts} -> {id} -> {}", backends_text(backends)).unwrap();
            }
        }
        TlsService::TerminateHttp { routes, .. } => http_routes(text, routes),
    }
}

fn http_routes(text: &mut String, routes: &HttpRoutes) {
    for (hosts, route) in routes.iter() {
        writeln!(text, "    {hosts} {} -> {} -> {}", match_text(route), route.id, action_text(route)).unwrap();
    }
}

fn match_text(route: &HttpRoute) -> String {
    let matches = &route.matches;
    let mut text = match &matches.path {
        PathMatch::Exact(path) => path.clone(),
        PathMatch::Prefix(path) => format!("{}/..", path.strip_suffix('/').unwrap_or(path)),
    };
    if let Some(method) = &matches.method {
        write!(text, " {method}").unwrap();
    }
    for (name, value) in &matches.headers {
        write!(text, " {name}: {value}").unwrap();
    }
    for (name, value) in &matches.query {
        write!(text, " ?{name}={value}").unwrap();
    }
    text
}

fn action_text(route: &HttpRoute) -> String {
    let filters = &route.filters;
    let mut text = String::new();
    if let Some(login) = &route.login {
        let who = login.allowed.iter().flatten().map(|claim| format!(" {} {}", claim.claim, claim.values.join("|")));
        write!(text, "sign-in{} at {}, ", who.collect::<String>(), login.provider.issuer).unwrap();
    }
    for (side, changes) in [("request", &filters.request_headers), ("response", &filters.response_headers)] {
        for change in changes {
            write!(text, "{side} {}, ", change_text(change)).unwrap();
        }
    }
    if let Some(hostname) = &filters.hostname {
        write!(text, "as {hostname}, ").unwrap();
    }
    if let Some(path) = &filters.path {
        write!(text, "at {path:?}, ").unwrap();
    }
    if let Some(timeout) = filters.timeout {
        write!(text, "within {timeout:?}, ").unwrap();
    }
    match &filters.redirect {
        Some(to) => {
            let kept = "*".to_owned();
            let scheme = to.scheme.as_ref().unwrap_or(&kept);
            let hostname = to.hostname.as_ref().unwrap_or(&kept);
            let number = to.port.map_or_else(|| kept.clone(), |port| port.to_string());
            write!(text, "{} {scheme}://{hostname}:{number}", to.status).unwrap();
            if let Some(path) = &to.path {
                write!(text, " {path:?}").unwrap();
            }
        }
        None => text += &backends_text(&route.backends),
    }
    text
}

fn change_text(change: &HeaderChange) -> String {
    match change {
        HeaderChange::Set(name, value) => format!("{name} = {value}"),
        HeaderChange::Add(name, value) => format!("{name} + {value}"),
        HeaderChange::Remove(name) => format!("{name} removed"),
    }
}

fn backends_text(backends: &Backends) -> String {
    let one = |backend: &portreeve_table::Backend| {
        let weight = if backend.weight == 1 { String::new() } else { format!("{} x ", backend.weight) };
        let endpoints = match &backend.endpoints {
            Ok(endpoints) => endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(fault) => fault.to_string(),
        };
        let options = if backend.options == BackendOptions::default() {
            String::new()
        } else {
            format!(" {:?}", backend.options)
        };
        format!("{weight}{} ({endpoints}){options}", backend.service)
    };
    let all: Vec<_> = backends.entries.iter().map(one).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(" | ") }
}
