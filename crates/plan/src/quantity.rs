//! Kubernetes quantities, as the API server stores them in lists of resources: rounded up to thousandths, and in the
//! one way in which it writes each value. What is wanted has to be written so, or it would differ from what is there.

/// The largest quantity there is: larger ones are cut to it.
const MOST: u128 = 9_223_372_036_854_775_807;
/// Digits of a number that are told apart.
const MAX_DIGITS: usize = 18;
/// Beyond this many tens or tenths a number is as large or small as can be.
const MAX_EXPONENT: i32 = 60;

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
const NEGATIVE: &str = "must be greater than or equal to 0";

/// How a quantity is written.
#[derive(Clone, Copy)]
enum Notation {
    /// `k`, `M`, …
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`, `e6`, …
    Exponent,
}

/// A quantity that is not negative, as the API server writes it.
///
/// # Errors
/// What the API server would say of a text that is no such quantity.
pub(crate) fn canonical(text: &str) -> Result<String, &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(unsigned.len());
    let (whole, rest) = unsigned.split_at(end);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    if (whole.is_empty() && fraction.is_empty()) || !is_suffix(suffix) {
        return Err(WRONG_FORMAT);
    }
    let (notation, twos, tens) = interpret(suffix).ok_or(WRONG_SUFFIX)?;
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let digits = format!("{whole}{fraction}");
    if digits.len() > MAX_DIGITS {
        return Err(WRONG_NUMBER);
    }
    let number: u128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| WRONG_NUMBER)? };
    if number > 0 && text.starts_with('-') {
        return Err(NEGATIVE);
    }
    let places = i32::try_from(fraction.len()).unwrap_or(MAX_EXPONENT);
    Ok(write(thousandths(number << twos, tens - places), notation))
}

fn is_suffix(text: &str) -> bool {
    let letters = text.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// By how many twos and tens a suffix multiplies.
fn interpret(suffix: &str) -> Option<(Notation, u32, i32)> {
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, tens)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Notation::Decimal, 0, *tens));
    }
    if let Some((_, twos)) = BINARY.iter().zip((10..).step_by(10)).find(|(name, _)| **name == suffix) {
        return Some((Notation::Binary, twos, 0));
    }
    let tens: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Notation::Exponent, 0, tens.clamp(-MAX_EXPONENT, MAX_EXPONENT)))
}

/// `number` times a power of ten, in thousandths and rounded up.
fn thousandths(number: u128, tens: i32) -> u128 {
    let most = MOST * 1000;
    let mut value = number;
    for _ in 0..(tens + 3).max(0) {
        value = value.saturating_mul(10);
    }
    for _ in (tens + 3).min(0)..0 {
        // Rounded up at each step is rounded up once.
        value = value.div_ceil(10);
    }
    value.min(most)
}

fn write(thousandths: u128, notation: Notation) -> String {
    let units = thousandths / 1000;
    let is_whole = thousandths.is_multiple_of(1000);
    match notation {
        _ if thousandths == 0 => "0".to_owned(),
        Notation::Binary if is_whole && units >= 1024 => {
            let (number, power) = reduce(units, 1024);
            format!("{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power])
        }
        Notation::Binary | Notation::Decimal => {
            let (number, power) = reduce(thousandths, 1000);
            format!("{number}{}", ["m", "", "k", "M", "G", "T", "P", "E"][power])
        }
        Notation::Exponent => {
            let (number, power) = reduce(thousandths, 1000);
            format!("{number}{}", ["e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"][power])
        }
    }
}

/// Takes out a factor as often as it is in a number, which is not 0, and says how often. [`MOST`] bounds it: `Ei` and `E`
/// are never exceeded.
fn reduce(mut number: u128, factor: u128) -> (u128, usize) {
    let mut power = 0;
    while number.is_multiple_of(factor) {
        number /= factor;
        power += 1;
    }
    (number, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `resource.Quantity` writes them after `RoundUp(Milli)`, which defaulting does to lists of resources.
    #[test]
    fn quantities_are_written_as_the_api_server_does() {
        for (text, stored) in [
            ("4", "4"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            (".1", "100m"),
            ("100u", "1m"),
            ("1n", "1m"),
            ("8Gi", "8Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Gi", "107374182400m"),
            ("1000Ki", "1000Ki"),
            ("1000000", "1M"),
            ("12345", "12345"),
            ("1e3", "1e3"),
            ("100e1", "1e3"),
            ("1E", "1E"),
            ("5e-1", "500e-3"),
            ("+2", "2"),
            ("-0", "0"),
            ("007", "7"),
            ("1e40", "9223372036854775807e0"),
        ] {
            let stored = stored.strip_suffix("e0").unwrap_or(stored);
            assert_eq!(canonical(text).as_deref(), Ok(stored), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_told_apart() {
        for (text, fault) in [
            ("", WRONG_FORMAT),
            ("lots", WRONG_FORMAT),
            (".", WRONG_FORMAT),
            ("1 Gi", WRONG_FORMAT),
            ("1.2.3", WRONG_FORMAT),
            ("1Zi", WRONG_FORMAT),
            ("4\n", WRONG_FORMAT),
            ("1KK", WRONG_SUFFIX),
            ("1e", WRONG_SUFFIX),
            ("1234567890123456789012", WRONG_NUMBER),
            ("-1", NEGATIVE),
        ] {
            assert_eq!(canonical(text), Err(fault), "{text}");
        }
    }
}
