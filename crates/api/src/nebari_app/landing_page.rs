use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema_parts::{integer, port};

/// Entry of the platform's landing page.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["enabled"]))]
pub struct LandingPage {
    /// Whether the app is listed.
    #[serde(default)]
    pub enabled: bool,
    /// Title, at most 64 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub display_name: Option<String>,
    /// Sentence under the title, at most 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub description: Option<String>,
    /// Name or URL of the icon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Icon on a light background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon_light: Option<String>,
    /// Icon on a dark background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon_dark: Option<String>,
    /// Heading under which the app is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Where the entry leads; default: the app's own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_url: Option<String>,
    /// Place in the list, 0 to 1000, lowest first.
    #[serde(default = "default_priority")]
    #[schemars(schema_with = "integer::<0, 1000>")]
    pub priority: u16,
    /// How the landing page learns whether the app is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

/// How the landing page learns whether the app is well. Portreeve does not probe it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["enabled"]))]
pub struct HealthCheck {
    /// Whether the app is probed.
    #[serde(default)]
    pub enabled: bool,
    /// Path to ask for.
    #[serde(default = "default_health_path")]
    pub path: String,
    /// Port to ask; default: the port of the app's Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "port")]
    pub port: Option<u16>,
    /// Seconds between two probes, 10 to 300.
    #[serde(default = "default_interval")]
    #[schemars(schema_with = "integer::<10, 300>")]
    pub interval_seconds: u16,
    /// Seconds until a probe has failed, 1 to 30.
    #[serde(default = "default_timeout")]
    #[schemars(schema_with = "integer::<1, 30>")]
    pub timeout_seconds: u16,
}

fn default_priority() -> u16 {
    100
}

fn default_health_path() -> String {
    "/health".to_owned()
}

fn default_interval() -> u16 {
    30
}

fn default_timeout() -> u16 {
    5
}
