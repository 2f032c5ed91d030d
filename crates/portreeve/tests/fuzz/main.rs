//! Fuzzing without a special compiler: captured inputs are cut, joined, repeated and altered at random, and what reads them
//! must keep its laws.
//!
//! Each target takes a second, or as many as `PORTREEVE_FUZZ_SECONDS` says (`cargo xtask fuzz`), from a seed that it
//! prints (`PORTREEVE_FUZZ_SEED` repeats it). An input that breaks a law is written into the target's corpus, where every
//! later run starts from it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;

/// The seed of runs that do not say another, so that a failure in continuous integration is one here too.
const SEED: u64 = 0x5EED;

#[test]
fn client_hello() {
    fuzz("table/corpus/client_hello", targets::client_hello);
}

#[test]
fn proxy_header() {
    fuzz("table/corpus/proxy_header", targets::proxy_header);
}

#[test]
fn manifest() {
    fuzz("../examples/quickstart", targets::manifest);
}

/// Checks everything in the corpus, then what becomes of it.
fn fuzz(corpus: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(corpus);
    let inputs = read_all(&folder);
    assert!(inputs.len() > 3, "{} has only {} inputs", folder.display(), inputs.len());
    for input in &inputs {
        check(input);
    }
    let seed = number("PORTREEVE_FUZZ_SEED").unwrap_or(SEED);
    let time = Duration::from_secs(number("PORTREEVE_FUZZ_SECONDS").unwrap_or(1));
    let (mut mutator, start, mut rounds) = (Mutator::new(seed), Instant::now(), 0_u64);
    while start.elapsed() < time {
        let input = mutator.next(&inputs);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&input))) {
            let path = keep(&input);
            println!("seed {seed}, round {rounds}: {} breaks a law", path.display());
            resume_unwind(panic);
        }
        rounds += 1;
    }
    println!("{corpus}: {rounds} inputs from seed {seed}");
}

fn read_all(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap()).collect()
}

/// Where it is in nobody's way; what is a fault belongs into the corpus.
fn keep(input: &[u8]) -> PathBuf {
    let name = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let path = std::env::temp_dir().join(format!("found-{name:016x}.bin"));
    std::fs::write(&path, input).unwrap();
    path
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}
