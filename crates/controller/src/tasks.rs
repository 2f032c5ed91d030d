//! Tasks that run beside the engine, by name. One that ends by itself is a fault that somebody hears of.

use std::collections::HashMap;

use tokio::task::{AbortHandle, Id, JoinSet};

/// The tasks of one owner. They are aborted when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, String>,
}

/// A task that should have gone on and has not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task \"{name}\" has ended: {cause}")]
pub struct TaskEnded {
    /// What it was for.
    pub name: String,
    /// Why it ended.
    pub cause: String,
}

impl Tasks {
    /// Starts a task that ends only when it is aborted.
    pub(crate) fn spawn(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name.into());
        handle
    }

    /// Waits until a task ends that was not aborted. Safe to cancel.
    pub(crate) async fn ended(&mut self) -> TaskEnded {
        loop {
            let (id, cause) = match self.set.join_next_with_id().await {
                Some(Ok((id, ()))) => (id, Some("it has nothing more to do".to_owned())),
                Some(Err(error)) => (error.id(), (!error.is_cancelled()).then(|| error.to_string())),
                None => std::future::pending().await,
            };
            let name = self.names.remove(&id).unwrap_or_default();
            if let Some(cause) = cause {
                return TaskEnded { name, cause };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_task_that_ends_by_itself_is_told() {
        let mut tasks = Tasks::default();
        tasks.spawn("aborted", std::future::pending()).abort();
        tasks.spawn("panics", async { panic!("on purpose") });
        let ended = tasks.ended().await;
        assert_eq!(ended.name, "panics");
        assert!(ended.cause.contains("panic"), "{ended}");
        tasks.spawn("returns", async {});
        assert_eq!(tasks.ended().await.name, "returns");
    }
}
