//! NebariApp (`reconcilers.nebari.dev/v1`): an app and how it wants to be reached.

mod auth;
mod landing_page;
mod routing;
mod status;
mod tcp;

pub use auth::*;
pub use landing_page::*;
pub use routing::*;
pub use status::*;
pub use tcp::*;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema_parts::DNS_NAME;
use crate::shared::ServiceReference;

/// What an app asks for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema, CustomResource)]
#[kube(
    group = "reconcilers.nebari.dev",
    version = "v1",
    kind = "NebariApp",
    plural = "nebariapps",
    shortname = "nebariapp",
    namespaced,
    status = "NebariAppStatus",
    derive = "PartialEq",
    doc = "An app and how it wants to be reached: its host name, its routes, its certificate and its sign-in."
)]
#[serde(rename_all = "camelCase")]
pub struct NebariAppSpec {
    /// Host name at which the app is served: lower case, no wildcard.
    #[schemars(length(min = 1), regex(pattern = DNS_NAME))]
    pub hostname: String,
    /// The Service that answers.
    pub service: ServiceReference,
    /// The shared Gateway that serves the app.
    #[serde(default)]
    pub gateway: GatewayChoice,
    /// Service account of the app's pods, which may read the app's OIDC client Secret; default: the name of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub service_account_name: Option<String>,
    /// How requests reach the app; without it, no route is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Sign-in in front of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Entry of the platform's landing page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing_page: Option<LandingPage>,
}

/// Which of the two shared Gateways serves an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayChoice {
    /// The Gateway that is reachable from outside.
    #[default]
    Public,
    /// The Gateway that is reachable inside only.
    Internal,
}
