//! Apps as teams have them.

use std::ops::Range;

use portreeve_testkit::tls::Identity;
use serde_json::{Value, json};

/// How many apps a namespace has.
const NEIGHBOURS: usize = 10;

/// Apps by their numbers, some in each namespace. Each has a Service with an endpoint, and a Secret of its own with a
/// certificate that `routing.tls.secretName` names.
pub(crate) struct Apps {
    numbers: Range<usize>,
    identity: Identity,
}

impl Apps {
    pub(crate) fn new(numbers: Range<usize>) -> anyhow::Result<Self> {
        Ok(Self { numbers, identity: Identity::new(&["*.bench.example.test"])? })
    }

    /// Namespace and name of the app of a number.
    pub(crate) fn name(number: usize) -> (String, String) {
        (format!("team-{}", number / NEIGHBOURS), format!("app-{number}"))
    }

    /// The namespaces, opted in. They must be there before all else.
    pub(crate) fn namespaces(&self) -> Vec<Value> {
        let mut namespaces: Vec<_> = self.numbers.clone().map(|number| Self::name(number).0).collect();
        namespaces.dedup();
        let namespace = |name: String| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"nebari.dev/managed": "true"}}})
        };
        namespaces.into_iter().map(namespace).collect()
    }

    /// What the apps refer to.
    pub(crate) fn surroundings(&self) -> Vec<Value> {
        self.numbers.clone().flat_map(|number| self.surroundings_of(number)).collect()
    }

    /// The apps themselves.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.numbers.clone().map(app).collect()
    }

    fn surroundings_of(&self, number: usize) -> [Value; 3] {
        let (namespace, name) = Self::name(number);
        let metadata = |name: &str| json!({"name": name, "namespace": namespace});
        let mut slice = metadata(&format!("{name}-1"));
        slice["labels"] = json!({"kubernetes.io/service-name": name});
        [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(&name),
                "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 8000}]}}),
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice,
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}),
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": metadata(&secret(&name)),
                "stringData": {"tls.crt": self.identity.certificate_pem(), "tls.key": self.identity.key_pem()}}),
        ]
    }
}

fn app(number: usize) -> Value {
    let (namespace, name) = Apps::name(number);
    json!({"apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp",
    "metadata": {"name": name, "namespace": namespace},
    "spec": {
        "hostname": format!("{name}.bench.example.test"),
        "service": {"name": name, "port": 8000},
        "routing": {"tls": {"secretName": secret(&name)}},
    }})
}

fn secret(app: &str) -> String {
    format!("{app}-tls")
}
