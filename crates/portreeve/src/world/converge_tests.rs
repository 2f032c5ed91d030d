use std::collections::BTreeMap;
use std::net::IpAddr;

use portreeve_attach::{Classes, SocketState};
use portreeve_plan::{Login, TenantApi, TenantApps};
use serde_json::Value;

use super::super::assume;
use super::*;
use crate::manifest;

const GATEWAY: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: nebari-gateway, namespace: envoy-gateway-system}
spec:
  gatewayClassName: envoy-gateway
  allowedListeners: {namespaces: {from: All}}
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {nebari.dev/managed: 'true'}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: team}
spec: {ports: [{name: http, port: 80}]}
";

fn app(name: &str, hostname: &str) -> String {
    format!(
        "---\napiVersion: reconcilers.nebari.dev/v1\nkind: NebariApp\nmetadata: {{name: {name}, namespace: team}}\n\
         spec: {{hostname: {hostname}, service: {{name: web, port: 80}}, routing: {{routes: [{{pathPrefix: /}}]}}}}\n"
    )
}

struct Bed {
    world: World,
    authority: Authority,
    config: Config,
    settings: Settings,
    now: Timestamp,
    is_complete: bool,
}

impl Bed {
    fn new(text: &str) -> Self {
        let now = "2026-08-01T00:00:00Z".parse().unwrap();
        let mut bed = Self {
            world: World::default(),
            authority: Authority::ephemeral(now).unwrap(),
            config: Config { cluster_issuer: Some("any".into()), ..Config::default() },
            settings: Settings { controller_name: "example.com/gateway".into(), classes: Classes::Every },
            now,
            is_complete: true,
        };
        bed.write(text);
        bed
    }

    fn write(&mut self, text: &str) {
        let contents = manifest::read(&"f.yaml".into(), text);
        assert_eq!(contents.findings, []);
        let mut objects: BTreeMap<_, _> =
            contents.manifests.into_iter().map(|manifest| (manifest.object, manifest.value)).collect();
        let backends = ["team/web=127.0.0.1:3000", "kubespaces-tenant-blue/blue:443=127.0.0.1:6443"];
        assume(&mut objects, &backends.map(|backend| backend.parse().unwrap()));
        assert_eq!(self.world.rewrite(objects, self.is_complete), []);
    }

    fn converge(&mut self, data_plane: &DataPlane) -> Converged {
        let environment = Environment { config: &self.config, settings: &self.settings, data_plane, now: self.now };
        let converged = converge(&mut self.world, &mut self.authority, environment);
        assert_eq!(converged.unsettled, None);
        converged
    }

    /// Converges as if every socket could be bound.
    fn settle(&mut self) -> Converged {
        let table = self.converge(&DataPlane::default()).table;
        let localhost = vec![IpAddr::from([127, 0, 0, 1])];
        let bound = DataPlane {
            addresses: table.ports.keys().map(|port| (port.gateway.clone(), localhost.clone())).collect(),
            sockets: table.ports.keys().map(|port| (port.clone(), SocketState::Bound)).collect(),
        };
        let converged = self.converge(&bound);
        // The first law: what rests, rests.
        let again = self.converge(&bound);
        assert_eq!((again.rounds, again.events.len()), (1, 0));
        converged
    }

    fn get(&self, kind: &str, name: &str) -> &Value {
        let found = self.world.objects().find(|(object, _)| object.kind == kind && object.name == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}")).1
    }

    fn condition(&self, kind: &str, name: &str, condition: &str) -> (String, String) {
        let conditions = self.get(kind, name)["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|found| found["type"] == condition).unwrap();
        (found["status"].as_str().unwrap().into(), found["reason"].as_str().unwrap().into())
    }
}

fn said(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

#[test]
fn an_app_is_served_on_a_listener_of_its_own_with_a_certificate_of_the_local_ca() {
    let mut bed = Bed::new(&[GATEWAY, &app("hub", "hub.test")].concat());
    let converged = bed.settle();
    assert_eq!(bed.condition("NebariApp", "hub", "Ready"), said("True", "ReconcileSuccess"));
    let ports: Vec<_> = converged.table.ports.keys().map(|port| port.port).collect();
    assert_eq!(ports, [80, 443]);
    let secret = bed.get("Certificate", "hub-team-cert")["spec"]["secretName"].as_str().unwrap().to_owned();
    let ca = bed.get("Secret", &secret)["data"]["ca.crt"].clone();
    assert_eq!(ca, serde_json::json!(k8s_openapi::ByteString(bed.authority.certificate().into())));
    assert_eq!(bed.world.claims().len(), 1);
    // The next thing that is due is the certificate's renewal.
    assert_eq!(converged.wake_at, bed.authority.renew_at());
}

#[test]
fn before_anything_is_bound_nothing_is_said_to_be() {
    let mut bed = Bed::new(&[GATEWAY, &app("hub", "hub.test")].concat());
    bed.converge(&DataPlane::default());
    assert_ne!(bed.condition("NebariApp", "hub", "Ready").0, "True");
}

#[test]
fn what_an_app_no_longer_wants_goes() {
    let mut bed = Bed::new(&[GATEWAY, &app("hub", "hub.test"), &app("lab", "lab.test")].concat());
    bed.settle();
    bed.write(&[GATEWAY, &app("lab", "lab.test")].concat());
    bed.settle();
    let left: Vec<_> =
        bed.world.applied().map(|(object, _)| object.to_string()).filter(|name| name.contains("hub")).collect();
    assert_eq!(left, Vec::<String>::new());
    assert!(bed.world.objects().all(|(object, _)| !(object.kind == "Secret" && object.name.starts_with("hub"))));
    assert_eq!(bed.world.claims().keys().collect::<Vec<_>>(), ["NebariApp/team/lab"]);
}

/// design: the holder keeps a name, whoever comes later, and over a restart.
#[test]
fn the_incumbent_keeps_its_name_over_a_restart() {
    let mut bed = Bed::new(&[GATEWAY, &app("lab", "hub.test")].concat());
    bed.settle();
    let text = [GATEWAY, &app("lab", "hub.test"), &app("a-younger", "hub.test").replace("namespace: team", "namespace: other"), "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other, labels: {nebari.dev/managed: 'true'}}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: other}\nspec: {ports: [{port: 80}]}\n"].concat();
    let mut restarted = Bed::new("");
    restarted.world = World::new(bed.world.claims().clone());
    restarted.write(&text);
    restarted.settle();
    assert_eq!(restarted.condition("NebariApp", "lab", "Ready").0, "True");
    assert_eq!(restarted.condition("NebariApp", "a-younger", "Ready").0, "False");
    // Without the record the order of namespaces decides.
    let mut forgetful = Bed::new(&text);
    forgetful.settle();
    assert_eq!(forgetful.condition("NebariApp", "lab", "Ready").0, "False");
}

/// issue 3: bad input loses nothing. Who cannot be read after a restart finds its name and its port as it left them.
#[test]
fn an_owner_that_cannot_be_read_keeps_what_it_holds() {
    let with_port = |name: &str, hostname: &str| {
        app(name, hostname).replace("{pathPrefix: /}]", "{pathPrefix: /}], tcp: [{name: s, listener: {port: 9000}}]")
    };
    let lab = with_port("lab", "hub.test");
    let mut bed = Bed::new(&[GATEWAY, &lab].concat());
    bed.settle();
    let held = bed.world.claims().clone();
    let other = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other, labels: {nebari.dev/managed: 'true'}}\n";
    let rival = with_port("rival", "hub.test").replace("namespace: team", "namespace: other");
    let mut restarted = Bed::new("");
    restarted.world = World::new(held.clone());
    restarted.is_complete = false;
    restarted.write(&[GATEWAY, other, &rival].concat());
    restarted.settle();
    assert_eq!(*restarted.world.claims(), held, "nothing for the rival");
    restarted.is_complete = true;
    restarted.write(&[GATEWAY, other, &rival, &lab].concat());
    restarted.settle();
    assert_eq!(restarted.condition("NebariApp", "lab", "Ready"), said("True", "ReconcileSuccess"));
    assert_eq!(*restarted.world.claims(), held);
    // Once it is known to be gone, what it held is free.
    restarted.write(&[GATEWAY, other, &rival].concat());
    restarted.settle();
    assert_eq!(restarted.world.claims().keys().collect::<Vec<_>>(), ["NebariApp/other/rival"]);
}

/// design: Portreeve proves that nobody takes another's name. A listener by hand is newer than one that was granted.
#[test]
fn a_listener_by_hand_takes_no_granted_name() {
    let by_hand = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: by-hand, namespace: a-first}\n\
         spec: {parentRef: {name: nebari-gateway, namespace: envoy-gateway-system}, listeners: [{name: x, port: 443, \
         protocol: HTTPS, hostname: hub.test, tls: {certificateRefs: [{name: own}]}}]}\n\
         ---\napiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: own, namespace: a-first}\n\
         spec: {secretName: own, dnsNames: [hub.test], issuerRef: {name: any, kind: ClusterIssuer}}\n";
    let mut bed = Bed::new(&[GATEWAY, &app("hub", "hub.test"), by_hand].concat());
    bed.settle();
    assert_eq!(bed.condition("NebariApp", "hub", "Ready"), said("True", "ReconcileSuccess"));
    assert_eq!(bed.condition("ListenerSet", "by-hand", "Accepted").0, "False");
}

/// design: law 7.
#[test]
fn an_app_is_served_with_its_sign_in_and_never_without() {
    let auth = "spec: {auth: {enabled: true, provider: generic-oidc, provisionClient: false, \
                issuerURL: 'https://id.test', groups: [staff]}, ";
    let hub = app("hub", "hub.test").replace("spec: {", auth);
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: hub-oidc-client, namespace: team}\n\
         stringData: {client-id: hub, client-secret: s3cret}\n";
    let mut bed = Bed::new("");
    bed.config.login = Some(Login {
        keycloak: None,
        enforce_groups: true,
        stay_open: false,
        drain: jiff::SignedDuration::ZERO,
        patience: jiff::SignedDuration::ZERO,
        embedded: true,
        shared_groups: Vec::new(),
    });
    let protected = [GATEWAY, &hub, secret].concat();
    for (text, ready) in [
        ([GATEWAY, &hub].concat(), said("False", "ValidationFailed")),
        (protected.clone(), said("True", "AuthConfigured")),
        ([GATEWAY, &hub].concat(), said("False", "ValidationFailed")),
        (protected, said("True", "AuthConfigured")),
    ] {
        bed.write(&text);
        let converged = bed.settle();
        let routes = routes_of(&converged.table);
        assert_eq!(bed.condition("NebariApp", "hub", "AuthReady"), ready);
        assert_eq!(routes.iter().any(|route| leads_there(route)), ready.0 == "True", "{routes:?}");
        for route in routes.iter().filter(|route| leads_there(route)) {
            let login = route.login.as_ref().unwrap();
            assert_eq!((&*login.client_id, login.callback.path.as_str()), ("hub", "/oauth2/callback"));
            assert_eq!(login.allowed.as_ref().unwrap()[0].values, ["/staff", "staff"]);
        }
    }
}

fn leads_there(route: &portreeve_table::HttpRoute) -> bool {
    !route.backends.entries.is_empty()
}

fn routes_of(table: &Table) -> Vec<&portreeve_table::HttpRoute> {
    let all = table.ports.values().flat_map(|port| match port {
        portreeve_table::Port::Http(listeners) => {
            listeners.iter().flat_map(|(_, listener)| listener.routes.iter()).collect::<Vec<_>>()
        }
        portreeve_table::Port::Tls(listeners) => listeners
            .iter()
            .flat_map(|(_, listener)| match &listener.service {
                portreeve_table::TlsService::TerminateHttp { routes, .. } => routes.iter().collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect(),
    });
    all.map(|(_, route)| route).filter(|route| route.id.0.contains("/hub-route")).collect()
}

/// design: law 7. Where the platform has said nothing of sign-in, what a policy protects is not served at all.
#[test]
fn what_must_be_protected_is_not_served_without_sign_in() {
    let policy = "---\napiVersion: gateway.envoyproxy.io/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: login, namespace: team}\n\
         spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: hub-route}], oidc: {clientID: hub}}\n";
    let hub = app("hub", "hub.test").replace("spec: {", "spec: {auth: {enabled: true}, ");
    let mut bed = Bed::new(&[GATEWAY, &hub, policy].concat());
    let converged = bed.settle();
    assert_eq!(bed.condition("NebariApp", "hub", "RoutingReady"), said("False", "PolicyMissing"));
    let table = format!("{:?}", converged.table);
    assert!(!table.contains("HTTPRoute/team/hub-route"), "{table}");
}

#[test]
fn a_secret_that_people_wrote_is_used_as_it_is() {
    let issued = Authority::ephemeral("2026-08-01T00:00:00Z".parse().unwrap())
        .unwrap()
        .issue("x", &["hub.test".to_owned()].into(), "2026-08-01T00:00:00Z".parse().unwrap())
        .unwrap();
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub-team-tls", "namespace": "team"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": issued.certificate, "tls.key": issued.key},
    });
    let mut bed = Bed::new(&[GATEWAY, &app("hub", "hub.test"), "---\n", &secret.to_string()].concat());
    bed.settle();
    assert_eq!(bed.condition("NebariApp", "hub", "Ready").0, "True");
    assert_eq!(bed.get("Secret", "hub-team-tls")["data"].get("ca.crt"), None);
    assert_eq!(bed.authority.renew_at(), None, "nothing was issued");
}

#[test]
fn a_tenant_has_its_namespace_its_api_and_its_apps() {
    let tenant = "---\napiVersion: kubespaces.io/v1alpha1\nkind: Tenant\nmetadata: {name: blue}\nspec: {owner: me}\n";
    let gateways = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: kubespaces-api, namespace: kubespaces-system}\nspec: {gatewayClassName: c, listeners: [{name: api, port: 443, protocol: TLS, hostname: '*.api.d.test', tls: {mode: Passthrough}}]}\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: kubespaces-apps, namespace: kubespaces-system}\nspec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP}]}\n";
    let mut bed = Bed::new("");
    bed.config.tenant_api = Some(TenantApi {
        gateway_namespace: "kubespaces-system".into(),
        gateway_name: "kubespaces-api".into(),
        section: None,
        domain: "d.test".into(),
        external_dns_target: None,
    });
    bed.config.tenant_apps = Some(TenantApps {
        gateway_namespace: "kubespaces-system".into(),
        gateway_name: "kubespaces-apps".into(),
        domain: "d.test".into(),
        cluster_issuer: "any".into(),
        ..TenantApps::default()
    });
    bed.write(&[tenant, gateways].concat());
    bed.settle();
    assert_eq!(bed.condition("Tenant", "blue", "Ready").0, "True");
    let labels = &bed.get("Namespace", "kubespaces-tenant-blue")["metadata"]["labels"];
    assert_eq!(
        (&labels["kubespaces.io/tenant"], &labels["kubernetes.io/metadata.name"]),
        (&"blue".into(), &"kubespaces-tenant-blue".into())
    );
    let listeners: Vec<_> = bed.get("Gateway", "kubespaces-apps")["spec"]["listeners"]
        .as_array()
        .unwrap()
        .iter()
        .map(|listener| listener["name"].clone())
        .collect();
    assert_eq!(listeners, ["http", "t-blue"]);
    // What was put into the Gateway that people wrote goes again with the tenant.
    bed.write(gateways);
    bed.settle();
    assert_eq!(bed.get("Gateway", "kubespaces-apps")["spec"]["listeners"].as_array().unwrap().len(), 1);
    let left: Vec<_> = bed.world.applied().map(|(object, body)| format!("{object} {body}")).collect();
    assert_eq!(left, Vec::<String>::new());
}

/// What an API server would refuse is a fault of Portreeve, and no world of these has one.
#[test]
fn everything_that_is_applied_is_valid() {
    let mut bed = Bed::new(&[GATEWAY, &app("hub", "hub.test")].concat());
    bed.settle();
    let mut seen = 0;
    for (object, body) in bed.world.applied() {
        let contents = manifest::read(&"applied".into(), &body.to_string());
        assert_eq!(contents.findings, [], "{object}");
        seen += 1;
    }
    assert!(seen >= 3, "{seen}");
}
