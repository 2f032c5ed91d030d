//! What every command starts from: a directory of manifests, and what the platform has configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use portreeve_attach::{Classes, Settings};
use portreeve_plan::ObjectRef;
use serde_json::Value;

use crate::manifest::Reading;
use crate::sockets::Rules;
use crate::world::{BackendEndpoint, assume, default_gateways};

/// The controller name under which standalone writes statuses.
pub const CONTROLLER_NAME: &str = "portreeve.dev/gateway";

/// What to read, and under which circumstances.
#[derive(Clone, Debug)]
pub struct Input {
    /// The manifests: a directory, or a single file.
    pub manifests: PathBuf,
    /// Where state is kept.
    pub state: PathBuf,
    /// What the platform has configured.
    pub config: portreeve_plan::Config,
    /// Which Gateways are served.
    pub settings: Settings,
    /// Endpoints that are said on the command line.
    pub backends: Vec<BackendEndpoint>,
    /// Whether the Gateways that the contracts name are made where nobody wrote them.
    pub default_gateways: bool,
    /// How ports become sockets.
    pub rules: Rules,
}

/// The objects of a reading, with those that nobody has to write.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// All of them.
    pub objects: BTreeMap<ObjectRef, Arc<Value>>,
    /// The Gateways that are served (`namespace/name`), in the order in which they stand in the files.
    pub gateways: Vec<Arc<str>>,
}

impl Input {
    /// Completes what was read.
    pub fn complete(&self, reading: &Reading) -> Objects {
        let manifests = reading.manifests.iter();
        let mut objects: BTreeMap<_, _> =
            manifests.map(|manifest| (manifest.object.clone(), manifest.value.clone())).collect();
        if self.default_gateways {
            default_gateways(&mut objects, &self.config);
        }
        assume(&mut objects, &self.backends);
        let places: BTreeMap<_, _> =
            reading.manifests.iter().map(|manifest| (&manifest.object, &manifest.place)).collect();
        let mut gateways: Vec<_> =
            objects.iter().filter(|(object, value)| object.kind == "Gateway" && self.serves(value)).collect();
        // Those that nobody wrote come last.
        gateways.sort_by_key(|(object, _)| (!places.contains_key(object), places.get(object)));
        let gateways = gateways.into_iter().map(|(object, _)| gateway_name(object)).collect();
        Objects { objects, gateways }
    }

    fn serves(&self, gateway: &Value) -> bool {
        match &self.settings.classes {
            Classes::Named(classes) => {
                gateway["spec"]["gatewayClassName"].as_str().is_some_and(|class| classes.contains(class))
            }
            Classes::Every | Classes::OfController => true,
        }
    }
}

fn gateway_name(object: &ObjectRef) -> Arc<str> {
    format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), object.name).into()
}
