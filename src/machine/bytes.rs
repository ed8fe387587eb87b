use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes, written `512 B`, `1.5 GiB` and read back from that, `8GiB`, `500 MB` or
/// plain digits. Serialised as the number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Decimal units, which are read and never written.
const DECIMAL: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)];

impl Bytes {
    /// The rest when this share of it stays free.
    pub(crate) fn without(self, share: f64) -> Self {
        Self(self.0.saturating_sub((self.0 as f64 * share).ceil() as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.into_iter().find(|(_, size)| self.0 >= *size);
        let (name, size) = unit.unwrap_or(("B", 1));
        let text = match size {
            1 => format!("{} B", self.0),
            _ => {
                let value = self.0 as f64 / size as f64;
                let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
                format!("{value:.digits$} {name}")
            }
        };
        f.pad(&text)
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no amount of memory; write 8GiB, 512 MiB or bytes");
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..end], trimmed[end..].trim());
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let mut units = UNITS.into_iter().chain(DECIMAL);
        let size = match unit {
            "" => 1,
            unit => units.find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?.1,
        };
        let bytes = value * size as f64;
        // Beyond 2^53 a float no longer counts single bytes; nobody has such a machine.
        if bytes > 9e15 { Err(wrong()) } else { Ok(Self(bytes.round() as u64)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_with_three_digits() {
        let written =
            [0, 512, 1 << 10, 1536 << 20, 80 << 30, 141 << 30].map(|n| Bytes(n).to_string());
        assert_eq!(written, ["0 B", "512 B", "1.00 KiB", "1.50 GiB", "80.0 GiB", "141 GiB"]);
    }

    #[test]
    fn amounts_are_read() {
        let read = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0);
        assert_eq!(read("8GiB"), Ok(8 << 30));
        assert_eq!(read(" 1.5 mib "), Ok(3 << 19));
        assert_eq!(read("500 MB"), Ok(500_000_000));
        assert_eq!(read("4096"), Ok(4096));
        for wrong in ["", "GiB", "-1 GiB", "8 GB/s", "1e3", "1.2.3 MiB", "inf", "99999999 TiB"] {
            assert!(read(wrong).unwrap_err().contains("is no amount of memory"), "{wrong}");
        }
    }
}
