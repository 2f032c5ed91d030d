//! What the platform says about sign-in, what a provider must have, and what became of that.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;

use crate::output::ObjectRef;

/// How apps sign visitors in at the gateway; absent where the gateway cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The platform's Keycloak; absent: apps that ask for it are refused (`KEYCLOAK_ENABLED`).
    pub keycloak: Option<Keycloak>,
    /// Whether the gateway lets only members of `auth.groups` in. Otherwise whoever has signed in gets to the app.
    pub enforce_groups: bool,
    /// Whether an app that is running stays reachable while its policy is not in force yet, when sign-in is switched on.
    pub stay_open: bool,
    /// How long a connection may outlive a change of the gateway's filters (Envoy's drain time). Only when so much time
    /// has gone by since the policy was accepted is there none left that knows nothing of the policy.
    pub drain: SignedDuration,
    /// How long an app that is deleted waits for the provider to remove its clients; then they stay behind.
    pub patience: SignedDuration,
    /// Whether the gateway is Portreeve's own. It demands sign-in of every request from the moment in which it accepts a
    /// policy, and finds the keys of any provider by itself; nobody makes clients at the provider.
    pub embedded: bool,
    /// Groups of the provider to which apps may add users although they were not made for them; `*` stands for all.
    pub shared_groups: Vec<String>,
}

/// Where the platform's Keycloak is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keycloak {
    /// URL of the realm for those inside the cluster, without a slash at its end.
    pub realm_url: String,
    /// URL of the realm for browsers; absent: as the provider's discovery document says (`KEYCLOAK_EXTERNAL_URL`).
    pub external_realm_url: Option<String>,
}

/// What the identity provider must have for one app, whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientProvision {
    /// The app.
    pub app: ObjectRef,
    /// Hash of everything below but `force` and `obsolete`: two requests with the same hash ask for the same.
    pub hash: String,
    /// The value of the app's annotation that asks for it to be made again; carried back in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<String>,
    /// The client with a secret, by which the gateway or the app signs visitors in.
    pub client: ProvidedClient,
    /// The public client of a single-page app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spa: Option<ProvidedClient>,
    /// The public client of the device flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<ProvidedClient>,
    /// Groups that must be there, and who must be in them, by name.
    pub groups: BTreeMap<String, ProvidedGroup>,
    /// Clients that may exchange their tokens for tokens of this app, where they are there; absent: nobody may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Vec<String>>,
    /// IDs of clients that an earlier spec asked for. They go, as far as they have the app's mark.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub obsolete: Vec<String>,
    /// The Secret that gets the client's ID and secret, without the secret itself (key `client-secret`). It is written
    /// last. One of that name that was not made for the app is left alone, and the request fails.
    pub secret: Value,
}

/// A client. One that is there keeps its secret, and every field and attribute that `body` does not name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvidedClient {
    /// Its client ID.
    pub client_id: String,
    /// Whom it is for, as its attribute `nebari.dev/app` says. One without the attribute is the app's where it has the
    /// name that `body` has, which the former operator gave; every other client of that ID fails the request.
    pub made_for: String,
    /// All its fields when it is made.
    pub body: Value,
    /// The fields that are written again when it is there; `attributes` are merged.
    pub kept: Vec<&'static str>,
    /// Scopes that must be among its default scopes; made in the realm where they are not there.
    pub scopes: Vec<String>,
    /// Protocol mappers that it must have, by name.
    pub mappers: Vec<Value>,
}

/// A group of the realm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvidedGroup {
    /// Users to add; nobody is ever taken out. Users that the provider does not know are passed over.
    pub members: Vec<String>,
    /// Whether users may be added also where the group was not made for the app.
    pub shared: bool,
}

/// What must go at the provider before an app may go. Only clients that were made for the app are deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientRemoval {
    /// The app.
    pub app: ObjectRef,
    /// Its uid, so that an app of the same name is not taken for it.
    pub uid: String,
    /// The clients by ID, with the name that the former operator gave each; where that is empty, only the mark counts.
    pub clients: BTreeMap<String, String>,
    /// Whom they are for, as their attribute says.
    pub made_for: String,
}

/// What became of the last request for an app's clients that came to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionReport {
    /// [`ClientProvision::hash`] of the request.
    pub hash: String,
    /// [`ClientProvision::force`] of the request.
    pub force: Option<String>,
    /// Groups to which nobody was added, since they were not made for the app; or why it failed, without anything
    /// secret, counts or times.
    pub outcome: Result<Vec<String>, String>,
}

/// What became of removing an app's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalReport {
    /// [`ClientRemoval::uid`] of the request.
    pub uid: String,
    /// Why it failed; it is tried again.
    pub outcome: Result<(), String>,
}
