use std::collections::BTreeSet;
use std::fmt;

/// Whether something holds, as far as can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// What it depends on.
    Unknown(BTreeSet<Doubt>),
}

/// Something that manifests do not say and on which a NetworkPolicy depends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Whether Pods have a label, and with which value.
    Label {
        /// Of the Pods.
        namespace: String,
        /// Of the label.
        key: String,
    },
    /// Which Pods stand behind a Service that selects none, if they are Pods at all.
    OnlyAddresses {
        /// Of the Service.
        namespace: String,
    },
    /// Which IP addresses Pods have.
    Address {
        /// Of the Pods.
        namespace: String,
    },
    /// Which of their ports Pods call this.
    PortName {
        /// Of the Pods.
        namespace: String,
        /// Of the port.
        name: String,
    },
    /// The number of the port that the Service's `targetPort` names.
    PortNumber,
    /// An `ipBlock` that is not a block of addresses.
    Unreadable(String),
}

impl Answer {
    /// Whether all hold.
    pub(crate) fn all(answers: impl IntoIterator<Item = Self>) -> Self {
        let mut doubts = BTreeSet::new();
        for answer in answers {
            match answer {
                Self::Yes => {}
                Self::No => return Self::No,
                Self::Unknown(more) => doubts.extend(more),
            }
        }
        if doubts.is_empty() { Self::Yes } else { Self::Unknown(doubts) }
    }

    /// Whether any holds.
    pub(crate) fn any(answers: impl IntoIterator<Item = Self>) -> Self {
        !Self::all(answers.into_iter().map(|answer| !answer))
    }
}

impl std::ops::Not for Answer {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            unknown @ Self::Unknown(_) => unknown,
        }
    }
}

impl From<bool> for Answer {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

impl From<Doubt> for Answer {
    fn from(doubt: Doubt) -> Self {
        Self::Unknown(BTreeSet::from([doubt]))
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label { namespace, key } => write!(f, "label '{key}' of the Pods in namespace '{namespace}'"),
            Self::OnlyAddresses { namespace } => {
                write!(
                    f,
                    "labels, and the Service in namespace '{namespace}' selects no Pods: only addresses are known"
                )
            }
            Self::Address { namespace } => write!(f, "the IP addresses of the Pods in namespace '{namespace}'"),
            Self::PortName { namespace, name } => {
                write!(f, "which port the Pods in namespace '{namespace}' call '{name}'")
            }
            Self::PortNumber => f.write_str("the number of the Pods' port, which the Service's targetPort only names"),
            Self::Unreadable(cidr) => write!(f, "'{cidr}', which is not a block of addresses"),
        }
    }
}
