use kube::core::Status;

/// Why a write did not come about. Sub-divided by who has to do something about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The object is not what it was when this was planned: nobody's fault, plan again.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The object, or its kind, is gone: the watches will tell.
    #[error("there is no such object or kind any more")]
    Gone,
    /// Its namespace is being deleted: nothing is to be made there.
    #[error("the namespace is being deleted")]
    Terminating,
    /// The API server cannot be reached, or has too much to do: try everything again later.
    #[error("{0}")]
    Unavailable(String),
    /// The API server refuses the write: somebody has to change something.
    #[error("{0}")]
    Refused(String),
    /// The same, since the object as a whole would be none.
    #[error("{0}")]
    Invalid(String),
    /// Writing has ended before it was this write's turn.
    #[error("writing was stopped")]
    Stopped,
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => of_status(&status),
            // Whatever it was, it was no answer.
            error => Self::Unavailable(crate::text::chain(&error)),
        }
    }
}

impl Failure {
    /// Whether somebody has to change something.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Invalid(_))
    }

    /// As in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Terminating => "terminating",
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) | Self::Invalid(_) => "refused",
            Self::Stopped => "stopped",
        }
    }
}

fn of_status(status: &Status) -> Failure {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_terminating = causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating");
    match status.code {
        _ if is_terminating => Failure::Terminating,
        // 405: its definition is being deleted.
        404 | 405 | 410 => Failure::Gone,
        409 => Failure::Conflict,
        // A failed `test` of a JSON Patch is a conflict too, though the API server calls it invalid.
        422 if status.message.contains("testing value") || status.message.contains("test failed") => Failure::Conflict,
        422 => Failure::Invalid(status.message.clone()),
        429 | 500 | 502..=504 => Failure::Unavailable(status.message.clone()),
        _ => Failure::Refused(status.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(status: serde_json::Value) -> Failure {
        of_status(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn what_the_api_server_says_tells_who_is_at_fault() {
        assert_eq!(failure(json!({"code": 409, "reason": "Conflict"})), Failure::Conflict);
        assert_eq!(failure(json!({"code": 404})), Failure::Gone);
        assert_eq!(failure(json!({"code": 405, "reason": "MethodNotAllowed"})), Failure::Gone);
        let terminating = json!({"code": 403, "details": {"causes": [{"reason": "NamespaceTerminating"}]}});
        assert_eq!(failure(terminating), Failure::Terminating);
        let tested = json!({"code": 422, "message": "the server rejected our request due to an error in our request"});
        assert!(matches!(failure(tested), Failure::Invalid(_)));
        let forbidden = json!({"code": 403, "message": "routes is forbidden: User cannot patch"});
        assert_eq!(failure(forbidden), Failure::Refused("routes is forbidden: User cannot patch".to_owned()));
        assert!(matches!(failure(json!({"code": 503, "message": "busy"})), Failure::Unavailable(_)));
    }
}
