use std::collections::BTreeMap;

use gateway_api::gateways::Gateway;

use crate::index::{Index, name_of};
use crate::listener::{Listener, ListenerFault};
use crate::owners::{self, Merged, Owner, OwnerKind};
use crate::policies::{Policies, Policy};
use crate::routes::{self, Route};
use crate::{Objects, Settings, Warning, annotations, certificates, conflicts};

/// Everything that is decided from the objects alone; tables, statuses and explanations are all made from this.
pub(crate) struct Decisions<'a> {
    /// Gateway by Gateway, each followed by its ListenerSets in order of precedence.
    pub owners: Vec<Owner<'a>>,
    pub listeners: Vec<Listener<'a>>,
    /// The oldest first.
    pub routes: Vec<Route<'a>>,
    /// The oldest first.
    pub policies: Vec<Policy<'a>>,
    pub warnings: Vec<Warning>,
}

/// The steps in their order; each builds on what those before it decided.
pub(crate) fn decide<'a>(objects: &'a Objects, settings: &Settings) -> Decisions<'a> {
    let index = Index::new(objects);
    let Merged { owners, mut listeners, mut warnings } = owners::merge(objects, settings, &index);
    conflicts::mark(&owners, &mut listeners);
    refuse_unsupported(&owners, &mut listeners);
    conflicts::mark_overlaps(&owners, &mut listeners);
    certificates::resolve(&index, &owners, &mut listeners);
    let policies = Policies::new(objects, &index);
    let routes = routes::attach(objects, &index, &owners, &listeners, &policies);
    warnings.extend(routes::orphans(objects));
    warnings.extend(ignored(&owners, &listeners));
    Decisions { owners, listeners, routes, policies: policies.all, warnings }
}

/// Conflicts come first: a listener that lost its port says so even where its protocol is not supported anyway.
fn refuse_unsupported(owners: &[Owner<'_>], listeners: &mut [Listener<'_>]) {
    for listener in listeners.iter_mut().filter(|listener| listener.fault.is_none()) {
        listener.fault = if !listener.protocol.is_supported() {
            Some(ListenerFault::UnsupportedProtocol(listener.protocol.name().to_owned()))
        } else if listener.terminates() && checks_clients(owners[listener.owner].gateway, listener.port) {
            Some(ListenerFault::ClientCertificates)
        } else {
            listener.sni_pattern.as_ref().err().cloned().map(ListenerFault::UnreadablePattern)
        };
    }
}

/// Whether a Gateway wants certificates from the clients of this port; what is said for the port overrides the default.
fn checks_clients(gateway: &Gateway, port: u16) -> bool {
    let Some(frontend) = gateway.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref()) else { return false };
    let mut per_port = frontend.per_port.iter().flatten();
    match per_port.find(|entry| entry.port == i32::from(port)) {
        Some(entry) => entry.tls.validation.is_some(),
        None => frontend.default.validation.is_some(),
    }
}

/// Settings that change nothing here and harm nobody, but that somebody relies on.
fn ignored(owners: &[Owner<'_>], listeners: &[Listener<'_>]) -> Vec<Warning> {
    let gateways = || owners.iter().filter(|owner| owner.kind() == OwnerKind::Gateway);
    let about = |owner: &Owner<'_>, message: String| {
        let (namespace, name) = name_of(owner.metadata());
        Warning { subject: format!("Gateway/{namespace}/{name}"), message }
    };
    let with_client =
        gateways().filter(|owner| owner.gateway.spec.tls.as_ref().is_some_and(|tls| tls.backend.is_some()));
    let backend = with_client
        .map(|owner| about(owner, "spec.tls.backend has no effect: backends are not spoken to with TLS".to_owned()));
    let proxies = gateways().filter_map(|owner| {
        let problem = annotations::proxies(owner.metadata()).err()?;
        Some(about(owner, format!("{problem}; until then no PROXY protocol header is accepted")))
    });
    let options = listeners.iter().flat_map(|listener| {
        let messages = listener.tls_options.map(ignored_options).unwrap_or_default();
        messages.into_iter().map(|message| Warning { subject: listener.id.to_string(), message })
    });
    backend.chain(proxies).chain(options).collect()
}

fn ignored_options(options: &BTreeMap<String, String>) -> Vec<String> {
    let unknown = annotations::unknown_options(options);
    let unknown = unknown.into_iter().map(|key| format!("tls.options: {key} has no effect: it is not known here"));
    let unread = annotations::idle_timeout(options).err();
    unknown.chain(unread.map(|problem| format!("tls.options: {problem}; tunnels may be idle until then"))).collect()
}
