use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use portreeve_plan::{Event, ObjectRef};
use portreeve_table::PortKey;
use serde_json::Value;

use crate::manifest::Finding;
use crate::report::{Row, SocketStates};

/// How a directory of manifests stands at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Every owner of names, and whether it is ready.
    pub rows: Vec<Row>,
    /// What there is to say about the manifests.
    pub findings: Vec<Finding>,
    /// What works, but not as its owner hopes.
    pub warnings: Vec<portreeve_attach::Warning>,
    /// What stands in Portreeve's own way, such as a state directory that cannot be written.
    pub problems: Vec<String>,
    /// What happened since the last snapshot.
    pub events: Vec<Event>,
    /// Where each port listens, or why it does not.
    pub sockets: SocketStates,
    /// The certificate of the local CA, for clients to trust.
    pub ca_certificate: PathBuf,
    /// Every object, as an API server would show it.
    pub objects: BTreeMap<ObjectRef, Arc<Value>>,
}

impl Snapshot {
    /// Where a Gateway's port listens, if it does.
    pub fn socket(&self, gateway: &str, port: u16) -> Option<SocketAddr> {
        self.sockets.get(&PortKey { gateway: gateway.into(), port })?.as_ref().ok().copied()
    }

    /// An object as an API server would show it, with its status; `namespace` is empty for kinds that have none.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let is_it = |object: &ObjectRef| {
            object.kind == kind && object.name == name && object.namespace.as_deref().unwrap_or_default() == namespace
        };
        self.objects.iter().find(|(object, _)| is_it(object)).map(|(_, value)| &**value)
    }
}
