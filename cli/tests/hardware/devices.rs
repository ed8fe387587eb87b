//! The devices there are, and which one is taken.

use std::fs;

use serde_json::Value;

use super::{fewshot, fixture, json, refused, stderr, stdout};

fn key(device: &Value) -> &str {
    device["key"].as_str().unwrap()
}

#[test]
fn devices_are_listed_best_first_with_the_reasons_of_the_others() {
    let list = json(&["hardware", "list", "--json"]);
    let devices = list["devices"].as_array().unwrap();
    let tiers = ["cuda", "rocm", "metal", "gpu", "cpu", "software"];
    let order =
        devices.iter().map(|device| tiers.iter().position(|tier| device["tier"] == *tier).unwrap());
    assert!(order.is_sorted());
    let flex = devices.iter().find(|device| key(device) == "flex:0").unwrap();
    assert_eq!(flex["capabilities"]["dtypes"]["f32"]["arithmetic"], true);
    let memory = |name: &str| flex["memory"][name].as_u64().unwrap();
    assert!(memory("total") >= memory("free") && memory("free") > 0);
    assert_eq!(flex["capabilities"]["plane"], Value::Null);
    assert_eq!(list["selected"], key(&devices[0]));
    for rejection in list["rejected"].as_array().unwrap() {
        assert!(!rejection["reason"].as_str().unwrap().is_empty(), "{rejection}");
    }
    let text = stdout(&fewshot(&["hardware", "list"]));
    assert_eq!(text.matches("<- selected").count(), 1, "{text}");
    assert!(text.starts_with("ID"), "{text}");
}

#[cfg(feature = "wgpu")]
#[test]
fn a_software_renderer_is_listed_as_such() {
    let list = json(&["hardware", "list", "--json"]);
    let devices = list["devices"].as_array().unwrap();
    let software = devices.iter().find(|device| device["class"] == "software");
    let Some(software) = software else {
        // A machine whose wgpu has hardware alone.
        assert!(devices.iter().any(|device| device["tier"] == "gpu" || device["tier"] == "metal"));
        return;
    };
    assert_eq!(software["tier"], "software");
    assert!(software["capabilities"]["largest_buffer"].as_u64() > Some(0));
    let text = stdout(&fewshot(&["hardware", "info", key(software)]));
    assert!(text.contains("plane operations"), "{text}");
}

#[cfg(feature = "wgpu")]
#[test]
fn cubecls_variable_names_the_adapter() {
    let with = |value: &str| {
        let mut command = super::command(&["hardware", "list", "--device", "wgpu"]);
        command.env("CUBECL_WGPU_DEFAULT_DEVICE", value).output().unwrap()
    };
    let wrong = with("toaster");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("\"toaster\" is no adapter"), "{}", stderr(&wrong));
    let absent = with("DiscreteGpu(41)");
    assert!(stderr(&absent).contains("(41)\" is no adapter"), "{}", stderr(&absent));
}

#[test]
fn what_is_asked_for_and_not_there_is_one_clear_error() {
    let (code, text) = refused(&["hardware", "list", "--device", "flix"]);
    assert!(code == 2 && text.contains("did you mean \"flex\"?"), "{text}");
    let (code, text) = refused(&["hardware", "info", "flex:3"]);
    assert!(code == 2 && text.contains("flex has 1 device"), "{text}");
    let (code, text) = refused(&["train", "--backend", "rocm", "--steps", "1"]);
    assert!(code == 2 && text.contains("build it with --features rocm"), "{text}");
    assert!(text.contains("Usable: flex:0") || text.contains(", flex:0"), "{text}");
    let (code, _) = refused(&["train", "--device", "0"]);
    assert_eq!(code, 2);
    let (code, text) = refused(&["hardware", "list", "--inventory", "no/such/file"]);
    assert!(code == 1 && text.contains("inventory no/such/file"), "{text}");
    let (_, text) = refused(&["hardware", "info", "gpuu"]);
    assert!(text.contains("did you mean \"gpu\"?"), "{text}");
}

#[test]
fn a_damaged_inventory_is_one_clear_error() {
    let whole = fs::read_to_string(fixture("8xh200")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let damaged = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let (code, text) = refused(&["hardware", "list", "--inventory", path.to_str().unwrap()]);
        assert_eq!(code, 1, "{text}");
        text
    };
    assert!(damaged("cut", &whole[..whole.len() / 2]).contains("not an inventory"));
    let old = whole.replacen("\"version\": 1", "\"version\": 0", 1);
    assert!(damaged("old", &old).contains("version 0 of the format"));
    let bent = whole.replacen("\"tier\": \"cuda\"", "\"tier\": \"best\"", 1);
    assert!(damaged("bent", &bent).contains("malformed"));
}

#[test]
fn training_tells_what_auto_took() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let args = ["train", "--backend", "auto", "--data", "glyphs", "--steps", "1", "--json"];
    let evaluation = ["--eval-episodes", "2", "--out", out.to_str().unwrap()];
    let output = fewshot(&[&args[..], &evaluation].concat());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let selected = json(&["hardware", "list", "--json"])["selected"].as_str().unwrap().to_owned();
    let told = report["device"].as_str().unwrap();
    assert!(told.starts_with(&selected), "{told}, not {selected}");
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
}

#[test]
fn inventories_of_other_machines_serve_to_plan_for_them() {
    let select = |machine, device| {
        let path = fixture(machine);
        json(&["hardware", "list", "--json", "--inventory", &path, "--device", device])["selected"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(select("8xh200", "auto"), "cuda:0");
    assert_eq!(select("m3_max", "auto"), "metal:0");
    assert_eq!(select("amd_laptop", "cpu"), "flex:0");
    let written = tempfile::NamedTempFile::new().unwrap();
    let list = fewshot(&["hardware", "list", "--json"]);
    fs::write(written.path(), &list.stdout).unwrap();
    let again = ["hardware", "list", "--json", "--inventory", written.path().to_str().unwrap()];
    let [first, again] = [serde_json::from_slice(&list.stdout).unwrap(), json(&again)];
    assert_eq!(first, again, "what list writes, it reads");
}

#[test]
fn a_report_for_bugs_names_versions_features_and_devices() {
    let text = stdout(&fewshot(&["hardware", "doctor"]));
    for part in ["fewshot", "Burn 0.21.0", "features", "flex:0", "instructions"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let report = json(&["hardware", "doctor", "--json"]);
    assert!(report["features"].as_array().unwrap().contains(&"flex".into()));
    assert!(report["inventory"]["devices"].as_array().is_some());
}

#[test]
fn devices_are_measured_and_compared() {
    let found = json(&["hardware", "bench", "--devices", "flex", "--quick", "--json"]);
    let calibration = &found["devices"][0]["calibration"];
    assert!(calibration["products"]["f32"].as_f64().unwrap() > 0.0);
    assert!(calibration["copy"].as_f64().unwrap() > 0.0);
    let only = ["--only", "grad_stats,prototypes", "--quick", "--json"];
    let pair = if cfg!(feature = "ndarray") { "flex,ndarray" } else { "flex,flex" };
    let compared = json(&[&["bench", "--compare", pair][..], &only].concat());
    let rows = compared["rows"].as_array().unwrap();
    assert!(rows.len() >= 2);
    for row in rows {
        let median = |place: usize| row["ms"][place]["median"].as_f64().unwrap();
        let ratio = median(0) / median(1);
        assert!((row["ratio"].as_f64().unwrap() / ratio - 1.0).abs() < 0.01, "{row}");
    }
    let (code, text) = refused(&["bench", "--compare", "flex"]);
    assert!(code == 2 && text.contains("takes two devices"), "{text}");
}
