//! A cluster as `plan` and `trace` look at it: read once, whole.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use portreeve_controller::{Snapshot, snapshot};
use serde_json::Value;

use crate::cli::ClusterSource;
use crate::cluster::Connection;
use crate::kinds::{Kind, Typed, split_api_version};
use crate::output::say;
use crate::world;

/// What was read.
pub(crate) struct Live {
    /// What the operator would decide from.
    pub(crate) world: portreeve_plan::World,
    /// What could not be read, and why.
    unread: BTreeMap<String, String>,
    /// The definitions of kinds of owners that the cluster lacks.
    pub(crate) undefined: Vec<String>,
    /// Every object, as the API server shows it.
    pub(crate) objects: Vec<Value>,
}

/// The kinds that a trace follows. Others may stay unread.
const TRACED: [&str; 12] = [
    "AdminNetworkPolicy",
    "ClusterNetworkPolicy",
    "EndpointSlice",
    "Gateway",
    "HTTPRoute",
    "ListenerSet",
    "Namespace",
    "NetworkPolicy",
    "ReferenceGrant",
    "Secret",
    "Service",
    "TLSRoute",
];

/// Reads everything that the operator would read, and nothing else. What may not be read is left out: see
/// [`Live::expect_all`].
pub(crate) async fn read(source: ClusterSource) -> anyhow::Result<Live> {
    let connection = Connection::new(&source.cluster).await?;
    let found = snapshot(&connection.client, source.told, crate::now()).await;
    let found = found.map_err(|error| connection.failed(error)).context("failed to read the cluster")?;
    let Snapshot { world, unread, undefined, objects } = found;
    let objects: Result<Vec<_>, _> = objects.into_iter().map(serde_json::to_value).collect();
    Ok(Live { world, unread, undefined, objects: objects.context("failed to keep an object")? })
}

impl Live {
    /// Fails where something may not be read: what would be decided without it is not what the operator decides. Fails also
    /// where there cannot be owners, so that there is nothing to plan.
    pub(crate) fn expect_all(&self) -> anyhow::Result<()> {
        self.expect(|_| true)?;
        let apps = portreeve_controller::kind::Kind::of(portreeve_controller::kind::KindName::NebariApp).definition();
        if self.undefined.contains(&apps) {
            bail!("the cluster lacks the CRD {apps}: install the chart of Portreeve, which has it");
        }
        Ok(())
    }

    /// Fails where something may not be read that a trace follows.
    pub(crate) fn expect_traced(&self) -> anyhow::Result<()> {
        self.expect(|what| TRACED.contains(&what.split(' ').next().unwrap_or_default()))
    }

    fn expect(&self, is_needed: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let missing: Vec<_> =
            self.unread.iter().filter(|(what, _)| is_needed(what)).map(|(_, why)| why.as_str()).collect();
        ensure!(missing.is_empty(), "rights to list are missing: {}", missing.join("; "));
        Ok(())
    }

    /// What decides what a gateway serves, whoever serves it.
    pub(crate) fn attach_objects(&self) -> portreeve_attach::Objects {
        let typed: Vec<Typed> = self.objects.iter().filter_map(typed).collect();
        let mut objects = world::attach_objects(&typed);
        // Envoy Gateway does what a SecurityPolicy asks for.
        objects.security_policies.clear();
        objects
    }
}

/// An object that is not what its kind says is left out, and said.
fn typed(object: &Value) -> Option<Typed> {
    let (group, _) = split_api_version(object["apiVersion"].as_str()?);
    let kind = Kind::find(group, object["kind"].as_str()?)?;
    let mut object = object.clone();
    object["apiVersion"] = kind.api_version().into();
    let metadata = &object["metadata"];
    let name = format!("{} {}/{}", kind.name, metadata["namespace"].as_str().unwrap_or("-"), metadata["name"]);
    match kind.parse(object) {
        Ok(typed) => Some(typed),
        Err(fault) => {
            say(format_args!("warning: {name} is left out, {}: {}", fault.path, fault.message));
            None
        }
    }
}
