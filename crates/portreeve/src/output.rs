//! Output whose reader may have left, as `head` does: that is no fault, and no reason to stop serving.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use anyhow::Context;

/// Writes a line to standard error, if anybody reads it.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes a result to standard output; a reader that has had enough gets no more.
///
/// Fails when it cannot be written for another reason, such as a full disk.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    match write(&mut stdout).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to standard output"),
    }
}
