//! Pods as the command line names them.

use std::str::FromStr;

use portreeve_attach::PodLabels;

/// `NAMESPACE[/LABELS]`: where Pods live, and what is known of their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsArg {
    /// Where they live.
    pub namespace: String,
    /// What is known of their labels.
    pub labels: PodLabels,
}

/// Text that names no Pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPods {
    /// There is no namespace.
    #[error("not NAMESPACE[/LABELS], such as jupyterhub/app=jupyterhub,component=singleuser-server")]
    Namespace,
    /// One of the labels is none.
    #[error("'{0}' is not KEY=VALUE, or !KEY for a label that the Pods lack")]
    Label(String),
    /// One of the labels is said more than once.
    #[error("label '{0}' is given twice: keep the one that is meant")]
    Twice(String),
}

impl FromStr for PodsArg {
    type Err = NoPods;

    fn from_str(text: &str) -> Result<Self, NoPods> {
        // The keys of labels may have a slash too.
        let (namespace, listed) = text.split_once('/').unwrap_or((text, ""));
        if namespace.is_empty() || !namespace.chars().all(|char| char.is_ascii_alphanumeric() || "-{}".contains(char)) {
            return Err(NoPods::Namespace);
        }
        let mut labels = PodLabels::new();
        for text in listed.split(',').filter(|text| !text.is_empty()) {
            let (key, value) = label(text).ok_or_else(|| NoPods::Label(text.to_owned()))?;
            if labels.insert(key.to_owned(), value.map(str::to_owned)).is_some() {
                return Err(NoPods::Twice(key.to_owned()));
            }
        }
        Ok(Self { namespace: namespace.to_owned(), labels })
    }
}

fn label(text: &str) -> Option<(&str, Option<&str>)> {
    let (key, value) = match text.strip_prefix('!') {
        Some(key) => (key, None),
        None => text.split_once('=').map(|(key, value)| (key, Some(value)))?,
    };
    let is_text = |text: &str, more: &str| text.chars().all(|char| char.is_ascii_alphanumeric() || more.contains(char));
    (!key.is_empty() && is_text(key, "-_./") && value.is_none_or(|value| is_text(value, "-_.{}")))
        .then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_a_namespace_and_labels() {
        let pods: PodsArg = "hub/app=jupyterhub,a.test/x=,!release".parse().unwrap();
        assert_eq!(pods.namespace, "hub");
        let label = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        let labels = [label("app", Some("jupyterhub")), label("a.test/x", Some("")), label("release", None)];
        assert_eq!(pods.labels, PodLabels::from(labels));
        for bare in ["hub", "hub/"] {
            assert_eq!(bare.parse(), Ok(PodsArg { namespace: "hub".into(), labels: PodLabels::new() }));
        }
    }

    #[test]
    fn what_names_no_pods_is_refused() {
        for bad in ["", "/app=x", "app=x", "a b"] {
            assert_eq!(bad.parse::<PodsArg>(), Err(NoPods::Namespace), "{bad}");
        }
        for bad in ["hub/app", "hub/=x", "hub/a=b=c", "hub/!", "hub/a b=c"] {
            assert!(matches!(bad.parse::<PodsArg>(), Err(NoPods::Label(_))), "{bad}");
        }
        assert_eq!("hub/a=b,!a".parse::<PodsArg>(), Err(NoPods::Twice("a".into())));
    }
}
