use serde::{Deserialize, Serialize};

use super::{Bytes, HardwareError, MemoryFigure, Provenance};

/// Memory of some work by its size, `fixed + each * n`, measured at two sizes and checked at a
/// third.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryFit {
    /// Bytes whatever the size; below zero where small sizes take less than their share.
    pub fixed: f64,
    /// Bytes for each more of the size.
    pub each: f64,
    /// Distance of the third measurement from the line, in percent of that measurement.
    pub residual_percent: f64,
    /// The sizes that were measured; the last one was not used for the fit.
    pub sizes: [usize; 3],
}

impl MemoryFit {
    /// Runs the work at the first two sizes, draws the line through what they take, and runs it at
    /// the third.
    ///
    /// # Errors
    /// [`HardwareError::Config`] for sizes that are not in rising order, and whatever `run` returns.
    pub fn measure(
        sizes: [usize; 3],
        mut run: impl FnMut(usize) -> Result<Bytes, HardwareError>,
    ) -> Result<Self, HardwareError> {
        let [first, second, third] = sizes;
        if !(0 < first && first < second && second < third) {
            let reason = format!("a line needs three in rising order from 1 on, got {sizes:?}");
            return Err(HardwareError::config("sizes", reason));
        }
        let line = Line::through((first, run(first)?), (second, run(second)?));
        let measured = run(third)?.0 as f64;
        let residual = (line.at(third) - measured).abs();
        let residual_percent = if residual == 0.0 { 0.0 } else { 100.0 * residual / measured };
        Ok(Self { fixed: line.fixed, each: line.each, residual_percent, sizes })
    }

    fn line(&self) -> Line {
        Line { fixed: self.fixed, each: self.each }
    }

    /// Memory of a size.
    pub fn at(&self, size: usize) -> MemoryFigure {
        let source = Provenance::Measured { residual_percent: self.residual_percent };
        MemoryFigure { bytes: Bytes(self.line().at(size).round().max(0.0) as u64), source }
    }
}

/// A straight line from sizes to bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    fixed: f64,
    each: f64,
}

impl Line {
    pub(super) fn through(one: (usize, Bytes), other: (usize, Bytes)) -> Self {
        let (n, m) = (one.0 as f64, other.0 as f64);
        let (low, high) = (one.1.0 as f64, other.1.0 as f64);
        let each = (high - low) / (m - n);
        Self { fixed: low - each * n, each }
    }

    fn at(self, size: usize) -> f64 {
        self.fixed + self.each * size as f64
    }

    /// The largest size within `budget`, 0 for none; `None` where the line does not rise.
    pub(super) fn largest(self, budget: Bytes) -> Option<usize> {
        let size = (budget.0 as f64 - self.fixed) / self.each;
        (self.each > 0.0).then(|| size.floor().max(0.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: impl Fn(u64) -> u64) -> impl FnMut(usize) -> Result<Bytes, HardwareError> {
        move |size| Ok(Bytes(bytes(size as u64)))
    }

    #[test]
    fn a_line_is_found_and_has_no_residual() {
        let fit = MemoryFit::measure([1, 2, 4], run(|n| 100 + 7 * n)).unwrap();
        assert_eq!((fit.fixed, fit.each, fit.residual_percent), (100.0, 7.0, 0.0));
        let source = Provenance::Measured { residual_percent: 0.0 };
        assert_eq!(fit.at(10), MemoryFigure { bytes: Bytes(170), source });
        let largest = |budget| fit.line().largest(Bytes(budget));
        assert_eq!([170, 169, 106].map(largest), [Some(10), Some(9), Some(0)]);
    }

    #[test]
    fn what_is_no_line_shows_in_the_residual() {
        let fit = MemoryFit::measure([1, 2, 4], run(|n| 100 * n * n)).unwrap();
        // 100 and 400 lead to 1000, where 1600 are.
        assert_eq!(fit.residual_percent, 37.5);
        assert_eq!(fit.at(1).source, Provenance::Measured { residual_percent: 37.5 });
        let flat = MemoryFit::measure([1, 2, 4], run(|_| 100)).unwrap();
        assert_eq!((flat.at(1000).bytes, flat.line().largest(Bytes(200))), (Bytes(100), None));
    }

    #[test]
    fn sizes_that_do_not_rise_are_refused() {
        for sizes in [[0, 1, 2], [1, 1, 2], [1, 3, 2]] {
            let fit = MemoryFit::measure(sizes, run(|n| n));
            assert!(matches!(fit, Err(HardwareError::Config { field: "sizes", .. })), "{fit:?}");
        }
    }
}
