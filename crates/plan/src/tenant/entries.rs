//! The entries of tenants on the apps Gateways: one body for each Gateway, written by one writer.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use portreeve_api::conditions::{APPS_ROUTING_READY, reasons};
use portreeve_api::names::{labels, tenant as derived};
use serde_json::{Map, Value, json};

use super::shards::{is_made, is_made_by_us};
use super::{Rendered, Tenant};
use crate::body::{self, GATEWAY_API_V1, Metadata};
use crate::claim::GatewayName;
use crate::condition::{Finding, Reason};
use crate::differ::owned_by_us;
use crate::gateway::SharedGateway;
use crate::object::{Key, Kind};
use crate::output::{Event, FIELD_MANAGER, ObjectRef, Takeover};
use crate::takeover::entry_name;
use crate::tenancy::GatewayTemplate;
use crate::view::{View, name_of};
use crate::wanted::Wanted;

/// How long an entry must have served before it is put back at once; one that goes sooner is put back after so long.
const PEACE: SignedDuration = SignedDuration::from_secs(60);

/// What a tenant says while its entry is there and does not serve yet.
const WAITING: [&str; 3] = [reasons::PENDING, reasons::CERTIFICATE_NOT_READY, reasons::LISTENER_NOT_PROGRAMMED];

/// An entry that a writer who replaces the whole list has taken away.
pub(crate) struct Overwritten {
    finding: Finding,
    /// When it is put back.
    pub(crate) put_back: Timestamp,
}

/// The entries of a Gateway that Portreeve has applied.
pub(super) fn own_entries(gateway: SharedGateway<'_>) -> BTreeSet<String> {
    let fields = owned_by_us(gateway.object.metadata.managed_fields.as_deref());
    fields.flat_map(|fields| entries_in(&fields.to_value()).collect::<Vec<_>>()).collect()
}

fn entries_in(fields: &Value) -> impl Iterator<Item = String> {
    let keys = fields["f:spec"]["f:listeners"].as_object().into_iter().flat_map(Map::keys);
    keys.filter_map(|key| entry_name(key))
}

/// One body for each Gateway that has entries of tenants, or has had: all entries together, the oldest tenant's first,
/// since a body takes away what it does not have. A Gateway of Portreeve's own is in it whole.
pub(crate) fn render_gateways<'r>(
    view: &View<'_>,
    rendered: impl Iterator<Item = &'r Rendered>,
    wanted: &mut Wanted<'_, '_>,
) {
    let mut entries: BTreeMap<GatewayName, Vec<Value>> = BTreeMap::new();
    for (gateway, entry) in rendered.flat_map(|rendered| rendered.entries.iter().cloned()) {
        entries.entry(gateway).or_default().push(entry);
    }
    let apps = view.world.config.tenant_apps.as_ref();
    for object in &view.world.gateways {
        let (namespace, name) = name_of(&**object);
        let gateway = SharedGateway { object };
        let own = entries.remove(&GatewayName::new(namespace, name)).unwrap_or_default();
        let key = Key::new(Kind::Gateway, namespace, name);
        if is_made(gateway) {
            let in_use = !own.is_empty() || apps.is_some_and(|apps| apps.template.is_some());
            if in_use {
                let template = apps.and_then(|apps| apps.template.clone()).unwrap_or_else(|| template_of(gateway));
                wanted.add_settled(key.clone(), whole(&key, &template, own));
            }
        } else if !own.is_empty() || !own_entries(gateway).is_empty() {
            wanted.add_settled(key.clone(), of_entries(&key, object.metadata.uid.as_deref(), &own));
        }
    }
    let Some((apps, template)) = apps.and_then(|apps| Some((apps, apps.template.as_ref()?))) else { return };
    for (gateway, own) in entries.into_iter().filter(|(gateway, _)| is_made_by_us(apps, gateway)) {
        let key = Key::new(Kind::Gateway, &gateway.namespace, &*gateway.name);
        wanted.add_settled(key.clone(), whole(&key, template, own));
    }
}

fn of_entries(key: &Key, uid: Option<&str>, entries: &[Value]) -> Value {
    let spec = if entries.is_empty() { Value::Null } else { json!({ "listeners": entries }) };
    let mut body = body::object(key, GATEWAY_API_V1, Metadata::default(), spec);
    if let Some(uid) = uid {
        // So that a Gateway that is deleted meanwhile is not made anew with nothing but our entries.
        body["metadata"]["uid"] = uid.into();
    }
    body
}

fn whole(key: &Key, template: &GatewayTemplate, entries: Vec<Value>) -> Value {
    let own = [(labels::SHARD, labels::TRUE), (labels::MANAGED_BY, labels::KUBESPACES_OPERATOR)];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let metadata = Metadata {
        labels: template.labels.clone().into_iter().chain(own).collect(),
        annotations: template.annotations.clone(),
        ..Metadata::default()
    };
    let mut spec = Value::Object(template.spec.clone());
    let fixed = spec["listeners"].as_array().cloned().unwrap_or_default();
    spec["listeners"] = fixed.into_iter().chain(entries).collect();
    body::object(key, GATEWAY_API_V1, metadata, spec)
}

/// What a Gateway of Portreeve's own was made from, read off itself.
fn template_of(gateway: SharedGateway<'_>) -> GatewayTemplate {
    let mut spec = serde_json::to_value(&gateway.object.spec).unwrap_or_default();
    if let Some(listeners) = spec["listeners"].as_array_mut() {
        listeners.retain(|listener| !is_of_tenant(listener["name"].as_str().unwrap_or_default()));
    }
    let metadata = &gateway.object.metadata;
    GatewayTemplate {
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        spec: spec.as_object().cloned().unwrap_or_default(),
    }
}

fn is_of_tenant(listener: &str) -> bool {
    listener.starts_with("t-")
}

/// Gateways of Portreeve's own that nothing wants any more.
pub(crate) fn abandoned(view: &View<'_>, wanted: &Wanted<'_, '_>) -> Vec<ObjectRef> {
    let made = view.world.gateways.iter().filter(|object| is_made(SharedGateway { object }));
    let keys = made.map(|object| {
        let (namespace, name) = name_of(&**object);
        Key::new(Kind::Gateway, namespace, name)
    });
    let mut gone: Vec<_> =
        keys.filter(|key| !wanted.is_wanted(key)).map(|key| key.object_ref(GATEWAY_API_V1)).collect();
    gone.sort();
    gone
}

/// Entries that the former operator wrote and that tenants want now.
pub(crate) fn takeovers<'r>(view: &View<'_>, rendered: impl Iterator<Item = &'r Rendered>) -> Vec<Takeover> {
    let mut wanted: BTreeMap<&GatewayName, BTreeSet<&str>> = BTreeMap::new();
    for (gateway, entry) in rendered.flat_map(|rendered| &rendered.entries) {
        wanted.entry(gateway).or_default().extend(entry["name"].as_str());
    }
    let of_gateway = |(name, entries): (&GatewayName, BTreeSet<&str>)| {
        let gateway = view.gateway(name)?;
        let updates = gateway.object.metadata.managed_fields.iter().flatten().filter(|entry| is_update(entry));
        let theirs: BTreeSet<String> =
            updates.filter_map(|entry| entry.fields_v1.as_ref()).flat_map(|fields| entries_in(&fields.0)).collect();
        let taken: Vec<String> = theirs.into_iter().filter(|entry| entries.contains(entry.as_str())).collect();
        let object = Key::new(Kind::Gateway, &name.namespace, &*name.name).object_ref(GATEWAY_API_V1);
        (!taken.is_empty()).then_some(Takeover { object, entries: taken })
    };
    wanted.into_iter().filter_map(of_gateway).collect()
}

fn is_update(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() == Some("Update") && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Whether somebody has taken a tenant's entry off a Gateway on which it served, and what to do about it.
pub(super) fn overwritten(view: &View<'_>, tenant: &Tenant<'_>, name: &GatewayName) -> Option<Overwritten> {
    let gateway = view.gateway(name)?;
    let section = derived::apps_listener(tenant.name);
    let condition = tenant.status()?.conditions.iter().find(|condition| condition.type_ == APPS_ROUTING_READY)?;
    if gateway.section(&section).is_some() {
        return None;
    }
    let (manager, at) = last_writer(gateway)?;
    let since = condition.last_transition_time.0;
    // An entry is written in the same round as that it is waited for.
    let was_waited_for = WAITING.contains(&condition.reason.as_str()) && at > since;
    let put_back = if condition.reason == reasons::LISTENERS_OVERWRITTEN || was_waited_for {
        at + PEACE
    } else if condition.status == "True" && at >= since {
        if at < since + PEACE { at + PEACE } else { at }
    } else {
        return None;
    };
    let message = format!(
        "{manager}, which was the last to write Gateway {name}, replaces its list of listeners and has taken {section} away: \
         let it use server-side apply, or ignore differences of spec.listeners"
    );
    Some(Overwritten { finding: Reason::ListenersOverwritten.because(message), put_back })
}

/// Who else has last written the spec of the Gateway, and when.
fn last_writer(gateway: SharedGateway<'_>) -> Option<(&str, Timestamp)> {
    let managers = gateway.object.metadata.managed_fields.iter().flatten();
    let others = managers.filter(|entry| {
        entry.manager.as_deref() != Some(FIELD_MANAGER)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
            && entry.fields_v1.as_ref().is_some_and(|fields| writes_spec(&fields.0))
    });
    let written = others.filter_map(|entry| Some((entry.time.as_ref()?.0, entry.manager.as_deref()?)));
    written.max().map(|(at, manager)| (manager, at))
}

/// One that replaces the list of listeners need not own a field of it, since what it has left as it was stays others', and
/// nobody owns what it has taken away. `kubectl apply` notes in an annotation what it has applied.
fn writes_spec(fields: &Value) -> bool {
    !fields["f:spec"].is_null() || !fields["f:metadata"]["f:annotations"][LAST_APPLIED].is_null()
}

/// The annotation of client-side apply.
const LAST_APPLIED: &str = "f:kubectl.kubernetes.io/last-applied-configuration";

impl Overwritten {
    /// Whether it stays away for now.
    pub(super) fn waits(&self, view: &View<'_>) -> bool {
        self.put_back > view.now
    }

    pub(super) fn finding(&self) -> Finding {
        self.finding.clone()
    }

    /// Tells it where the entry is put back at once, so that no condition shows it.
    pub(super) fn event(&self, about: ObjectRef) -> Event {
        let reason = self.finding.reason.as_str().to_owned();
        Event { about, warning: true, reason, message: self.finding.message.clone() }
    }
}
