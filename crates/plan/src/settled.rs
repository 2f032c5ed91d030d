//! What statuses are computed from, once it is settled who gets what and what is written.

use gateway_api::listenersets::ListenerSet;
use jiff::{SignedDuration, Timestamp};
use portreeve_api::ServiceReference;
use serde_json::json;

use crate::acknowledgement::{EntryStatus, is_answered, listener, pending, set_entry, set_refusal};
use crate::claim::GatewayName;
use crate::condition::{Finding, Reason};
use crate::contest::Contests;
use crate::dials;
use crate::docket::Judgement;
use crate::object::{Key, Kind, Live};
use crate::view::View;
use crate::wanted::Wanted;

/// How long a controller may take to say anything about a new ListenerSet.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// How long a gateway may take to notice a Secret that is new.
const NOTICE: SignedDuration = SignedDuration::from_secs(30);

/// Everything that was decided before statuses.
pub(crate) struct Settled<'s, 'a> {
    pub(crate) view: &'s View<'a>,
    pub(crate) judgement: &'s Judgement,
    pub(crate) wanted: &'s Wanted<'s, 'a>,
    pub(crate) contests: &'s Contests<'a>,
}

/// When to look again although nothing has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm(pub(crate) Option<Timestamp>);

/// A listener of a ListenerSet that Portreeve wants.
pub(crate) struct WatchedListener<'s> {
    pub(crate) set: &'s Key,
    pub(crate) section: &'s str,
    pub(crate) gateway: &'s GatewayName,
    pub(crate) port: u16,
    /// The recorded generation in which the entry last changed.
    pub(crate) recorded: Option<i64>,
}

impl Alarm {
    pub(crate) fn set(&mut self, at: Timestamp) {
        self.0 = Some(self.0.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Settled<'_, '_> {
    /// The generation in which an entry of an object's `spec.listeners` last changed: the coming one if it is about to
    /// change, else as recorded, else the present one, which can only be later than the truth.
    pub(crate) fn entry_generation(&self, object: &Key, section: &str, recorded: Option<i64>) -> i64 {
        let Some(live) = self.view.live(object) else { return 1 };
        let coming = self.wanted.generation(object);
        let present = live.metadata().generation.unwrap_or_default();
        if coming == present || self.is_as_wanted(object, live, section) { recorded.unwrap_or(present) } else { coming }
    }

    fn is_as_wanted(&self, object: &Key, live: Live<'_>, section: &str) -> bool {
        let listeners = self.wanted.due(object).and_then(|body| body["spec"]["listeners"].as_array());
        let wanted = listeners.into_iter().flatten().find(|listener| listener["name"] == section);
        wanted.is_some_and(|wanted| live.spec_contains(&json!({ "listeners": [wanted] })))
    }

    /// What is wrong with a listener, and what is not known yet; nothing when it serves.
    pub(crate) fn listener(&self, watched: &WatchedListener<'_>, alarm: &mut Alarm) -> Vec<Finding> {
        let Some(gateway) = self.view.gateway(watched.gateway) else {
            return vec![not_found(self.view, watched.gateway)];
        };
        if !gateway.admits_listener_sets_of(self.view, &watched.set.namespace) {
            return vec![not_allowed(watched)];
        }
        let set = self.view.listener_set(&watched.set.namespace, &watched.set.name);
        let refused = set.and_then(set_refusal).and_then(|refusal| match refusal.reason.as_str() {
            "NotAllowed" => Some(not_allowed(watched)),
            // The entries say what is wrong with them.
            "ListenersNotValid" => None,
            reason => {
                Some(Reason::ListenerNotProgrammed.because(format!("the gateway refuses the ListenerSet: {reason}")))
            }
        });
        let ignored = if set.is_some_and(is_answered) { None } else { self.ignored(set, alarm) };
        let since = self.entry_generation(watched.set, watched.section, watched.recorded);
        let entry = set.and_then(|set| set_entry(set, watched.section));
        let served = listener(entry, watched.section, since).map(|finding| {
            let certificate_is_new =
                entry.is_some_and(EntryStatus::misses_certificate) && self.certificate_is_new(watched, alarm);
            if certificate_is_new { pending(watched.section) } else { finding }
        });
        let findings: Vec<_> = [refused, ignored, served].into_iter().flatten().collect();
        if !findings.is_empty() {
            // A listener that is not programmed need not answer.
            return findings;
        }
        let dialled = self.view.world.failed_dials.get(&(watched.gateway.clone(), watched.port));
        dialled.map(|why| Reason::DialFailed.because(dials::describe(watched.port, why))).into_iter().collect()
    }

    /// Whether the certificate of a listener has only just come: a gateway that misses it is about to notice.
    fn certificate_is_new(&self, watched: &WatchedListener<'_>, alarm: &mut Alarm) -> bool {
        let namespace = &watched.set.namespace;
        let set = self.view.listener_set(namespace, &watched.set.name);
        let listeners = set.into_iter().flat_map(|set| &set.spec.listeners);
        let tls = listeners.filter(|listener| listener.name == watched.section).filter_map(|found| found.tls.as_ref());
        let secrets = tls.flat_map(|tls| tls.certificate_refs.iter().flatten());
        let secrets = secrets.map(|secret| (secret.namespace.as_deref().unwrap_or(namespace), secret.name.as_str()));
        self.are_new(secrets, alarm)
    }

    /// Whether Secrets, by namespace and name, are there, and the newest only just; one that is not there is not new.
    pub(crate) fn are_new<'n>(&self, secrets: impl Iterator<Item = (&'n str, &'n str)>, alarm: &mut Alarm) -> bool {
        let created = secrets
            .map(|(namespace, name)| Some(self.view.secret(namespace, name)?.metadata.creation_timestamp.as_ref()?.0));
        let newest = created.collect::<Option<Vec<_>>>().and_then(|created| created.into_iter().max());
        let noticed = newest.map(|newest| newest + NOTICE).filter(|noticed| *noticed > self.view.now);
        noticed.inspect(|noticed| alarm.set(*noticed)).is_some()
    }

    /// No status a minute after the write: nobody serves ListenerSets there.
    fn ignored(&self, set: Option<&ListenerSet>, alarm: &mut Alarm) -> Option<Finding> {
        let written = set.and_then(|set| set.metadata.creation_timestamp.as_ref());
        let deadline = written.map_or(self.view.now, |written| written.0) + PATIENCE;
        if deadline > self.view.now {
            alarm.set(deadline);
            return None;
        }
        Some(Reason::ListenerSetIgnored.because(
            "no controller has answered for the ListenerSet; does the one of the Gateway support ListenerSets?",
        ))
    }

    /// Why a Service cannot be had, if it cannot.
    pub(crate) fn service(&self, service: &ServiceReference, own_namespace: &str) -> Option<Finding> {
        let namespace = service.namespace.as_deref().unwrap_or(own_namespace);
        let name = &service.name;
        let Some(found) = self.view.service(namespace, name) else {
            return Some(Reason::ServiceNotFound.because(format!("service {name} not found in namespace {namespace}")));
        };
        let ports = found.spec.as_ref().and_then(|spec| spec.ports.as_ref());
        let exposed = ports.into_iter().flatten().any(|port| port.port == i32::from(service.port));
        (!exposed)
            .then(|| Reason::ServiceNotFound.because(format!("service {name} does not expose port {}", service.port)))
    }

    /// Whether a certificate that is wanted is still to be issued. An issuer that does not say which generation it
    /// means is believed.
    pub(crate) fn certificate(&self, namespace: &str, name: &str) -> Option<Finding> {
        let wanted = self.generation(&Key::new(Kind::Certificate, namespace, name));
        let status = self.view.certificate(namespace, name).and_then(|certificate| certificate.status.as_ref());
        let ready = status.into_iter().flat_map(|status| &status.conditions).any(|condition| {
            let current = condition.observed_generation.is_none_or(|observed| observed >= wanted);
            condition.type_ == "Ready" && condition.status == "True" && current
        });
        (!ready).then(|| Reason::CertificateNotReady.because("Waiting for cert-manager Certificate to become ready"))
    }

    /// The generation that a wanted object has once it is as wanted.
    pub(crate) fn generation(&self, key: &Key) -> i64 {
        self.wanted.generation(key)
    }
}

pub(crate) fn not_found(view: &View<'_>, gateway: &GatewayName) -> Finding {
    Reason::GatewayNotFound.because(
        Kind::Gateway
            .unserved(&view.world.served)
            .unwrap_or_else(|| format!("gateway {} not found in namespace {}", gateway.name, gateway.namespace)),
    )
}

fn not_allowed(watched: &WatchedListener<'_>) -> Finding {
    Reason::ListenerSetNotAllowed.because(admission_needed(watched.gateway, &watched.set.namespace))
}

/// What to set on a Gateway so that it admits the ListenerSets of a namespace.
pub(crate) fn admission_needed(gateway: &GatewayName, namespace: &str) -> String {
    format!("Gateway {gateway} does not admit ListenerSets of namespace {namespace}: {ADMIT}")
}

/// What to do on a Gateway so that it admits the ListenerSets of namespaces that are opted in.
pub(crate) const ADMIT: &str = "set spec.allowedListeners.namespaces on it, for example {from: Selector, selector: \
                                {matchLabels: {nebari.dev/managed: \"true\"}}}";
