//! `fewshot bench kernels`

use std::process::Command;

use serde_json::Value;

use super::{SMALL, code, json, stderr};

/// What a bench measured, in JSON and as a table.
fn bench(more: &[&str], kernels: &str) -> (Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(["bench", "kernels", "--quick", "--json"]).args(more);
    let output = command.env("FEWSHOT_KERNELS", kernels).output().unwrap();
    (json(&output), stderr(&output))
}

/// A number above zero, `path` being a JSON pointer.
fn positive(value: &Value, path: &str) -> f64 {
    let number = value.pointer(path).and_then(Value::as_f64);
    let number = number.unwrap_or_else(|| panic!("no number at {path}: {value}"));
    assert!(number.is_finite() && number > 0.0, "{path} is {number}: {value}");
    number
}

#[test]
fn every_operation_is_measured_beside_its_reference_and_the_limits() {
    let (report, table) = bench(&["--threads", "1"], "");
    for name in ["/machine/cores", "/machine/threads"] {
        positive(&report, name);
    }
    assert_eq!(report["machine"]["threads"], 1);
    assert_eq!(report["backend"], "flex");
    assert!(report["machine"]["route"].as_str().unwrap().starts_with("fused"), "{report}");
    for limit in ["products/f32", "copy", "launch"] {
        positive(&report, &format!("/limits/{limit}"));
    }
    let rows = report["rows"].as_array().unwrap();
    for operation in
        ["conv_stack", "conv2d", "batch_norm", "optim_step", "grad_stats", "training_step"]
    {
        assert!(rows.iter().any(|row| row["operation"] == operation), "{operation}: {report}");
        assert!(table.contains(operation), "{table}");
    }
    for row in rows {
        let rate = if row["limit"] == "matmul" { "/gflop_per_s" } else { "/gb_per_s" };
        for number in [rate, "/of_limit", "/speedup"] {
            positive(row, number);
        }
        for times in ["/ms", "/reference_ms"] {
            let steps = ["min", "lower_quartile", "median", "upper_quartile"];
            let times_of = steps.map(|step| positive(row, &format!("{times}/{step}")));
            assert!(times_of.is_sorted(), "{row}");
            assert!(positive(row, &format!("{times}/runs")) >= 2.0);
        }
    }
}

#[test]
fn what_is_measured_can_be_chosen() {
    let (report, _) = bench(&["--only", "training_step", "--no-reference"], "");
    let rows = report["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["operation"], "training_step");
        assert!(row["reference_ms"].is_null() && row["speedup"].is_null(), "{row}");
        positive(row, "/ms/median");
    }
}

#[test]
fn a_report_is_a_table_in_markdown_with_machine_and_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.md");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(["bench", "report", "--quick", "--only", "grad_stats,training_step", "--out"]);
    let output = command.arg(&path).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let text = std::fs::read_to_string(path).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.contains(&format!("fewshot {}", env!("CARGO_PKG_VERSION"))), "{first}");
    let year = first.rsplit("; ").next().unwrap().split('-').next().unwrap();
    assert!(year.parse::<u32>().is_ok_and(|year| year > 2025), "{first}");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
    for operation in ["| `grad_stats` ", "| `training_step` training, batch "] {
        assert!(rows.iter().any(|row| row.starts_with(operation)), "{text}");
    }
    assert!(rows.iter().all(|row| row.matches('|').count() == 8), "{text}");
    assert!(text.contains("```text\n  products in "), "the limits are said: {text}");
}

#[test]
fn the_kernels_that_the_environment_names_are_those_measured() {
    let (portable, _) = bench(&["--only", "conv_stack"], "portable");
    assert_eq!(portable["machine"]["route"], "fused (portable)");
    let (reference, _) = bench(&["--only", "conv_stack"], "reference");
    let route = reference["machine"]["route"].as_str().unwrap();
    assert!(route.starts_with("reference"), "{route}");
    assert!(reference["rows"][0]["reference_ms"].is_null(), "it would be the same twice");
}

#[test]
fn kernels_that_are_not_there_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let train = [&SMALL[..], &[run.to_str().unwrap()]].concat();
    for args in [&["bench", "kernels", "--quick"][..], &train, &["eval", "nowhere"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        let output = command.args(args).env("FEWSHOT_KERNELS", "mmx").output().unwrap();
        let text = stderr(&output);
        assert_eq!(code(&output), Some(2), "{text}");
        assert!(text.starts_with("error: FEWSHOT_KERNELS is mmx") && text.contains("portable"));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(output.stdout.is_empty() && !run.exists());
    }
}
