//! What is compared: each proxy ends TLS for one name and hands requests on over HTTP/1.1 connections that it keeps.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::bail;
use portreeve_programs as programs;
use portreeve_testkit::tls::Identity;

use crate::bench::passthrough::{Proxy, Running, address, launch, write};

/// By this name clients ask.
pub(super) const NAME: &str = "app.bench.example.test";

/// Where the backend listens, and where the proxy shall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) proxy: SocketAddr,
    pub(super) backend: SocketAddr,
}

/// Starts a proxy and waits until it listens. Its configuration and its log are in `folder`.
pub(super) fn start(
    proxy: Proxy,
    portreeve: &Path,
    folder: &Path,
    identity: &Identity,
    at: Addresses,
) -> anyhow::Result<Running> {
    fs::create_dir_all(folder)?;
    let (certificate, key) = (identity.certificate_pem(), identity.key_pem());
    write(folder, "tls.crt", &certificate)?;
    write(folder, "tls.key", &key)?;
    write(folder, "both.pem", &format!("{certificate}{key}"))?;
    let command = match proxy {
        Proxy::Portreeve => portreeve_up(portreeve, folder, identity, at)?,
        Proxy::Haproxy => haproxy(folder, at)?,
        Proxy::Nginx => nginx(folder, at)?,
        Proxy::Envoy => envoy(folder, at)?,
        Proxy::Direct | Proxy::HaproxyTuned => bail!("{} does not end TLS", proxy.name()),
    };
    launch(command, proxy, folder, at.proxy)
}

fn portreeve_up(program: &Path, folder: &Path, identity: &Identity, at: Addresses) -> anyhow::Result<Command> {
    let object = |kind: &str, version: &str, name: &str, rest: serde_json::Value| {
        let mut object =
            serde_json::json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "bench"}});
        if let (Some(object), serde_json::Value::Object(rest)) = (object.as_object_mut(), rest) {
            object.extend(rest);
        }
        object.to_string()
    };
    let gateway_api = "gateway.networking.k8s.io/v1";
    let secret = serde_json::json!({"type": "kubernetes.io/tls",
        "stringData": {"tls.crt": identity.certificate_pem(), "tls.key": identity.key_pem()}});
    let gateway = serde_json::json!({"spec": {"gatewayClassName": "portreeve", "listeners": [{"name": "https", "port": 443,
        "protocol": "HTTPS", "hostname": NAME, "tls": {"certificateRefs": [{"name": "certificate"}]}}]}});
    let route = serde_json::json!({"spec": {"parentRefs": [{"name": "gateway"}], "hostnames": [NAME],
        "rules": [{"backendRefs": [{"name": "app", "port": 80}]}]}});
    let documents = [
        r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}"#.to_owned(),
        object("Secret", "v1", "certificate", secret),
        object("Gateway", gateway_api, "gateway", gateway),
        object("Service", "v1", "app", serde_json::json!({"spec": {"ports": [{"port": 80}]}})),
        object("HTTPRoute", gateway_api, "app", route),
    ];
    let manifests = write(folder, "bench.yaml", &documents.join("\n---\n"))?;
    let mut command = Command::new(program);
    command.arg("up").arg(manifests).arg("--state-dir").arg(folder.join("state"));
    command.arg("--listen").arg(format!("bench/gateway:443={}", at.proxy));
    command.arg("--backend").arg(format!("bench/app={}", at.backend));
    Ok(command)
}

fn haproxy(folder: &Path, at: Addresses) -> anyhow::Result<Command> {
    let text = format!(
        "global\n  maxconn 6500\n  tune.ssl.default-dh-param 2048\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n\
         frontend https\n  bind {} ssl crt {} alpn h2,http/1.1\n  option forwardfor\n  default_backend app\n\
         backend app\n  http-reuse always\n  server one {}\n",
        at.proxy,
        folder.join("both.pem").display(),
        at.backend
    );
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(write(folder, "haproxy.cfg", &text)?);
    Ok(command)
}

fn nginx(folder: &Path, at: Addresses) -> anyhow::Result<Command> {
    let text = format!(
        "daemon off;\nuser root;\nworker_processes 2;\nerror_log stderr warn;\npid {pid};\n\
         events {{ worker_connections 9000; }}\nhttp {{\n  access_log off;\n  keepalive_requests 100000000;\n  client_body_temp_path {temporary};\n\
         \x20 upstream app {{ server {backend}; keepalive 256; keepalive_requests 100000000; }}\n\
         \x20 server {{\n    listen {proxy} ssl http2 reuseport;\n    server_name {NAME};\n    ssl_certificate {folder}/tls.crt;\n    ssl_certificate_key {folder}/tls.key;\n\
         \x20   ssl_protocols TLSv1.2 TLSv1.3;\n    ssl_session_cache shared:bench:10m;\n    http2_max_requests 100000000;\n\
         \x20   location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host;\n\
         \x20     proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}\n  }}\n}}\n",
        pid = folder.join("nginx.pid").display(),
        temporary = folder.join("body").display(),
        backend = at.backend,
        proxy = at.proxy,
        folder = folder.display(),
    );
    let mut command = Command::new("nginx");
    command.arg("-c").arg(write(folder, "nginx.conf", &text)?);
    Ok(command)
}

fn envoy(folder: &Path, at: Addresses) -> anyhow::Result<Command> {
    let type_url = |name: &str| format!("type.googleapis.com/envoy.extensions.{name}");
    let manager = serde_json::json!({
        "@type": type_url("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "https", "codec_type": "AUTO", "use_remote_address": true,
        "route_config": {"virtual_hosts": [{"name": "app", "domains": [NAME],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "app"}}]}]},
        "http_filters": [{"name": "envoy.filters.http.router",
            "typed_config": {"@type": type_url("filters.http.router.v3.Router")}}]});
    let tls = serde_json::json!({
        "@type": type_url("transport_sockets.tls.v3.DownstreamTlsContext"),
        "common_tls_context": {"alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [{
            "certificate_chain": {"filename": folder.join("tls.crt")}, "private_key": {"filename": folder.join("tls.key")}}]}});
    let configuration = serde_json::json!({"static_resources": {
        "listeners": [{"name": "https", "address": address(at.proxy), "filter_chains": [{
            "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls}}]}],
        "clusters": [{"name": "app", "type": "STATIC", "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [{"max_connections": 30_000, "max_pending_requests": 30_000, "max_requests": 30_000}]},
            "load_assignment": {"cluster_name": "app", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(at.backend)}}]}]}}],
    }});
    let mut command = Command::new(programs::envoy()?);
    command.arg("-c").arg(write(folder, "envoy.json", &configuration.to_string())?);
    command.args(["--concurrency", "2", "--log-level", "error", "--disable-hot-restart"]);
    Ok(command)
}
