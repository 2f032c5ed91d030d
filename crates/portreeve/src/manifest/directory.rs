//! A directory of manifests over time: a file that is broken keeps the objects that it last gave.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portreeve_plan::ObjectRef;

use super::read::{FileContents, read, summarize_ignored};
use super::{Finding, Manifest, Place};
use crate::kinds::stable_uid;

/// Files larger than this are refused: 32 MiB, more than any cluster could hold of one kind.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// What other tools read, and no manifest.
const NO_MANIFESTS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "kustomization.json"];

/// A directory (or a single file) of manifests, and what each file last gave.
///
/// Every `*.yaml`, `*.yml` and `*.json` below it counts, in the order of their paths; hidden files and directories and
/// kustomizations do not. Symbolic links are followed.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    files: BTreeMap<Arc<str>, Known>,
}

/// What the directory says now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The objects to serve; no object is there twice.
    pub manifests: Vec<Manifest>,
    /// Everything there is to say, in the order of the files.
    pub findings: Vec<Finding>,
}

/// The directory itself cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read {path}: name a directory of manifests")]
pub struct Unreadable {
    /// Which one.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// What is known of one file.
#[derive(Debug, Default)]
struct Known {
    text: String,
    /// What there is to say about this text.
    findings: Vec<Finding>,
    /// What is used: that of this text, or when it is broken that of the last one that was not.
    used: FileContents,
    /// Whether `used` is the whole of a text without errors.
    is_whole: bool,
}

impl Reading {
    /// Whether there is something that cannot be used, so that an object that is absent may only be unreadable.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }
}

impl Directory {
    /// Nothing is read yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), files: BTreeMap::new() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads what has changed.
    ///
    /// Fails when the directory itself cannot be read; everything else becomes a finding, and a file with an error
    /// keeps what it gave when it last had none.
    pub fn read(&mut self) -> Result<Reading, Unreadable> {
        let mut found = Listing::default();
        found.add(&self.root).map_err(|source| Unreadable { path: self.root.clone(), source })?;
        let Listing { files, mut findings, .. } = found;
        let lost: Vec<_> = findings.iter().map(|finding| finding.place.file.clone()).collect();
        let is_lost = |file: &str| lost.iter().any(|directory| Path::new(file).starts_with(&**directory));
        self.files.retain(|file, _| files.contains_key(file) || is_lost(file));
        for (file, path) in &files {
            match read_text(path) {
                Ok(text) => self.files.entry(file.clone()).or_default().renew(file, text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => drop(self.files.remove(file)),
                Err(error) => {
                    findings.push(Finding::error(Place::of_file(file), format!("this cannot be read: {error}")));
                }
            }
        }
        Ok(self.reading(findings))
    }

    fn reading(&self, mut findings: Vec<Finding>) -> Reading {
        let mut manifests: BTreeMap<&ObjectRef, &Manifest> = BTreeMap::new();
        for manifest in self.files.values().flat_map(|known| &known.used.manifests) {
            let first = manifests.entry(&manifest.object).or_insert(manifest);
            if !std::ptr::eq(*first, manifest) {
                findings.push(duplicate(manifest, first));
            }
        }
        findings.extend(remove_doubles_of_uids(&mut manifests));
        findings.extend(self.files.iter().flat_map(|(file, known)| known.findings(file)));
        findings.extend(summarize_ignored(self.files.values().flat_map(|known| &known.used.ignored)));
        findings.sort();
        Reading { manifests: manifests.into_values().cloned().collect(), findings }
    }
}

impl Known {
    fn renew(&mut self, file: &Arc<str>, text: String) {
        if text == self.text {
            return;
        }
        let contents = read(file, &text);
        self.findings.clone_from(&contents.findings);
        self.text = text;
        let is_whole = !self.has_errors();
        // Half a file is used only where there never was a whole one.
        if is_whole || !self.is_whole {
            self.used = contents;
            self.is_whole = is_whole;
        }
    }

    fn has_errors(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }

    fn findings(&self, file: &Arc<str>) -> Vec<Finding> {
        let mut findings = self.findings.clone();
        if self.is_whole && self.has_errors() {
            let objects: Vec<_> = self.used.manifests.iter().map(|manifest| manifest.object.to_string()).collect();
            let message = format!("until this file is mended, what it last gave is served: {}", objects.join(", "));
            findings.push(Finding::warning(Place::of_file(file), message));
        }
        findings
    }
}

/// Removes objects that say that they are another one: what that one owns would be theirs. A uid that is written gives
/// way to one that is not.
fn remove_doubles_of_uids(manifests: &mut BTreeMap<&ObjectRef, &Manifest>) -> Vec<Finding> {
    let written = |manifest: &Manifest| manifest.value["metadata"]["uid"].as_str().map(str::to_owned);
    let mut objects: Vec<&Manifest> = manifests.values().copied().collect();
    objects.sort_by_key(|manifest| (written(manifest).is_some(), &manifest.place));
    let mut known: BTreeMap<String, &Manifest> = BTreeMap::new();
    let mut findings = Vec::new();
    for manifest in objects {
        let uid = written(manifest).unwrap_or_else(|| stable_uid(&manifest.object));
        let first = known.entry(uid).or_insert(manifest);
        if !std::ptr::eq(*first, manifest) {
            let Manifest { object, place, .. } = manifest;
            let message =
                format!("{object} has the metadata.uid of {}, so it is ignored: remove the uid", first.object);
            findings.push(Finding::error(place.clone(), message));
            manifests.remove(&manifest.object);
        }
    }
    findings
}

fn duplicate(manifest: &Manifest, first: &Manifest) -> Finding {
    let Manifest { object, place, .. } = manifest;
    let message =
        format!("{object} is already defined at {}, so this one is ignored: rename or remove one", first.place);
    Finding::error(place.clone(), message)
}

/// The files below a directory, and the directories that cannot be read.
#[derive(Default)]
struct Listing {
    files: BTreeMap<Arc<str>, PathBuf>,
    findings: Vec<Finding>,
    /// Where it has been, so that a symbolic link to a parent ends somewhere.
    seen: BTreeSet<PathBuf>,
}

impl Listing {
    fn add(&mut self, path: &Path) -> io::Result<()> {
        if !fs::metadata(path)?.is_dir() {
            self.files.insert(path.to_string_lossy().into(), path.to_owned());
            return Ok(());
        }
        if !self.seen.insert(fs::canonicalize(path)?) {
            return Ok(());
        }
        for entry in fs::read_dir(path)? {
            self.add_entry(&entry?.path());
        }
        Ok(())
    }

    fn add_entry(&mut self, path: &Path) {
        // A link to nowhere is as good as nothing: editors leave such locks.
        let Ok(metadata) = fs::metadata(path) else { return };
        let is_hidden = path.file_name().and_then(OsStr::to_str).is_none_or(|name| name.starts_with('.'));
        if is_hidden || !(metadata.is_dir() || (metadata.is_file() && is_manifest(path))) {
            return;
        }
        if let Err(error) = self.add(path) {
            let place = Place::of_file(&path.to_string_lossy().into());
            self.findings.push(Finding::error(place, format!("this directory cannot be read: {error}")));
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let named = path.extension().and_then(OsStr::to_str).is_some_and(|end| matches!(end, "yaml" | "yml" | "json"));
    named && !path.file_name().and_then(OsStr::to_str).is_some_and(|name| NO_MANIFESTS.contains(&name))
}

fn read_text(path: &Path) -> io::Result<String> {
    let size = fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it has {size} bytes, more than {MAX_FILE_BYTES}; split it")));
    }
    let not_text = |error: std::string::FromUtf8Error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].split(|byte| *byte == b'\n').count();
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8 text"))
    };
    String::from_utf8(fs::read(path)?).map_err(not_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bed {
        home: tempfile::TempDir,
        directory: Directory,
    }

    impl Bed {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            Self { directory: Directory::new(home.path()), home }
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// The objects that are served, and the findings with the directory left out.
        fn read(&mut self) -> (Vec<String>, Vec<String>) {
            let reading = self.directory.read().unwrap();
            let objects = reading.manifests.iter().map(|manifest| manifest.object.to_string()).collect();
            let home = format!("{}/", self.home.path().display());
            (objects, reading.findings.iter().map(|finding| finding.to_string().replace(&home, "")).collect())
        }
    }

    fn namespace(name: &str) -> String {
        format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
    }

    #[test]
    fn manifests_are_found_at_any_depth_and_other_files_are_left_alone() {
        let mut bed = Bed::new();
        for name in ["b.yaml", "a/c.yml", "a/deep/d.json"] {
            bed.write(name, &namespace(&name.replace(['/', '.'], "-")));
        }
        for name in [".hidden.yaml", ".git/x.yaml", "kustomization.yaml", "a/notes.txt", "x.yaml~"] {
            bed.write(name, "not: [a manifest");
        }
        std::os::unix::fs::symlink("..", bed.home.path().join("a/loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", bed.home.path().join("dangling.yaml")).unwrap();
        let (objects, findings) = bed.read();
        assert_eq!(objects, ["Namespace/a-c-yml", "Namespace/a-deep-d-json", "Namespace/b-yaml"]);
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn a_single_file_may_be_named_too() {
        let bed = Bed::new();
        bed.write("only.txt", &namespace("a"));
        let reading = Directory::new(bed.home.path().join("only.txt")).read().unwrap();
        assert_eq!(reading.manifests.len(), 1);
    }

    #[test]
    fn a_broken_file_keeps_what_it_last_gave_until_it_is_mended() {
        let mut bed = Bed::new();
        bed.write("a.yaml", &[namespace("a"), namespace("b")].concat());
        bed.write("z.yaml", &namespace("z"));
        assert_eq!(bed.read(), (vec!["Namespace/a".into(), "Namespace/b".into(), "Namespace/z".into()], vec![]));

        bed.write("a.yaml", &[namespace("a"), "kind: [".to_owned()].concat());
        let (objects, findings) = bed.read();
        assert_eq!(objects, ["Namespace/a", "Namespace/b", "Namespace/z"]);
        assert!(findings[0].contains("what it last gave is served: Namespace/a, Namespace/b"), "{findings:?}");
        assert!(findings[1].starts_with("a.yaml:5: error: this is not valid YAML"), "{findings:?}");
        assert_eq!(bed.read().1, findings, "it is said as long as it lasts");

        bed.write("a.yaml", &namespace("c"));
        assert_eq!(bed.read(), (vec!["Namespace/c".into(), "Namespace/z".into()], vec![]));
        fs::remove_file(bed.home.path().join("a.yaml")).unwrap();
        assert_eq!(bed.read(), (vec!["Namespace/z".into()], vec![]));
    }

    #[test]
    fn at_first_sight_a_broken_file_gives_what_can_be_used() {
        let mut bed = Bed::new();
        bed.write("a.yaml", &[namespace("a"), namespace("B")].concat());
        assert_eq!(bed.read().0, ["Namespace/a"]);
        // It never was whole, so there is nothing better to go back to.
        bed.write("a.yaml", &[namespace("c"), namespace("B")].concat());
        assert_eq!(bed.read().0, ["Namespace/c"]);
    }

    #[test]
    fn of_two_objects_of_one_name_the_first_stays_and_both_places_are_named() {
        let mut bed = Bed::new();
        bed.write("b.yaml", &[namespace("x"), namespace("x")].concat());
        bed.write("a.yaml", &namespace("x"));
        let (objects, findings) = bed.read();
        assert_eq!(objects, ["Namespace/x"]);
        let home = format!("{}/", bed.home.path().display());
        let said = |line| {
            format!(
                "b.yaml:{line}: error: Namespace/x is already defined at a.yaml:2, so this one is ignored: rename or remove one"
            )
        };
        let findings: Vec<_> = findings.iter().map(|finding| finding.replace(&home, "")).collect();
        assert_eq!(findings, [said(2), said(6)]);
    }

    /// traps: 28. A Tenant with the uid of another one would have that one's namespace.
    #[test]
    fn no_object_can_pass_for_another() {
        let mut bed = Bed::new();
        let uid = |name: &str, uid: &str| namespace(name).replace("name: ", &format!("uid: {uid}, name: "));
        let first = ObjectRef { api_version: "v1".into(), kind: "Namespace".into(), namespace: None, name: "z".into() };
        bed.write("a.yaml", &[uid("guesses", &stable_uid(&first)), namespace("z")].concat());
        bed.write("b.yaml", &[uid("x", "one"), uid("copies", "one"), uid("other", "two")].concat());
        let (objects, findings) = bed.read();
        assert_eq!(objects, ["Namespace/other", "Namespace/x", "Namespace/z"]);
        assert!(findings[0].contains("Namespace/guesses has the metadata.uid of Namespace/z"), "{findings:?}");
        assert!(findings[1].contains("Namespace/copies has the metadata.uid of Namespace/x"), "{findings:?}");
    }

    #[test]
    fn what_cannot_be_read_keeps_what_it_gave() {
        use std::os::unix::fs::PermissionsExt;
        let mut bed = Bed::new();
        bed.write("a.yaml", &namespace("a"));
        bed.write("sub/b.yaml", &namespace("b"));
        let before = bed.read().0;
        let text = bed.home.path().join("a.yaml");
        fs::write(&text, b"ok: 1\n\xff\n").unwrap();
        let (objects, findings) = bed.read();
        assert_eq!(
            (objects, &*findings[0]),
            (before.clone(), "a.yaml: error: this cannot be read: line 2 is not UTF-8 text")
        );
        fs::set_permissions(bed.home.path().join("sub"), fs::Permissions::from_mode(0o000)).unwrap();
        let (objects, findings) = bed.read();
        fs::set_permissions(bed.home.path().join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(objects, before);
        // Root may read everything.
        assert!(findings.len() == 1 || findings[1].contains("this directory cannot be read"), "{findings:?}");
        fs::File::create(&text).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        assert_eq!(bed.read().0, before);
    }

    #[test]
    fn without_the_directory_nothing_is_known() {
        let error = Directory::new("/nonexistent/manifests").read().unwrap_err();
        assert_eq!(error.to_string(), "failed to read /nonexistent/manifests: name a directory of manifests");
    }
}
