//! The state directory: what must outlive the process, written so that a crash never leaves half of it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// A state directory that this process alone uses, for as long as the value lives.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Holds the lock.
    lock: File,
}

/// Why state cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Neither variable is set, so there is no default place.
    #[error("no place for state: neither XDG_STATE_HOME nor HOME is set; name a directory with --state-dir")]
    NoDefault,
    /// The directory cannot be made or entered.
    #[error("failed to open the state directory {path}; choose another with --state-dir")]
    Open {
        /// Which directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "the state directory {path} is in use by another portreeve (process {process}); stop that one or choose another directory with --state-dir"
    )]
    InUse {
        /// Which directory.
        path: PathBuf,
        /// Who has it, as far as is known.
        process: String,
    },
    /// A file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else than what was written.
    #[error("{path} is damaged; move it away to start without what it records")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A file cannot be written.
    #[error("failed to write {path}; nothing in it has changed")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// Everybody who may enter the directory (mode 0644).
    Public,
    /// The owner alone (mode 0600).
    Private,
}

impl StateDirectory {
    /// Makes the directory (mode 0700) where it is missing, and locks it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Open { path: path.to_owned(), source };
        make_private(path).map_err(failed)?;
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(failed)?;
        take_lock(path, &mut lock)?;
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Lets another process have it; nothing may be written until [`StateDirectory::take_back`].
    pub fn release(&self) -> io::Result<()> {
        self.lock.unlock()
    }

    /// Has it again, unless another process has it now.
    pub fn take_back(&mut self) -> Result<(), StateError> {
        take_lock(&self.path, &mut self.lock)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was last written as `name`, or `None` if nothing was.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StateError> {
        peek(&self.path, name)
    }

    /// Writes `value` as `name` in JSON; see [`StateDirectory::write_bytes`].
    pub fn write<T: Serialize>(&self, name: &str, secrecy: Secrecy, value: &T) -> Result<(), StateError> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|error| StateError::Write { path: self.path.join(name), source: error.into() })?;
        self.write_bytes(name, secrecy, &text)
    }

    /// Writes a file whole or not at all, and returns when it is on the disk.
    pub fn write_bytes(&self, name: &str, secrecy: Secrecy, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!(".{name}.new"));
        replace(&self.path, &temporary, &path, secrecy, bytes).map_err(|source| StateError::Write { path, source })
    }
}

/// What was last written as `name` in a state directory, whoever uses it now, or `None` if nothing was.
///
/// Needs no lock: files are replaced whole.
pub fn peek<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<Option<T>, StateError> {
    let path = directory.join(name);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateError::Read { path, source }),
    };
    serde_json::from_slice(&text).map(Some).map_err(|source| StateError::Damaged { path, source })
}

/// Where the state of a directory of manifests lies when nobody says otherwise.
///
/// `$XDG_STATE_HOME/portreeve/NAME-HASH`, else `~/.local/state/portreeve/NAME-HASH`; the hash is of the directory's
/// absolute path, so two directories of one name do not meet.
pub fn default_path(
    manifests: &Path,
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<PathBuf, StateError> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home =
        set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state"))).ok_or(StateError::NoDefault)?;
    let absolute = manifests.canonicalize().unwrap_or_else(|_| manifests.to_owned());
    let name = absolute.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy().into_owned());
    let hash = Sha256::digest(absolute.as_os_str().as_encoded_bytes());
    Ok(home.join("portreeve").join(format!("{name}-{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3])))
}

fn take_lock(path: &Path, lock: &mut File) -> Result<(), StateError> {
    let failed = |source| StateError::Open { path: path.to_owned(), source };
    match lock.try_lock() {
        Ok(()) => write_process_id(lock).map_err(failed),
        Err(TryLockError::WouldBlock) => Err(StateError::InUse { path: path.to_owned(), process: process_in(lock) }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn write_process_id(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(std::process::id().to_string().as_bytes())
}

fn process_in(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(_) if !text.is_empty() => text,
        _ => "unknown".to_owned(),
    }
}

/// Puts `bytes` in the place of a file: whoever reads it sees the old content or the new one, whole.
pub(crate) fn replace(
    directory: &Path,
    temporary: &Path,
    path: &Path,
    secrecy: Secrecy,
    bytes: &[u8],
) -> io::Result<()> {
    let mode = match secrecy {
        Secrecy::Public => 0o644,
        Secrecy::Private => 0o600,
    };
    // One that a crash has left behind may have another mode.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_read_again_and_private_is_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b");
        {
            let state = StateDirectory::open(&path).unwrap();
            assert_eq!(state.read::<u32>("n.json").unwrap(), None);
            // What a crash left behind does not lend its mode.
            fs::write(path.join(".n.json.new"), "junk").unwrap();
            state.write("n.json", Secrecy::Private, &7).unwrap();
            state.write_bytes("ca.crt", Secrecy::Public, b"x").unwrap();
        }
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!(state.read::<u32>("n.json").unwrap(), Some(7));
        assert_eq!((mode(&path), mode(&path.join("n.json")), mode(&path.join("ca.crt"))), (0o700, 0o600, 0o644));
        assert!(!path.join(".n.json.new").exists());
    }

    #[test]
    fn one_process_has_it() {
        let home = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(home.path()).unwrap();
        let error = StateDirectory::open(home.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())) && error.contains("--state-dir"), "{error}");
        drop(first);
        StateDirectory::open(home.path()).unwrap();
    }

    #[test]
    fn damage_is_not_taken_for_nothing() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(home.path()).unwrap();
        fs::write(home.path().join("claims.json"), "{\"half").unwrap();
        let error = state.read::<serde_json::Value>("claims.json").unwrap_err();
        assert!(error.to_string().contains("claims.json is damaged; move it away"), "{error}");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(home.path()).unwrap();
        state.write("n.json", Secrecy::Public, &1).unwrap();
        // A directory in the way of the temporary file stands for a full disk.
        fs::create_dir(home.path().join(".n.json.new")).unwrap();
        let error = state.write("n.json", Secrecy::Public, &2).unwrap_err();
        assert!(matches!(error, StateError::Write { .. }), "{error}");
        assert_eq!(state.read::<u32>("n.json").unwrap(), Some(1));
    }

    #[test]
    fn the_default_place_follows_the_directory() {
        let manifests = tempfile::tempdir().unwrap();
        let only = |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.into());
        let xdg = default_path(manifests.path(), only("XDG_STATE_HOME", "/x")).unwrap();
        let home = default_path(manifests.path(), only("HOME", "/h")).unwrap();
        assert_eq!(xdg.parent(), Some(Path::new("/x/portreeve")));
        assert_eq!(home.parent(), Some(Path::new("/h/.local/state/portreeve")));
        assert_eq!(xdg.file_name(), home.file_name());
        assert!(default_path(manifests.path(), |_| None).is_err());
        let other = default_path(&manifests.path().join(".."), only("HOME", "/h")).unwrap();
        assert_ne!(other, home);
    }
}
