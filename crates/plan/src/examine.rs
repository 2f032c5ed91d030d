//! What people should do on a cluster before apps can be served there, or could do better.

use std::collections::BTreeSet;

use portreeve_api::NebariApp;
use portreeve_api::names::nebari_app::https_listener;
use portreeve_api::names::{self, labels};
use portreeve_api::nebari_app::AuthProvider;
use serde::Serialize;

use crate::app::is_legacy_entry;
use crate::claim::GatewayName;
use crate::contest::listeners_open_to_all;
use crate::gateway::SharedGateway;
use crate::object::Kind;
use crate::settled::ADMIT;
use crate::view::View;
use crate::world::{EnvoyGatewayVersion, LegacyListeners, World};

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Something does not work until it is done.
    Required,
    /// Everything works; it could be safer, or there could be more.
    Advised,
}

/// One thing that a person should do. `Ord` by severity, then subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Advice {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about, such as `Gateway envoy-gateway-system/nebari-gateway`.
    pub subject: String,
    /// What was found.
    pub finding: String,
    /// What to do.
    pub action: String,
    /// To paste, where a manifest says it best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yaml: Option<String>,
}

/// What is to be done on this cluster, the most important first. It needs no app, nor Portreeve's own definitions.
pub fn examine(world: &World) -> Vec<Advice> {
    let view = View::new(world);
    let gateways = gateways(&view);
    let mut found: Vec<_> = kinds(world).collect();
    if world.served.gateways {
        found.extend(gateways.iter().filter(|gateway| view.gateway(gateway).is_none()).map(missing_gateway));
    }
    let present = || gateways.iter().filter_map(|name| Some((name, view.gateway(name)?)));
    found.extend(present().filter_map(|(name, gateway)| closed_gateway(&view, name, gateway)));
    found.extend(open_listeners(world));
    found.extend(issuer(&view));
    let legacy: Vec<_> = present().flat_map(|(name, gateway)| legacy_entries(&view, name, gateway)).collect();
    let blocks_migration = world.config.legacy_listeners == LegacyListeners::Migrate && !legacy.is_empty();
    found.extend(envoy_gateway(world, blocks_migration));
    found.extend(legacy);
    found.extend(groups(world));
    found.sort();
    found
}

impl Advice {
    /// Without YAML.
    pub fn new(
        severity: Severity,
        subject: impl Into<String>,
        finding: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self { severity, subject: subject.into(), finding: finding.into(), action: action.into(), yaml: None }
    }

    fn with_yaml(self, yaml: String) -> Self {
        Self { yaml: Some(yaml), ..self }
    }
}

/// The shared Gateways that apps name; the public one also before there are apps.
fn gateways(view: &View<'_>) -> BTreeSet<GatewayName> {
    let named = view.world.apps.iter().map(|app| GatewayName::of_app(app.spec.gateway));
    named.chain([GatewayName::new(names::GATEWAY_NAMESPACE, names::PUBLIC_GATEWAY)]).collect()
}

fn kinds(world: &World) -> impl Iterator<Item = Advice> + '_ {
    use Severity::{Advised, Required};
    let certificates = world.config.cluster_issuer.as_ref().map(|_| (Required, Kind::Certificate));
    let kinds = [
        (Required, Kind::Gateway),
        (Required, Kind::HttpRoute),
        (Required, Kind::ListenerSet),
        (Advised, Kind::TlsRoute),
        (Advised, Kind::ReferenceGrant),
    ];
    kinds.into_iter().chain(certificates).filter_map(|(severity, kind)| {
        let text = kind.unserved(&world.served)?;
        let (finding, action) = text.split_once(": ").unwrap_or((&text, "install its definition"));
        Some(Advice::new(severity, kind.as_str(), finding, action))
    })
}

fn missing_gateway(name: &GatewayName) -> Advice {
    let GatewayName { namespace, name: own } = name;
    let yaml = format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: {own}
  namespace: {namespace}
spec:
  gatewayClassName: {}
{ADMISSION}  listeners:
  - name: {}
    port: 80
    protocol: HTTP
    allowedRoutes: {{namespaces: {{from: Selector, selector: {{matchLabels: {{{}: \"true\"}}}}}}}}
  - name: {}
    port: 443
    protocol: HTTPS
    allowedRoutes: {{namespaces: {{from: Selector, selector: {{matchLabels: {{{}: \"true\"}}}}}}}}
    tls: {{mode: Terminate, certificateRefs: [{{name: {}}}]}}
",
        names::GATEWAY_CLASS,
        names::HTTP_LISTENER,
        labels::MANAGED,
        names::HTTPS_LISTENER,
        labels::MANAGED,
        names::GATEWAY_TLS_SECRET,
    );
    Advice::new(
        Severity::Required,
        format!("Gateway {name}"),
        "apps are served by it, and it is not there",
        "create it",
    )
    .with_yaml(yaml)
}

const ADMISSION: &str = "  allowedListeners:
    namespaces: {from: Selector, selector: {matchLabels: {nebari.dev/managed: \"true\"}}}
";

/// A Gateway that does not admit the ListenerSets of namespaces that are opted in, or would not.
fn closed_gateway(view: &View<'_>, name: &GatewayName, gateway: SharedGateway<'_>) -> Option<Advice> {
    let names = view.world.namespaces.iter().filter_map(|namespace| namespace.metadata.name.as_deref());
    let opted_in: BTreeSet<_> = names.filter(|namespace| view.is_opted_in(namespace)).collect();
    let closed_to: Vec<_> =
        opted_in.iter().copied().filter(|namespace| !gateway.admits_listener_sets_of(view, namespace)).collect();
    let whose = match &closed_to[..] {
        [] if opted_in.is_empty() && !gateway.admits_any_listener_sets() => "namespaces that are opted in".to_owned(),
        [] => return None,
        [one] => format!("namespace {one}"),
        [_, ..] => format!("namespaces {}", closed_to.join(", ")),
    };
    let yaml = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata:\n  name: {}\n  namespace: {}\nspec:\n{ADMISSION}",
        name.name, name.namespace
    );
    let finding = format!("it does not admit ListenerSets of {whose}");
    Some(Advice::new(Severity::Required, format!("Gateway {name}"), finding, ADMIT).with_yaml(yaml))
}

fn open_listeners(world: &World) -> impl Iterator<Item = Advice> {
    listeners_open_to_all(world).into_iter().map(|open| {
        let finding = format!(
            "listener {} has no host name and takes routes of all namespaces: whoever may create an HTTPRoute anywhere \
             can claim any name there that nobody else has",
            open.listener
        );
        let action = format!("let its allowedRoutes.namespaces select {}=true", labels::MANAGED);
        Advice::new(Severity::Advised, format!("Gateway {}", open.gateway), finding, action)
    })
}

/// The issuer of apps' certificates: that it is there, and that its HTTP-01 solver finds its Gateway from everywhere.
fn issuer(view: &View<'_>) -> Option<Advice> {
    let name = view.world.config.cluster_issuer.as_deref().filter(|_| view.world.served.certificates)?;
    let subject = format!("ClusterIssuer {name}");
    let Some(found) = view.cluster_issuer(name) else {
        return Some(Advice::new(
            Severity::Required,
            subject,
            "apps' certificates come from it, and it is not there",
            "create it",
        ));
    };
    let parent = found.spec.http01_parents().find(|parent| parent.namespace.is_none())?;
    let finding =
        format!("its HTTP-01 solver names Gateway {} without a namespace: it is sought in each app's own", parent.name);
    let action = format!(
        "set namespace on spec.acme.solvers[].http01.gatewayHTTPRoute.parentRefs, for example {}",
        names::GATEWAY_NAMESPACE
    );
    Some(Advice::new(Severity::Required, subject, finding, action))
}

/// What the former operator has left on a Gateway: listeners that serve apps, and those of apps that are gone.
fn legacy_entries(view: &View<'_>, name: &GatewayName, gateway: SharedGateway<'_>) -> Vec<Advice> {
    let apps: BTreeSet<String> = view
        .world
        .apps
        .iter()
        .filter_map(|app| Some(https_listener(app.metadata.name.as_deref()?, app.metadata.namespace.as_deref()?)))
        .collect();
    let entries = gateway.object.spec.listeners.iter().filter(|listener| is_legacy_entry(listener));
    let (serving, left): (Vec<_>, Vec<_>) =
        entries.map(|listener| listener.name.as_str()).partition(|name| apps.contains(*name));
    let of_apps = match view.world.config.legacy_listeners {
        LegacyListeners::Keep => "they go on serving; to move their apps, set --migrate-legacy-listeners",
        LegacyListeners::Migrate | LegacyListeners::Force => {
            "they go as their apps move; TLSReady of each app says what it waits for"
        }
    };
    let groups = [
        (serving, "listeners of the former operator", of_apps),
        (left, "listeners of the former operator for apps that are gone", "remove them from spec.listeners"),
    ];
    let advice = |(entries, what, action): (Vec<&str>, &str, &str)| {
        let finding = format!("it has {what}: {}", entries.join(", "));
        Advice::new(Severity::Advised, format!("Gateway {name}"), finding, action)
    };
    groups.into_iter().filter(|(entries, ..)| !entries.is_empty()).map(advice).collect()
}

/// Apps of which `auth.groups` says more here than with the former operator.
fn groups(world: &World) -> Vec<Advice> {
    let told = |severity: Severity, counts: fn(&NebariApp) -> bool, what: &str, action: &str| {
        let apps = world.apps.iter().filter(|app| has_enforced_groups(app) && counts(app));
        let apps: BTreeSet<String> = apps.map(|app| full_name(app)).collect();
        let finding = format!("{what}: {}", apps.iter().cloned().collect::<Vec<_>>().join(", "));
        let action = format!("{action}, or set --auth-groups=ignore");
        (!apps.is_empty()).then(|| Advice::new(severity, "sign-in", finding, action))
    };
    if world.config.login.as_ref().is_none_or(|login| !login.enforce_groups) {
        return Vec::new();
    }
    let generic = told(
        Severity::Required,
        is_generic,
        "apps with provider generic-oidc name auth.groups, which the gateway cannot tell there, and are not served",
        "drop auth.groups of these apps",
    );
    let former = told(
        Severity::Advised,
        |app| !is_generic(app) && is_as_the_former_operator_left_it(app),
        "apps of the former operator name auth.groups, which it did not enforce; now only members get in",
        "see that the groups have the right members",
    );
    generic.into_iter().chain(former).collect()
}

fn has_enforced_groups(app: &NebariApp) -> bool {
    let auth = app.spec.auth.as_ref();
    auth.is_some_and(|auth| auth.enabled && auth.enforce_at_gateway && !auth.groups.is_empty())
}

fn is_generic(app: &NebariApp) -> bool {
    app.spec.auth.as_ref().is_some_and(|auth| auth.provider == AuthProvider::GenericOidc)
}

fn is_as_the_former_operator_left_it(app: &NebariApp) -> bool {
    let status = app.status.as_ref();
    status.is_some_and(|status| status.auth_config_hash.is_some() && status.auth_clients_hash.is_none())
}

fn full_name(app: &NebariApp) -> String {
    let (namespace, name) = (app.metadata.namespace.as_deref(), app.metadata.name.as_deref());
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn envoy_gateway(world: &World, blocks_migration: bool) -> Option<Advice> {
    let wanted = EnvoyGatewayVersion::KEEPS_ROUTES;
    let version = world.envoy_gateway().filter(|version| *version < wanted)?;
    let finding = format!("version {version} drops the routes of listeners that have the same port and host name");
    let severity = if blocks_migration { Severity::Required } else { Severity::Advised };
    Some(Advice::new(severity, "Envoy Gateway", finding, format!("upgrade it to {wanted} or later")))
}
