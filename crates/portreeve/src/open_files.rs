//! How many files this process may open, and so how many connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files are left for everything but connections, where there are that many: listeners, state, manifests.
const RESERVE: u64 = 256;
/// A client's connection and the backend's.
const FILES_PER_CONNECTION: u64 = 2;

/// Allows this process as many open files as it may allow itself, and returns how many connections they are good for.
///
/// The usual soft limit is 1024, for programs that use `select`; a gateway is not one of them. Clients must not use up
/// what their backends need: a connection that cannot be carried on is better not accepted.
pub(crate) fn allow_connections() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    limit.map_or(usize::MAX, connections)
}

fn connections(files: u64) -> usize {
    let left = files - RESERVE.min(files / 2);
    usize::try_from(left / FILES_PER_CONNECTION).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Origin: with 64 files, clients took them all, and every request was answered that no endpoint can be reached.
    #[test]
    fn backends_keep_their_share_of_the_files() {
        for (files, expected) in [(0, 1), (64, 16), (1024, 384), (20_256, 10_000)] {
            assert_eq!(connections(files), expected, "{files}");
        }
    }
}
