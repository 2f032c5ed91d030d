//! The rules of the Gateway API's definitions that the Rust types do not carry: their CEL rules, bounds and patterns
//! (Gateway API 1.6.3, standard channel), as one table.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use portreeve_schema::{InvalidSchema, Schema};

/// One rule: the kinds that have it, the field on which it stands (`[]` for each item of a list), the CEL, and what a
/// person reads when it does not hold.
type Rule = (&'static [&'static str], &'static str, &'static str, &'static str);

const LISTENERS: &[&str] = &["Gateway", "ListenerSet"];
const ROUTES: &[&str] = &["HTTPRoute", "TLSRoute"];

const RULES: &[Rule] = &[
    (
        LISTENERS,
        "spec.listeners",
        "size(self) >= 1 && size(self) <= 64",
        "there must be 1 to 64 listeners; put more into a ListenerSet of its own",
    ),
    (
        LISTENERS,
        "spec.listeners",
        "self.all(l, self.exists_one(o, o.name == l.name))",
        "each listener needs a name of its own",
    ),
    (
        LISTENERS,
        "spec.listeners",
        "self.all(l, self.exists_one(o, o.port == l.port && o.protocol == l.protocol && \
         (has(o.hostname) ? o.hostname : '') == (has(l.hostname) ? l.hostname : '')))",
        "two listeners have the same port, protocol and hostname: drop one or give it another hostname",
    ),
    (LISTENERS, "spec.listeners[]", "self.port >= 1 && self.port <= 65535", "port must be from 1 to 65535"),
    (
        LISTENERS,
        "spec.listeners[]",
        "!(self.protocol in ['HTTP', 'TCP', 'UDP']) || !has(self.tls)",
        "tls must not be set with protocol HTTP, TCP or UDP: drop it, or use HTTPS or TLS",
    ),
    (
        LISTENERS,
        "spec.listeners[]",
        "self.protocol != 'HTTPS' || !has(self.tls) || !has(self.tls.mode) || self.tls.mode == 'Terminate'",
        "protocol HTTPS cannot have tls.mode Passthrough: use protocol TLS for passthrough",
    ),
    (
        LISTENERS,
        "spec.listeners[]",
        "self.protocol != 'TLS' || (has(self.tls) && has(self.tls.mode))",
        "protocol TLS needs tls.mode: set it to Passthrough or Terminate",
    ),
    (
        LISTENERS,
        "spec.listeners[]",
        "!(self.protocol in ['TCP', 'UDP']) || !has(self.hostname) || self.hostname == ''",
        "hostname must not be set with protocol TCP or UDP",
    ),
    (
        LISTENERS,
        "spec.listeners[].tls",
        "(has(self.mode) && self.mode == 'Passthrough') || (has(self.certificateRefs) && size(self.certificateRefs) > 0) \
         || (has(self.options) && size(self.options) > 0)",
        "mode Terminate needs certificateRefs (or options)",
    ),
    (LISTENERS, "spec.listeners[].hostname", HOSTNAME_OR_EMPTY, HOSTNAME_MESSAGE),
    (
        LISTENERS,
        "spec.listeners[].name",
        "size(self) <= 253 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "a listener's name is lower-case letters, digits, '-' and '.'",
    ),
    (ROUTES, "spec.hostnames[]", HOSTNAME, HOSTNAME_MESSAGE),
    (ROUTES, "spec.parentRefs", "size(self) <= 32", "there may be at most 32 parentRefs"),
    (
        &["TLSRoute"],
        "spec.hostnames",
        "size(self) >= 1 && size(self) <= 1024",
        "there must be 1 to 1024 hostnames: a TLSRoute is found by server name",
    ),
    (
        &["TLSRoute"],
        "spec.hostnames[]",
        "!self.matches('^[0-9.]+$')",
        "an IP address is no server name (RFC 6066): write a host name",
    ),
    (&["TLSRoute"], "spec.rules", "size(self) == 1", "there must be exactly one rule"),
    (
        &["TLSRoute"],
        "spec.rules[]",
        "has(self.backendRefs) && size(self.backendRefs) >= 1 && size(self.backendRefs) <= 16",
        "there must be 1 to 16 backendRefs",
    ),
    (&["HTTPRoute"], "spec.hostnames", "size(self) <= 16", "there may be at most 16 hostnames"),
    (&["HTTPRoute"], "spec.rules", "size(self) >= 1 && size(self) <= 16", "there must be 1 to 16 rules"),
    (
        &["HTTPRoute"],
        "spec.rules[].matches[].path",
        "!has(self.value) || (has(self.type) && self.type == 'RegularExpression') || self.value.startsWith('/')",
        "a path starts with '/'",
    ),
    (
        &["HTTPRoute"],
        "spec.rules[].matches[].path",
        "!has(self.value) || (has(self.type) && self.type == 'RegularExpression') || \
         !(self.value.contains('//') || self.value.contains('/./') || self.value.contains('/../') || \
           self.value.contains('%2f') || self.value.contains('%2F') || self.value.contains('#'))",
        "a path must not contain '//', '/./', '/../', '%2F' or '#'",
    ),
    (
        &["HTTPRoute"],
        "spec.rules[]",
        "!has(self.backendRefs) || size(self.backendRefs) == 0 || !has(self.filters) || \
         !self.filters.exists(f, has(f.requestRedirect))",
        "a rule with a RequestRedirect must not have backendRefs",
    ),
    (
        &["HTTPRoute", "TLSRoute"],
        "spec.rules[].backendRefs[]",
        "(has(self.kind) && self.kind != 'Service') || (has(self.group) && self.group != '') || has(self.port)",
        "a reference to a Service needs a port",
    ),
    (
        &["ReferenceGrant"],
        "spec.from",
        "size(self) >= 1 && size(self) <= 16",
        "there must be 1 to 16 entries that say who may refer",
    ),
    (
        &["ReferenceGrant"],
        "spec.to",
        "size(self) >= 1 && size(self) <= 16",
        "there must be 1 to 16 entries that say what may be referred to",
    ),
];

/// RFC 1123, with an optional leading `*.`.
const HOSTNAME: &str = "size(self) <= 253 && \
     self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')";
const HOSTNAME_OR_EMPTY: &str = "self == '' || (size(self) <= 253 && \
     self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))";
const HOSTNAME_MESSAGE: &str = "a host name is lower-case labels of letters, digits and '-', joined by '.'; only the whole leftmost label may be '*'";

/// The schema of one of the Gateway API's kinds, with the rules of the table.
pub(crate) fn schema_of(crd: &CustomResourceDefinition) -> Result<Schema, InvalidSchema> {
    let mut crd = crd.clone();
    let kind = crd.spec.names.kind.clone();
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        for (_, field, rule, message) in RULES.iter().filter(|(kinds, ..)| kinds.contains(&kind.as_str())) {
            let rule = ValidationRule {
                rule: (*rule).to_owned(),
                message: Some((*message).to_owned()),
                ..ValidationRule::default()
            };
            if let Some(schema) = find(root, field) {
                schema.x_kubernetes_validations.get_or_insert_default().push(rule);
            }
        }
    }
    Schema::of(&crd)
}

/// The schema of a field like `spec.listeners[].tls`.
fn find<'a>(root: &'a mut JSONSchemaProps, field: &str) -> Option<&'a mut JSONSchemaProps> {
    field.split('.').try_fold(root, |schema, step| {
        let name = step.strip_suffix("[]");
        let property = schema.properties.as_mut()?.get_mut(name.unwrap_or(step))?;
        match (name, property) {
            (None, property) => Some(property),
            (Some(_), JSONSchemaProps { items: Some(JSONSchemaPropsOrArray::Schema(items)), .. }) => Some(&mut **items),
            (Some(_), _) => None,
        }
    })
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
