//! What an issuer does, done by the local CA: every Certificate gets its Secret.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use portreeve_api::Certificate;
use portreeve_plan::ObjectRef;
use serde_json::{Value, json};

use super::{Author, World};
use crate::authority::{Authority, AuthorityError, KeyMaterial};
use crate::kinds::Typed;

/// The outcome of one Certificate, for its `Ready` condition.
struct Outcome {
    status: &'static str,
    reason: &'static str,
    message: String,
    material: Option<KeyMaterial>,
}

/// Gives every Certificate its Secret, unless people wrote that Secret, and says so in its status.
///
/// Secrets of Certificates that are gone go too. Returns whether anything changed.
pub(super) fn certify(world: &mut World, authority: &mut Authority, now: Timestamp) -> bool {
    let certificates: Vec<_> = world.typed().filter_map(certificate).cloned().collect();
    let mut secrets = BTreeMap::new();
    let mut statuses = Vec::new();
    for certificate in &certificates {
        let secret = secret_of(certificate);
        let outcome = certify_one(world, authority, certificate, &secret, now);
        if let Some(material) = &outcome.material {
            secrets.insert(secret.clone(), secret_value(&secret, material, authority));
        }
        statuses.push((reference(certificate), status(certificate, &outcome, now)));
    }
    authority.keep_only(&secrets.keys().map(ToString::to_string).collect());
    let mut changed = !world.replace(Author::Authority, secrets).is_empty();
    for (object, status) in statuses {
        // The status of an object that could be read is one that can be read.
        changed |= world.set_status(&object, status).unwrap_or(false);
    }
    changed
}

fn certify_one(
    world: &World,
    authority: &mut Authority,
    certificate: &Certificate,
    secret: &ObjectRef,
    now: Timestamp,
) -> Outcome {
    if world.is_written(secret) {
        let message = "the Secret in the manifests is used as it is".to_owned();
        return Outcome { status: "True", reason: "Ready", message, material: None };
    }
    let dns_names: BTreeSet<_> = certificate.spec.dns_names.iter().cloned().collect();
    match authority.issue(&secret.to_string(), &dns_names, now) {
        Ok(material) => {
            let message = "issued by Portreeve's local CA".to_owned();
            Outcome { status: "True", reason: "Ready", message, material: Some(material) }
        }
        Err(error) => Outcome { status: "False", reason: "Failed", message: explain(&error), material: None },
    }
}

fn explain(error: &AuthorityError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn certificate(typed: &Typed) -> Option<&Arc<Certificate>> {
    match typed {
        Typed::Certificate(certificate) => Some(certificate),
        _ => None,
    }
}

fn reference(certificate: &Certificate) -> ObjectRef {
    ObjectRef {
        api_version: "cert-manager.io/v1".to_owned(),
        kind: "Certificate".to_owned(),
        namespace: certificate.metadata.namespace.clone(),
        name: certificate.metadata.name.clone().unwrap_or_default(),
    }
}

fn secret_of(certificate: &Certificate) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: certificate.metadata.namespace.clone(),
        name: certificate.spec.secret_name.clone(),
    }
}

fn secret_value(secret: &ObjectRef, material: &KeyMaterial, authority: &Authority) -> Arc<Value> {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Arc::new(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret.name, "namespace": secret.namespace},
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": bytes(&material.certificate),
            "tls.key": bytes(&material.key),
            "ca.crt": bytes(authority.certificate()),
        },
    }))
}

fn status(certificate: &Certificate, outcome: &Outcome, now: Timestamp) -> Value {
    let old = certificate.status.iter().flat_map(|status| &status.conditions);
    let since = old.filter(|condition| condition.type_ == "Ready" && condition.status == outcome.status);
    let since = since.filter_map(|condition| condition.last_transition_time.as_ref()).map(|time| time.0).next();
    let mut status = json!({"conditions": [{
        "type": "Ready",
        "status": outcome.status,
        "reason": outcome.reason,
        "message": outcome.message,
        "observedGeneration": certificate.metadata.generation,
        "lastTransitionTime": seconds(since.unwrap_or(now)),
    }]});
    if let Some(material) = &outcome.material {
        status["notBefore"] = seconds(material.not_before);
        status["notAfter"] = seconds(material.not_after);
        status["renewalTime"] = seconds(material.renew_at());
    }
    status
}

/// A time as Kubernetes writes it.
fn seconds(time: Timestamp) -> Value {
    json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time))
}
