//! What an API server says about itself, about who runs in the operator's place, and about what the asker may do.

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use portreeve_plan::{Advice, Severity};

use crate::lease::{NEBARI_LEASE, TENANTS_LEASE};
use crate::permissions::Rule;

/// The oldest Kubernetes on which everything that is used is there.
const OLDEST: (u32, u32) = (1, 31);
/// How many permissions are asked for at once.
const AT_ONCE: usize = 8;

/// What was learned beside the objects that decisions read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The API server's version as it says it: major and minor.
    pub version: (String, String),
    /// The leases of the operator and of those that it replaces, with who holds each.
    pub leases: Vec<Held>,
    /// What the asker may not do of what the operator must, as `verb resource.group`. Empty when the asker is no
    /// `ServiceAccount`: a person's permissions say nothing about the operator's.
    pub lacking: Vec<String>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Namespace and name.
    pub lease: String,
    /// Who holds it; absent: nobody.
    pub holder: Option<String>,
}

/// Asks the API server. `needed` is what the operator must be allowed to do in all namespaces.
///
/// # Errors
///
/// When it cannot be reached.
pub async fn inspect(client: &Client, needed: &[Rule]) -> Result<Inspection, kube::Error> {
    let version = client.apiserver_version().await?;
    let leases = leases(client).await?;
    let lacking = if is_service_account(client).await? { lacking(client, needed).await? } else { Vec::new() };
    Ok(Inspection { version: (version.major, version.minor), leases, lacking })
}

impl Inspection {
    /// What somebody should do about it.
    pub fn advice(&self) -> Vec<Advice> {
        let (major, minor) = &self.version;
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
        let is_old = number(major).zip(number(minor)).is_some_and(|version| version < OLDEST);
        let old = is_old.then(|| {
            let action = format!("upgrade it to {}.{} or later", OLDEST.0, OLDEST.1);
            Advice::new(Severity::Required, "Kubernetes", format!("the API server has version {major}.{minor}"), action)
        });
        let lacking = (!self.lacking.is_empty()).then(|| {
            let finding = format!("this ServiceAccount may not {}", self.lacking.join(", "));
            Advice::new(Severity::Required, "permissions", finding, "install the roles of the chart of this version")
        });
        old.into_iter().chain(lacking).collect()
    }
}

/// Leases with the names that the operators have; none where they may not be read.
async fn leases(client: &Client) -> Result<Vec<Held>, kube::Error> {
    let all: Api<Lease> = Api::all(client.clone());
    let mut found = Vec::new();
    for name in [NEBARI_LEASE, TENANTS_LEASE] {
        let list = match all.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        found.extend(list.into_iter().map(|lease| Held {
            lease: format!("{}/{name}", lease.namespace().unwrap_or_default()),
            holder: lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty()),
        }));
    }
    Ok(found)
}

async fn is_service_account(client: &Client) -> Result<bool, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info?.username);
    Ok(user.is_some_and(|user| user.starts_with("system:serviceaccount:")))
}

async fn lacking(client: &Client, needed: &[Rule]) -> Result<Vec<String>, kube::Error> {
    let wanted = needed.iter().flat_map(|rule| {
        let pairs = rule.resources.iter().flat_map(|resource| rule.verbs.iter().map(move |verb| (resource, *verb)));
        pairs.map(|(resource, verb)| (rule.group, resource.clone(), verb))
    });
    let asked = stream::iter(wanted).map(|(group, resource, verb)| may_not(client.clone(), group, resource, verb));
    let answers: Vec<_> = asked.buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// What is not allowed, if it is not.
async fn may_not(client: Client, group: &str, resource: String, verb: &str) -> Result<Option<String>, kube::Error> {
    let (plural, part) = resource.split_once('/').map_or((&*resource, None), |(plural, part)| (plural, Some(part)));
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(plural.to_owned()),
        subresource: part.map(str::to_owned),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client).create(&PostParams::default(), &review).await?;
    let is_allowed = answer.status.is_some_and(|status| status.allowed);
    let dot = if group.is_empty() { "" } else { "." };
    Ok((!is_allowed).then(|| format!("{verb} {resource}{dot}{group}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_api_server_and_missing_permissions_are_to_be_mended() {
        let inspection = |minor: &str, lacking: &[&str]| Inspection {
            version: ("1".to_owned(), minor.to_owned()),
            leases: Vec::new(),
            lacking: lacking.iter().map(|one| (*one).to_owned()).collect(),
        };
        assert_eq!(inspection("31+", &[]).advice(), []);
        let found = inspection("30", &["list secrets", "patch gateways.gateway.networking.k8s.io"]).advice();
        let findings: Vec<_> = found.iter().map(|advice| advice.finding.as_str()).collect();
        assert_eq!(
            findings,
            [
                "the API server has version 1.30",
                "this ServiceAccount may not list secrets, patch gateways.gateway.networking.k8s.io",
            ]
        );
    }
}
