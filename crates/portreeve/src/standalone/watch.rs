use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// A writer that is quiet for this long has finished.
const QUIET: Duration = Duration::from_millis(150);
/// A writer that never is quiet is read nevertheless.
const AT_MOST: Duration = Duration::from_secs(2);
/// How often the directory is looked at although nothing was noticed: links may lead where nothing is watched.
const LOOK: Duration = Duration::from_secs(10);
/// The same where nothing can be watched.
const LOOK_UNWATCHED: Duration = Duration::from_secs(1);

/// Says when a directory may have changed.
pub(super) struct Watch {
    path: PathBuf,
    /// `None` where the system cannot watch, such as on some network file systems, or has no watches left.
    watcher: Option<RecommendedWatcher>,
    /// Given to every watcher; one notice is enough, it says that there is something to look at.
    notice: mpsc::Sender<()>,
    noticed: mpsc::Receiver<()>,
    /// Whether something was noticed and not yet told.
    is_pending: bool,
}

impl Watch {
    /// Watches a directory with all below it, or a single file.
    pub(super) fn start(path: &Path) -> Self {
        let (notice, noticed) = mpsc::channel(1);
        let watcher = watch(path, notice.clone());
        if watcher.is_none() {
            tracing::warn!("{} cannot be watched, so it is read every second", path.display());
        }
        Self { path: path.to_owned(), watcher, notice, noticed, is_pending: false }
    }

    /// Returns when something has changed and its writer has been quiet for a moment, or when it is time to look anyway.
    ///
    /// May be cancelled: what was noticed is then told the next time.
    pub(super) async fn changed(&mut self) {
        let look = if self.watcher.is_some() { LOOK } else { LOOK_UNWATCHED };
        if self.is_pending || matches!(timeout(look, self.noticed.recv()).await, Ok(Some(()))) {
            self.is_pending = true;
            let deadline = Instant::now() + AT_MOST;
            while let Ok(Some(())) = timeout_at(deadline.min(Instant::now() + QUIET), self.noticed.recv()).await {}
            self.is_pending = false;
        }
        // A watch is on what a path led to when it began: a directory that was replaced since, or a new link, is not in it.
        self.watcher = watch(&self.path, self.notice.clone());
    }
}

fn watch(path: &Path, notice: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let notice = move |event: notify::Result<Event>| {
        // Reading is no change, and we read.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            let _ = notice.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(notice).ok()?;
    // Editors replace files, so a single file is watched through its directory.
    let outcome = if path.is_dir() {
        watcher.watch(path, RecursiveMode::Recursive)
    } else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        watcher.watch(parent, RecursiveMode::NonRecursive)
    };
    let outcome = outcome.inspect_err(|error| tracing::debug!("failed to watch {}: {error}", path.display()));
    outcome.is_ok().then_some(watcher)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn is_noticed(watch: &mut Watch) -> bool {
        timeout(LOOK / 2, watch.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn changes_are_noticed_at_any_depth_and_reading_is_none() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("a")).unwrap();
        let mut watch = Watch::start(home.path());
        fs::write(home.path().join("a/f.yaml"), "x").unwrap();
        assert!(is_noticed(&mut watch).await);
        fs::read(home.path().join("a/f.yaml")).unwrap();
        assert!(timeout(QUIET * 3, watch.changed()).await.is_err());
        fs::rename(home.path().join("a/f.yaml"), home.path().join("g.yaml")).unwrap();
        assert!(is_noticed(&mut watch).await);
    }

    #[tokio::test]
    async fn a_single_file_is_noticed_when_it_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("f.yaml");
        fs::write(&file, "x").unwrap();
        let mut watch = Watch::start(&file);
        fs::write(home.path().join("new"), "y").unwrap();
        fs::rename(home.path().join("new"), &file).unwrap();
        assert!(is_noticed(&mut watch).await);
    }

    /// Origin: a watched directory that was removed and made again, or a link into another one, was read every 10 s only.
    #[tokio::test]
    async fn what_takes_the_place_of_a_directory_is_watched_too() {
        let home = tempfile::tempdir().unwrap();
        let [root, elsewhere] = ["root", "elsewhere"].map(|name| home.path().join(name));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let mut watch = Watch::start(&root);
        fs::remove_dir(&root).unwrap();
        assert!(is_noticed(&mut watch).await);
        fs::create_dir(&root).unwrap();
        assert!(is_noticed(&mut watch).await);
        fs::write(root.join("f.yaml"), "x").unwrap();
        assert!(is_noticed(&mut watch).await);
        std::os::unix::fs::symlink(&elsewhere, root.join("link")).unwrap();
        assert!(is_noticed(&mut watch).await);
        fs::write(elsewhere.join("f.yaml"), "x").unwrap();
        assert!(is_noticed(&mut watch).await);
    }

    #[tokio::test]
    async fn what_was_noticed_survives_being_cancelled() {
        let home = tempfile::tempdir().unwrap();
        let mut watch = Watch::start(home.path());
        fs::write(home.path().join("f.yaml"), "x").unwrap();
        // Long enough to notice, too short for the writer to be quiet.
        while !watch.is_pending {
            let _ = timeout(Duration::from_millis(20), watch.changed()).await;
        }
        assert!(timeout(QUIET * 2, watch.changed()).await.is_ok());
    }
}
