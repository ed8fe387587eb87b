use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::Bytes;

/// Source of a number, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Counted exactly.
    Exact,
    /// Extrapolated from measurements at other sizes.
    Measured {
        /// Error of the fit at the last measurement, which was held out.
        residual_percent: f64,
    },
    /// Computed by a formula from the shapes of layers, within about 30 %.
    Modelled,
    /// Not known; an amount beside it is a lower bound.
    Unknown,
}

/// An amount of memory, with its provenance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryFigure {
    /// The amount; a lower bound where that is [`Provenance::Unknown`].
    pub bytes: Bytes,
    /// Source of the amount.
    pub source: Provenance,
}

impl MemoryFigure {
    /// A counted amount.
    pub fn exact(bytes: u64) -> Self {
        Self { bytes: Bytes(bytes), source: Provenance::Exact }
    }

    /// An amount by a formula.
    pub fn modelled(bytes: u64) -> Self {
        Self { bytes: Bytes(bytes), source: Provenance::Modelled }
    }

    /// `count` times the amount.
    pub fn times(self, count: u64) -> Self {
        Self { bytes: Bytes(self.bytes.0.saturating_mul(count)), ..self }
    }

    /// True if it is at most `budget`; `None` if that is not known.
    pub fn fits(self, budget: Bytes) -> Option<bool> {
        match self.source {
            _ if self.bytes > budget => Some(false),
            Provenance::Unknown => None,
            _ => Some(true),
        }
    }
}

/// The sum has the less reliable provenance of the two; zero bytes that are known leave it as it is.
impl Add for MemoryFigure {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let source = if self.source < other.source { other.source } else { self.source };
        Self { bytes: Bytes(self.bytes.0.saturating_add(other.bytes.0)), source }
    }
}

impl Sum for MemoryFigure {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::exact(0), Self::add)
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Measured { residual_percent } => {
                write!(f, "measured (residual {residual_percent:.1} %)")
            }
            Self::Modelled => f.write_str("modelled, about 30 %"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for MemoryFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { bytes: Bytes(0), source: Provenance::Unknown } => f.write_str("unknown"),
            Self { bytes, source: Provenance::Unknown } => write!(f, "at least {bytes}"),
            Self { bytes, source } => write!(f, "{bytes} {source}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(bytes: u64, residual_percent: f64) -> MemoryFigure {
        MemoryFigure { bytes: Bytes(bytes), source: Provenance::Measured { residual_percent } }
    }

    const UNKNOWN: MemoryFigure = MemoryFigure { bytes: Bytes(0), source: Provenance::Unknown };

    #[test]
    fn a_sum_is_as_sure_as_its_least_sure_part() {
        let [exact, modelled] = [MemoryFigure::exact(1), MemoryFigure::modelled(2)];
        assert_eq!(exact + modelled, MemoryFigure::modelled(3));
        assert_eq!(modelled + exact, MemoryFigure::modelled(3));
        assert_eq!(measured(4, 3.0) + measured(5, 1.0), measured(9, 3.0));
        assert_eq!([exact, modelled, UNKNOWN].into_iter().sum::<MemoryFigure>().bytes.0, 3);
        assert_eq!((modelled + UNKNOWN).source, Provenance::Unknown);
        assert_eq!([exact; 3].into_iter().sum::<MemoryFigure>(), MemoryFigure::exact(3));
    }

    #[test]
    fn what_is_not_known_neither_fits_nor_does_not() {
        let budget = Bytes(10);
        assert_eq!(MemoryFigure::exact(10).fits(budget), Some(true));
        assert_eq!(measured(11, 1.0).fits(budget), Some(false));
        assert_eq!((MemoryFigure::exact(10) + UNKNOWN).fits(budget), None);
        assert_eq!((MemoryFigure::exact(11) + UNKNOWN).fits(budget), Some(false));
    }

    #[test]
    fn amounts_are_written_with_their_source() {
        assert_eq!(MemoryFigure::exact(1536).to_string(), "1.50 KiB exact");
        assert_eq!(measured(1536, 2.96).to_string(), "1.50 KiB measured (residual 3.0 %)");
        assert_eq!(UNKNOWN.to_string(), "unknown");
        assert_eq!((MemoryFigure::exact(7) + UNKNOWN).to_string(), "at least 7 B");
    }
}
