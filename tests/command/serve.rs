//! `fewshot serve`: the JSON interface.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use burn::backend::Flex;
use fewshot::adapted::{AdaptedModel, BegunModel, PretrainedBackbone, TrainedNetwork};
use fewshot::data::{Features, Picture};
use fewshot::models::Conv4Config;
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::adapt_run::adapted_run;
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
    let folder = folder.join(format!("photos/{}-{}", colour[0], colour[2]));
    draw(&folder, colour, 5);
    let file = folder.join("4.png");
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
    let prediction = &library.predict(&[Picture::open(file).unwrap()])[0];
    assert_eq!((status, &found["class"]), (200, &json!("green")));
    let probability = found["classes"][0]["probability"].as_f64().unwrap();
    assert!((probability - prediction.probability()).abs() < 1e-3, "{found}");
    assert_eq!(found["nearest"].as_array().unwrap().len(), 3);
    assert_eq!(found["nearest"][0]["class"], "green");
    assert_eq!(server.post("/v1/predict?unknown=1", &green).1["class"], Value::Null);

    let (_, blue) = photo(folder.path(), BLUE);
    for number in [7, 8] {
        let added = server.post("/v1/classes/sky%20blue/examples", &blue);
        assert_eq!(added, (201, json!({ "example": number })));
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
    for (part, (status, why)) in
        [("the file of the model", server.delete("/v1/classes/red")), (text(&file), teach())]
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
    let (method, thumbnails) = ("simpleshot".to_owned(), vec![None; 10_000]);
    BegunModel { backbone, method, examples, thumbnails }.write(&file).unwrap();
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
    for class in ["one", "two"] {
        assert_eq!(server.post(&format!("/v1/classes/{class}/examples"), &blue).0, 201);
    }
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
    assert!(status == 422 && why["error"].as_str().unwrap().contains("backbone/"), "{why}");
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
    refused(server.post("/v1/classes/%20/examples", &red), 422, "1 to 100 characters");
    refused(
        server.post(&format!("/v1/classes/{}/examples", "x".repeat(101)), &red),
        422,
        "characters",
    );
    refused(server.delete("/v1/classes/owl"), 404, "no class \"owl\"");
    refused(server.delete("/v1/classes/red"), 409, "two classes stay");
    refused(server.delete("/v1/examples/70"), 404, "no example 70");
    refused(server.delete("/v1/examples/first"), 400, "Invalid URL");
    refused(server.get("/v1/predict"), 405, "Method Not Allowed");
    refused(server.get("/v2"), 404, "nothing here");
    let foreign = agent().post(format!("{}/v1/predict", server.url));
    let foreign = foreign.header("Origin", "http://elsewhere.example").send(&red[..]).unwrap();
    refused(answer(foreign), 403, "other sites");
    assert_eq!(classes(&server.get("/v1/model").1), [("green", 4), ("red", 3)]);

    let port = server.url.rsplit_once(':').unwrap().1;
    let taken = fewshot(&["serve", text(&model), "--port", port]);
    assert_eq!(code(&taken), Some(1));
    assert!(stderr(&taken).contains("cannot listen at 127.0.0.1"), "{}", stderr(&taken));

    for option in [&["--method", "logistic"][..], &["--no-thumbnails"]] {
        let pointless = fewshot(&[&["serve", text(&model), "--read-only"], option].concat());
        assert_eq!(code(&pointless), Some(2));
        assert!(stderr(&pointless).contains("is for a new model"), "{}", stderr(&pointless));
    }

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
