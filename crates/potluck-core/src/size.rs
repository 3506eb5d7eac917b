//! Sizes and counts as people write and read them.

/// The units by their names in lower case. A bare letter is binary, as `dd` and `truncate` take it.
const UNITS: [(&str, u64); 17] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
];

const IEC: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// The error of a text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSize {
    /// There is no number where one must stand.
    #[error("“{0}” is not a size: write a number and a unit, such as 200GiB, 1.5TB or 4096")]
    NoNumber(String),
    /// The unit is not known.
    #[error(
        "“{unit}” in “{text}” is not a unit: use KiB MiB GiB TiB PiB (×1024) or KB MB GB TB PB (×1000)"
    )]
    NoUnit {
        /// The text that was given.
        text: String,
        /// The part that should be a unit.
        unit: String,
    },
    /// There are more bytes than can be counted.
    #[error("“{0}” is too large: at most 16 EiB can be counted")]
    TooLarge(String),
}

/// Reads a size in bytes: `123`, `4MiB`, `1.5 TB`. Units are read in either case; a fraction of a
/// byte is dropped.
pub fn parse_size(text: &str) -> Result<u64, BadSize> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim_start());
    let no_number = || BadSize::NoNumber(text.into());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || fraction.contains('.')
        || (number.len() > whole.len() && fraction.is_empty())
    {
        return Err(no_number());
    }
    let factor = UNITS
        .iter()
        .find(|(name, _)| unit.eq_ignore_ascii_case(name))
        .map(|(_, factor)| *factor)
        .ok_or_else(|| BadSize::NoUnit { text: text.into(), unit: unit.into() })?;
    whole
        .parse::<u64>()
        .ok()
        .and_then(|whole| whole.checked_mul(factor))
        .and_then(|bytes| bytes.checked_add(part(fraction, factor)))
        .ok_or_else(|| BadSize::TooLarge(text.into()))
}

/// Returns the bytes that the decimals `0.fraction` of a unit of `factor` bytes stand for. Digits past the 18th, which
/// stand for less than a byte, are ignored.
fn part(fraction: &str, factor: u64) -> u64 {
    let digits = &fraction[..fraction.len().min(18)];
    let value = digits.parse::<u128>().unwrap_or(0) * u128::from(factor);
    (value / 10_u128.pow(digits.len() as u32)) as u64
}

/// Writes a size for people, such as `1.5 GiB`: binary units, one decimal, bytes whole.
pub fn format_size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    // 1023.95 and more would print as 1024.0 of the smaller unit.
    while value >= 1023.95 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", IEC[unit])
}

/// Writes a size that reads back as the same number of bytes: `50GiB`, or `1234` when no unit divides it.
pub fn exact_size(bytes: u64) -> String {
    let unit = if bytes == 0 { 0 } else { (bytes.trailing_zeros() / 10).min(5) };
    let name = if unit == 0 { "" } else { IEC[unit as usize] };
    format!("{}{name}", bytes >> (10 * unit))
}

/// Writes a number with its noun: `1 file`, `2 files`; `1 directory`, `2 directories`.
pub fn count(number: u64, one: &str) -> String {
    if number == 1 {
        return format!("{number} {one}");
    }
    match one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {one}s"),
    }
}

/// Writes seconds as people say them: the coarser, the longer, and rounded, so that an absence of three days is still
/// called so when a second of it is over.
pub fn duration(seconds: u64) -> String {
    let (minute, hour, day) = (60, 3_600, 86_400);
    let two = |large: u64, name: &str, small: u64, less: &str| {
        let seconds = (seconds + small / 2) / small * small;
        let (whole, rest) = (seconds / large, seconds % large / small);
        match (whole, rest) {
            (0, rest) => format!("{rest}{less}"),
            (whole, 0) => format!("{whole}{name}"),
            (whole, rest) => format!("{whole}{name} {rest}{less}"),
        }
    };
    match seconds {
        0..120 => two(minute, "m", 1, "s"),
        120..7_200 => two(hour, "h", minute, "m"),
        7_200..172_800 => two(day, "d", hour, "h"),
        _ => format!("{}d", (seconds + day / 2) / day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_coarse_as_they_are_long() {
        assert_eq!(duration(0), "0s");
        assert_eq!(duration(95), "1m 35s");
        assert_eq!(duration(3_725), "1h 2m");
        assert_eq!(duration(100_000), "1d 4h");
        for (said, seconds) in [("2h", 7_200), ("1d", 86_400), ("2d", 172_800), ("3d", 259_200)] {
            assert_eq!((duration(seconds), duration(seconds - 1)), (said.into(), said.into()));
        }
        assert_eq!(duration(3 * 86_400 + 7_000), "3d");
        assert_eq!(duration(86_400), "1d");
        assert_eq!(duration(400 * 86_400), "400d");
    }
}
