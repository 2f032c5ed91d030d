//! How every command ends, for scripts. These numbers are stable.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: everything is as it was asked for.
    Good,
    /// 1: something is refused, not ready, or not reached, or `plan --diff` has found a difference; the output says what.
    Refused,
    /// 2: the command line or a manifest cannot be used, or asks for one socket twice.
    BadInput,
    /// 3: the command cannot do its work here: the state directory is in use, a file cannot be read or written, or the cluster
    /// does not answer or does not let it read.
    Unable,
    /// 4: Portreeve itself is at fault.
    Fault,
    /// 130: stopped at once by a second signal.
    Interrupted,
}

/// For `--help`.
pub const HELP: &str = "\
Exit codes:
  0    everything is as it was asked for
  1    something is refused, not ready, or not reached; of plan --diff: there is a difference
  2    the command line or a manifest cannot be used, or asks for one socket twice
  3    the state directory is in use, a file cannot be read or written, or the cluster does not answer or refuses
  4    Portreeve itself is at fault
  130  stopped at once by a second signal";

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Refused => 1,
            Self::BadInput => 2,
            Self::Unable => 3,
            Self::Fault => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_code() {
        for exit in [Exit::Good, Exit::Refused, Exit::BadInput, Exit::Unable, Exit::Fault, Exit::Interrupted] {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{} ", exit.code()))), "{exit:?}");
        }
    }
}
