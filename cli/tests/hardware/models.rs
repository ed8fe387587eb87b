//! What models take, and what fits where.

use std::fs;

use serde_json::Value;

use super::{command, fewshot, fixture, json, refused, stderr, stdout};

#[test]
fn a_calibration_is_kept_for_the_next_time() {
    let cache = tempfile::tempdir().unwrap();
    let told = || {
        let args = ["--model", "mlp-omniglot", "--device", "flex", "--budget", "8GiB"];
        let mut command = command(&[&["hardware", "estimate"][..], &args].concat());
        let output = command.env("XDG_CACHE_HOME", cache.path()).output().unwrap();
        (stdout(&output), stderr(&output))
    };
    let ((first, measured), (again, nothing)) = (told(), told());
    assert!(measured.contains("measuring how fast flex:0 is"), "{measured}");
    assert_eq!((again, nothing.as_str()), (first, ""));
    let path = cache.path().join("fewshot/calibration.json");
    fs::write(&path, "{").unwrap();
    assert!(told().1.contains("measuring"), "a damaged cache holds nothing");
}

#[test]
fn an_estimate_says_whether_it_fits() {
    let estimate = ["hardware", "estimate", "--model", "conv4-omniglot", "--device", "flex"];
    let with = |more: &[&'static str]| [&estimate[..], more].concat();
    let found = json(&with(&["--json", "--budget", "8GiB", "--tasks", "4"]));
    assert_eq!(found["fits"], true);
    assert!(found["max_tasks"].as_u64().unwrap() >= 4);
    assert!(found["seconds_per_step"].as_f64().unwrap() > 0.0);
    let lines = found["plan"]["lines"].as_array().unwrap();
    let exact = |name: &str| {
        let line = lines.iter().find(|line| line["name"] == name).unwrap();
        assert_eq!(line["source"], "exact", "{line}");
        line["bytes"].as_u64().unwrap()
    };
    // Four blocks of convolution, bias, gain and shift, and running averages beside them.
    let trained = 64 * (9 + 3 * 64 * 9) + 4 * 3 * 64;
    assert_eq!(exact("gradients"), 4 * trained);
    assert_eq!(exact("optimizer state"), 8 * trained);
    assert!(exact("parameters") >= 4 * trained);
    let total = found["total"]["bytes"].as_u64().unwrap();
    assert_eq!(total, lines.iter().map(|line| line["bytes"].as_u64().unwrap()).sum::<u64>());
    let (code, text) = refused(&with(&["--budget", "1MiB", "--tasks", "4"]));
    let wanted = ["4 tasks do not fit 1.00 MiB", "needed): not one fits"];
    assert!(code == 1 && wanted.iter().all(|words| text.contains(words)), "{text}");
    let (code, text) = refused(&["hardware", "estimate", "--model", "conv4-omnigolt"]);
    assert!(code == 2 && text.contains("did you mean \"conv4-omniglot\"?"), "{text}");
    let (code, text) = refused(&with(&["--image", "1x8x8"]));
    assert!(code == 2 && text.contains("images of 1x8x8 are too small"), "{text}");
}

#[test]
fn what_steps_take_can_be_measured_instead() {
    let base = ["hardware", "estimate", "--model", "conv4-omniglot-strided", "--json"];
    let task = ["--device", "flex", "--budget", "8GiB", "--task", "5w1s3q", "--tasks", "5"];
    for method in ["protonet", "maml", "anil"] {
        let args = [&base[..], &task, &["--method", method]].concat();
        let [said, found] = [json(&args), json(&[&args[..], &["--measure"]].concat())];
        assert!(found["total"]["source"]["measured"]["residual_percent"].is_number(), "{found}");
        let bytes = |plan: &Value| plan["total"]["bytes"].as_f64().unwrap();
        let off = bytes(&said) / bytes(&found) - 1.0;
        assert!(off.abs() < 0.4 && bytes(&said) != bytes(&found), "{method}: {said}, {found}");
        assert_eq!(found["fits"], true);
    }
    let path = fixture("8xh200");
    let elsewhere = ["--model", "mlp-omniglot", "--measure", "--inventory", &path];
    let (code, text) = refused(&[&["hardware", "estimate"][..], &elsewhere].concat());
    assert!(code == 2 && text.contains("cannot be used with"), "{text}");
}

#[test]
fn a_tensor_beyond_the_largest_buffer_does_not_fit_whatever_the_memory() {
    let path = fixture("amd_laptop");
    let model = ["hardware", "estimate", "--model", "conv4-mini-imagenet", "--inventory", &path];
    let on = |tasks: &'static str| {
        [&model[..], &["--device", "vulkan:0", "--budget", "9TiB", "--tasks", tasks]].concat()
    };
    let text = stdout(&fewshot(&on("2")));
    assert!(text.contains("largest tensor") && text.contains(" at most"), "{text}");
    let (code, text) = refused(&on("1000"));
    assert!(code == 1 && text.contains("is the most that the device gives one"), "{text}");
    // This device does not tell how much memory is free, so there may be no budget.
    let untold = [&model[..], &["--device", "vulkan:0", "--tasks", "1000"]].concat();
    let (code, text) = refused(&untold);
    assert!(code == 1 && text.contains("is the most that the device gives one"), "{text}");
    let short = [&untold[..], &["--budget", "1GiB"]].concat();
    let (code, text) = refused(&short);
    assert!(code == 1 && text.contains("1000 tasks do not fit 1.00 GiB"), "{text}");
}

#[test]
fn second_order_maml_takes_more_than_the_first_and_the_chain_hardly_grows() {
    let total = |method, steps| {
        let args = ["--method", method, "--inner-steps", steps, "--budget", "64GiB", "--json"];
        let model = ["hardware", "estimate", "--model", "conv4-omniglot", "--device", "cpu"];
        json(&[&model[..], &args].concat())["total"]["bytes"].as_u64().unwrap()
    };
    let [first, one, ten] = [total("fomaml", "1"), total("maml", "1"), total("maml", "10")];
    assert!(first < one && one < ten && ten < 2 * one, "{first} {one} {ten}");
}

#[test]
fn an_estimate_counts_what_is_computed_again() {
    let base = ["hardware", "estimate", "--model", "conv4-omniglot", "--tasks", "8", "--json"];
    let estimate = |device: &[&'static str], kept: &'static str| {
        json(&[&base[..], device, &["--budget", "64GiB", "--grad-checkpoint", kept]].concat())
    };
    let total = |found: &Value| found["total"]["bytes"].as_u64().unwrap();
    let flex = ["--device", "flex"];
    let [none, balanced, segments] =
        ["none", "balanced", "segments"].map(|kept| estimate(&flex, kept));
    assert_eq!(total(&none), total(&balanced), "fused operations keep what they need themselves");
    assert!(2 * total(&segments) < total(&none), "{segments} {none}");
    assert_eq!(segments["checkpointing"], "segments");

    let path = fixture("8xh200");
    let layers = ["--inventory", &path, "--device", "cuda"];
    let args = [&base[..], &layers, &["--budget", "64GiB", "--grad-checkpoint", "balanced"]];
    let unknown = json(&args.concat());
    assert_eq!((&unknown["fits"], &unknown["max_tasks"]), (&Value::Null, &Value::Null));
    assert_eq!(unknown["total"]["source"], "unknown");

    let maml = ["--method", "maml", "--grad-checkpoint", "segments"];
    let (code, text) = refused(&[&base[..], &maml].concat());
    assert!(code == 2 && text.contains("segments is for protonet"), "{text}");
}

#[test]
fn a_plan_counts_what_is_computed_again() {
    let path = fixture("8xh200");
    let base = ["hardware", "plan", "--inventory", &path, "--json", "conv4-mini-imagenet"];
    let placed = |kept| json(&[&base[..], &["--grad-checkpoint", kept]].concat());
    let bytes = |kept| placed(kept)["models"][0]["bytes"].as_u64().unwrap();
    // The most that a task takes on any of the devices. The first of four blocks is the largest by
    // far, so that segments save nothing of one task.
    let estimated = |kept| {
        let on = |device| {
            let model = ["hardware", "estimate", "--model", "conv4-mini-imagenet", "--json"];
            let place = ["--inventory", &path, "--device", device, "--grad-checkpoint", kept];
            json(&[&model[..], &place].concat())["total"]["bytes"].as_u64().unwrap()
        };
        on("cuda").max(on("flex"))
    };
    for kept in ["none", "segments"] {
        assert_eq!(bytes(kept), estimated(kept), "{kept}");
    }
    assert_ne!(bytes("segments"), bytes("none"));
    let (code, text) = refused(&[&base[..], &["--grad-checkpoint", "balanced"]].concat());
    assert!(code == 2 && text.contains("give conv4-mini-imagenet=AMOUNT"), "{text}");
}

#[test]
fn models_are_recommended_by_fit_and_time() {
    let base = ["hardware", "recommend", "--task", "5w1s15q", "--device", "flex", "--json"];
    let found = json(&[&base[..], &["--budget", "8GiB", "--image", "3x84x84"]].concat());
    let ranked = found["ranked"].as_array().unwrap();
    assert_eq!(ranked.len(), 4);
    assert!(ranked.iter().all(|entry| entry["fits"] == true));
    let times = ranked.iter().map(|entry| entry["seconds"].as_f64().unwrap());
    assert!(times.is_sorted());
    let (code, text) = refused(&[&base[..], &["--budget", "10KiB"]].concat());
    assert!(code == 1 && text.contains("10.0 KiB there"), "{text}");
    assert_eq!(fewshot(&["hardware", "recommend", "--task", "5x1"]).status.code(), Some(2));
}

#[test]
fn models_are_laid_on_devices_whole() {
    let path = fixture("8xh200");
    let base = ["hardware", "plan", "--inventory", &path, "--json"];
    let placed = json(&[&base[..], &["a=120GiB", "b=100GiB", "conv4-mini-imagenet"]].concat());
    let models = placed["models"].as_array().unwrap();
    let device =
        |name: &str| models.iter().find(|model| model["name"] == name).unwrap()["device"].clone();
    assert_ne!(device("a"), device("b"));
    assert_ne!(device("a"), "cuda:0", "most of the first is taken");
    let (code, text) = refused(&[&base[..], &["huge=3TiB"]].concat());
    assert!(code == 1 && text.contains("huge needs 3.00 TiB"), "{text}");

    let path = fixture("amd_laptop");
    let laptop = ["hardware", "plan", "--inventory", &path, "--json", "a=3GiB", "--devices"];
    let given = json(&[&laptop[..], &["vulkan:0=4GiB,flex"]].concat());
    assert_eq!(given["models"][0]["device"], "vulkan:0");
    assert_eq!(given["devices"].as_array().unwrap().len(), 2);
    let elsewhere = json(&[&laptop[..], &["vulkan:0=2GiB,flex:0"]].concat());
    assert_eq!(elsewhere["models"][0]["device"], "flex:0");
    for (devices, wanted) in [
        ("vulkan:0", "give vulkan:0=AMOUNT"),
        ("flex,flex:0", "names flex:0 twice"),
        ("flexx", "did you mean \"flex\"?"),
        ("flex=much", "invalid value"),
    ] {
        let (code, text) = refused(&[&laptop[..], &[devices]].concat());
        assert!(code == 2 && text.contains(wanted), "{text}");
    }
}

#[test]
fn the_matrix_is_what_ran() {
    let small = ["--models", "conv4-omniglot-strided,mlp-omniglot", "--devices", "flex,cuda:5"];
    let output = fewshot(&[&["hardware", "matrix", "--json"][..], &small].concat());
    assert_eq!(output.status.code(), Some(1), "a device that was asked for is not there");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["devices"], serde_json::json!(["flex:0", "cuda:5"]));
    for row in found["rows"].as_array().unwrap() {
        let wanted = match row["precision"].as_str().unwrap() {
            "f32" => "ok",
            "tf32" => "no_dtype",
            _ => "slow",
        };
        assert_eq!(row["cells"], serde_json::json!([wanted, "no_device"]), "{row}");
    }
    let path = fixture("m3_max");
    let other = ["--inventory", &path, "--models", "mlp-omniglot", "--markdown"];
    let text = stdout(&fewshot(&[&["hardware", "matrix"][..], &other].concat()));
    assert!(text.contains("| mlp-omniglot | f32 | untested |"), "{text}");
    assert!(text.contains("| mlp-omniglot | bf16 | no dtype |"), "{text}");
}
