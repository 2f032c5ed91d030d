//! From the YAML documents of a case to objects.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portreeve_attach::{
    Attached, Classes, DataPlane, GatewayPods, Objects, Origin, Pods, Question, RequestQuestion, Settings, SocketState,
    attach,
};
use portreeve_names::Hostname;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The controller that the cases run under.
pub(crate) const CONTROLLER: &str = "portreeve.dev/gateway";

/// One case: its objects, and how the data plane fares with them.
pub(crate) struct Case {
    pub(crate) objects: Objects,
    pub(crate) settings: Settings,
    pub(crate) questions: Vec<Question>,
    data_plane: DataPlaneDocument,
}

/// `kind: DataPlane`: sockets are bound unless this says otherwise.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataPlaneDocument {
    /// `namespace/gateway:port`, and why.
    #[serde(default)]
    failed: BTreeMap<String, String>,
    #[serde(default)]
    untried: Vec<String>,
    #[serde(default)]
    addresses: BTreeMap<String, Vec<IpAddr>>,
}

/// `kind: Question`: is answered in the outcome.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionDocument {
    gateway: Option<String>,
    port: u16,
    #[serde(default)]
    tls: bool,
    name: Option<String>,
    /// Method and path, as in `GET /`.
    request: Option<String>,
    /// Whose connection it is.
    from: Option<OriginDocument>,
}

/// The client's Pods.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginDocument {
    namespace: String,
    labels: BTreeMap<String, Option<String>>,
}

/// `kind: TestCertificate`: becomes a Secret with a fresh self-signed certificate.
#[derive(Deserialize)]
struct CertificateDocument {
    metadata: Value,
    names: Vec<String>,
    /// The year in which it expires.
    #[serde(default = "far_future")]
    expires: i32,
    /// Whether the key is that of another certificate.
    #[serde(default)]
    mismatched: bool,
}

fn far_future() -> i32 {
    2100
}

/// The time at which cases run.
pub(crate) fn now() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

impl Case {
    /// Reads a case; what cannot be read is an error, so that a typing mistake does not test nothing.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
        let settings = Settings { controller_name: CONTROLLER.to_owned(), classes: Classes::Every };
        let mut case = Self {
            objects: Objects::default(),
            settings,
            questions: Vec::new(),
            data_plane: DataPlaneDocument::default(),
        };
        for document in documents {
            case.add(document)?;
        }
        Ok(case)
    }

    pub(crate) fn attach(&self) -> Attached {
        self.attach_at(now())
    }

    /// Once to learn which ports are wanted, once with these ports bound.
    pub(crate) fn attach_at(&self, now: jiff::Timestamp) -> Attached {
        let wanted = attach(&self.objects, &self.settings, &DataPlane::default(), now).table.ports;
        let sockets = wanted.into_keys().filter_map(|port| {
            let name = port.to_string();
            if self.data_plane.untried.contains(&name) {
                return None;
            }
            let failed = self.data_plane.failed.get(&name).cloned();
            Some((port, failed.map_or(SocketState::Bound, SocketState::Failed)))
        });
        let addresses = self.data_plane.addresses.iter().map(|(gateway, given)| (Arc::from(&**gateway), given.clone()));
        let data_plane = DataPlane { addresses: addresses.collect(), sockets: sockets.collect() };
        attach(&self.objects, &self.settings, &data_plane, now)
    }

    fn add(&mut self, mut document: Value) -> Result<(), String> {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let metadata = document.get_mut("metadata").and_then(Value::as_object_mut);
        metadata.map(|metadata| metadata.entry("generation").or_insert(json!(2)));
        let objects = &mut self.objects;
        match kind.as_str() {
            "GatewayClass" => objects.gateway_classes.push(object(document)?),
            "Gateway" => objects.gateways.push(object(document)?),
            "ListenerSet" => objects.listener_sets.push(object(document)?),
            "HTTPRoute" => objects.http_routes.push(object(document)?),
            "TLSRoute" => objects.tls_routes.push(object(document)?),
            "ReferenceGrant" => objects.reference_grants.push(object(document)?),
            "Namespace" => objects.namespaces.push(object(document)?),
            "Service" => objects.services.push(object(document)?),
            "EndpointSlice" => objects.endpoint_slices.push(object(document)?),
            "Secret" => objects.secrets.push(object(document)?),
            "NetworkPolicy" => objects.network_policies.push(object(document)?),
            "TestCertificate" => objects.secrets.push(object(secret(&read(document)?))?),
            "SecurityPolicy" => objects.security_policies.push(object(document)?),
            "DataPlane" => self.data_plane = read(without_kind(document))?,
            "Question" => self.questions.push(question(read(without_kind(document))?)?),
            "Settings" => self.settings.classes = classes(&document)?,
            other => return Err(format!("kind '{other}' is not known")),
        }
        Ok(())
    }
}

fn object<T: DeserializeOwned>(document: Value) -> Result<Arc<T>, String> {
    read(document).map(Arc::new)
}

fn read<T: DeserializeOwned>(document: Value) -> Result<T, String> {
    let shown = document["metadata"]["name"].clone();
    serde_json::from_value(document).map_err(|error| format!("{shown}: {error}"))
}

fn without_kind(mut document: Value) -> Value {
    document.as_object_mut().map(|fields| fields.remove("kind"));
    document
}

fn question(document: QuestionDocument) -> Result<Question, String> {
    let name = document.name.as_deref().map(Hostname::parse).transpose().map_err(|error| error.to_string())?;
    let request = document.request.as_deref().and_then(|request| request.split_once(' '));
    let request = request.map(|(method, path)| RequestQuestion { method: method.to_owned(), path: path.to_owned() });
    let from = document.from.map(|OriginDocument { namespace, labels }| Origin {
        client: Pods { namespace, labels: Some(labels), addresses: Vec::new() },
        gateway: GatewayPods::default(),
    });
    Ok(Question { gateway: document.gateway, port: document.port, tls: document.tls, name, request, from })
}

fn classes(document: &Value) -> Result<Classes, String> {
    match &document["classes"] {
        Value::String(name) if name == "OfController" => Ok(Classes::OfController),
        Value::Array(names) => Ok(Classes::Named(names.iter().map(|name| name.as_str().unwrap().to_owned()).collect())),
        other => Err(format!("classes: {other}")),
    }
}

fn secret(document: &CertificateDocument) -> Value {
    let mut params = rcgen::CertificateParams::new(document.names.clone()).unwrap();
    params.not_after = rcgen::date_time_ymd(document.expires, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = if document.mismatched { rcgen::KeyPair::generate().unwrap() } else { key };
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": document.metadata,
        "type": "kubernetes.io/tls",
        "stringData": { "tls.crt": certificate.pem(), "tls.key": key.serialize_pem() },
    })
}

impl Case {
    /// The same case with other objects.
    pub(crate) fn with(&self, objects: Objects) -> Self {
        let questions = self.questions.clone();
        Self { objects, settings: self.settings.clone(), questions, data_plane: self.data_plane.clone() }
    }
}
