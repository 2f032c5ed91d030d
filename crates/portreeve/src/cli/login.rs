use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use portreeve_controller::KeycloakAdmin;
use portreeve_plan::{Keycloak, Login};
use secrecy::SecretString;

/// Keycloak's port, where the environment says none that is one.
const KEYCLOAK_PORT: u16 = 8080;
/// How long Keycloak may take to answer, where the environment says nothing that is a duration.
const PATIENCE: Duration = Duration::from_secs(30);

/// How apps sign visitors in: the environment of the NebariApp operator, and what it had no words for.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sign-in")]
pub struct LoginArgs {
    /// Whether the platform has a Keycloak
    #[arg(long, env = "KEYCLOAK_ENABLED", default_value = "true", hide_env_values = true, value_name = "BOOL")]
    pub keycloak_enabled: String,
    /// Its URL for the operator
    #[arg(
        long,
        env = "KEYCLOAK_URL",
        value_name = "URL",
        hide_env_values = true,
        default_value = "http://keycloak-keycloakx-http.keycloak.svc.cluster.local:8080"
    )]
    pub keycloak_url: String,
    /// Its realm
    #[arg(long, env = "KEYCLOAK_REALM", value_name = "NAME", default_value = "nebari", hide_env_values = true)]
    pub keycloak_realm: String,
    /// Secret with its administrator's username and password
    #[arg(
        long,
        env = "KEYCLOAK_ADMIN_SECRET_NAME",
        value_name = "NAME",
        hide_env_values = true,
        default_value = "nebari-realm-admin-credentials"
    )]
    pub keycloak_admin_secret_name: String,
    /// Namespace of that Secret
    #[arg(
        long,
        env = "KEYCLOAK_ADMIN_SECRET_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "keycloak",
        hide_env_values = true
    )]
    pub keycloak_admin_secret_namespace: String,
    /// Its administrator's username, instead of the Secret
    #[arg(env = "KEYCLOAK_ADMIN_USERNAME", long = "keycloak-admin-username", default_value = "", hide = true)]
    pub keycloak_admin_username: String,
    /// Its administrator's password, instead of the Secret; only from the environment: whoever lists processes reads flags
    #[arg(skip = admin_password())]
    pub keycloak_admin_password: SecretString,
    /// Its Service, by which the gateway reaches it
    #[arg(
        long,
        env = "KEYCLOAK_ISSUER_SERVICE_NAME",
        value_name = "NAME",
        hide_env_values = true,
        default_value = "keycloak-keycloakx-http"
    )]
    pub keycloak_issuer_service_name: String,
    /// Namespace of that Service
    #[arg(
        long,
        env = "KEYCLOAK_ISSUER_SERVICE_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "keycloak",
        hide_env_values = true
    )]
    pub keycloak_issuer_service_namespace: String,
    /// Port of that Service
    #[arg(
        long,
        env = "KEYCLOAK_ISSUER_SERVICE_PORT",
        value_name = "PORT",
        default_value = "8080",
        hide_env_values = true
    )]
    pub keycloak_issuer_service_port: String,
    /// Path under which it serves
    #[arg(
        long,
        env = "KEYCLOAK_ISSUER_CONTEXT_PATH",
        value_name = "PATH",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub keycloak_issuer_context_path: String,
    /// Its URL for browsers
    #[arg(
        long,
        env = "KEYCLOAK_EXTERNAL_URL",
        value_name = "URL",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub keycloak_external_url: String,
    /// How long it may take to answer
    #[arg(long, env = "KEYCLOAK_API_TIMEOUT", value_name = "DURATION", default_value = "30s", hide_env_values = true)]
    pub keycloak_api_timeout: String,
    /// How long an app that is deleted waits for it to remove the app's clients; after that they stay behind
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub keycloak_removal_timeout: Duration,
    /// Group to which every app may add users (*: all groups); without it an app adds users only to groups that were made
    /// for it. May be given more than once
    #[arg(long, value_name = "NAME")]
    pub keycloak_shared_group: Vec<String>,
    /// Who gets to an app that names groups
    #[arg(long, value_enum, default_value_t = Groups::Enforce)]
    pub auth_groups: Groups,
    /// What becomes of an app that runs when sign-in is switched on, until the gateway holds its policy
    #[arg(long, value_enum, default_value_t = SwitchOn::Closed)]
    pub auth_switch_on: SwitchOn,
    /// How long connections outlive a change of the gateway's filters: EnvoyProxy's spec.shutdown.drainTimeout
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub gateway_drain_time: Duration,
}

/// Who gets to an app that names groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Groups {
    /// Members of one of them
    Enforce,
    /// Everybody who has signed in, as with the NebariApp operator
    Ignore,
}

/// What becomes of an app that runs when sign-in is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SwitchOn {
    /// Nobody gets to it
    Closed,
    /// Everybody gets to it
    Open,
}

impl LoginArgs {
    /// What decisions are told.
    pub fn login(&self) -> Login {
        let realm = |base: &str| format!("{base}/realms/{}", self.keycloak_realm);
        let external = self.keycloak_external_url.trim_end_matches('/');
        let keycloak = self.has_keycloak().then(|| Keycloak {
            realm_url: realm(&self.service_url()),
            external_realm_url: (!external.is_empty()).then(|| realm(external)),
        });
        Login {
            keycloak,
            enforce_groups: self.auth_groups == Groups::Enforce,
            stay_open: self.auth_switch_on == SwitchOn::Open,
            drain: signed(self.gateway_drain_time),
            patience: signed(self.keycloak_removal_timeout),
            embedded: false,
            shared_groups: self.keycloak_shared_group.clone(),
        }
    }

    /// Where clients are made.
    pub fn admin(&self) -> Option<KeycloakAdmin> {
        self.has_keycloak().then(|| KeycloakAdmin {
            url: self.keycloak_url.trim_end_matches('/').to_owned(),
            realm: self.keycloak_realm.clone(),
            secret: (self.keycloak_admin_secret_namespace.clone(), self.keycloak_admin_secret_name.clone()),
            username: self.keycloak_admin_username.clone(),
            password: self.keycloak_admin_password.clone(),
            patience: duration(&self.keycloak_api_timeout).unwrap_or(PATIENCE),
        })
    }

    fn has_keycloak(&self) -> bool {
        matches!(self.keycloak_enabled.as_str(), "true" | "1" | "yes")
    }

    fn service_url(&self) -> String {
        format!(
            "http://{}.{}.svc.cluster.local:{}{}",
            self.keycloak_issuer_service_name,
            self.keycloak_issuer_service_namespace,
            self.keycloak_issuer_service_port.parse().unwrap_or(KEYCLOAK_PORT),
            self.keycloak_issuer_context_path.trim_end_matches('/'),
        )
    }
}

/// `KEYCLOAK_ADMIN_PASSWORD`; empty where it is not set.
fn admin_password() -> SecretString {
    std::env::var("KEYCLOAK_ADMIN_PASSWORD").unwrap_or_default().into()
}

/// How apps sign visitors in where Portreeve itself is the gateway, and nobody makes clients at a provider.
pub(super) fn embedded() -> Login {
    Login {
        keycloak: None,
        enforce_groups: true,
        stay_open: false,
        drain: SignedDuration::ZERO,
        patience: SignedDuration::ZERO,
        embedded: true,
        shared_groups: Vec::new(),
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// As Go writes them: `30s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no duration: write 30s or 1m30s");
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        login: LoginArgs,
    }

    #[test]
    fn the_administrators_password_is_in_no_flag_and_no_text() {
        assert!(Command::try_parse_from(["x", "--keycloak-admin-password=hush"]).is_err());
        let mut command = Command::try_parse_from(["x"]).unwrap();
        command.login.keycloak_admin_password = "hush".into();
        let (arguments, admin) = (format!("{command:?}"), format!("{:?}", command.login.admin()));
        assert!(!arguments.contains("hush") && !admin.contains("hush"), "{arguments} {admin}");
        assert!(admin.contains("nebari-realm-admin-credentials"), "{admin}");
    }

    #[test]
    fn durations_are_written_as_in_go() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("soon").is_err() && duration("-5s").is_err());
    }
}
