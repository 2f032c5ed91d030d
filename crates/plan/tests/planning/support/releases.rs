//! What the Helm client does, as far as its records show it.

use portreeve_api::names::labels;
use portreeve_plan::{ReleaseAction, ReleaseStep, VALUES_LABEL};
use serde_json::json;

use super::{Cluster, Name, uid};

/// The type of the Secrets in which the Helm client records releases.
pub(super) const RECORD: &str = "helm.sh/release.v1";

impl Cluster {
    /// Does a step, unless the case says that it cannot be done.
    pub(super) fn step(&mut self, step: &ReleaseStep) {
        if self.settings.failed_releases.contains_key(&format!("{}/{}", step.namespace, step.name)) {
            return;
        }
        self.objects.retain(|(kind, namespace, _), object| {
            let labels = &object["metadata"]["labels"];
            let is_it = kind == "Secret" && object["type"] == RECORD && labels[labels::HELM_RELEASE] == *step.name;
            !(is_it && *namespace == step.namespace)
        });
        let ReleaseAction::Install { digest, .. } = &step.action else { return };
        let name: Name = ("Secret".to_owned(), step.namespace.clone(), format!("sh.helm.release.v1.{}.v9", step.name));
        let record = json!({
            "apiVersion": "v1", "kind": "Secret", "type": RECORD,
            "metadata": {
                "name": name.2, "namespace": name.1, "uid": uid(&name), "creationTimestamp": self.now().to_string(),
                "labels": {
                    "owner": "helm", labels::HELM_RELEASE: step.name, labels::HELM_STATUS: "deployed",
                    labels::HELM_REVISION: "9", VALUES_LABEL: digest,
                },
            },
        });
        self.objects.insert(name, record);
    }
}
