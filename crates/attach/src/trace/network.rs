use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Hop, Walk};
use crate::backends::{Backend, BackendProblem, is_tcp, ready_addresses, service_port};
use crate::index::{Name, name_of};
use crate::network_policy::{Connection, Direction, PodLabels, PodPort, Pods, Policies, Verdict, judge, opening};
use crate::owners::Owner;

/// One end of a connection, in words.
struct End<'p> {
    pods: &'p Pods,
    /// In a sentence.
    role: &'static str,
    /// In the name of a NetworkPolicy.
    name: String,
}

impl<'w> Walk<'w> {
    /// What NetworkPolicies make of the connection from the client to the gateway; nothing if there is no client.
    pub(super) fn to_gateway(&self, gateway: &Owner<'_>) -> Vec<Hop> {
        let Some(origin) = &self.question.from else { return Vec::new() };
        let number = origin.gateway.pod_port(self.question.port);
        let ports = [PodPort { number: Some(number), name: None, at: None }];
        let pods = self.gateway_pods(gateway);
        let client = End { pods: &origin.client, role: "the client", name: origin.client.namespace.clone() };
        self.between(&client, &gateway_end(gateway, &pods), &ports)
    }

    /// What NetworkPolicies make of the connection from the gateway to a backend; nothing if there is no client.
    pub(super) fn to_pods(&self, gateway: &Owner<'_>, backend: &Backend<'_>) -> Vec<Hop> {
        let service = self.index.service((backend.namespace, backend.name)).filter(|_| self.question.from.is_some());
        let Some((service, port)) =
            service.and_then(|service| Some((service, service_port(service, backend.port).ok()?)))
        else {
            return Vec::new();
        };
        let ports = pod_ports(backend, port);
        let from = self.gateway_pods(gateway);
        let to = Pods {
            namespace: backend.namespace.to_owned(),
            labels: selected_labels(service),
            addresses: ports.iter().filter_map(|port| port.at).collect(),
        };
        let backend = End { pods: &to, role: "the backend", name: format!("{}-{}", backend.namespace, backend.name) };
        self.between(&gateway_end(gateway, &from), &backend, &ports)
    }

    /// The egress of the one end, and the ingress of the other.
    fn between(&self, from: &End<'_>, to: &End<'_>, ports: &[PodPort]) -> Vec<Hop> {
        let egress = Connection { direction: Direction::Egress, own: from.pods, peer: to.pods, ports };
        let ingress = Connection { direction: Direction::Ingress, own: to.pods, peer: from.pods, ports };
        vec![self.hop(&egress, from, to), self.hop(&ingress, to, from)]
    }

    fn hop(&self, connection: &Connection<'_>, own: &End<'_>, peer: &End<'_>) -> Hop {
        let policies = Policies { network: &self.objects.network_policies, admin: &self.objects.admin_policies };
        let verdict = judge(policies, self.index, connection);
        let (way, preposition) = words(connection.direction);
        let ports = numbers(connection.ports);
        let subject = format!("{way} of {}, {preposition} {}, {ports} in the Pods", own.role, peer.role);
        let finding = finding(&verdict, connection);
        let opening = || {
            let name = format!("{}-{preposition}-{}{}", own.name, peer.name, suffix(connection.ports));
            opening(policies.network.iter().map(|policy| &**policy), &name, connection)
        };
        let hop = match &verdict {
            Verdict::NotIsolated | Verdict::SamePod | Verdict::Accepted { .. } | Verdict::Allowed { .. } => {
                Hop::good("NetworkPolicy", subject, finding)
            }
            Verdict::Denied { .. } => Hop::bad("NetworkPolicy", subject, finding, NOT_HERE),
            Verdict::Blocked { .. } => {
                Hop::bad("NetworkPolicy", subject, finding, "create this NetworkPolicy").creating(opening())
            }
            // One more NetworkPolicy would cut off Pods that none isolates yet.
            Verdict::Unknown { isolating, .. } if isolating.is_empty() => {
                Hop::bad("NetworkPolicy", subject, finding, SAY_MORE)
            }
            Verdict::Unknown { .. } => {
                let fix = format!("{SAY_MORE}; or create this NetworkPolicy, which allows it in any case");
                Hop::bad("NetworkPolicy", subject, finding, fix).creating(opening())
            }
        };
        Hop { verdict: Some(Box::new(verdict)), ..hop }
    }

    /// Those that serve a Gateway, with the addresses of the Services that select them.
    fn gateway_pods(&self, gateway: &Owner<'_>) -> Pods {
        let gateway_pods = self.question.from.as_ref().map(|origin| &origin.gateway);
        let pods = gateway_pods.cloned().unwrap_or_default().of(name_of(&gateway.gateway.metadata));
        let services = self.objects.services.iter().filter(|service| selects(service, &pods));
        let addresses: BTreeSet<_> = services.flat_map(|service| self.addresses(service)).collect();
        Pods { addresses: addresses.into_iter().collect(), ..pods }
    }

    fn addresses(&self, service: &'w Service) -> Vec<std::net::IpAddr> {
        let name: Name<'_> = name_of(&service.metadata);
        let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let port = ports.find(|port| is_tcp(port.protocol.as_deref()));
        let addresses = port.map(|port| ready_addresses(self.index, name, service, port)).unwrap_or_default();
        addresses.iter().map(std::net::SocketAddr::ip).collect()
    }
}

const SAY_MORE: &str = "have it known: name such labels (KEY=VALUE, or !KEY for one that the Pods lack), give the \
                        addresses in the EndpointSlices of a Service that selects the Pods";

/// What to do about a denial.
const NOT_HERE: &str = "no NetworkPolicy can allow it: change that policy, or what it is made from (of a tenant, the platform's \
                        isolation settings)";

fn words(direction: Direction) -> (&'static str, &'static str) {
    match direction {
        Direction::Egress => ("egress", "to"),
        Direction::Ingress => ("ingress", "from"),
    }
}

fn finding(verdict: &Verdict, connection: &Connection<'_>) -> String {
    let Connection { direction, own, peer, ports } = connection;
    let (way, preposition) = words(*direction);
    match verdict {
        Verdict::NotIsolated => format!("no NetworkPolicy isolates {own} for {way}"),
        Verdict::SamePod => "a Pod can always reach itself".to_owned(),
        Verdict::Accepted { by } => format!("{by} accepts it, whatever NetworkPolicies say"),
        Verdict::Denied { by } => format!("{by} denies it, whatever NetworkPolicies say"),
        Verdict::Allowed { by } => format!("NetworkPolicy {} allows it", quoted(by)),
        Verdict::Unknown { because, .. } => {
            let because: Vec<_> = because.iter().map(ToString::to_string).collect();
            format!("cannot be known: {}", because.join("; "))
        }
        Verdict::Blocked { isolating } => {
            let (by, ports) = (quoted(isolating), numbers(ports));
            format!("NetworkPolicy {by} isolates {own}, and none allows {ports} {preposition} {peer}")
        }
    }
}

fn gateway_end<'p>(gateway: &Owner<'_>, pods: &'p Pods) -> End<'p> {
    End { pods, role: "the gateway", name: gateway.gateway_name.replace('/', "-") }
}

/// Whether a Service selects these Pods by all that is known of them.
fn selects(service: &Service, pods: &Pods) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let mut labels = pods.labels.iter().flatten();
    name_of(&service.metadata).0 == pods.namespace
        && selector.is_some_and(|selector| labels.all(|(key, value)| selector.get(key) == value.as_ref()))
}

/// What the Pods behind a Service have at least.
fn selected_labels(service: &Service) -> Option<PodLabels> {
    let selector = service.spec.as_ref()?.selector.as_ref().filter(|selector| !selector.is_empty())?;
    Some(selector.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect())
}

/// As the endpoints have them; without endpoints, as far as the Service says.
fn pod_ports(backend: &Backend<'_>, port: &ServicePort) -> Vec<PodPort> {
    let (number, name) = match &port.target_port {
        Some(IntOrString::String(name)) => (None, Some(name.clone())),
        Some(IntOrString::Int(number)) => (u16::try_from(*number).ok(), None),
        None => (u16::try_from(port.port).ok(), None),
    };
    match &backend.endpoints {
        Ok(endpoints) => {
            let port = |endpoint: &std::net::SocketAddr| PodPort {
                number: Some(endpoint.port()),
                name: name.clone(),
                at: Some(endpoint.ip()),
            };
            endpoints.iter().map(port).collect()
        }
        Err(BackendProblem::NoEndpoint) => vec![PodPort { number, name, at: None }],
        Err(_) => Vec::new(),
    }
}

/// `TCP 8786`.
fn numbers(ports: &[PodPort]) -> String {
    let called: BTreeSet<_> = ports.iter().map(called).collect();
    format!("TCP {}", called.into_iter().collect::<Vec<_>>().join(", "))
}

fn called(port: &PodPort) -> String {
    let name = || port.name.clone().unwrap_or_else(|| "(unknown port)".to_owned());
    port.number.map_or_else(name, |number| number.to_string())
}

/// For a NetworkPolicy's name.
fn suffix(ports: &[PodPort]) -> String {
    ports.first().and_then(|port| port.number).map(|number| format!("-{number}")).unwrap_or_default()
}

fn quoted(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
