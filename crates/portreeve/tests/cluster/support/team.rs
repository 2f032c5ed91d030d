//! A namespace with an app's Service, and what becomes of its apps.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::LocalBoxFuture;
use portreeve_testkit::clients::Answer;
use portreeve_testkit::servers::{Server, echo, https_echo};
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Host, eventually, fixtures};
use serde_json::{Value, json};

use super::{NEBARI, Platform};

/// How long a change may take from the API to the gateway's sockets.
pub(crate) const WAY: Duration = Duration::from_mins(1);

/// Port of each team's Service `web`.
pub(crate) const PORT: u16 = 8080;

/// Port of the Service `tls`, where a team has it.
pub(crate) const TLS_PORT: u16 = 8443;

/// An opted-in namespace with a Service `web`, behind which a server answers what it was asked, and that it is
/// `Welcome to <namespace>`.
pub(crate) struct Team<'p> {
    pub(crate) platform: &'p Platform,
    pub(crate) namespace: String,
    pub(crate) host: Host,
    _server: Server,
}

/// Type, status and reason of a condition.
pub(crate) type Expected<'e> = (&'e str, &'e str, &'e str);

impl<'p> Team<'p> {
    /// Makes it, on a host that is called after the namespace.
    pub(crate) async fn new(platform: &'p Platform, namespace: &str) -> anyhow::Result<Self> {
        let host = platform.bed.host(namespace)?;
        let server = echo(&host, PORT, &format!("Welcome to {namespace}"))?;
        platform.bed.apply(&fixtures::opted_in_namespace(namespace)).await?;
        let team = Self { platform, namespace: namespace.to_owned(), host, _server: server };
        team.apply_service().await?;
        Ok(team)
    }

    /// Puts the Service `web` there, also when somebody has deleted it.
    pub(crate) async fn apply_service(&self) -> anyhow::Result<()> {
        let service = fixtures::service_at(&self.namespace, "web", PORT, self.host.address());
        self.platform.bed.apply(&service).await
    }

    /// Applies an app of `web`; `routing` is its `spec.routing`, none when it is null.
    pub(crate) async fn apply(&self, app: &str, hostname: &str, routing: Value) -> anyhow::Result<()> {
        self.platform.bed.apply(&self.app(app, hostname, routing).to_string()).await
    }

    /// What [`Team::apply`] applies.
    pub(crate) fn app(&self, app: &str, hostname: &str, routing: Value) -> Value {
        let mut spec = json!({"hostname": hostname, "service": {"name": "web", "port": PORT}});
        if !routing.is_null() {
            spec["routing"] = routing;
        }
        json!({"apiVersion": NEBARI, "kind": "NebariApp",
            "metadata": {"namespace": self.namespace, "name": app}, "spec": spec})
    }

    /// An object of the namespace, if it is there.
    pub(crate) async fn get(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        self.platform.bed.get(api_version, kind, &self.named(name)).await
    }

    /// An object of the namespace that has to be there now.
    pub(crate) async fn must_get(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<Value> {
        let object = self.get(api_version, kind, name).await?;
        object.with_context(|| format!("{kind} {} does not exist", self.named(name)))
    }

    /// Deletes an object of the namespace.
    pub(crate) async fn delete(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        self.platform.bed.delete(api_version, kind, &self.named(name)).await
    }

    /// Waits until an object of the namespace does not exist.
    pub(crate) async fn wait_gone(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        self.platform.bed.wait_gone(api_version, kind, &self.named(name)).await
    }

    /// Waits until the app's status is about its present spec and has all these conditions; returns the app.
    ///
    /// # Errors
    ///
    /// Shows the app as it was last.
    pub(crate) async fn wait(&self, app: &str, expected: &[Expected<'_>]) -> anyhow::Result<Value> {
        let holds = |object: &Value| {
            let current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            current && expected.iter().all(|expected| has(object, *expected))
        };
        let what = format!("has {expected:?}");
        self.platform.bed.wait_for(NEBARI, "NebariApp", &self.named(app), &what, holds).await
    }

    /// Waits until the app is Ready.
    pub(crate) async fn wait_ready(&self, app: &str) -> anyhow::Result<Value> {
        self.wait(app, &[("Ready", "True", "ReconcileSuccess")]).await
    }

    /// Waits until the gateway answers for a name over HTTPS with this team's server.
    pub(crate) async fn wait_served(&self, hostname: &str) -> anyhow::Result<Answer> {
        self.wait_served_on(443, hostname).await
    }

    /// The same on another port.
    pub(crate) async fn wait_served_on(&self, port: u16, hostname: &str) -> anyhow::Result<Answer> {
        eventually(&format!("{hostname} is served by {}", self.namespace), WAY, async || {
            let answer = self.platform.https_on(port, hostname, "/").await?;
            ensure!(self.is_own(&answer), "{hostname} answers {answer:?}");
            Ok(answer)
        })
        .await
    }

    /// Waits until the gateway does not lead a name to this team's server any more.
    pub(crate) async fn wait_not_served(&self, hostname: &str) -> anyhow::Result<()> {
        eventually(&format!("{hostname} is not served by {}", self.namespace), WAY, async || {
            match self.platform.https(hostname, "/").await {
                Ok(answer) if self.is_own(&answer) => anyhow::bail!("{hostname} answers {answer:?}"),
                Ok(_) | Err(_) => Ok(()),
            }
        })
        .await
    }

    /// Does something while a client asks for a name ten times a second, and fails if any request does.
    pub(crate) async fn served_throughout<T>(
        &self,
        hostname: &str,
        during: LocalBoxFuture<'_, anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let over = Cell::new(false);
        let work = async {
            let done = during.await;
            over.set(true);
            done
        };
        let client = async {
            let (mut asked, mut failures) = (0, Vec::new());
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            while !over.get() {
                ticks.tick().await;
                asked += 1;
                match self.platform.https(hostname, "/").await {
                    Ok(answer) if self.is_own(&answer) => {}
                    outcome => failures.push(format!("{outcome:?}")),
                }
            }
            ensure!(failures.is_empty(), "{} of {asked} requests failed: {failures:#?}", failures.len());
            ensure!(asked > 1, "it was over before the client had asked twice");
            Ok(())
        };
        let (done, served) = tokio::join!(work, client);
        served.with_context(|| format!("{hostname} has to be served all the time"))?;
        done
    }

    /// A second Service `tls`, whose server terminates TLS itself with a certificate for `name`.
    pub(crate) async fn tls_service(&self, name: &str) -> anyhow::Result<Server> {
        let identity = Identity::new(&[name])?;
        let title = format!("Welcome to {}", self.namespace);
        let server = https_echo(&self.host, TLS_PORT, &title, identity.server(false)?)?;
        let service = fixtures::service_at(&self.namespace, "tls", TLS_PORT, self.host.address());
        self.platform.bed.apply(&service).await?;
        Ok(server)
    }

    /// Whether this team's server has given an answer.
    pub(crate) fn is_own(&self, answer: &Answer) -> bool {
        answer.status == 200 && answer.body.contains(&format!("\"Welcome to {}\"", self.namespace))
    }

    /// The name of an object of the namespace, as [`portreeve_testkit::Bed::get`] takes it.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }
}

/// Whether an object, or an entry of its status, has a condition.
pub(crate) fn has(object: &Value, (type_, status, reason): Expected<'_>) -> bool {
    let conditions = object.get("status").unwrap_or(object)["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == type_ && condition["status"] == status && condition["reason"] == reason)
}

/// What a condition says to people; empty without it.
pub(crate) fn message<'o>(object: &'o Value, type_: &str) -> &'o str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
    found.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}
