//! How it stands, in rows: which owner has which names on which sockets, and whether it is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use portreeve_names::HostPattern;
use portreeve_plan::ObjectRef;
use portreeve_table::{Port, PortKey, RouteId, Table, TlsService};
use serde::Serialize;
use serde_json::Value;

use crate::world::World;

/// Where each port listens, or why it does not.
pub type SocketStates = BTreeMap<PortKey, Result<SocketAddr, String>>;

/// How one owner of names stands: an app, a tenant, a Gateway, or a ListenerSet or route that people wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its kind.
    pub kind: String,
    /// Its namespace; absent for kinds that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The names that it asks for or has.
    pub names: Vec<ServedName>,
    /// Whether it is served.
    pub state: State,
    /// One word, as in its status.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

/// One name, and where it is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ServedName {
    /// A host name or pattern; `*` for any.
    pub name: String,
    /// The socket; absent when it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

/// Whether something is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum State {
    /// It is.
    Ready,
    /// It is not known yet.
    Pending,
    /// It is not.
    Refused,
}

/// Every owner, in the order apps, tenants, Gateways, and what people wrote below Gateways.
pub fn rows(world: &World, table: &Table, sockets: &SocketStates) -> Vec<Row> {
    let routed = routed_names(table, sockets);
    let order = ["NebariApp", "Tenant", "Gateway", "ListenerSet", "HTTPRoute", "TLSRoute"];
    let of_kind = |kind: &'static str| world.objects().filter(move |(object, _)| object.kind == kind);
    let owners = order.into_iter().flat_map(of_kind).filter(|(object, _)| world.is_written(object));
    owners.map(|(object, value)| row(object, value, &routed, sockets)).collect()
}

/// Apps and tenants of a cluster by their statuses; what serves them is not in this process, so nobody has an address.
pub fn owner_rows<'o>(owners: impl IntoIterator<Item = (&'o ObjectRef, &'o Value)>) -> Vec<Row> {
    let (routed, sockets) = (RoutedNames::new(), SocketStates::new());
    owners.into_iter().map(|(object, value)| row(object, value, &routed, &sockets)).collect()
}

fn row(object: &ObjectRef, value: &Value, routed: &RoutedNames, sockets: &SocketStates) -> Row {
    let conditions = &value["status"]["conditions"];
    let ((state, reason, message), names) = match object.kind.as_str() {
        "NebariApp" => (condition(conditions, "Ready"), claimed_names(value, sockets)),
        "Tenant" => (tenant_condition(&value["status"]), claimed_names(value, sockets)),
        "Gateway" => (condition(conditions, "Programmed"), gateway_names(object, value, sockets)),
        "ListenerSet" => (condition(conditions, "Programmed"), with_asked(value, Vec::new())),
        _ => {
            let names = routed.get(&object.to_string()).into_iter().flatten().cloned().collect();
            (route_condition(&value["status"]["parents"]), with_asked(value, names))
        }
    };
    let ObjectRef { kind, namespace, name, .. } = object.clone();
    Row { kind, namespace, name, names, state, reason, message }
}

/// The names of every route (`Kind/namespace/name`), with their sockets.
type RoutedNames = BTreeMap<String, BTreeSet<ServedName>>;

fn routed_names(table: &Table, sockets: &SocketStates) -> RoutedNames {
    let mut found = RoutedNames::new();
    let mut add = |route: &RouteId, pattern: HostPattern, port: &PortKey| {
        let name = ServedName { name: pattern.to_string(), address: address(sockets, &port.gateway, port.port) };
        found.entry(route.to_string()).or_default().insert(name);
    };
    for (key, port) in &table.ports {
        match port {
            Port::Http(listeners) => {
                let routes = listeners.iter().flat_map(|(_, listener)| listener.routes.iter());
                routes.for_each(|(pattern, route)| add(&route.id, pattern, key));
            }
            Port::Tls(listeners) => listeners.iter().for_each(|(_, listener)| match &listener.service {
                TlsService::Passthrough(routes) | TlsService::TerminateTcp { routes, .. } => {
                    routes.iter().for_each(|(pattern, route)| add(&route.id, pattern, key));
                }
                TlsService::TerminateHttp { routes, .. } => {
                    routes.iter().for_each(|(pattern, route)| add(&route.id, pattern, key));
                }
            }),
        }
    }
    found
}

fn condition(conditions: &Value, kind: &str) -> (State, String, String) {
    let found = conditions.as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
    let text = |field: &str| found.and_then(|condition| condition[field].as_str()).unwrap_or_default().to_owned();
    let state = match text("status").as_str() {
        "True" => State::Ready,
        "False" => State::Refused,
        _ => State::Pending,
    };
    (state, text("reason"), text("message"))
}

/// A tenant says of itself that it is not ready while it is still being made.
fn tenant_condition(status: &Value) -> (State, String, String) {
    let (state, reason, message) = condition(&status["conditions"], "Ready");
    let is_underway = matches!(status["phase"].as_str(), Some("Pending" | "Provisioning"));
    (if is_underway { State::Pending } else { state }, reason, message)
}

/// The worst condition of all parents.
fn route_condition(parents: &Value) -> (State, String, String) {
    let parents = parents.as_array().into_iter().flatten();
    let conditions =
        parents.flat_map(|parent| ["Accepted", "ResolvedRefs"].map(|kind| condition(&parent["conditions"], kind)));
    conditions.max_by_key(|(state, ..)| *state).unwrap_or_else(|| {
        (State::Refused, "NoParent".to_owned(), "no Gateway or ListenerSet that is served is its parent".to_owned())
    })
}

/// The names that were granted, with their sockets, and those that were asked for in vain.
fn claimed_names(value: &Value, sockets: &SocketStates) -> Vec<ServedName> {
    let claims = value["status"]["claims"].as_array().into_iter().flatten();
    let names = claims
        .filter_map(|claim| {
            let gateway = format!("{}/{}", claim["gateway"]["namespace"].as_str()?, claim["gateway"]["name"].as_str()?);
            let port = claim["port"].as_u64().and_then(|port| u16::try_from(port).ok())?;
            let name = claim["name"].as_str().unwrap_or("*").to_owned();
            Some(ServedName { name, address: address(sockets, &gateway, port) })
        })
        .collect();
    with_asked(value, names)
}

/// Adds the names that were asked for in vain.
fn with_asked(value: &Value, mut names: Vec<ServedName>) -> Vec<ServedName> {
    let mut missing = asked_names(value);
    missing.retain(|asked| names.iter().all(|name| name.name != *asked));
    names.extend(missing.into_iter().map(|name| ServedName { name, address: None }));
    names
}

/// The names that an object asks for.
fn asked_names(value: &Value) -> Vec<String> {
    let spec = &value["spec"];
    let texts = |list: &Value| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let listeners = spec["listeners"].as_array().into_iter().flatten();
    let listeners = listeners.map(|listener| listener["hostname"].as_str().unwrap_or("*").to_owned());
    spec["hostname"].as_str().map(str::to_owned).into_iter().chain(texts(&spec["hostnames"])).chain(listeners).collect()
}

/// A Gateway's ports and their sockets.
fn gateway_names(object: &ObjectRef, value: &Value, sockets: &SocketStates) -> Vec<ServedName> {
    let gateway = format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), object.name);
    let listeners = value["spec"]["listeners"].as_array().into_iter().flatten();
    let own = listeners.filter_map(|listener| listener["port"].as_u64().and_then(|port| u16::try_from(port).ok()));
    let open = sockets.keys().filter(|key| *key.gateway == *gateway).map(|key| key.port);
    let ports: BTreeSet<u16> = own.chain(open).collect();
    ports
        .into_iter()
        .map(|port| ServedName { name: format!("port {port}"), address: address(sockets, &gateway, port) })
        .collect()
}

fn address(sockets: &SocketStates, gateway: &str, port: u16) -> Option<SocketAddr> {
    sockets.get(&PortKey { gateway: gateway.into(), port })?.as_ref().ok().copied()
}

impl Row {
    /// `Kind namespace/name`.
    pub fn subject(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Pending => "Pending",
            Self::Refused => "Refused",
        })
    }
}

impl fmt::Display for ServedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn names_have_the_sockets_of_their_claims() {
        let app = json!({
            "spec": {"hostname": "hub.test"},
            "status": {
                "claims": [
                    {"name": "hub.test", "gateway": {"namespace": "a", "name": "g"}, "port": 443},
                    {"gateway": {"namespace": "a", "name": "g"}, "port": 8786},
                ],
                "conditions": [{"type": "Ready", "status": "True", "reason": "ReconcileSuccess", "message": "m"}],
            },
        });
        let sockets: SocketStates =
            [(PortKey { gateway: "a/g".into(), port: 443 }, Ok(socket("127.0.0.1:8443")))].into();
        let object = ObjectRef {
            api_version: String::new(),
            kind: "NebariApp".into(),
            namespace: Some("t".into()),
            name: "hub".into(),
        };
        let row = row(&object, &app, &RoutedNames::new(), &sockets);
        assert_eq!(
            (row.subject().as_str(), row.state, row.reason.as_str()),
            ("NebariApp t/hub", State::Ready, "ReconcileSuccess")
        );
        let names: Vec<_> = row.names.into_iter().map(|name| (name.name, name.address)).collect();
        assert_eq!(names, [("hub.test".into(), Some(socket("127.0.0.1:8443"))), ("*".into(), None)]);
        let refused = claimed_names(&json!({"spec": {"hostname": "x.test"}}), &sockets);
        assert_eq!(refused, [ServedName { name: "x.test".into(), address: None }]);
    }

    #[test]
    fn a_route_is_as_ready_as_its_worst_parent() {
        let parent = |accepted: &str, resolved: &str| {
            json!({"conditions": [
                {"type": "Accepted", "status": accepted, "reason": "A", "message": ""},
                {"type": "ResolvedRefs", "status": resolved, "reason": "R", "message": ""},
            ]})
        };
        let state = |parents: Value| {
            let (state, reason, _) = route_condition(&parents);
            (state, reason)
        };
        assert_eq!(state(json!([parent("True", "True")])).0, State::Ready);
        assert_eq!(state(json!([parent("True", "True"), parent("True", "False")])), (State::Refused, "R".into()));
        assert_eq!(state(json!([])), (State::Refused, "NoParent".into()));
    }

    #[test]
    fn a_tenant_that_is_being_made_is_not_refused() {
        let status =
            |phase: &str| json!({"phase": phase, "conditions": [{"type": "Ready", "status": "False", "reason": "R"}]});
        assert_eq!(tenant_condition(&status("Provisioning")).0, State::Pending);
        assert_eq!(tenant_condition(&status("Failed")).0, State::Refused);
    }

    #[test]
    fn a_gateway_shows_every_port() {
        let gateway = json!({"spec": {"listeners": [{"port": 80}, {"port": 443}]}});
        let object = ObjectRef {
            api_version: String::new(),
            kind: "Gateway".into(),
            namespace: Some("a".into()),
            name: "g".into(),
        };
        let key = |port| PortKey { gateway: "a/g".into(), port };
        let sockets: SocketStates =
            [(key(443), Ok(socket("127.0.0.1:8443"))), (key(8786), Err("in use".into()))].into();
        let names: Vec<_> = gateway_names(&object, &gateway, &sockets)
            .into_iter()
            .map(|name| (name.name, name.address.is_some()))
            .collect();
        assert_eq!(names, [("port 80".into(), false), ("port 443".into(), true), ("port 8786".into(), false)]);
    }
}
