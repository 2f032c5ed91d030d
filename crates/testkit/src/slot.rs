//! A slot: the number that makes the names and addresses of one bed its own on this machine.

use std::fs::{self, File, TryLockError};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::network::{ip, ip_lines};

/// As many beds may run on one machine at once; the number is the third byte of a bed's addresses.
const SLOTS: u8 = 200;

/// A number that no other bed on this machine has, from when it is taken until it is dropped or its process ends.
///
/// Dropping it ends every process in the bed's namespaces and removes the namespaces and the folder.
#[derive(Debug)]
pub(crate) struct Slot {
    number: u8,
    /// Locked: the kernel unlocks it when the process ends, however it ends.
    _lock: File,
}

impl Slot {
    /// Takes a free slot and removes what beds of ended processes left behind.
    ///
    /// # Errors
    ///
    /// Without root.
    pub(crate) fn take() -> anyhow::Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "a test bed makes network namespaces, which needs root: run the tests as root, or in a user namespace \
             with `unshare --user --map-root-user --net --mount --pid --fork cargo test …`"
        );
        let beds = beds();
        fs::create_dir_all(&beds).with_context(|| format!("failed to make {}", beds.display()))?;
        let mut taken = None;
        for number in 0..SLOTS {
            let path = beds.join(format!("{number}.lock"));
            // A slot above the first free one matters only when a bed has left something there.
            if taken.is_some() && !path.exists() {
                continue;
            }
            let lock = File::options().create(true).truncate(false).write(true).open(&path)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error).context("failed to lock a slot of the test bed"),
            }
            let slot = Self { number, _lock: lock };
            slot.sweep();
            if taken.is_none() {
                taken = Some(slot);
            }
        }
        let Some(slot) = taken else { bail!("{SLOTS} test beds run on this machine: wait until one ends") };
        fs::create_dir_all(slot.folder())?;
        Ok(slot)
    }

    /// The folder for the bed's files.
    pub(crate) fn folder(&self) -> PathBuf {
        beds().join(self.number.to_string())
    }

    /// The address of a member of the bed's network, from 1 to 254.
    pub(crate) fn address(&self, member: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.number, member)
    }

    /// The name of one of the bed's network namespaces.
    pub(crate) fn namespace(&self, host: &str) -> String {
        format!("portreeve-{}-{host}", self.number)
    }

    /// The interface by which the test process itself reaches the bed.
    pub(crate) fn interface(&self) -> String {
        format!("portreeve{}", self.number)
    }

    /// Removes everything that carries this number.
    fn sweep(&self) {
        let prefix = self.namespace("");
        for namespace in namespaces().iter().filter(|name| name.starts_with(&prefix)) {
            kill_all_in(namespace);
            let _ = ip(&["netns", "delete", namespace]);
        }
        if Path::new("/sys/class/net").join(self.interface()).exists() {
            let _ = ip(&["link", "delete", &self.interface()]);
        }
        let _ = fs::remove_dir_all(self.folder());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// Where beds keep their files.
fn beds() -> PathBuf {
    std::env::temp_dir().join("portreeve-beds")
}

fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Ends every process in a namespace; twice, as one may start another while it is being ended.
fn kill_all_in(namespace: &str) {
    for _ in 0..2 {
        for line in ip_lines(&["netns", "pids", namespace]).unwrap_or_default() {
            if let Some(pid) = line.trim().parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
