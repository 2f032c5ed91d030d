//! Conditions, and how they meet those that are there already.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition to report, before it is known what the object says now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub kind: Kind,
    pub state: State,
    pub reason: &'static str,
    pub message: String,
}

/// The types of conditions that are reported here; all others belong to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Accepted,
    Programmed,
    ResolvedRefs,
    Conflicted,
    OverlappingTlsConfig,
    PartiallyInvalid,
}

/// The value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    True,
    False,
    Unknown,
}

/// What is the same for every condition of an object.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub generation: Option<i64>,
    pub now: jiff::Timestamp,
}

const KINDS: [Kind; 6] = [
    Kind::Accepted,
    Kind::Programmed,
    Kind::ResolvedRefs,
    Kind::Conflicted,
    Kind::OverlappingTlsConfig,
    Kind::PartiallyInvalid,
];

impl Finding {
    pub(crate) fn new(kind: Kind, state: State, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, state, reason, message: message.into() }
    }

    fn condition(&self, present: Option<&Condition>, stamp: Stamp) -> Condition {
        let unchanged = present.filter(|present| present.status == self.state.as_str());
        Condition {
            type_: self.kind.as_str().to_owned(),
            status: self.state.as_str().to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            observed_generation: stamp.generation,
            last_transition_time: unchanged
                .map_or(Time::from(stamp.now), |unchanged| unchanged.last_transition_time.clone()),
        }
    }
}

/// The conditions of an object with ours brought up to date.
///
/// Foreign conditions stay as they are and where they are, so that two controllers do not undo each other's order.
/// The time of a transition changes only with the status.
pub(crate) fn merge(present: &[Condition], findings: &[Finding], stamp: Stamp) -> Vec<Condition> {
    let found = |condition: &Condition| findings.iter().find(|finding| finding.kind.as_str() == condition.type_);
    let kept = present.iter().filter_map(|condition| match found(condition) {
        Some(finding) => Some(finding.condition(Some(condition), stamp)),
        None => (!is_ours(condition)).then(|| condition.clone()),
    });
    let is_new = |finding: &&Finding| present.iter().all(|condition| condition.type_ != finding.kind.as_str());
    let added = findings.iter().filter(is_new).map(|finding| finding.condition(None, stamp));
    kept.chain(added).collect()
}

fn is_ours(condition: &Condition) -> bool {
    KINDS.iter().any(|kind| kind.as_str() == condition.type_)
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Programmed => "Programmed",
            Self::ResolvedRefs => "ResolvedRefs",
            Self::Conflicted => "Conflicted",
            Self::OverlappingTlsConfig => "OverlappingTLSConfig",
            Self::PartiallyInvalid => "PartiallyInvalid",
        }
    }
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}
