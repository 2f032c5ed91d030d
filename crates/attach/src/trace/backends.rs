use super::{Hop, Walk, grant};
use crate::backends::{Backend, BackendProblem};
use crate::index::{Referent, Referrer, name_of};
use crate::owners::Owner;
use crate::routes::{Route, Rule};

impl<'w> Walk<'w> {
    /// From a rule to the endpoints of each backend that gets traffic.
    pub(super) fn to_backends(&self, gateway: &Owner<'_>, route: &Route<'_>, rule: &Rule<'w>) -> Vec<Hop> {
        let backends = rule.backends.iter().filter(|backend| backend.weight > 0);
        backends.flat_map(|backend| self.to_backend(gateway, route, backend)).collect()
    }

    fn to_backend(&self, gateway: &Owner<'_>, route: &Route<'_>, backend: &Backend<'w>) -> Vec<Hop> {
        let mut hops = Vec::new();
        if backend.namespace != name_of(route.metadata).0 {
            hops.push(granted(route, backend));
        }
        if hops.iter().all(|hop| hop.ok) {
            hops.push(service(backend));
        }
        if hops.iter().all(|hop| hop.ok) {
            hops.push(endpoints(backend));
            hops.extend(self.to_pods(gateway, backend));
        }
        hops
    }
}

fn granted(route: &Route<'_>, backend: &Backend<'_>) -> Hop {
    let subject = format!("ReferenceGrant/{}", backend.namespace);
    let (kind, from) = (route.kind.as_str(), name_of(route.metadata).0);
    let service = format!("Service '{}/{}'", backend.namespace, backend.name);
    match &backend.endpoints {
        Err(BackendProblem::NotPermitted(_)) => {
            let finding = format!("none lets a {kind} of namespace '{from}' use {service}");
            let from = Referrer { kind, namespace: from };
            let to = Referent { kind: "Service", namespace: backend.namespace, name: backend.name };
            let grant = grant(name_of(route.metadata).1, from, to);
            Hop::bad("ReferenceGrant", subject, finding, "create this ReferenceGrant").creating(Some(grant))
        }
        _ => Hop::good("ReferenceGrant", subject, format!("lets a {kind} of namespace '{from}' use {service}")),
    }
}

fn service(backend: &Backend<'_>) -> Hop {
    let subject = format!("Service/{}", backend.service());
    match &backend.endpoints {
        Err(problem) if problem.reason().is_some() => {
            Hop::bad("Service", subject, problem.to_string(), advice(backend, problem))
        }
        _ => Hop::good("Service", subject, "exists, with this port"),
    }
}

fn endpoints(backend: &Backend<'_>) -> Hop {
    let subject = format!("Service/{}", backend.service());
    match &backend.endpoints {
        Ok(addresses) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            Hop::good("Endpoints", subject, addresses.join(", "))
        }
        Err(problem) => Hop::bad("Endpoints", subject, problem.to_string(), advice(backend, problem)),
    }
}

fn advice(backend: &Backend<'_>, problem: &BackendProblem) -> String {
    let service = format!("Service '{}/{}'", backend.namespace, backend.name);
    match problem {
        BackendProblem::InvalidKind(_) => "name a Service in backendRefs".to_owned(),
        BackendProblem::Setting(_) => format!("correct the annotation of {service}"),
        BackendProblem::ProxyProtocolForHttp => {
            format!("remove the annotation of {service}, or route to it with a TLSRoute")
        }
        BackendProblem::NotPermitted(namespace) => format!("create a ReferenceGrant in namespace '{namespace}'"),
        BackendProblem::NoPort => format!("name a port of {service} in backendRefs"),
        BackendProblem::NotFound => format!("create {service}, or name another in backendRefs"),
        BackendProblem::UnknownPort(port) => format!("add TCP port {port} to {service}, or name one that it has"),
        BackendProblem::ExternalName => "name a Service with endpoints of its own".to_owned(),
        BackendProblem::AppProtocol(_) => format!("name a port of {service} that speaks HTTP/1.1 or h2c without TLS"),
        BackendProblem::NoEndpoint => {
            format!("have a Pod that {service} selects become ready, with the port that the Service's targetPort names")
        }
    }
}
