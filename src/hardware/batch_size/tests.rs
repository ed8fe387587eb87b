use super::*;

/// Nothing of it is to stay free.
fn all(bytes: u64) -> SearchBudget {
    SearchBudget { bytes: Bytes(bytes), keep_free: 0.0 }
}

/// Searches where a size takes `bytes` of it, and checks what is always so.
fn found(
    range: RangeInclusive<usize>,
    budget: u64,
    bytes: impl Fn(u64) -> u64,
) -> Result<SearchReport, HardwareError> {
    let last = *range.end();
    let report = find_batch_size(range, all(budget), |size| Ok(Bytes(bytes(size as u64))))?;
    let peak = |size| report.trials.iter().find(|trial| trial.size == size).and_then(|t| t.peak);
    assert_eq!(peak(report.chosen), Some(report.peak), "the chosen size was run");
    assert!(report.peak.0 <= budget);
    if report.chosen < last {
        assert!(peak(report.chosen + 1).expect("the next size was run").0 > budget);
    }
    let mut sizes: Vec<_> = report.trials.iter().map(|trial| trial.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes.len(), report.trials.len(), "a size was run twice: {report:?}");
    Ok(report)
}

#[test]
fn a_line_is_followed_in_a_few_runs() {
    for (fixed, each) in [(0, 30), (1000, 30), (9_000_000, 1), (5, 12_345)] {
        let report = found(1..=1_000_000, 10_000_000, |n| fixed + each * n).unwrap();
        let wanted = ((10_000_000 - fixed) / each).min(1_000_000) as usize;
        assert_eq!(report.chosen, wanted);
        assert!(report.trials.len() <= 10, "{fixed} + {each} n: {report:?}");
    }
    let report = found(1..=64, 1000, |n| 300 + 70 * n).unwrap();
    assert_eq!(report.chosen, 10);
    assert!(report.trials.len() <= 5, "{report:?}");
}

#[test]
fn every_budget_gives_the_largest_size_that_fits() {
    let shapes: [fn(u64) -> u64; 6] = [
        |n| 10 * n,
        |n| 500 + 3 * n,
        |n| n * n,
        // In steps, as lanes and pages are.
        |n| 100 * n.div_ceil(8),
        // A trap: flat where it is cheap, steep behind.
        |n| if n < 20 { 50 + n } else { 200 * n },
        // Steep where it is cheap, flat behind.
        |n| 300 * n.min(3) + n,
    ];
    for shape in shapes {
        for budget in (shape(1)..shape(1) + 5000).step_by(37) {
            let report = found(1..=100, budget, shape).unwrap();
            let wanted = (1..=100).filter(|&n| shape(n) <= budget).max().unwrap();
            assert_eq!(report.chosen as u64, wanted, "budget {budget}: {report:?}");
            assert!(report.trials.len() <= 20, "budget {budget}: {report:?}");
        }
    }
}

#[test]
fn where_all_fit_the_last_is_run() {
    let report = found(1..=1000, 1 << 40, |n| 64 * n).unwrap();
    assert_eq!(report.chosen, 1000);
    let flat = found(3..=1000, 500, |_| 500).unwrap();
    assert_eq!(flat.chosen, 1000);
    assert_eq!(found(7..=7, 500, |n| n).unwrap().chosen, 7);
}

#[test]
fn where_none_fits_the_numbers_are_told() {
    let error = found(4..=100, 1000, |n| 300 * n).unwrap_err();
    let wanted =
        HardwareError::DoesNotFit { size: 4, need: Some(Bytes(1200)), budget: Bytes(1000) };
    assert_eq!(error, wanted);
    assert_eq!(error.to_string(), "a size of 4 does not fit 1000 B (1.17 KiB needed)");
}

fn out_of_memory() -> HardwareError {
    HardwareError::OutOfMemory {
        device: "cuda:0".to_owned(),
        request: Some(Bytes(9)),
        in_use: None,
        free: None,
        reason: "no".to_owned(),
    }
}

#[test]
fn a_device_that_runs_out_of_memory_ends_no_search() {
    let trial = |size: usize| match size {
        0..=41 => Ok(Bytes(10 * size as u64)),
        _ => Err(out_of_memory()),
    };
    let report = find_batch_size(1..=1000, all(5000), trial).unwrap();
    assert_eq!(report.chosen, 41);
    assert!(report.trials.iter().any(|trial| trial.peak.is_none()));
    let none = find_batch_size(1..=1000, all(5000), |_| Err(out_of_memory())).unwrap_err();
    assert_eq!(none, HardwareError::DoesNotFit { size: 1, need: None, budget: Bytes(5000) });
}

#[test]
fn other_failures_end_it() {
    let failed = || HardwareError::Failed { device: "x".to_owned(), reason: "y".to_owned() };
    let trial = |size: usize| match size {
        1 => Ok(Bytes(1)),
        _ => Err(failed()),
    };
    assert_eq!(find_batch_size(1..=9, all(5), trial), Err(failed()));
}

#[test]
fn ranges_without_sizes_are_refused() {
    for (first, last) in [(0, 5), (5, 4)] {
        let error = found(first..=last, 10, |n| n).unwrap_err();
        assert!(matches!(error, HardwareError::Config { field: "range", .. }), "{error}");
    }
}

#[test]
fn what_is_to_stay_free_is_not_taken() {
    let found = |keep_free| {
        let budget = SearchBudget { bytes: Bytes(1000), keep_free };
        let trial = |size: usize| Ok(Bytes(10 * size as u64));
        find_batch_size(1..=1000, budget, trial)
    };
    for (keep_free, chosen) in [(0.0, 100), (0.05, 95), (0.25, 75), (0.5, 50)] {
        let report = found(keep_free).unwrap();
        assert_eq!(report.chosen, chosen, "{report:?}");
    }
    for keep_free in [-0.1, 1.0, f64::NAN] {
        let error = found(keep_free).unwrap_err();
        assert!(matches!(error, HardwareError::Config { field: "keep_free", .. }), "{error}");
    }
    let trial = |size: usize| Ok(Bytes(10 * size as u64));
    assert_eq!(find_batch_size(1..=1000, Bytes(1000), trial).unwrap().chosen, 95);
}
