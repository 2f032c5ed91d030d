use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tcp::TcpEntry;
use crate::schema_parts::DNS_NAME;

/// The most entries that `routing.tcp` may have.
pub const MAX_TCP_ENTRIES: usize = 16;

/// How requests reach an app.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// Paths that lead to the app, protected where the app asks for sign-in; none: all paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteMatch>,
    /// Paths that lead to the app without sign-in; only with `auth.enabled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub public_routes: Vec<RouteMatch>,
    /// Certificate and listener of the app's host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Annotations of the app's HTTPRoute.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who makes the app's HTTPRoutes.
    #[serde(default)]
    pub route_management: RouteManagement,
    /// TLS connections that pass through to the app untouched, routed by server name; at most 16 entries, which
    /// ask for at most 63 listeners in all, so that they fit one ListenerSet beside the app's HTTPS listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_TCP_ENTRIES),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["name"],
            "x-kubernetes-validations" = [{
                "rule": "self.map(e, !has(e.sniHostnames) || size(e.sniHostnames) == 0 || e.sniHostnames.exists(n, n.endsWith('*')) ? 1 : size(e.sniHostnames)).sum() <= 63",
                "message": "at most 63 listeners over all entries: each name of sniHostnames is one, an entry without names or with a pattern is one",
            }],
        ),
    )]
    pub tcp: Vec<TcpEntry>,
}

/// A path, and how requests are compared with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteMatch {
    /// The path, or its beginning.
    #[schemars(regex(pattern = r"^/.*"))]
    pub path_prefix: String,
    /// How requests are compared with it; default: `PathPrefix` in `routes`, `Exact` in `publicRoutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_type: Option<PathType>,
}

/// How the path of a request is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum PathType {
    /// Its beginning, segment by segment.
    PathPrefix,
    /// The whole path.
    Exact,
}

/// Certificate and listener of an app's host name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Whether the app is served over HTTPS; otherwise over plain HTTP.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Secret with the certificate to serve, instead of one that is issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub secret_name: Option<String>,
}

/// Who makes the routes of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum RouteManagement {
    /// Portreeve.
    #[default]
    Operator,
    /// The app; Portreeve makes the listener and its certificate, and does not look the app's `service` up.
    App,
}

fn yes() -> bool {
    true
}
