//! `fewshot serve`: the JSON interface.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use burn::backend::Flex;
use fewshot::adapted::{AdaptedModel, PretrainedBackbone, TrainedNetwork, UnfittedModel};
use fewshot::data::{Features, Picture};
use fewshot::models::Conv4Config;
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::adapt_run::adapted_run;
use super::embeddings::of_embeddings;
use super::pictures::{BLUE, GREEN, RED, adapted, draw, huge, text};
use super::{code, fewshot, stderr};

/// A server, which ends with the test.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn start(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
        command.arg("serve").args(words).args(["--port", "0"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, url) = line.trim().split_once(" at ").expect("where it is");
        Self { url: url.to_owned(), child }
    }

    pub fn post(&self, path: &str, body: &[u8]) -> (u16, Value) {
        answer(agent().post(format!("{}{path}", self.url)).send(body).unwrap())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        answer(agent().get(format!("{}{path}", self.url)).call().unwrap())
    }

    fn status(&self, path: &str) -> u16 {
        agent().get(format!("{}{path}", self.url)).call().unwrap().status().as_u16()
    }

    fn delete(&self, path: &str) -> (u16, Value) {
        answer(agent().delete(format!("{}{path}", self.url)).call().unwrap())
    }
}

pub fn agent() -> Agent {
    Agent::config_builder().http_status_as_error(false).build().into()
}

/// The status and the JSON of an answer, or its text.
pub fn answer(mut response: Response<Body>) -> (u16, Value) {
    let text = response.body_mut().read_to_string().unwrap();
    let found = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (response.status().as_u16(), found)
}

/// The content of a picture of about this colour that is no example.
pub fn photo(folder: &Path, colour: [u8; 3]) -> (PathBuf, Vec<u8>) {
    numbered(folder, colour, 4)
}

/// The content of the picture of this number of about this colour; those from 4 on are no examples.
fn numbered(folder: &Path, colour: [u8; 3], number: u32) -> (PathBuf, Vec<u8>) {
    let folder = folder.join(format!("photos/{}-{}", colour[0], colour[2]));
    draw(&folder, colour, number + 1);
    let file = folder.join(format!("{number}.png"));
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

fn classes(model: &Value) -> Vec<(&str, usize)> {
    let of = |class: &'_ Value| class["examples"].as_array().unwrap().len();
    let all = model["classes"].as_array().unwrap();
    all.iter().map(|class| (class["class"].as_str().unwrap(), of(class))).collect()
}

#[test]
fn classes_are_taught_and_pictures_classified() {
    let (folder, model) = adapted();
    let server = Server::start(&[text(&model)]);
    let (status, found) = server.get("/v1/model");
    assert_eq!((status, classes(&found)), (200, vec![("green", 4), ("red", 3)]));
    assert_eq!((&found["method"], &found["left_out"]), (&json!("simpleshot"), &json!(7)));

    let (file, green) = photo(folder.path(), GREEN);
    let (status, found) = server.post("/v1/predict?top=2", &green);
    let library = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    let prediction = &library.predict(&[Picture::open(file).unwrap()]).unwrap()[0];
    assert_eq!((status, &found["class"]), (200, &json!("green")));
    let probability = found["classes"][0]["probability"].as_f64().unwrap();
    assert!((probability - prediction.probability()).abs() < 1e-3, "{found}");
    assert_eq!(found["nearest"].as_array().unwrap().len(), 3);
    assert_eq!(found["nearest"][0]["class"], "green");
    assert_eq!(server.post("/v1/predict?unknown=1", &green).1["class"], Value::Null);

    let (_, blue) = photo(folder.path(), BLUE);
    let (_, other) = numbered(folder.path(), BLUE, 5);
    for (number, picture) in [(7, &blue), (8, &other)] {
        let added = server.post("/v1/classes/sky%20blue/examples", picture);
        assert_eq!(added, (201, json!({ "example": number })));
        // An equal file adds nothing.
        let again = server.post("/v1/classes/sky%20blue/examples", picture);
        assert_eq!(again, (200, json!({ "example": number, "already_there": true })));
    }
    let (_, found) = server.post("/v1/predict", &blue);
    assert_eq!(
        (&found["class"], &found["nearest"][0]["class"]),
        (&json!("sky blue"), &json!("sky blue"))
    );
    // What is told is what is written.
    let names = || AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap().class_names();
    assert_eq!(names(), ["green", "red", "sky blue"]);
    let (_, found) = server.get("/v1/model");
    assert_eq!(classes(&found), [("green", 4), ("red", 3), ("sky blue", 2)]);
    let thumbnail = agent().get(format!("{}/v1/examples/7/picture", server.url)).call().unwrap();
    let thumbnail = thumbnail.into_body().read_to_vec().unwrap();
    assert_eq!(Picture::decode(&thumbnail, "thumbnail").unwrap().size(), [96, 96]);
    let served = agent().get(format!("{}/v1/model/file", server.url)).call().unwrap();
    assert_eq!(served.into_body().read_to_vec().unwrap(), fs::read(&model).unwrap());

    let (status, found) = server.delete("/v1/examples/8");
    assert_eq!((status, classes(&found)[2]), (200, ("sky blue", 1)));
    let (status, found) = server.delete("/v1/classes/sky%20blue");
    assert_eq!((status, classes(&found)), (200, vec![("green", 4), ("red", 3)]));
    assert_eq!(names(), ["green", "red"]);
    assert_eq!(server.get("/v1/examples/7/picture").0, 404);
}

#[test]
fn a_new_model_begins_without_a_class() {
    let (folder, _) = adapted();
    let (weights, file) =
        (folder.path().join("lite0.safetensors"), folder.path().join("new.fewshot"));
    let backbone = format!("efficientnet-lite0:{}", text(&weights));
    let server = Server::start(&[text(&file), "--backbone", &backbone, "--method", "prototypes"]);
    let (_, red) = photo(folder.path(), RED);
    let (_, green) = photo(folder.path(), GREEN);
    assert_eq!(server.get("/v1/model").1["classes"], json!([]));
    assert_eq!(server.post("/v1/predict", &red).0, 409);
    assert_eq!(server.get("/v1/model/file").0, 409);
    assert_eq!(server.post("/v1/classes/red/examples", &red).0, 201);
    let (status, why) = server.post("/v1/predict", &red);
    assert_eq!(
        (status, &why["error"]),
        (409, &json!("there are fewer than two classes to choose among"))
    );
    assert_eq!(server.post("/v1/classes/green/examples", &green).0, 201);
    assert_eq!(server.post("/v1/predict", &red).1["class"], "red");
    let model = AdaptedModel::<Flex>::open(&file, &Default::default()).unwrap();
    assert_eq!(
        (model.class_names(), model.method()),
        (vec!["green".into(), "red".into()], "prototypes")
    );
    drop(server);
    let words = ["serve", text(&file), "--backbone", &backbone];
    let again = fewshot(&words);
    assert_eq!(code(&again), Some(2));
    assert!(stderr(&again).contains("is there already"), "{}", stderr(&again));
}

#[test]
fn a_single_class_outlives_the_server() {
    let folder = TempDir::new().unwrap();
    let (weights, file) =
        (super::pictures::weights(folder.path()), folder.path().join("new.fewshot"));
    let (picture, red) = photo(folder.path(), RED);
    let backbone = format!("efficientnet-lite0:{}", text(&weights));
    let server = Server::start(&[text(&file), "--backbone", &backbone]);
    assert_eq!(server.post("/v1/classes/red/examples", &red).0, 201);
    drop(server);
    let alone = fewshot(&["predict", text(&file), text(&picture)]);
    assert_eq!((code(&alone), stderr(&alone).lines().count()), (Some(1), 1), "{}", stderr(&alone));
    assert!(stderr(&alone).contains("at least two to choose among"), "{}", stderr(&alone));

    let server = Server::start(&[text(&file)]);
    let (_, found) = server.get("/v1/model");
    assert_eq!((classes(&found), &found["pictures"]), (vec![("red", 1)], &json!([0])));
    let served = agent().get(format!("{}/v1/model/file", server.url)).call().unwrap();
    assert_eq!(served.into_body().read_to_vec().unwrap(), fs::read(&file).unwrap());
    // Of no class there is no file.
    assert_eq!(server.delete("/v1/classes/red").0, 200);
    assert!(!file.exists());
    for (class, colour) in [("red", RED), ("green", GREEN)] {
        let path = format!("/v1/classes/{class}/examples");
        assert_eq!(server.post(&path, &photo(folder.path(), colour).1).0, 201);
    }
    assert_eq!(server.post("/v1/predict", &red).1["class"], "red");
}

#[test]
fn the_last_class_goes_though_somebody_else_has_deleted_the_file() {
    let folder = TempDir::new().unwrap();
    let (weights, file) =
        (super::pictures::weights(folder.path()), folder.path().join("new.fewshot"));
    let backbone = format!("efficientnet-lite0:{}", text(&weights));
    let server = Server::start(&[text(&file), "--backbone", &backbone]);
    let (_, red) = photo(folder.path(), RED);
    let teach = || server.post("/v1/classes/red/examples", &red);
    assert_eq!(teach().0, 201);
    fs::remove_file(&file).unwrap();
    let (status, found) = server.delete("/v1/classes/red");
    assert_eq!((status, &found["classes"], &found["pictures"]), (200, &json!([]), &json!([])));

    assert_eq!(teach().0, 201);
    assert!(file.exists());
    fs::remove_file(&file).unwrap();
    // A folder is neither removed nor replaced.
    fs::create_dir(&file).unwrap();
    let (_, other) = numbered(folder.path(), RED, 5);
    let more = || server.post("/v1/classes/red/examples", &other);
    for (part, (status, why)) in
        [("the file of the model", server.delete("/v1/classes/red")), (text(&file), more())]
    {
        let told = why["error"].as_str().unwrap();
        assert!(status == 500 && told.contains(part), "{status} {told}");
        let (_, found) = server.get("/v1/model");
        assert_eq!((classes(&found), &found["pictures"]), (vec![("red", 1)], &json!([1])));
    }
    fs::remove_dir(&file).unwrap();
    let (status, found) = server.delete("/v1/examples/1");
    assert_eq!((status, &found["classes"], &found["pictures"]), (200, &json!([]), &json!([])));
}

#[test]
fn no_more_examples_are_taken_than_there_is_room_for() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("full.fewshot");
    let (device, config) = (Default::default(), Conv4Config::new([3, 16, 16]).with_channels(8));
    let network = config.init::<Flex>(&device);
    let backbone = PretrainedBackbone::trained(network, TrainedNetwork::new(config), &device);
    let examples = Features::new(8, [("red".to_owned(), vec![1.0; 8 * 10_000])]).unwrap();
    let (thumbnails, digests) = (vec![None; 10_000], vec![None; 10_000]);
    let method = "simpleshot".to_owned();
    let source = backbone.into();
    UnfittedModel { source, method, examples, thumbnails, digests }.write(&file).unwrap();
    let server = Server::start(&[text(&file)]);
    let (status, why) = server.post("/v1/classes/red/examples", &photo(folder.path(), RED).1);
    let full = json!("there are 10000 examples, and no more are taken");
    assert_eq!((status, &why["error"]), (409, &full));
}

#[test]
fn small_pictures_of_examples_outlive_the_server() {
    let (folder, model) = adapted();
    let (_, blue) = photo(folder.path(), BLUE);
    let number_of_pictures = |server: &Server| {
        let (_, found) = server.get("/v1/model");
        let numbers = found["pictures"].as_array().unwrap().clone();
        for number in &numbers {
            let path = format!("{}/v1/examples/{number}/picture", server.url);
            let shown = agent().get(path).call().unwrap().into_body().read_to_vec().unwrap();
            assert_eq!(Picture::decode(&shown, "thumbnail").unwrap().size(), [96, 96]);
        }
        numbers.len()
    };
    let server = Server::start(&[text(&model)]);
    assert_eq!(number_of_pictures(&server), 7);
    assert_eq!(server.post("/v1/classes/blue/examples", &blue).0, 201);
    assert_eq!(server.delete("/v1/examples/0").0, 200);
    drop(server);
    let server = Server::start(&[text(&model)]);
    assert_eq!(number_of_pictures(&server), 7);
    drop(server);

    // A model without any stays without, though the page has those of the day.
    let none = ["adapt", text(&model), "--remove", "blue", "--no-thumbnails"];
    assert_eq!(code(&fewshot(&none)), Some(0));
    let server = Server::start(&[text(&model)]);
    assert_eq!(number_of_pictures(&server), 0);
    assert_eq!(server.post("/v1/classes/blue/examples", &blue).0, 201);
    assert_eq!(number_of_pictures(&server), 1);
    drop(server);
    assert_eq!(number_of_pictures(&Server::start(&[text(&model)])), 0);

    let (weights, new) =
        (folder.path().join("lite0.safetensors"), folder.path().join("new.fewshot"));
    let backbone = format!("efficientnet-lite0:{}", text(&weights));
    let server = Server::start(&[text(&new), "--backbone", &backbone, "--no-thumbnails"]);
    assert_eq!(server.post("/v1/classes/one/examples", &blue).0, 201);
    let (status, why) = server.post("/v1/classes/two/examples", &blue);
    assert_eq!(status, 422);
    assert!(why["error"].as_str().unwrap().starts_with("all embeddings are equal"), "{why}");
    let (_, red) = photo(folder.path(), RED);
    assert_eq!(server.post("/v1/classes/two/examples", &red).0, 201);
    drop(server);
    assert_eq!(number_of_pictures(&Server::start(&[text(&new)])), 0);
}

#[test]
fn a_run_is_served_and_learns_new_classes() {
    let (folder, model) = adapted_run(&[]);
    let run = folder.path().join("run");
    let (_, red) = photo(folder.path(), RED);
    let (_, blue) = photo(folder.path(), BLUE);
    let server = Server::start(&[text(&model)]);
    assert_eq!(server.get("/v1/model").1["backbone"], format!("conv4 of {}", text(&run)));
    assert_eq!(server.post("/v1/predict", &red).1["class"], "red");
    let (status, why) = server.post("/v1/classes/backbone%2Fx/examples", &red);
    assert!(status == 422 && why["error"].as_str().unwrap().contains("has a / or"), "{why}");
    drop(server);

    let new = folder.path().join("new.fewshot");
    let server = Server::start(&[text(&new), "--backbone", text(&run)]);
    assert_eq!(server.post("/v1/classes/red/examples", &red).0, 201);
    assert_eq!(server.post("/v1/classes/blue/examples", &blue).0, 201);
    drop(server);
    fs::remove_dir_all(run).unwrap();
    let model = AdaptedModel::<Flex>::open(&new, &Default::default()).unwrap();
    assert_eq!(
        (model.class_names(), model.method()),
        (vec!["blue".into(), "red".into()], "prototypes")
    );
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let (folder, model) = adapted();
    let server = Server::start(&[text(&model)]);
    let refused = |(status, why): (u16, Value), wanted: u16, part: &str| {
        let text = why["error"].as_str().unwrap_or_default();
        assert!(status == wanted && text.contains(part), "{status} {why}");
    };
    let (_, red) = photo(folder.path(), RED);
    refused(server.post("/v1/predict", b""), 422, "to be a picture");
    refused(server.post("/v1/predict", b"GIF89a nothing"), 422, "the picture");
    refused(server.post("/v1/predict", &red[..red.len() / 2]), 422, "the picture");
    refused(server.post("/v1/predict", &huge()), 422, "the limit is 64000000");
    refused(server.post("/v1/classes/red/examples", &huge()), 422, "the limit is 64000000");
    refused(server.post("/v1/predict", &vec![0; (16 << 20) + 1]), 413, "limit");
    refused(server.post("/v1/predict?top=many", &red), 400, "top");
    refused(server.post("/v1/predict?top=0", &red), 422, "at least 1");
    refused(server.post("/v1/predict?unknown=1.5", &red), 422, "between 0 and 1");
    for (name, part) in [
        ("%20", "it is empty"),
        ("..%2F..%2Fx", "it has a / or"),
        ("%2E%2E%2Fx", "it has a / or"),
        ("owl%E2%80%8B", "cannot be seen"),
        ("%EF%BB%BFowl", "cannot be seen"),
        (&"x".repeat(256), "longer than 255 bytes"),
    ] {
        refused(server.post(&format!("/v1/classes/{name}/examples"), &red), 422, part);
    }
    refused(server.delete("/v1/classes/owl"), 404, "no class \"owl\"");
    refused(server.delete("/v1/classes/red"), 409, "two classes stay");
    refused(server.delete("/v1/examples/70"), 404, "no example 70");
    refused(server.delete("/v1/examples/first"), 400, "Invalid URL");
    refused(server.get("/v1/predict"), 405, "Method Not Allowed");
    refused(server.get("/v2"), 404, "nothing here");
    refused(server.post("/v1/classes/%/examples", &red), 400, "write %25");
    refused(server.delete("/v1/classes/%25"), 404, "no class \"%\"");
    let foreign = agent().post(format!("{}/v1/predict", server.url));
    let foreign = foreign.header("Origin", "http://elsewhere.example").send(&red[..]).unwrap();
    refused(answer(foreign), 403, "other sites");
    assert_eq!(classes(&server.get("/v1/model").1), [("green", 4), ("red", 3)]);

    let port = server.url.rsplit_once(':').unwrap().1;
    let taken = fewshot(&["serve", text(&model), "--read-only", "--port", port]);
    assert_eq!(code(&taken), Some(1));
    assert!(stderr(&taken).contains("cannot listen at 127.0.0.1"), "{}", stderr(&taken));

    for option in [&["--method", "logistic"][..], &["--no-thumbnails"]] {
        let pointless = fewshot(&[&["serve", text(&model), "--read-only"], option].concat());
        assert_eq!(code(&pointless), Some(2));
        assert!(stderr(&pointless).contains("is for a new model"), "{}", stderr(&pointless));
    }

    drop(server);
    let before = fs::read(&model).unwrap();
    let server = Server::start(&[text(&model), "--read-only"]);
    refused(server.post("/v1/classes/red/examples", &red), 403, "read-only");
    refused(server.delete("/v1/classes/red"), 403, "read-only");
    assert_eq!(server.post("/v1/predict", &red).1["class"], "red");
    assert_eq!(fs::read(&model).unwrap(), before);
}

#[test]
fn many_clients_at_once_are_all_answered() {
    let (folder, model) = adapted();
    let server = Server::start(&[text(&model)]);
    let photos = [photo(folder.path(), RED).1, photo(folder.path(), GREEN).1];
    thread::scope(|scope| {
        for client in 0..32 {
            let (server, photos) = (&server, &photos);
            scope.spawn(move || {
                for request in 0..3 {
                    let which = (client + request) % 2;
                    let (status, found) = server.post("/v1/predict", &photos[which]);
                    assert_eq!((status, &found["class"]), (200, &json!(["red", "green"][which])));
                }
            });
        }
    });
}

/// A form with fields of these names and contents, and its kind.
fn form(fields: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, content) in fields {
        let head = format!(
            "--edge\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x.png\"\r\n\r\n"
        );
        body.extend(head.into_bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--edge--\r\n");
    ("multipart/form-data; boundary=edge".to_owned(), body)
}

#[test]
fn the_picture_of_a_form_is_that_of_the_body() {
    let (folder, model) = adapted();
    let server = Server::start(&[text(&model)]);
    let (_, red) = photo(folder.path(), RED);
    let post = |path: &str, fields: &[(&str, &[u8])]| {
        let (kind, body) = form(fields);
        let request = agent().post(format!("{}{path}", server.url)).header("Content-Type", kind);
        answer(request.send(&body[..]).unwrap())
    };
    let plain = server.post("/v1/predict?top=2", &red);
    assert_eq!(plain.1["class"], "red");
    assert_eq!(post("/v1/predict?top=2", &[("picture", &red)]), plain);
    assert_eq!(post("/v1/predict?top=2", &[("title", b"x"), ("picture", &red)]), plain);
    let added = post("/v1/classes/red/examples", &[("picture", &red)]);
    assert_eq!(added, (201, json!({ "example": 7 })));
    let refused = |fields: &[(&str, &[u8])], part: &str| {
        let (status, why) = post("/v1/predict", fields);
        assert!(status == 422 && why["error"].as_str().unwrap().contains(part), "{status} {why}");
    };
    refused(&[("file", &red)], "lacks the field picture: it has file");
    refused(&[], "lacks the field picture");
    refused(&[("picture", &red), ("picture", &red)], "2 fields picture");
    refused(&[("picture", b"no picture")], "the picture");
    let (status, _) = post("/v1/predict", &[("picture", &vec![0; (16 << 20) + 1])]);
    assert_eq!(status, 413);
}

#[test]
fn a_model_is_changed_by_one_process_at_a_time() {
    let (folder, model) = adapted();
    let before = fs::read(&model).unwrap();
    let server = Server::start(&[text(&model)]);
    let by = format!("is being changed by process {} (fewshot serve)", server.child.id());
    let support = folder.path().join("support");
    let backbone = format!("efficientnet-lite0:{}", text(&folder.path().join("lite0.safetensors")));
    let red = support.join("red");
    let anew = ["--backbone", &backbone, "--support", text(&support), "--out", text(&model)];
    for words in [
        &["serve", text(&model), "--port", "0"][..],
        &["adapt", text(&model), "--add", text(&red)],
        &["adapt", text(&model), "--remove", "red"],
        &[&["adapt"], &anew[..]].concat(),
    ] {
        let second = fewshot(words);
        assert_eq!((code(&second), stderr(&second).lines().count()), (Some(1), 1), "{words:?}");
        assert!(stderr(&second).contains(&by), "{}", stderr(&second));
    }
    assert_eq!(fs::read(&model).unwrap(), before);
    // Who only reads is not kept out.
    let reader = Server::start(&[text(&model), "--read-only"]);
    assert_eq!(reader.get("/v1/model").0, 200);
    let elsewhere = folder.path().join("other.fewshot");
    let blue = folder.path().join("blue");
    draw(&blue, BLUE, 2);
    let copied = ["adapt", text(&model), "--add", text(&blue), "--out", text(&elsewhere)];
    assert_eq!(code(&fewshot(&copied)), Some(0));
    assert!(!folder.path().join("other.fewshot.lock").exists());
    // A lock that a killed server has left keeps nobody out.
    drop(server);
    let added = fewshot(&["adapt", text(&model), "--add", text(&blue)]);
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
}

#[test]
fn additions_of_two_clients_are_all_there_and_readers_see_whole_files() {
    let (folder, model) = adapted();
    let server = Server::start(&[text(&model)]);
    let root = folder.path();
    let pictures: Vec<_> = (0..20).map(|number| numbered(root, BLUE, 4 + number).1).collect();
    thread::scope(|scope| {
        for half in pictures.chunks(10) {
            let server = &server;
            scope.spawn(move || {
                for picture in half {
                    assert_eq!(server.post("/v1/classes/blue/examples", picture).0, 201);
                }
            });
        }
        for _ in 0..20 {
            let read = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
            assert!(read.examples().rows() >= 7);
        }
    });
    let read = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    assert_eq!(read.examples().rows(), 27);
    let left = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    assert!(left.into_iter().all(|file| file.extension().is_none_or(|of| of != "partial")));
}

/// A folder with two models: `birds` of red and green pictures, and `skies` of blue ones besides.
pub fn two_models() -> (TempDir, PathBuf) {
    let (folder, model) = adapted();
    let models = folder.path().join("models");
    fs::create_dir(&models).unwrap();
    fs::copy(&model, models.join("birds.fewshot")).unwrap();
    let blue = folder.path().join("blue");
    draw(&blue, BLUE, 2);
    let skies = models.join("skies.fewshot");
    let added = fewshot(&["adapt", text(&model), "--add", text(&blue), "--out", text(&skies)]);
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
    (folder, models)
}

fn open_models(server: &Server) -> Vec<String> {
    let (status, list) = server.get("/v1/models");
    assert_eq!(status, 200, "{list}");
    let models = list["models"].as_array().unwrap().iter();
    let open = models.filter(|model| model["open"] == true);
    open.map(|model| model["model"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn models_of_a_folder_are_opened_when_they_are_asked_for() {
    let (folder, models) = two_models();
    fs::write(models.join("notes.txt"), "no model").unwrap();
    fs::write(models.join("broken.fewshot"), "no model either").unwrap();
    let server = Server::start(&[text(&models)]);
    assert_eq!(open_models(&server), [""; 0]);
    let (_, list) = server.get("/v1/models");
    assert_eq!(list["models"][1]["file"], "broken.fewshot");
    assert_eq!(list["models"].as_array().unwrap().len(), 3);

    let (_, blue) = photo(folder.path(), BLUE);
    let (_, other) = numbered(folder.path(), BLUE, 5);
    let (status, answer) = server.post("/v1/models/skies/predict?top=2", &blue);
    assert_eq!((status, &answer["class"]), (200, &json!("blue")));
    assert_ne!(server.post("/v1/models/birds/predict", &blue).1["class"], "blue");
    assert_eq!(open_models(&server), ["birds", "skies"]);
    let (status, added) = server.post("/v1/models/birds/classes/sky/examples", &blue);
    let number = added["example"].as_u64().unwrap();
    let picture = format!("/v1/models/birds/examples/{number}/picture");
    assert_eq!((status, server.status(&picture)), (201, 200));
    // It is in the file when it is answered, and the other model is as it was.
    let names = |name: &str| {
        let file = models.join(format!("{name}.fewshot"));
        AdaptedModel::<Flex>::open(file, &Default::default()).unwrap().class_names()
    };
    assert_eq!(
        (names("birds"), names("skies").len()),
        (["green", "red", "sky"].map(str::to_owned).to_vec(), 3)
    );
    assert_eq!(server.post("/v1/models/birds/classes/sky/examples", &other).0, 201);
    let (status, model) = server.delete(&format!("/v1/models/birds/examples/{number}"));
    assert_eq!((status, classes(&model)[2]), (200, ("sky", 1)));
    let (status, model) = server.delete("/v1/models/birds/classes/sky");
    assert_eq!((status, classes(&model).len()), (200, 2));

    let refused = |(status, why): (u16, Value), expected: u16, part: &str| {
        let text = why["error"].as_str().unwrap_or_default();
        assert!(status == expected && text.contains(part), "{status} {why}");
    };
    refused(server.get("/v1/models/broken/model"), 500, "broken cannot be opened");
    refused(server.get("/v1/models/notes/model"), 404, "no model \"notes\"");
    refused(server.get("/v1/models/..%2Fsupport/model"), 422, "it has a / or");
    refused(server.get("/v1/model"), 404, "there are several models");
    refused(server.post("/v1/predict", &blue), 404, "there are several models");
    refused(server.delete("/v1/models/birds/examples/first"), 400, "Invalid URL");
    // Models that are open are changed by this process alone.
    let birds = models.join("birds.fewshot");
    let second = fewshot(&["adapt", text(&birds), "--remove", "red"]);
    assert!(stderr(&second).contains("(fewshot serve)"), "{}", stderr(&second));
    drop(server);

    let server = Server::start(&[text(&models), "--read-only"]);
    refused(server.post("/v1/models/birds/classes/sky/examples", &blue), 403, "read-only");
    refused(server.delete("/v1/models/birds/classes/predict"), 403, "read-only");
    assert_eq!(server.post("/v1/models/skies/predict", &blue).1["class"], "blue");
}

#[test]
fn a_model_is_closed_when_another_needs_its_room() {
    let (folder, models) = two_models();
    let (_, blue) = photo(folder.path(), BLUE);
    let one = || Server::start(&[text(&models)]);
    let server = one();
    server.get("/v1/models/skies/model");
    let bytes = server.get("/v1/models").1["bytes"].as_u64().unwrap();
    drop(server);

    // Room for one.
    let memory = (bytes * 3 / 2).to_string();
    let server = Server::start(&[text(&models), "--memory", &memory]);
    let (_, added) = server.post("/v1/models/birds/classes/sky/examples", &blue);
    let picture = format!("/v1/models/birds/examples/{}/picture", added["example"]);
    assert_eq!((server.status(&picture), open_models(&server)), (200, vec!["birds".to_owned()]));
    server.get("/v1/models/skies/model");
    assert_eq!(open_models(&server), ["skies"]);
    // A closed model is free for others, and has its examples when it is opened again, under new numbers.
    let birds = models.join("birds.fewshot");
    let removed = fewshot(&["adapt", text(&birds), "--remove", "green"]);
    assert_eq!(code(&removed), Some(0), "{}", stderr(&removed));
    assert_eq!(classes(&server.get("/v1/models/birds/model").1), [("red", 3), ("sky", 1)]);
    assert_eq!(server.status(&picture), 404);

    let both = [server.get("/v1/models/birds/model"), server.get("/v1/models/skies/model")];
    assert!(both.iter().all(|(status, _)| *status == 200), "{both:?}");
    // Requests to both at once: each is answered, or told that there is no room now.
    thread::scope(|scope| {
        for client in 0..8 {
            let (server, blue) = (&server, &blue);
            scope.spawn(move || {
                for request in 0..4 {
                    let name = ["birds", "skies"][(client + request) % 2];
                    let path = format!("/v1/models/{name}/predict");
                    let (status, answer) = server.post(&path, blue);
                    let is_full = matches!(status, 409 | 503);
                    assert!(status == 200 || is_full, "{status} {answer}");
                }
            });
        }
    });
    drop(server);
    let server = Server::start(&[text(&models), "--memory", "1KiB"]);
    let (status, why) = server.get("/v1/models/birds/model");
    let text = why["error"].as_str().unwrap();
    assert!(status == 507 && text.contains("all models together may take 1.00 KiB"), "{text}");
}

#[test]
fn a_folder_is_served_as_it_is() {
    let (folder, models) = two_models();
    let file = models.join("birds.fewshot");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (words, part) in [
        (&[text(&models), "--backbone", "resnet18"][..], "--backbone is for a model"),
        (&[text(&models), "--weights", "x"], "--weights is for a model"),
        (&[text(&empty)], "a folder without a model"),
        (&[text(&file), "--memory", "1GiB"], "--memory is for a folder"),
    ] {
        let refused = fewshot(&[&["serve", "--port", "0"], words].concat());
        assert_eq!((code(&refused), stderr(&refused).lines().count()), (Some(2), 1), "{words:?}");
        assert!(stderr(&refused).contains(part), "{}", stderr(&refused));
    }
    // The only model has a name as well.
    let server = Server::start(&[text(&file)]);
    assert_eq!(open_models(&server), ["birds"]);
    assert_eq!(server.get("/v1/models/birds/model"), server.get("/v1/model"));
    assert_eq!(server.get("/v1/models/skies/model").0, 404);
}

/// The answer to a request with this JSON.
fn post_json(server: &Server, path: &str, body: &str) -> (u16, Value) {
    let request = agent().post(format!("{}{path}", server.url));
    answer(request.header("Content-Type", "application/json").send(body).unwrap())
}

#[test]
fn embeddings_are_classified_and_taught_in_json() {
    let (folder, model) = of_embeddings();
    let server = Server::start(&[text(&model)]);
    let (_, found) = server.get("/v1/model");
    assert_eq!((&found["backbone"], &found["length"]), (&Value::Null, &json!(3)));
    let law = r#"{"embedding": [0.1, 0.9, 0.1]}"#;
    let (status, found) = post_json(&server, "/v1/predict?top=2", law);
    assert_eq!((status, &found["class"]), (200, &json!("law")));
    assert_eq!(found["classes"].as_array().unwrap().len(), 2);
    assert_eq!(found["nearest"][0]["class"], "law");
    let several = r#"{"embeddings": [[1, 0.1, 0], [0, 1, 0.2]]}"#;
    let (status, found) = post_json(&server, "/v1/predict", several);
    let classes = found["predictions"].as_array().unwrap().iter().map(|of| of["class"].clone());
    assert_eq!((status, classes.collect::<Vec<_>>()), (200, vec![json!("joke"), json!("law")]));

    let (poem, path) = (r#"{"embedding": [0, 0.1, 1]}"#, "/v1/classes/poem/examples");
    assert_eq!(post_json(&server, path, poem), (201, json!({ "example": 5 })));
    assert_eq!(
        post_json(&server, path, poem),
        (200, json!({ "example": 5, "already_there": true }))
    );
    assert_eq!(post_json(&server, "/v1/predict", poem).1["class"], "poem");
    let names = || AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap().class_names();
    assert_eq!(names(), ["joke", "law", "poem"]);

    let before = fs::read(&model).unwrap();
    for (body, why) in [
        (r#"{"embedding": [1, 2]}"#, "embeddings have 2 values, those of the model have 3"),
        (r#"{"embedding": [1, null, 2]}"#, "invalid type: null"),
        (r#"{"embedding": [1, NaN, 2]}"#, "expected value"),
        (r#"{"embedding": ["1", "2", "3"]}"#, "invalid type: string"),
        (r#"{"embedding": [1e39, 0, 0]}"#, "number out of range"),
        (r#"{"embedding": [1e20, 0, 0]}"#, "values up to 1e20"),
        (r#"{"vector": [1, 2, 3]}"#, "unknown field `vector`"),
        ("{}", "it has neither"),
        (r#"{"embeddings": []}"#, "there are 0 embeddings"),
        (r#"{"embeddings": [[1, 2, 3]]}"#, "an example is one embedding"),
    ] {
        let (status, found) = post_json(&server, "/v1/classes/joke/examples", body);
        let said = found["error"].as_str().unwrap();
        assert!(status == 422 && said.contains(why), "{body}: {status} {said}");
    }
    let (status, found) = server.post("/v1/predict", &photo(folder.path(), RED).1);
    assert!(status == 422 && found["error"].as_str().unwrap().contains("takes no pictures"));
    assert_eq!(fs::read(&model).unwrap(), before);
}

#[test]
fn a_model_of_pictures_takes_the_embeddings_of_its_network() {
    let (folder, model) = adapted();
    let library = AdaptedModel::<Flex>::open(&model, &Default::default()).unwrap();
    let (file, green) = photo(folder.path(), GREEN);
    let (row, _) = library.backbone().unwrap().embed(&[Picture::open(file).unwrap()]);
    let server = Server::start(&[text(&model)]);
    let body = json!({ "embedding": row }).to_string();
    let of_embedding = post_json(&server, "/v1/predict", &body).1;
    assert_eq!(of_embedding["class"], server.post("/v1/predict", &green).1["class"]);
    let (status, found) = post_json(&server, "/v1/predict", r#"{"embedding": [1]}"#);
    assert_eq!(
        (status, &found["error"]),
        (422, &json!("embeddings have 1 values, those of the model have 1280"))
    );
}
