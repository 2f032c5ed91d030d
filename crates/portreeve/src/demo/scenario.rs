//! What the demo asks of the gateway, and what must come of it.

use std::net::SocketAddr;

use super::backends::{Backends, CLUSTERS};
use super::client::Request;
use super::identity::Identity;

/// The Gateways of `examples/quickstart/gateways.yaml`.
pub(super) const PLATFORM: &str = "envoy-gateway-system/nebari-gateway";
pub(super) const TENANT_API: &str = "kubespaces-system/kubespaces-api";
pub(super) const TENANT_APPS: &str = "kubespaces-system/kubespaces-apps";

/// One request and what must come of it.
pub(super) struct Step {
    /// `namespace/name` of the Gateway that is asked.
    pub(super) gateway: &'static str,
    pub(super) port: u16,
    pub(super) name: Option<String>,
    pub(super) path: Option<&'static str>,
    pub(super) http2: bool,
    pub(super) identity: Option<Identity>,
    pub(super) expect: Expect,
}

impl Step {
    /// The request that asks it of `socket`.
    pub(super) fn request(&self, socket: SocketAddr) -> Request {
        Request {
            socket,
            name: self.name.clone(),
            path: self.path.map(str::to_owned),
            http2: self.http2,
            identity: self.identity.clone(),
        }
    }
}

/// What must come of a request.
pub(super) enum Expect {
    /// TLS ends at the backend: its own certificate is seen, and it saw the client's.
    EndToEnd {
        /// The backend's certificate.
        server: Identity,
        /// What the backend says, which names the client's certificate.
        says: String,
    },
    /// TLS ends at the gateway, and this app answers.
    Terminated {
        /// What the answer starts with.
        says: String,
    },
    /// The gateway has no such route.
    NotFound,
    /// Closed without a byte.
    Closed,
}

/// Every step, in the order in which it is shown.
pub(super) fn steps(backends: &Backends) -> Vec<Step> {
    let mut steps = served(backends);
    steps.extend(refused(backends));
    steps
}

fn served(backends: &Backends) -> Vec<Step> {
    let mut steps: Vec<_> = CLUSTERS
        .iter()
        .zip(&backends.schedulers)
        .map(|(cluster, identity)| Step {
            identity: Some(identity.clone()),
            ..tls(
                PLATFORM,
                8786,
                Some(&scheduler_name(cluster)),
                Expect::EndToEnd { server: identity.clone(), says: format!("dask-{cluster} greets dask-internal") },
            )
        })
        .collect();
    steps.push(Step {
        identity: Some(backends.query.clone()),
        ..tls(
            PLATFORM,
            9440,
            Some("query.lake.example.test"),
            Expect::EndToEnd { server: backends.query.clone(), says: "lake-query greets lake".into() },
        )
    });
    steps.push(Step {
        path: Some("/version"),
        identity: Some(backends.tenant_admin.clone()),
        ..tls(
            TENANT_API,
            443,
            Some("blue.api.example.test"),
            Expect::EndToEnd {
                server: backends.api_server.clone(),
                says: "api-server greets blue-admin: /version".into(),
            },
        )
    });
    steps.push(https(PLATFORM, "hub.example.test", "/", terminated("hub: /")));
    steps.push(Step {
        http2: true,
        ..https(PLATFORM, "dask.example.test", "/api/v1", terminated("api-dask-gateway: /api/v1"))
    });
    steps.push(https(TENANT_APPS, "web.blue.apps.example.test", "/", terminated("web: /")));
    steps
}

fn refused(backends: &Backends) -> Vec<Step> {
    vec![
        https(PLATFORM, "dask.example.test", "/admin", Expect::NotFound),
        https(TENANT_APPS, "web.green.apps.example.test", "/", Expect::NotFound),
        tls(TENANT_API, 443, Some("green.api.example.test"), Expect::Closed),
        Step {
            identity: backends.schedulers.first().cloned(),
            ..tls(PLATFORM, 8786, Some("daskgateway-dask.unknown"), Expect::Closed)
        },
        Step { identity: backends.schedulers.first().cloned(), ..tls(PLATFORM, 8786, None, Expect::Closed) },
    ]
}

/// The server name that a Dask client sends for a cluster in the namespace `dask`.
pub(super) fn scheduler_name(cluster: &str) -> String {
    format!("daskgateway-dask.{cluster}")
}

fn tls(gateway: &'static str, port: u16, name: Option<&str>, expect: Expect) -> Step {
    Step { gateway, port, name: name.map(str::to_owned), path: None, http2: false, identity: None, expect }
}

fn https(gateway: &'static str, name: &str, path: &'static str, expect: Expect) -> Step {
    Step { path: Some(path), ..tls(gateway, 443, Some(name), expect) }
}

fn terminated(says: &str) -> Expect {
    Expect::Terminated { says: says.to_owned() }
}
