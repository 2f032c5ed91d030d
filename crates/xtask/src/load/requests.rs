//! Writes as the API server counts them, so that nobody has to be believed.

use std::collections::BTreeMap;
use std::ops::Sub;

use anyhow::{Context, ensure};
use kube::Client;
use serde::{Serialize, Serializer};

/// The verbs of requests that write.
const VERBS: [&str; 6] = ["APPLY", "PATCH", "POST", "PUT", "DELETE", "DELETECOLLECTION"];

/// Writes by verb and resource, as `APPLY httproutes`, whatever was answered. Those of leases are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes(BTreeMap<String, u64>);

/// All writes that the API server has answered since it started.
pub(crate) async fn writes(client: &Client) -> anyhow::Result<Writes> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await.context("the API server does not show its metrics")?;
    let writes = Writes(read(&text)?);
    ensure!(!writes.0.is_empty(), "the API server counts no writes");
    Ok(writes)
}

fn read(metrics: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut writes = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let (labels, count) = line.rsplit_once(' ').context("a series has a value")?;
        let (verb, resource) = (label(labels, "verb"), label(labels, "resource"));
        if !VERBS.contains(&verb) || resource == "leases" {
            continue;
        }
        let subresource = label(labels, "subresource");
        let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        *writes.entry(format!("{verb} {resource}{part}")).or_insert(0) += count.parse::<u64>()?;
    }
    Ok(writes)
}

fn label<'t>(labels: &'t str, name: &str) -> &'t str {
    let value = labels.split(['{', ',']).find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    value.and_then(|value| value.split('"').next()).unwrap_or_default()
}

impl Writes {
    /// Those that only the operator makes when it runs with a gateway and nothing else: all but the statuses of Gateway
    /// API's kinds, and what `others` say.
    pub(crate) fn of_operator(&self, others: &[&str]) -> Self {
        let of_gateway = ["gatewayclasses", "gateways", "listenersets", "httproutes", "tlsroutes"];
        let is_of_gateway = |what: &str| of_gateway.iter().any(|kind| what.ends_with(&format!(" {kind}/status")));
        let ours = self.0.iter().filter(|(what, _)| !is_of_gateway(what) && !others.contains(&what.as_str()));
        Self(ours.map(|(what, count)| (what.clone(), *count)).collect())
    }

    /// Without events.
    pub(crate) fn beside_events(&self) -> u64 {
        self.0.iter().filter(|(what, _)| !what.ends_with(" events")).map(|(_, count)| count).sum()
    }

    /// Those to objects of a kind, by its plural, and not to their statuses.
    pub(crate) fn of(&self, plural: &str) -> u64 {
        let is_of = |what: &str| what.split(' ').nth(1) == Some(plural);
        self.0.iter().filter(|(what, _)| is_of(what)).map(|(_, count)| count).sum()
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl Sub for &Writes {
    type Output = Writes;

    /// What has been added since `earlier`.
    fn sub(self, earlier: &Writes) -> Writes {
        let since = |(what, count): (&String, &u64)| {
            let added = count.saturating_sub(earlier.0.get(what).copied().unwrap_or_default());
            (added > 0).then(|| (what.clone(), added))
        };
        Writes(self.0.iter().filter_map(since).collect())
    }
}

impl Serialize for Writes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"
apiserver_request_total{code="201",resource="httproutes",subresource="",verb="APPLY",version="v1"} 3
apiserver_request_total{code="409",resource="httproutes",subresource="",verb="APPLY",version="v1"} 1
apiserver_request_total{code="200",resource="httproutes",subresource="status",verb="PATCH",version="v1"} 9
apiserver_request_total{code="201",resource="events",subresource="",verb="POST",version="v1"} 2
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT",version="v1"} 5
apiserver_request_total{code="200",resource="httproutes",subresource="",verb="WATCH",version="v1"} 7
"#;

    #[test]
    fn writes_are_counted_by_verb_and_resource() {
        let writes = Writes(read(METRICS).unwrap());
        assert_eq!(writes.total(), 15);
        let ours = writes.of_operator(&[]);
        assert_eq!((ours.total(), ours.beside_events()), (6, 4));
        assert_eq!((&writes - &ours).total(), 9);
        assert_eq!((writes.of("httproutes"), writes.of("routes")), (4, 0));
    }
}
