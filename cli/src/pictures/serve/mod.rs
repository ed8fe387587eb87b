//! `fewshot serve`: a page and a JSON interface to adapted models.

mod content;
mod gallery;
mod model;
mod models;
mod routes;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use clap::Args;
use fewshot::adapted::{AdaptedModel, AdaptedModelError};
use fewshot::data::PictureLimits;
use fewshot::files::Lock;
use fewshot::hardware::Bytes;

use super::{Embedder, NetworkSpec, lock};
use crate::args::{DeviceArgs, first_given};
use crate::prelude::*;
use gallery::{Gallery, Numbers};
use model::{Model, answer};
use models::{Folder, Models, OpenError, Opener};
use routes::App;

pub(crate) const SERVE_HELP: &str = "\
The page takes pictures that are dropped on it, names them with the examples that they resemble, and changes classes and \
their examples. Each change is written to MODEL. With --backbone, MODEL is new, and classes are named on the page.

Programs use the same interface, with a picture as the body of a request or as the field picture of a form:

  curl --data-binary @photo.jpg 'http://127.0.0.1:8080/v1/predict?top=3'
  curl -F picture=@photo.jpg http://127.0.0.1:8080/v1/predict
  curl --data-binary @owl.jpg http://127.0.0.1:8080/v1/classes/owl/examples
  curl -X DELETE http://127.0.0.1:8080/v1/classes/owl
  curl http://127.0.0.1:8080/v1/model

or with embeddings in JSON, as the network or another program has made them; a model of embeddings takes nothing else:

  curl --json '{\"embedding\": [0.5, -0.25]}' http://127.0.0.1:8080/v1/predict
  curl --json '{\"embeddings\": [[0.5, -0.25], [0.1, 0.75]]}' http://127.0.0.1:8080/v1/predict
  curl --json '{\"embedding\": [0.5, -0.25]}' http://127.0.0.1:8080/v1/classes/owl/examples

Of a folder every .fewshot file is a model. It is opened when it is asked for, and closed when --memory has no room for it and another \
one. The page lets choose among them; the routes of each are below its name:

  curl http://127.0.0.1:8080/v1/models
  curl --data-binary @photo.jpg http://127.0.0.1:8080/v1/models/birds/predict

Nobody is asked who they are: only programs on this machine are heard, unless --host says otherwise.

  fewshot serve birds.fewshot
  fewshot serve models/ --memory 2GiB
  fewshot serve new.fewshot --backbone efficientnet-lite0:weights.pth
  fewshot serve new.fewshot --backbone runs/mine";

/// Memory for the models of a folder, where it is not known how much is free.
const MEMORY: Bytes = Bytes(4 << 30);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Model that `fewshot adapt` has written, or a folder of them; with --backbone a file to write
    #[arg(value_name = "MODEL|DIR")]
    model: PathBuf,
    /// Port to listen at; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Address to listen at; 0.0.0.0 is every network of this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Begin a new model on this network, with the file of its weights where they are not in the cache, or on that of a run of
    /// `fewshot train`
    #[arg(long, value_name = "NAME[:FILE]|RUN")]
    backbone: Option<String>,
    /// Method by which a new model learns classes from embeddings: simpleshot (nearest class mean by cosine), prototypes, logistic, …
    /// [default: simpleshot; with a run of protonet prototypes]
    #[arg(long, requires = "backbone")]
    method: Option<String>,
    /// Keep no small pictures of a new model's examples in its file
    #[arg(long, requires = "backbone")]
    no_thumbnails: bool,
    /// Memory for the models of a folder that are open at a time, as 2GiB: for their parameters and examples, without what
    /// an answer takes [default: half of what is free on the device, or 4 GiB where that is not known]
    #[arg(long, value_name = "AMOUNT")]
    memory: Option<Bytes>,
    /// Refuse changes
    #[arg(long, conflicts_with = "backbone")]
    read_only: bool,
    /// Pixels of a picture, at most
    #[arg(long, value_name = "N", default_value_t = 64_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    max_pixels: u64,
    /// Weights of MODEL's backbone, where they are not found
    #[arg(long, value_name = "FILE", conflicts_with = "backbone")]
    weights: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn serve(args: &ServeArgs) -> Result {
    backend::start(&args.device, args)
}

impl Work for &ServeArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        if self.model.is_dir() {
            return serve_folder(self, &hardware);
        }
        if self.memory.is_some() {
            return Err(usage!("--memory is for a folder of models"));
        }
        let lock = lock_of(&self.model, self.read_only)?;
        let mut gallery = open::<B>(self, hardware.device())?;
        let (model, tasks) = Model::of(&gallery, lock);
        let (listener, name) = self.bind()?;
        let models = Models::One { file: self.model.clone(), model: Arc::new(model) };
        let app = self.app(models);
        let server = thread::Builder::new().spawn(move || routes::listen(listener, app));
        let server = server.map_err(|error| failed!("cannot start the server: {error}"))?;
        print(name)?;
        answer(&mut gallery, &tasks);
        let ended = server.join().map_err(|_| failed!("the server has panicked"))?;
        ended.map_err(|error| failed!("the server has ended: {error}"))
    }
}

impl ServeArgs {
    /// The socket of requests, and the line that names it.
    fn bind(&self) -> Result<(TcpListener, String)> {
        let address = SocketAddr::new(self.host, self.port);
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| failed!("cannot listen at {address}: {error}"))?;
        let bound = listener.local_addr().map_err(|error| failed!("no address: {error}"))?;
        Ok((listener, format!("{} at http://{bound}", self.model.display())))
    }

    fn app(&self, models: Models) -> App {
        App::new(models, PictureLimits { pixels: self.max_pixels }, self.read_only)
    }
}

/// The lock of a model that may be changed.
fn lock_of(model: &Path, read_only: bool) -> Result<Option<Lock>> {
    (!read_only).then(|| lock(model, "fewshot serve")).transpose()
}

fn serve_folder<B: Backend>(args: &ServeArgs, hardware: &HardwareManager<B>) -> Result {
    if let Some(option) = first_given!(args, backbone, method, no_thumbnails, weights) {
        return Err(usage!("{option} is for a model, and {} is a folder", args.model.display()));
    }
    let half_of_free = hardware.info().memory.free.map(|Bytes(free)| Bytes(free / 2));
    let memory = args.memory.or(half_of_free).unwrap_or(MEMORY);
    let (device, numbers, read_only) =
        (hardware.device().clone(), Numbers::default(), args.read_only);
    let open: Opener = Box::new(move |file| {
        let lock = lock_of(file, read_only).map_err(OpenError::Locked)?;
        let (file, numbers) = (file.to_owned(), numbers.clone());
        let open = move |device: &B::Device| Gallery::open(&file, None, numbers, device);
        Ok(Model::start::<B>(device.clone(), lock, open)?)
    });
    let app = args.app(Models::Folder(Folder::new(&args.model, memory, open)?));
    let (listener, name) = args.bind()?;
    print(name)?;
    routes::listen(listener, app).map_err(|error| failed!("the server has ended: {error}"))
}

fn open<B: Backend>(args: &ServeArgs, device: &B::Device) -> Result<Gallery<B>> {
    let file = &args.model;
    let Some(backbone) = &args.backbone else {
        // Clap asks for no --backbone where it conflicts with what is there.
        if let Some(option) = first_given!(args, method, no_thumbnails) {
            return Err(usage!("{option} is for a new model, which --backbone begins"));
        }
        let weights = args.weights.as_deref();
        return Gallery::open(file, weights, Numbers::default(), device);
    };
    if file.exists() {
        let file = file.display();
        return Err(usage!("--backbone begins a new model, and {file} is there already"));
    }
    let known = AdaptedModel::<B>::methods();
    if let Some(name) = args.method.clone().filter(|name| !known.contains(&name.as_str())) {
        return Err(AdaptedModelError::UnknownMethod { name, known }.into());
    }
    let Embedder { backbone: network, method, without_averages } =
        NetworkSpec::named(backbone).open::<Autodiff<B>>(device)?;
    if let Some(trained_by) = without_averages {
        return Err(usage!(
            "{backbone} was trained by {trained_by}, which gathers no running averages of batch-norm: make a model \
             of pictures by `fewshot adapt`, and serve that"
        ));
    }
    let method = args.method.as_deref().unwrap_or(method);
    Ok(Gallery::new(network, method, file.clone(), !args.no_thumbnails))
}
