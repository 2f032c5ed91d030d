//! A Dask client reaches its scheduler through the real Envoy Gateway (facts/dask-gateway), whoever makes the TLSRoutes.

use futures_util::FutureExt;
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Bed, fixtures};
use serde_json::Value;

use crate::network_policies;
use crate::support::dask::{Dask, Routes, wait_refused};
use crate::support::{GATEWAY_API, Operator, Platform, side_by_side};

/// One bed for everything that has to do with Dask.
#[tokio::test(flavor = "multi_thread")]
async fn dask_clients_reach_their_schedulers() {
    let platform = platform().await.unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", &[]).unwrap();
    operator.wait_ready().await.unwrap();
    side_by_side(
        vec![
            ("routes_of_the_app", eight(&platform, "dask-own", 8786, Routes::OfApp).boxed_local()),
            ("routes_of_the_operator", eight(&platform, "dask-made", 8787, Routes::OfOperator).boxed_local()),
            ("routes_imported_from_traefik", eight(&platform, "dask-imported", 8788, Routes::Imported).boxed_local()),
        ],
        || operator.log(),
    )
    .await;
    // It pauses the operator, so nothing else may wait for that.
    let isolated = network_policies::notebooks(&platform, &operator).boxed_local();
    side_by_side(vec![("notebooks_that_may_reach_only_https", isolated)], || operator.log()).await;
    operator.stop().await.unwrap();
}

/// A platform without cert-manager, which has no part in this, and with Traefik's definition.
async fn platform() -> anyhow::Result<Platform> {
    let platform = Platform::bare(Bed::builder().with_controller_manager().with_envoy_gateway()).await?;
    let bed = &platform.bed;
    bed.apply(INGRESS_ROUTE_TCP).await?;
    let certificate = Identity::new(&["example.test"])?;
    bed.apply(&fixtures::tls_secret("envoy-gateway-system", "nebari-gateway-tls", &certificate)).await?;
    bed.apply(&fixtures::shared_gateway(true)).await?;
    bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[80, 443]).await?;
    platform.wait_programmed("nebari-gateway").await?;
    Ok(platform)
}

/// The eight assertions of facts/dask-gateway. The last, that a stream is not cut, is put to the test by all changes that the
/// others need.
async fn eight(platform: &Platform, namespace: &str, port: u16, routes: Routes) -> anyhow::Result<()> {
    let dask = Dask::new(platform, namespace, port, routes).await?;
    let [one, two] = &dask.clusters;
    dask.publish(&[one]).await?;
    // (i) and (ii): each side takes only the one certificate, which nothing between them has.
    dask.wait_reached(one, &one.server_name).await?;
    let mut stream = dask.stream(one).await?;
    dask.ensure_closed(two, &two.server_name, "(iv) a name that has no route").await?;

    dask.publish(&[one, two]).await?;
    dask.wait_reached(two, &two.server_name).await?;
    dask.ensure_reached(one, &one.server_name, "(iii) the first of two clusters").await?;
    dask.ensure_closed(one, &dask.server_name("unknown"), "(iv) an unknown name").await?;
    dask.ensure_closed(one, "", "(v) no name").await?;
    dask.ensure_refuses_others("(i), (ii)").await?;

    theft(&dask).await?;

    dask.publish(&[one]).await?;
    let deleted = async || dask.ensure_closed(two, &two.server_name, "(vii) a deleted route").await;
    wait_refused(deleted).await?;
    dask.ensure_reached(one, &one.server_name, "the other cluster").await?;
    stream.ensure_uncut("(viii)").await
}

/// (vi) A route from another namespace is not attached.
async fn theft(dask: &Dask<'_>) -> anyhow::Result<()> {
    let [one, _] = &dask.clusters;
    let bed = &dask.team.platform.bed;
    let thief = format!("{}-thief", dask.team.namespace);
    let name = format!("daskgateway-{thief}.{}", one.name);
    bed.apply(&fixtures::namespace(&thief)).await?;
    bed.apply(&fixtures::service_at(&thief, "loot", 8786, one.host.address())).await?;
    bed.apply(&dask.tls_route(&thief, "theft", &[&one.server_name, &name], "loot").await?).await?;
    let refused = |route: &Value| {
        let parents = route["status"]["parents"].as_array();
        parents.into_iter().flatten().filter_map(|parent| parent["conditions"].as_array()).flatten().any(|condition| {
            condition["type"] == "Accepted"
                && condition["status"] == "False"
                && condition["reason"] == "NotAllowedByListeners"
        })
    };
    bed.wait_for(GATEWAY_API, "TLSRoute", &format!("{thief}/theft"), "is NotAllowedByListeners", refused).await?;
    dask.ensure_closed(one, &name, "(vi) the name of a route from another namespace").await?;
    dask.ensure_reached(one, &one.server_name, "(vi) the name that such a route has tried to take").await
}

/// As much of Traefik's definition as its objects need.
const INGRESS_ROUTE_TCP: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ingressroutetcps.traefik.io}
spec:
  group: traefik.io
  scope: Namespaced
  names: {kind: IngressRouteTCP, listKind: IngressRouteTCPList, plural: ingressroutetcps, singular: ingressroutetcp}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [routes]
            properties:
              entryPoints: {type: array, items: {type: string}}
              routes:
                type: array
                items:
                  type: object
                  required: [match]
                  properties:
                    match: {type: string}
                    services:
                      type: array
                      items:
                        type: object
                        required: [name, port]
                        properties:
                          name: {type: string}
                          namespace: {type: string}
                          port: {x-kubernetes-int-or-string: true}
              tls: {type: object, properties: {passthrough: {type: boolean}}}
";
