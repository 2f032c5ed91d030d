//! Durations as Gateway API writes them (GEP-2257).

use std::time::Duration;

/// How many units one duration may have, and how many digits one number.
const MAX_UNITS: usize = 4;
const MAX_DIGITS: usize = 5;

/// Reads `1h30m`, `10s`, `500ms` and the like; `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    for _ in 0..MAX_UNITS {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits).filter(|_| (1..=MAX_DIGITS).contains(&digits))?;
        let number: u64 = number.parse().ok()?;
        let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
        let (unit, millis) = units.into_iter().find(|(unit, _)| after.starts_with(unit))?;
        sum += Duration::from_millis(number * millis);
        rest = &after[unit.len()..];
        if rest.is_empty() {
            return Some(sum);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Origin: GEP-2257, with its examples.
    #[test]
    fn durations_are_those_of_gateway_api() {
        let seconds = |text: &str| parse(text).map(|duration| duration.as_secs_f64());
        assert_eq!(seconds("1h"), Some(3600.0));
        assert_eq!(seconds("1h2m3s4ms"), Some(3723.004));
        assert_eq!(seconds("10s30m1h"), Some(5410.0));
        assert_eq!(seconds("0s"), Some(0.0));
        for text in ["", "1", "1d", "1.5h", "-1h", "1h ", "123456s", "1h1h1h1h1h", "h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
