use fewshot::train::Evaluation;
use serde_json::{Value, json};

/// Rounded to so many decimal places.
pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

/// Puts the fields of `more` behind those of `object`.
pub(crate) fn join(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

pub(crate) fn evaluated(evaluation: &Evaluation) -> Value {
    json!({
        "accuracy": rounded(evaluation.accuracy, 2),
        "ci95": rounded(evaluation.ci95, 2),
        "eval_episodes_per_s": rounded(evaluation.episodes_per_s, 2),
    })
}

/// Most memory that this process has held, in MB of 1e6 bytes, if known.
pub(crate) fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes = line.trim().strip_suffix(" kB")?.parse::<f64>().ok()?;
    Some(rounded(kibibytes * 1024.0 / 1e6, 1))
}
