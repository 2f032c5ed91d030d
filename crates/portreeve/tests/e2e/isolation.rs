//! Tenants: each reaches its own, and nobody else's.

use std::process::Command;

use crate::support::{Up, run, text};

/// requirements/kubespaces-networking: client-certificate kubeconfigs keep working, since TLS ends at the API server.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_sees_the_client_certificate() {
    let up = Up::start().await;
    let (certificate, key) = up.write_identity("admin", &up.backends.tenant_admin);
    let (server, _) = up.write_identity("server", &up.backends.api_server);
    let output = run(Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10", "--insecure", "--connect-to"])
        .arg(format!("::{}:{}", up.tenant_api().ip(), up.tenant_api().port()))
        .arg("--cert")
        .arg(certificate)
        .arg("--key")
        .arg(key)
        .arg("https://blue.api.example.test/version"));
    assert!(text(&output).contains("api-server greets blue-admin: /version"), "{}\n{}", text(&output), up.log());

    let shown = run(Command::new("openssl").args([
        "s_client",
        "-connect",
        &up.tenant_api().to_string(),
        "-servername",
        "blue.api.example.test",
    ]));
    let own = std::fs::read_to_string(server).unwrap();
    assert!(text(&shown).contains(own.trim()), "another certificate than the API server's: {}", text(&shown));
}

/// requirements/kubespaces-networking: a route that claims a foreign hostname is refused, and the name is never served
/// by the thief's backend.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_hostname_is_refused_and_never_served() {
    let up = Up::start().await;
    let get = |host: &str| {
        let output = run(Command::new("curl")
            .args(["--silent", "--max-time", "10", "--write-out", "status=%{http_code}", "--cacert"])
            .arg(up.ca())
            .arg("--connect-to")
            .arg(format!("::{}:{}", up.tenant_apps().ip(), up.tenant_apps().port()))
            .arg(format!("https://{host}/")));
        text(&output)
    };
    let own = get("web.blue.apps.example.test");
    assert!(own.contains("web: /") && own.contains("status=200"), "{own}\n{}", up.log());
    let foreign = get("web.green.apps.example.test");
    assert!(!foreign.contains("web: /") && foreign.contains("status=404"), "{foreign}");

    let plan = run(crate::support::portreeve().arg("plan").arg(up.manifest("")).args([
        "--tenant-api-domain",
        "example.test",
        "--tenant-apps-domain",
        "example.test",
        "-o",
        "json",
    ]));
    assert!(text(&plan).contains("NoMatchingListenerHostname"), "{}", text(&plan));
}
