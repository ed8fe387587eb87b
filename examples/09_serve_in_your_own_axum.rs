//! A classifier of pictures behind a route of an axum server of your own.
//!
//! ```sh
//! cargo run --release --example 09_serve_in_your_own_axum -- birds.fewshot
//! curl --data-binary @photo.jpg http://127.0.0.1:3000/birds
//! ```
//!
//! `fewshot adapt` writes such a model. Without one the program makes its own, of red and green pictures and a network that
//! knows nothing yet, asks itself once and ends.

use std::error::Error;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use burn::backend::Flex;
use burn::tensor::backend::Backend;
use fewshot::adapted::{AdaptedModel, Prediction, PretrainedBackbone};
use fewshot::data::{Features, Picture};
use fewshot::models::{EfficientNetLiteConfig, Pretrained};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// A picture, and where its answer goes.
type Question = (Picture, oneshot::Sender<Prediction>);

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1);
    let (model, port) = match &file {
        Some(file) => (AdaptedModel::open(file, &Default::default())?, 3000),
        None => (red_and_green()?, 0),
    };
    let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
    listener.set_nonblocking(true)?;
    let address = format!("http://{}/birds", listener.local_addr()?);
    println!("POST a picture to {address}");

    // The server has a thread of its own, or many; the model stays in this one, and pictures come to it.
    let (questions, asked) = channel::<Question>();
    thread::spawn(move || serve(listener, questions));
    let client = file.is_none().then(|| thread::spawn(move || ask(&address)));
    let most = if client.is_some() { 1 } else { usize::MAX };
    for (picture, answer) in asked.iter().take(most) {
        match model.predict(&[picture]) {
            // An asker that has left misses nothing.
            Ok(mut predictions) => drop(answer.send(predictions.remove(0))),
            Err(error) => eprintln!("{error}"),
        }
    }
    if let Some(client) = client {
        println!("{}", client.join().expect("the client has not panicked")?);
    }
    Ok(())
}

fn serve(listener: std::net::TcpListener, questions: Sender<Question>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/birds", post(classify))
        .layer(DefaultBodyLimit::max(16 << 20))
        .with_state(questions);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime
        .block_on(async { axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await })
}

type Refusal = (StatusCode, String);

async fn classify(
    State(questions): State<Sender<Question>>,
    body: Bytes,
) -> Result<Json<Value>, Refusal> {
    let picture = Picture::decode(&body, "the body");
    let picture = picture.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let gone = || (StatusCode::SERVICE_UNAVAILABLE, "the model has no answer".to_owned());
    let (sender, answer) = oneshot::channel();
    questions.send((picture, sender)).map_err(|_| gone())?;
    let prediction = answer.await.map_err(|_| gone())?;
    Ok(Json(json!({ "class": prediction.class(), "probability": prediction.probability() })))
}

/// Sends the server a red picture.
fn ask(address: &str) -> Result<String, ureq::Error> {
    let mut png = std::io::Cursor::new(Vec::new());
    let red = image::RgbImage::from_pixel(32, 32, image::Rgb([210, 20, 30]));
    red.write_to(&mut png, image::ImageFormat::Png).expect("a picture in memory is written");
    ureq::post(address).send(&png.into_inner()[..])?.body_mut().read_to_string()
}

/// A model of two classes on a network whose weights are drawn.
fn red_and_green() -> Result<AdaptedModel<Flex>, Box<dyn Error>> {
    let device = Default::default();
    Flex::seed(&device, 1);
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("drawn.safetensors");
    EfficientNetLiteConfig::new().init::<Flex>(&device).save_weights(&weights)?;
    let backbone = PretrainedBackbone::load("efficientnet-lite0", &weights, &device)?;

    let picture = |[red, green, blue]: [u8; 3], number: u8| {
        let pixel = [red + number, green, blue + 3 * number];
        Picture::from_rgb(32, 32, pixel.repeat(32 * 32)).expect("as many pixels as it has")
    };
    let classes = [("red", [200, 20, 20]), ("green", [20, 200, 20])].map(|(name, colour)| {
        let pictures: Vec<_> = (0..3).map(|number| picture(colour, number)).collect();
        (name.to_owned(), backbone.embed(&pictures))
    });
    let length = classes[0].1.1;
    let examples = Features::new(length, classes.map(|(name, (rows, _))| (name, rows)))?;
    Ok(AdaptedModel::adapt(backbone, "simpleshot", examples)?)
}
