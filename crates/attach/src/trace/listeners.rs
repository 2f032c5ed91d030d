use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portreeve_table::{HttpListener, ListenerId, Port, PortKey, TlsListener};
use serde_json::Value;

use super::{Hop, Walk, grant};
use crate::certificates::CertificateProblem;
use crate::index::{Referent, Referrer};
use crate::listener::Listener;
use crate::owners::{Owner, OwnerObject};
use crate::routes::few;

/// The listener that takes the connection.
pub(super) struct Found<'w> {
    pub listener: &'w Listener<'w>,
    pub service: Service<'w>,
}

/// What the table has for it.
#[derive(Clone, Copy)]
pub(super) enum Service<'w> {
    Http(&'w HttpListener),
    Tls(&'w TlsListener),
}

impl<'w> Walk<'w> {
    /// The listeners of a Gateway and of its ListenerSets.
    pub(super) fn listeners_of(&self, gateway: &Owner<'_>) -> impl Iterator<Item = &'w Listener<'w>> {
        let (name, owners) = (Arc::clone(&gateway.gateway_name), &self.decisions.owners);
        self.decisions.listeners.iter().filter(move |listener| owners[listener.owner].gateway_name == name)
    }

    /// The listener hop, and the listener if the way goes on.
    pub(super) fn listener(&self, gateway: &Owner<'_>) -> Result<(Hop, Found<'w>), Hop> {
        let key = PortKey { gateway: Arc::clone(&gateway.gateway_name), port: self.question.port };
        let port = self.table.ports.get(&key).ok_or_else(|| self.unusable_port(gateway))?;
        let name = self.question.name.as_ref();
        let (id, service) = match (port, self.question.tls) {
            (Port::Http(listeners), false) => {
                let found = listeners.find(name).ok_or_else(|| self.no_listener(gateway))?;
                (&found.id, Service::Http(found))
            }
            (Port::Tls(listeners), true) => {
                let found = listeners.find(name).ok_or_else(|| self.no_listener(gateway))?;
                (&found.id, Service::Tls(found))
            }
            (Port::Http(_), true) => return Err(self.other_protocol("HTTP without TLS", "http")),
            (Port::Tls(_), false) => return Err(self.other_protocol("TLS", "https")),
        };
        let listener = self.by_id(id).ok_or_else(|| self.no_listener(gateway))?;
        if let Some(hindrance) = listener.hindrance() {
            let (fix, manifest) = self.advice(listener);
            return Err(Hop::bad("Listener", id.to_string(), hindrance, fix).creating(manifest));
        }
        match self.not_programmed(listener) {
            Some(hop) => Err(hop),
            None => Ok((self.taken(gateway, listener), Found { listener, service })),
        }
    }

    fn advice(&self, listener: &Listener<'_>) -> (&'static str, Option<Value>) {
        let owner_name = self.decisions.owners[listener.owner].name().1;
        match &listener.certificate_problem {
            Some(CertificateProblem::NotPermitted { namespace, from_kind, from, secret }) => {
                let from = Referrer { kind: from_kind, namespace: from };
                let grant = grant(owner_name, from, Referent { kind: "Secret", namespace, name: secret });
                ("create this ReferenceGrant", Some(grant))
            }
            _ => ("change that; until then connections for its names are refused", None),
        }
    }

    fn by_id(&self, id: &ListenerId) -> Option<&'w Listener<'w>> {
        self.decisions.listeners.iter().find(|listener| listener.id == *id)
    }

    fn taken(&self, gateway: &Owner<'_>, listener: &Listener<'_>) -> Hop {
        let (asked, protocol) = (self.asked(), listener.protocol.name());
        let finding = format!("{protocol} for '{}', the most specific for {asked}", listener.hosts);
        let losers = self.on_port(gateway).filter(|other| other.fault.is_some() && self.has_name(other));
        let losers = losers.map(|loser| {
            format!("{} has it too, but is not accepted: {}", loser.id, loser.hindrance().unwrap_or_default())
        });
        let findings: Vec<_> = std::iter::once(finding).chain(losers).collect();
        Hop::good("Listener", listener.id.to_string(), few(findings.into_iter(), "; "))
    }

    pub(super) fn on_port(&self, gateway: &Owner<'_>) -> impl Iterator<Item = &'w Listener<'w>> {
        let port = self.question.port;
        self.listeners_of(gateway).filter(move |listener| listener.port == port)
    }

    pub(super) fn has_name(&self, listener: &Listener<'_>) -> bool {
        match &self.question.name {
            Some(name) => listener.hosts.matches(name),
            None => listener.hosts == portreeve_names::HostPattern::Any,
        }
    }

    /// What was asked for, in words.
    pub(super) fn asked(&self) -> String {
        match &self.question.name {
            Some(name) => format!("'{name}'"),
            None => "a client that sends no name".to_owned(),
        }
    }

    fn unusable_port(&self, gateway: &Owner<'_>) -> Hop {
        let port = self.question.port;
        let broken = self.on_port(gateway).find(|listener| self.has_name(listener)).or(self.on_port(gateway).next());
        let subject = broken.map_or_else(|| format!("port {port}"), |listener| listener.id.to_string());
        let finding = broken.and_then(Listener::hindrance).unwrap_or_default();
        Hop::bad("Listener", subject, finding, format!("change that; port {port} has no listener that is accepted"))
    }

    fn no_listener(&self, gateway: &Owner<'_>) -> Hop {
        let (port, asked) = (self.question.port, self.asked());
        let there: Vec<_> = self
            .on_port(gateway)
            .filter(|listener| listener.keeps_names())
            .map(|listener| format!("'{}' ({})", listener.hosts, listener.name))
            .collect();
        let finding = format!("no listener is for {asked}; there are {}", few(there.into_iter(), ", "));
        let fix = match &self.question.name {
            Some(name) => {
                format!("add a listener with hostname '{name}' on port {port}, or ask for a name that is there")
            }
            None => "have the client send a server name, or add a listener without hostname".to_owned(),
        };
        Hop::bad("Listener", format!("port {port}"), finding, fix)
    }

    fn other_protocol(&self, spoken: &str, scheme: &str) -> Hop {
        let port = self.question.port;
        let finding = format!("port {port} speaks {spoken}");
        Hop::bad("Listener", format!("port {port}"), finding, format!("ask with {scheme}"))
    }

    /// What the status on the object says, whoever wrote it.
    fn not_programmed(&self, listener: &Listener<'_>) -> Option<Hop> {
        let owner = &self.decisions.owners[listener.owner];
        let is_bad = |condition: &&&Condition| condition.type_ == "Programmed" && condition.status == "False";
        let conditions = status_of(owner, listener.name);
        let condition = conditions.iter().find(is_bad)?;
        let finding = format!("its status says Programmed=False/{}: {}", condition.reason, condition.message);
        let fix =
            format!("see the status of the {}: its controller could not serve this listener", owner.kind().as_str());
        Some(Hop::bad("Listener", listener.id.to_string(), finding, fix))
    }
}

fn status_of<'o>(owner: &Owner<'o>, listener: &str) -> Vec<&'o Condition> {
    match owner.object {
        OwnerObject::Gateway(gateway) => {
            let entries = gateway.status.iter().flat_map(|status| status.listeners.iter().flatten());
            entries.filter(|entry| entry.name == listener).flat_map(|entry| &entry.conditions).collect()
        }
        OwnerObject::ListenerSet(set) => {
            let entries = set.status.iter().flat_map(|status| status.listeners.iter().flatten());
            entries.filter(|entry| entry.name == listener).flat_map(|entry| &entry.conditions).collect()
        }
    }
}
