//! `cargo xtask manifests`: the chart with its defaults, as one file for those who do not use Helm.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::run::root;

/// The file, below the workspace's root.
const FILE: &str = "deploy/portreeve.yaml";
/// The chart, below the workspace's root.
const CHART: &str = "charts/portreeve";
const NAMESPACE: &str = "portreeve-system";
/// What only holds where Helm installs.
const OF_HELM: [&str; 4] =
    ["# Source: ", "app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ", "helm.sh/resource-policy: "];

/// Writes the file; with `check`, fails when it is not what would be written.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let text = render(&helm(&["template", "portreeve", CHART, "--namespace", NAMESPACE])?);
    let path = root().join(FILE);
    if !check {
        fs::create_dir_all(path.parent().unwrap_or(&path))
            .with_context(|| format!("failed to make the folder of {FILE}"))?;
        fs::write(&path, text).with_context(|| format!("failed to write {FILE}"))?;
        eprintln!("==> wrote {FILE}");
        return Ok(());
    }
    let is_current = fs::read_to_string(&path).unwrap_or_default() == text;
    ensure!(is_current, "{FILE} is not what the chart renders: run `cargo xtask manifests` and commit the result");
    Ok(())
}

/// What Helm has rendered, without what is Helm's, in a namespace of its own.
fn render(rendered: &str) -> String {
    let lines = rendered.lines().filter(|line| !OF_HELM.iter().any(|text| line.trim_start().starts_with(text)));
    // An annotation block that only Helm needed.
    let mut lines = lines.peekable();
    let mut text = format!(
        "# Written by `cargo xtask manifests` from {CHART}; do not edit.\n---\napiVersion: v1\nkind: Namespace\n\
         metadata:\n  name: {NAMESPACE}\n"
    );
    while let Some(line) = lines.next() {
        let is_empty_block = line == "  annotations:" && lines.peek().is_none_or(|next| !next.starts_with("    "));
        if !is_empty_block {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Runs the test bed's Helm in the workspace, and returns what it prints.
fn helm(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(portreeve_programs::find("helm")?)
        .args(arguments)
        .current_dir(root())
        .output()
        .context("failed to start helm")?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "helm {} failed:\n{said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The objects that the chart renders with these arguments.
    fn objects(arguments: &[&str]) -> Vec<Value> {
        let arguments = [&["template", "portreeve", CHART, "--namespace", "ns"], arguments].concat();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&helm(&arguments).unwrap()).unwrap();
        documents.into_iter().filter(|document| !document.is_null()).collect()
    }

    fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
        objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }

    #[test]
    fn the_committed_file_is_what_the_chart_renders() {
        run(true).unwrap();
    }

    #[test]
    fn helm_finds_no_fault_with_the_chart() {
        helm(&["lint", "--strict", CHART]).unwrap();
    }

    #[test]
    fn a_value_that_nothing_reads_is_refused() {
        for value in ["apps.clusterIsuer=letsencrypt", "replica=3", "logFormat=xml", "apps.migrateLegacyListeners=yes"]
        {
            let refused = helm(&["template", "portreeve", CHART, "--set", value]).unwrap_err().to_string();
            assert!(refused.contains("don't meet the specifications of the schema"), "{value}: {refused}");
        }
    }

    #[test]
    fn only_a_migration_may_write_gateways_and_only_tenants_have_secrets_deleted() {
        let verbs = |values: &[&str], resource: &str| {
            let objects = objects(values);
            let found = find(&objects, "ClusterRole", "portreeve").unwrap();
            let rules = found["rules"].as_array().unwrap();
            let rule = rules.iter().find(|rule| rule["resources"][0] == resource).unwrap();
            serde_json::from_value::<Vec<String>>(rule["verbs"].clone()).unwrap()
        };
        assert_eq!(verbs(&[], "gateways"), ["list", "watch"]);
        // Sign-in makes the Secrets of apps' clients, and reads what they hold.
        assert_eq!(verbs(&[], "secrets"), ["create", "get", "list", "patch", "watch"]);
        let migrate = ["--set=apps.migrateLegacyListeners=on"];
        assert!(verbs(&migrate, "gateways").contains(&"patch".to_owned()));
        assert!(!verbs(&migrate, "secrets").contains(&"delete".to_owned()));
        assert!(verbs(&TENANTS, "secrets").contains(&"delete".to_owned()));
    }

    const TENANTS: [&str; 3] = [
        "--set=operator.tenantApi.domain=example.com",
        "--set=operator.tenantApps.domain=example.com",
        "--set=operator.tenantApps.clusterIssuer=letsencrypt",
    ];

    /// tenant C.6
    #[test]
    fn tenants_take_their_own_rights_and_the_helm_client_others() {
        let off = objects(&[]);
        assert!(find(&off, "ValidatingAdmissionPolicy", "portreeve-tenant-names").is_none());
        assert!(find(&off, "ServiceAccount", "portreeve-helm").is_none());
        let on = objects(&TENANTS);
        assert!(find(&on, "ValidatingAdmissionPolicy", "portreeve-tenant-names").is_some());
        let rules = |name: &str| find(&on, "ClusterRole", name).unwrap()["rules"].to_string();
        assert!(rules("portreeve-helm").contains("escalate") && !rules("portreeve").contains("escalate"));
        assert!(rules("portreeve").contains("resourcequotas") && !rules("portreeve").contains("serviceaccounts"));
        let token = find(&on, "Role", "portreeve-helm-token").unwrap();
        assert_eq!(token["rules"][0]["resourceNames"][0], "portreeve-helm");
        let external = objects(&[&TENANTS[..], &["--set=operator.provisioner=external"]].concat());
        assert!(find(&external, "ServiceAccount", "portreeve-helm").is_none());
        let refused = helm(&["template", "portreeve", CHART, "--set", "operator.provisioner=argo"]).unwrap_err();
        assert!(refused.to_string().contains("don't meet the specifications of the schema"), "{refused}");
    }

    #[test]
    fn every_option_renders() {
        let objects = objects(&[
            "--set=metrics.serviceMonitor.enabled=true",
            "--set=metrics.port=9443",
            "--set=apps.clusterIssuer=letsencrypt",
            "--set=serviceAccount.name=gatekeeper",
            "--set=imagePullSecrets[0].name=pull",
            "--set=podLabels.a=b",
            "--set=podAnnotations.c=d",
            "--set=nodeSelector.e=f",
            "--set=tolerations[0].operator=Exists",
            "--set=priorityClassName=system-cluster-critical",
            "--set=extraArgs={--zap-log-level=debug}",
            "--set=extraEnv[0].name=RUST_LOG",
            "--set=extraEnv[0].value=debug",
            TENANTS[0],
            "--set=operator.helm.serviceAccountName=installer",
            "--set=operator.settings.apps.moreGateways[0]=kubespaces-apps-2",
            r#"--set-json=zones=[{"names":"*.team.example.com","namespaces":["team","lab"]},{"names":"keycloak.example.com","namespaces":[]}]"#,
        ]);
        let deployment = find(&objects, "Deployment", "portreeve").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let arguments: Vec<String> = serde_json::from_value(pod["containers"][0]["args"].clone()).unwrap();
        for wanted in [
            "--zone=*.team.example.com=team,lab",
            "--zone=keycloak.example.com=",
            "--metrics-bind-address=:9443",
            "--zap-log-level=debug",
        ] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{wanted}: {arguments:?}");
        }
        assert!(find(&objects, "ServiceAccount", "installer").is_some());
        let settings = find(&objects, "ConfigMap", "portreeve-tenants").unwrap();
        assert!(settings["data"]["tenants.yaml"].as_str().unwrap().contains("moreGateways"));
        assert_eq!(pod["serviceAccountName"], "gatekeeper");
        assert!(find(&objects, "ServiceMonitor", "portreeve").is_some());
        assert_eq!(find(&objects, "ClusterRoleBinding", "portreeve").unwrap()["subjects"][0]["name"], "gatekeeper");
        assert!(
            find(&self::objects(&["--set=crds.install=false"]), "CustomResourceDefinition", "tenants.kubespaces.io")
                .is_none()
        );
    }
}
