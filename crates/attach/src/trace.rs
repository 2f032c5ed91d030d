//! "Where does this go, and why not?": the decisions, told along the way of one connection or request.

mod backends;
mod listeners;
mod network;
mod routes;

use portreeve_names::Hostname;
use portreeve_table::Table;

use serde_json::{Value, json};

use crate::decisions::{Decisions, decide};
use crate::index::{GATEWAY_GROUP, Index, Referent, Referrer, name_of};
use crate::network_policy::{GatewayPods, Pods, Verdict};
use crate::owners::{Owner, OwnerKind};
use crate::{Objects, Settings, serve};

/// "Where does this go?"
#[derive(Clone, Debug)]
pub struct Question {
    /// `namespace/name`; every Gateway with that port when absent.
    pub gateway: Option<String>,
    /// The port that listeners name, not one that it may be mapped to.
    pub port: u16,
    /// Whether the client speaks TLS, as for an `https` URL or a server name.
    pub tls: bool,
    /// The server name or host; a client may send none.
    pub name: Option<Hostname>,
    /// What is asked inside, for HTTP and HTTPS listeners; `GET /` when absent.
    pub request: Option<RequestQuestion>,
    /// Who asks, inside the cluster; then the NetworkPolicies on the way are looked at too.
    pub from: Option<Origin>,
}

/// From which Pods a connection comes, and through which it goes.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The clients.
    pub client: Pods,
    /// Those of the gateway.
    pub gateway: GatewayPods,
}

/// The request line of a [`Question`].
#[derive(Clone, Debug)]
pub struct RequestQuestion {
    /// In capitals.
    pub method: String,
    /// With the query, if any.
    pub path: String,
}

/// The answer to a [`Question`]: the way hop by hop, up to the first that fails.
///
/// The way forks where several Gateways have listeners for the name that are equally specific, and where a rule has
/// several backends; each branch then follows in turn and ends at its own first failure. Hops that NetworkPolicies
/// block do not end it: what is behind them is told too.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Trace {
    /// Never empty.
    pub hops: Vec<Hop>,
    /// What to bear in mind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<&'static str>,
}

/// What no object tells.
const ENFORCEMENT: &str = "NetworkPolicies are only enforced where the cluster's network plugin does so; where it does \
                           not, they block nothing";

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hop {
    /// `Gateway`, `Listener`, `NetworkPolicy`, `Route`, `ReferenceGrant`, `Service`, `Endpoints`.
    pub kind: &'static str,
    /// `Kind/namespace/name[/section]`, or what was looked for if there is no such object.
    pub subject: String,
    /// Whether the way goes on from here, for certain.
    pub ok: bool,
    /// What was found.
    pub finding: String,
    /// What to change, on the hop that fails.
    pub fix: Option<String>,
    /// The object to create, where that is what to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Box<Value>>,
    /// Of a hop of the kind `NetworkPolicy`.
    #[serde(flatten)]
    pub verdict: Option<Box<Verdict>>,
}

impl Trace {
    /// Whether every branch of the way leads to its end.
    pub fn is_served(&self) -> bool {
        self.hops.iter().all(|hop| hop.ok)
    }
}

impl Hop {
    fn good(kind: &'static str, subject: impl Into<String>, finding: impl Into<String>) -> Self {
        let (subject, finding) = (subject.into(), finding.into());
        Self { kind, subject, ok: true, finding, fix: None, manifest: None, verdict: None }
    }

    fn bad(kind: &'static str, subject: impl Into<String>, finding: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { ok: false, fix: Some(fix.into()), ..Self::good(kind, subject, finding) }
    }

    fn creating(self, manifest: Option<Value>) -> Self {
        Self { manifest: manifest.map(Box::new), ..self }
    }
}

/// Explains where a connection or request goes, and if nowhere, why and what to change.
///
/// It tells what the objects say by the rules of Gateway API, whoever serves them; where a listener's status says that
/// it is not programmed, it tells that too.
pub fn trace(objects: &Objects, settings: &Settings, question: &Question) -> Trace {
    let decisions = decide(objects, settings);
    let table = serve::table(&decisions);
    let index = Index::new(objects);
    let walk = Walk { objects, index: &index, decisions: &decisions, table: &table, question };
    Trace { hops: walk.hops(), notes: question.from.iter().map(|_| ENFORCEMENT).collect() }
}

/// The narrowest grant that permits a reference.
fn grant(name: &str, from: Referrer<'_>, to: Referent<'_>) -> Value {
    json!({
        "apiVersion": format!("{GATEWAY_GROUP}/v1"),
        "kind": "ReferenceGrant",
        "metadata": {"name": name, "namespace": to.namespace},
        "spec": {
            "from": [{"group": GATEWAY_GROUP, "kind": from.kind, "namespace": from.namespace}],
            "to": [{"group": "", "kind": to.kind, "name": to.name}],
        },
    })
}

/// What every step of the way looks at.
struct Walk<'w> {
    objects: &'w Objects,
    index: &'w Index<'w>,
    decisions: &'w Decisions<'w>,
    table: &'w Table,
    question: &'w Question,
}

impl<'w> Walk<'w> {
    fn hops(&self) -> Vec<Hop> {
        let gateways: Vec<_> = self.gateways().collect();
        if gateways.is_empty() {
            return vec![self.no_gateway()];
        }
        let with_port: Vec<_> = gateways.iter().copied().filter(|gateway| self.has_port(gateway)).collect();
        if with_port.is_empty() {
            return vec![self.no_port(&gateways)];
        }
        self.expecting(with_port).into_iter().flat_map(|gateway| self.through(gateway)).collect()
    }

    /// Those whose listeners are the most specific for the name: a client is sent to one of them by its address, and
    /// that others have the port too is no failure.
    fn expecting(&self, mut gateways: Vec<&'w Owner<'w>>) -> Vec<&'w Owner<'w>> {
        let best_of = |gateway: &Owner<'_>| {
            self.on_port(gateway).filter(|listener| self.has_name(listener)).map(|listener| &listener.hosts).max()
        };
        let best = gateways.iter().filter_map(|gateway| best_of(gateway)).max();
        gateways.retain(|gateway| best_of(gateway) == best);
        gateways
    }

    fn gateways(&self) -> impl Iterator<Item = &'w Owner<'w>> {
        let asked = self.question.gateway.as_deref();
        let gateways = self.decisions.owners.iter().filter(|owner| owner.kind() == OwnerKind::Gateway);
        gateways.filter(move |owner| asked.is_none_or(|asked| asked == &*owner.gateway_name))
    }

    fn has_port(&self, gateway: &Owner<'_>) -> bool {
        self.listeners_of(gateway).any(|listener| listener.port == self.question.port)
    }

    /// Through one Gateway, step by step.
    fn through(&self, gateway: &'w Owner<'w>) -> Vec<Hop> {
        let subject = format!("Gateway/{}", gateway.gateway_name);
        if let Some(refusal) = &gateway.refusal {
            return vec![Hop::bad("Gateway", subject, refusal.to_string(), "change that in the Gateway's spec")];
        }
        let class = &gateway.gateway.spec.gateway_class_name;
        let mut hops = vec![Hop::good("Gateway", subject, format!("of class '{class}'"))];
        let found = match self.listener(gateway) {
            Ok((hop, found)) => {
                hops.push(hop);
                found
            }
            Err(hop) => {
                hops.push(hop);
                return hops;
            }
        };
        hops.extend(self.to_gateway(gateway));
        match self.route(gateway, &found) {
            Ok((hop, rule)) => {
                hops.push(hop);
                hops.extend(rule.into_iter().flat_map(|(route, rule)| self.to_backends(gateway, route, rule)));
            }
            Err(hop) => hops.push(hop),
        }
        hops
    }

    fn no_gateway(&self) -> Hop {
        let asked = self.question.gateway.as_deref();
        let subject = asked.map_or_else(|| "Gateway".to_owned(), |asked| format!("Gateway/{asked}"));
        let exists = self.objects.gateways.iter().any(|gateway| {
            let (namespace, name) = name_of(&gateway.metadata);
            asked.is_none_or(|asked| asked == format!("{namespace}/{name}"))
        });
        if exists {
            return Hop::bad("Gateway", subject, "its class is not one that is looked at", "ask for its class too");
        }
        Hop::bad("Gateway", subject, "there is no such Gateway", "create it, or ask for one that exists")
    }

    fn no_port(&self, gateways: &[&Owner<'_>]) -> Hop {
        let port = self.question.port;
        let listeners = gateways.iter().flat_map(|gateway| self.listeners_of(gateway));
        let mut ports: Vec<_> = listeners.map(|listener| listener.port).collect();
        ports.sort_unstable();
        ports.dedup();
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        Hop::bad(
            "Listener",
            format!("port {port}"),
            format!("no listener has port {port}"),
            format!("add a listener for port {port}, or ask for one of the ports that there are: {}", ports.join(", ")),
        )
    }
}
