use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::dial::trusted_at;

const HOST: &str = "blue.api.example.test";

/// Servers of a test; they end with it.
#[derive(Default)]
struct Servers(JoinSet<()>);

/// What a server does with a connection.
enum Does {
    ShakesHands(Arc<ServerConfig>),
    Closes,
    SaysSomethingElse,
}

impl Servers {
    async fn start(&mut self, does: Does) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.0.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                match &does {
                    Does::ShakesHands(config) => {
                        // A client that leaves is what is wanted here.
                        let _ = TlsAcceptor::from(config.clone()).accept(stream).await;
                    }
                    Does::Closes => drop(stream),
                    Does::SaysSomethingElse => {
                        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                    }
                }
            }
        });
        address.to_string()
    }
}

fn identity(names: &[&str], demands_client: bool) -> Arc<ServerConfig> {
    certified(names, demands_client).0
}

/// A server with a certificate of its own for these names; as an API server may, it demands one of clients.
fn certified(names: &[&str], demands_client: bool) -> (Arc<ServerConfig>, CertificateDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = if demands_client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    (Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap()), certificate.der().clone())
}

/// An address at which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn proved(own: Vec<String>, public: Vec<String>) -> DialResult {
    ApiServer { host: HOST.to_owned(), own, public }.prove().await
}

#[tokio::test]
async fn the_servers_own_certificate_for_the_name_is_the_proof() {
    let mut servers = Servers::default();
    for demands_client in [false, true] {
        let address = servers.start(Does::ShakesHands(identity(&["kubernetes", HOST], demands_client))).await;
        let gone = nobody().await;
        assert_eq!(proved(vec![address.clone()], vec![gone, address]).await, DialResult::Proved);
    }
}

#[tokio::test]
async fn a_replica_with_a_certificate_of_its_own_is_no_stranger() {
    let mut servers = Servers::default();
    let one = servers.start(Does::ShakesHands(identity(&[HOST], false))).await;
    let other = servers.start(Does::ShakesHands(identity(&[HOST], false))).await;
    assert_eq!(proved(vec![one, other.clone()], vec![other]).await, DialResult::Proved);
}

#[tokio::test]
async fn a_certificate_without_the_name_says_which_names_it_has() {
    let mut servers = Servers::default();
    let address = servers.start(Does::ShakesHands(identity(&["kubernetes", "*.other.test"], false))).await;
    let result = proved(vec![address.clone()], vec![address]).await;
    assert_eq!(result, DialResult::SanMissing("kubernetes, *.other.test".to_owned()));
}

#[tokio::test]
async fn another_certificate_means_that_somebody_ends_tls() {
    let mut servers = Servers::default();
    let own = servers.start(Does::ShakesHands(identity(&[HOST], false))).await;
    let gateway = servers.start(Does::ShakesHands(identity(&["*.api.example.test"], false))).await;
    let result = proved(vec![own.clone()], vec![gateway.clone()]).await;
    let expected = format!("{gateway} shows another certificate than the Service itself; it is for this name too");
    assert_eq!(result, DialResult::Terminated(expected));
    // One address that leads elsewhere is one too many.
    assert!(matches!(proved(vec![own.clone()], vec![own, gateway]).await, DialResult::Terminated(_)));
}

#[tokio::test]
async fn a_connection_that_ends_without_a_handshake_has_no_route() {
    let mut servers = Servers::default();
    let own = servers.start(Does::ShakesHands(identity(&[HOST], false))).await;
    for does in [Does::Closes, Does::SaysSomethingElse] {
        let gateway = servers.start(does).await;
        let result = proved(vec![own.clone()], vec![gateway.clone()]).await;
        assert!(matches!(&result, DialResult::NoRoute(why) if why.starts_with(&gateway)), "{result:?}");
    }
}

#[tokio::test]
async fn nobody_at_the_gateway_or_at_the_service_is_a_failed_connection() {
    let mut servers = Servers::default();
    let own = servers.start(Does::ShakesHands(identity(&[HOST], false))).await;
    let gone = nobody().await;
    let result = proved(vec![own.clone()], vec![gone.clone()]).await;
    assert!(matches!(&result, DialResult::ConnectFailed(why) if why.starts_with(&gone)), "{result:?}");
    let result = proved(vec![gone], vec![own.clone()]).await;
    assert!(matches!(&result, DialResult::ConnectFailed(why) if why.contains("the Service itself")), "{result:?}");
    let nowhere = DialResult::ConnectFailed("the Gateway has no address".to_owned());
    assert_eq!(proved(vec![own], Vec::new()).await, nowhere);
}

/// What the holder of a kubeconfig is told, with the reasons of `APIServerReachable`.
#[tokio::test]
async fn a_client_that_trusts_one_authority_gets_through_or_is_told_why_not() {
    let mut servers = Servers::default();
    let (config, certificate) = certified(&["kubernetes", HOST], false);
    let good = servers.start(Does::ShakesHands(config)).await;
    let closing = servers.start(Does::Closes).await;
    let ask = async |address: &str, name: &str, trusted: &CertificateDer<'static>| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        trusted_at(address, &ServerName::try_from(name.to_owned()).unwrap(), roots).await
    };
    assert_eq!(ask(&good, HOST, &certificate).await, Ok(()));
    let names = format!("kubernetes, {HOST}");
    assert_eq!(ask(&good, "red.api.example.test", &certificate).await, Err(DialResult::SanMissing(names)));
    let (_, stranger) = certified(&[HOST], false);
    assert!(matches!(ask(&good, HOST, &stranger).await, Err(DialResult::Terminated(_))));
    assert!(matches!(ask(&closing, HOST, &certificate).await, Err(DialResult::NoRoute(_))));
    assert!(matches!(ask(&nobody().await, HOST, &certificate).await, Err(DialResult::ConnectFailed(_))));
}

#[test]
fn addresses_are_those_of_the_services_and_of_the_gateway() {
    let service = |name: &str, ip: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "ns"},
            "spec": {"clusterIP": ip, "ports": [{"name": "https", "port": 443}]},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "api-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "api"}},
        "ports": [{"name": "https", "port": 8443}, {"name": "other", "port": 1}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
        ],
    });
    let world = World {
        services: vec![service("api", "None"), service("envoy", "10.96.0.1")],
        endpoint_slices: vec![Arc::new(serde_json::from_value(slice).unwrap())],
        ..World::default()
    };
    let tenant = portreeve_plan::ObjectRef {
        api_version: "kubespaces.io/v1alpha1".to_owned(),
        kind: "Tenant".to_owned(),
        namespace: None,
        name: "blue".to_owned(),
    };
    let dial = ApiServerDial {
        tenant,
        host: HOST.to_owned(),
        service: ("ns".to_owned(), "api".to_owned(), 443),
        data_plane: Some(("ns".to_owned(), "envoy".to_owned())),
        addresses: vec!["192.0.2.1".to_owned(), "2001:db8::1".to_owned()],
        port: 6443,
    };
    let server = ApiServer::of(&dial, &world);
    assert_eq!(server.own, ["10.0.0.1:8443"]);
    assert_eq!(server.public, ["10.96.0.1:6443", "192.0.2.1:6443", "[2001:db8::1]:6443"]);
    assert!(server.public.iter().skip(1).all(|address| address.parse::<SocketAddr>().is_ok()));
}

#[test]
fn what_is_not_proved_is_dialled_soon_and_what_has_moved_at_once() {
    let server = |address: &str| ApiServer { host: HOST.to_owned(), own: Vec::new(), public: vec![address.to_owned()] };
    let (mut schedule, now) = (Schedule::default(), Instant::now());
    let remembered = [(HOST.to_owned(), DialResult::Proved)].into();
    schedule.aim(vec![server("a:1")], &remembered, now);
    assert_eq!(schedule.proofs(), remembered, "as before it is dialled");
    assert_eq!(schedule.due(now), [server("a:1")]);
    for seconds in [2, 4, 8, 16, 32, 64, 120, 120] {
        schedule.note(HOST, DialResult::NoRoute(String::new()), now, |pause| pause);
        assert_eq!(schedule.next(), Some(now + Duration::from_secs(seconds)));
    }
    schedule.note(HOST, DialResult::Proved, now, |pause| pause);
    assert_eq!((schedule.next(), schedule.due(now)), (Some(now + GOOD_FOR), Vec::new()));
    schedule.aim(vec![server("b:1")], &Proofs::new(), now);
    assert_eq!(schedule.due(now), [server("b:1")]);
    assert_eq!(schedule.proofs(), remembered, "until more is known");
    schedule.aim(Vec::new(), &Proofs::new(), now);
    assert_eq!((schedule.next(), schedule.proofs().len()), (None, 0));
}
