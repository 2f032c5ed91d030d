//! A stand-in for kubelets: there are no nodes in a bed, so nobody runs Pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::bed::Bed;
use crate::network::Host;

/// How often it looks for Pods that do not run yet.
const LOOK: Duration = Duration::from_millis(250);

/// Says of every Pod of a `StatefulSet` that it runs and is ready, until it is dropped. Nothing is run.
#[derive(Debug)]
pub struct Kubelets(JoinHandle<()>);

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Bed {
    /// Begins to say so, with the address of a host as that of every Pod.
    pub fn pretend_to_run_pods(&self, host: &Host) -> Kubelets {
        let (client, address) = (self.client(), host.address().to_string());
        Kubelets(tokio::spawn(async move {
            loop {
                // The API server may be away for a while.
                let _ = look(&client, &address).await;
                sleep(LOOK).await;
            }
        }))
    }
}

async fn look(client: &Client, address: &str) -> Result<(), kube::Error> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default().fields("status.phase=Pending")).await?;
    for pod in pods {
        let of_stateful_set = pod.owner_references().iter().any(|owner| owner.kind == "StatefulSet");
        if !of_stateful_set || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(())
}
