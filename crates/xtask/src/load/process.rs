//! What a process uses.

use std::fs;

use anyhow::Context;
use serde::Serialize;

/// What the kernel counts in; 100 for every process that asks, whatever it uses itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory in megabytes (10^6 bytes), and time on the processors.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// Resident now.
    pub(crate) resident: f64,
    /// The most that was ever resident.
    pub(crate) peak: f64,
    pub(crate) cpu_seconds: f64,
}

/// What a process uses now.
pub(crate) fn usage(process: u32) -> anyhow::Result<Usage> {
    let read = |file: &str| {
        let path = format!("/proc/{process}/{file}");
        fs::read_to_string(&path).with_context(|| format!("failed to read {path}: has the program ended?"))
    };
    let status = read("status")?;
    let megabytes = |field: &str| -> anyhow::Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_suffix("kB"));
        let kibibytes: f64 = line.with_context(|| format!("no {field} in its status"))?.trim().parse()?;
        Ok(kibibytes * 1024.0 / 1e6)
    };
    Ok(Usage {
        resident: megabytes("VmRSS:")?,
        peak: megabytes("VmHWM:")?,
        cpu_seconds: ticks(&read("stat")?).context("no times in its stat")? / TICKS_PER_SECOND,
    })
}

/// utime and stime, the 14th and 15th field; the second one is a name in parentheses that may have spaces.
fn ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_the_name_whatever_is_in_it() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 3 0 12 1 2";
        assert_eq!(ticks(stat), Some(300.0));
        assert!(usage(std::process::id()).unwrap().resident > 0.1);
    }
}
