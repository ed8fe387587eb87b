//! Episodes of various sizes, and lists of episodes.

use std::fs;

use serde_json::Value;

use super::{code, complaint, fewshot, image_folder, json, small, stderr, untimed};

#[test]
fn a_test_on_a_list_is_the_test_that_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = folder.path().join("run");
    let report = json(&small(&run, &["--steps", "2"]));
    for name in ["list.jsonl", "list.csv"] {
        let list = path(name);
        let write = ["data", "episodes", "glyphs", "--to", &list, "--episodes", "20"];
        let output = fewshot(&[&write[..], &["--queries", "5"]].concat());
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("20 episodes (5-way 1-shot 5-query) of glyphs, in "), "{text}");
        let again = json(&fewshot(&["eval", &path("run"), "--episodes", &list, "--json"]));
        assert_eq!([&again["accuracy"], &again["ci95"]], [&report["accuracy"], &report["ci95"]]);
        assert_eq!((&again["seed"], &report["seed"]), (&Value::Null, &1.into()));
        let protocol = &again["protocol"];
        assert_eq!((&protocol["ways"], &protocol["episodes"]), (&5.into(), &20.into()));
        assert_eq!((&protocol["list"], &protocol["sampling"]), (&list.into(), &"fixed".into()));
    }
    let trained = ["--steps", "2", "--episodes", &path("list.csv")];
    let trained = json(&small(&folder.path().join("again"), &trained));
    assert_eq!([&trained["accuracy"], &trained["ci95"]], [&report["accuracy"], &report["ci95"]]);
    let sizes = ["eval", &path("run"), "--episodes", &path("list.csv"), "--shots", "5"];
    let output = fewshot(&sizes);
    assert_eq!(code(&output), Some(2));
    let text = stderr(&output);
    assert!(text.ends_with("--shots is not for --episodes FILE, which has all of the episodes\n"));
}

#[test]
fn a_list_names_pictures_by_their_files_and_what_is_not_there_by_its_line() {
    let images = image_folder(12, 6);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let data = format!("folder:{}", images.path().display());
    let run = ["--data", &data, "--image-size", "16", "--train-ways", "3", "--ways", "2"];
    json(&small(
        &folder.path().join("run"),
        &[&run[..], &["--steps", "1", "--queries", "2"]].concat(),
    ));
    let list = path("list.csv");
    let write = ["data", "episodes", &data, "--to", &list, "--episodes", "3", "--ways", "2"];
    let output = fewshot(&[&write[..], &["--queries", "2"]].concat());
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let rows = fs::read_to_string(&list).unwrap();
    assert!(rows.lines().nth(1).unwrap().ends_with(".png,support"), "{rows}");
    assert_eq!(rows.lines().count(), 1 + 3 * 2 * 3);
    let eval = |name: &str| fewshot(&["eval", &path("run"), "--episodes", &path(name), "--json"]);
    json(&eval("list.csv"));
    let first = rows.lines().nth(1).unwrap();
    let class = first.split(',').nth(1).unwrap();
    let broken = |name: &str, of: String, reason: &str| {
        fs::write(path(name), of).unwrap();
        let line = complaint(&eval(name));
        assert!(line.ends_with(&format!("{name}: {reason}")), "{line}");
    };
    let renamed = rows.replacen(&format!(",{class},"), ",unicorn,", 1);
    broken("class.csv", renamed, "line 2: there is no class \"unicorn\" among 2");
    let reason = format!("line 2: class \"{class}\" has no picture \"9.png\"");
    broken("picture.csv", rows.replacen(first, &format!("0,{class},9.png,support"), 1), &reason);
    let picture = first.split(',').nth(2).unwrap();
    let reason =
        format!("line 3: picture \"{picture}\" of class \"{class}\" is twice in the episode");
    broken("twice.csv", rows.replacen(first, &format!("{first}\n{first}"), 1), &reason);
    broken("empty.jsonl", String::new(), "there is no episode in it");
    assert!(complaint(&eval("nowhere.csv")).contains("nowhere.csv: cannot be read: "));
}

#[test]
fn episodes_of_various_sizes_train_and_test() {
    let images = image_folder(30, 8);
    let folder = tempfile::tempdir().unwrap();
    let data = format!("folder:{}", images.path().display());
    let train = |name: &str, steps: &str, more: &[&str]| {
        let run = folder.path().join(name).display().to_string();
        let args = [
            &["train", "--protocol", "varied", "--data", &data, "--image-size", "16", "--grey"][..],
            &["--meta-batch", "2", "--steps", steps, "--validate-every", "2", "--json"],
            &["--validation-episodes", "3", "--eval-episodes", "6", "--checkpoint-every", "1"],
            &["--out", &run],
            more,
        ];
        json(&fewshot(&args.concat()))
    };
    let report = train("run", "4", &[]);
    let protocol = &report["protocol"];
    for sizes in [protocol, &protocol["train"]] {
        assert_eq!((&sizes["sampling"], &sizes["ways"]), (&"varied".into(), &Value::Null));
    }
    let path = folder.path().join("run").display().to_string();
    let eval = |more: &[&str]| {
        json(&fewshot(&[&["eval", &path, "--episodes", "6", "--json"], more].concat()))
    };
    let again = eval(&[]);
    assert_eq!([&again["accuracy"], &again["ci95"]], [&report["accuracy"], &report["ci95"]]);
    let fixed = eval(&["--ways", "3", "--queries", "2"]);
    assert_eq!(fixed["protocol"]["ways"], 3);
    assert_eq!(eval(&["--method", "r2d2"])["protocol"]["sampling"], "varied");
    let listed = folder.path().join("list.jsonl").display().to_string();
    let write = ["data", "episodes", &data, "--to", &listed, "--protocol", "varied"];
    assert_eq!(code(&fewshot(&[&write[..], &["--episodes", "6"]].concat())), Some(0));
    let tested = json(&fewshot(&["eval", &path, "--episodes", &listed, "--json"]));
    assert_eq!([&tested["accuracy"], &tested["ci95"]], [&report["accuracy"], &report["ci95"]]);
    assert_eq!(tested["protocol"]["sampling"], "listed");

    train("parts", "2", &[]);
    train("parts", "4", &["--resume"]);
    assert_eq!(untimed(&folder.path().join("parts")), untimed(&folder.path().join("run")));
}

#[test]
fn proto_maml_learns_tasks_of_various_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let train = format!(
        "train --method proto-maml --order first --protocol varied --data glyphs --meta-batch 2 --steps 2 \
         --validation-episodes 2 --eval-episodes 3 --json --out {run}"
    );
    let report = json(&fewshot(&train.split(' ').collect::<Vec<_>>()));
    assert_eq!(report["protocol"]["train"]["sampling"], "varied");
    let eval = |more: &str| {
        let args = format!("eval {run} --episodes 3 --json{more}");
        fewshot(&args.split(' ').collect::<Vec<_>>())
    };
    assert_eq!(json(&eval(""))["accuracy"], report["accuracy"]);
    let fixed = " --protocol fixed --shots 1 --queries 1 --ways ";
    assert_eq!(json(&eval(&format!("{fixed}3")))["protocol"]["ways"], 3);
    let refused = eval(&format!("{fixed}51"));
    assert_eq!(code(&refused), Some(2));
    assert!(stderr(&refused).contains("too few for a task of 51 classes"));
}

#[test]
fn a_network_with_outputs_takes_lists_of_its_ways_alone() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.csv").display().to_string();
    let write = ["data", "episodes", "glyphs", "--to", &list, "--episodes", "2", "--ways", "3"];
    assert_eq!(code(&fewshot(&write)), Some(0));
    let run = folder.path().join("run").display().to_string();
    let output = fewshot(&["train", "--method", "maml", "--episodes", &list, "--out", &run]);
    assert_eq!(code(&output), Some(2));
    let line = stderr(&output).lines().last().unwrap().to_owned();
    let expected =
        "error: maml has an output for each of 5 classes, and episode 1 of the list has 3: ";
    assert!(line.starts_with(expected), "{line}");
    assert!(!folder.path().join("run").exists());
}
