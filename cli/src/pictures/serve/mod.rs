//! `fewshot serve`: a page and a JSON interface to an adapted model.

mod gallery;
mod routes;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use clap::Args;
use fewshot::adapted::{AdaptedModel, AdaptedModelError, BegunModel};
use fewshot::data::PictureLimits;

use super::{Embedder, NetworkSpec, lock};
use crate::args::{DeviceArgs, first_given};
use crate::prelude::*;
use gallery::{Gallery, Served};
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

Nobody is asked who they are: only programs on this machine are heard, unless --host says otherwise.

  fewshot serve birds.fewshot
  fewshot serve new.fewshot --backbone efficientnet-lite0:weights.pth
  fewshot serve new.fewshot --backbone runs/mine";

/// Requests that wait for the network, at most; others are refused.
const WAITING: usize = 256;

const BATCH: usize = 32;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// What `fewshot adapt` has written, or with --backbone a file to write
    #[arg(value_name = "MODEL")]
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
    /// How a new model learns classes from embeddings: simpleshot (nearest class mean by cosine), prototypes, logistic, …
    /// [default: simpleshot; with a run of protonet prototypes]
    #[arg(long, requires = "backbone")]
    method: Option<String>,
    /// Keep no small pictures of a new model's examples in its file
    #[arg(long, requires = "backbone")]
    no_thumbnails: bool,
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
        let _lock = match self.read_only {
            true => None,
            false => Some(lock(&self.model, "fewshot serve")?),
        };
        let mut gallery = open::<B>(self, hardware.device())?;
        let address = SocketAddr::new(self.host, self.port);
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| failed!("cannot listen at {address}: {error}"))?;
        let bound = listener.local_addr().map_err(|error| failed!("no address: {error}"))?;
        let (sender, tasks) = sync_channel(WAITING);
        let (preparation, thumbnails) = (gallery.preparation(), gallery.thumbnails());
        let limits = PictureLimits { pixels: self.max_pixels };
        let app = App::new(sender, (preparation, limits), self.read_only, thumbnails);
        let server = thread::Builder::new().spawn(move || routes::listen(listener, app));
        let server = server.map_err(|error| failed!("cannot start the server: {error}"))?;
        print(format_args!("{} at http://{bound}", self.model.display()))?;
        answer(&mut gallery, &tasks);
        let ended = server.join().map_err(|_| failed!("the server has panicked"))?;
        ended.map_err(|error| failed!("the server has ended: {error}"))
    }
}

fn open<B: Backend>(args: &ServeArgs, device: &B::Device) -> Result<Gallery<B>> {
    let file = &args.model;
    let Some(backbone) = &args.backbone else {
        // Clap asks for no --backbone where it conflicts with what is there.
        if let Some(option) = first_given!(args, method, no_thumbnails) {
            return Err(usage!("{option} is for a new model, which --backbone begins"));
        }
        let weights = args.weights.as_deref();
        return Ok(match AdaptedModel::open_with_weights(file, weights, device) {
            Err(AdaptedModelError::TooFewClasses { .. }) => {
                Gallery::begun(BegunModel::open(file, weights, device)?, file.clone())
            }
            model => Gallery::of(model?, file.clone()),
        });
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

/// Something to do with the model.
type Run = Box<dyn FnOnce(&mut dyn Served) + Send>;

/// Something to do with the model and the embedding of a picture.
type RunEmbedded = Box<dyn FnOnce(&mut dyn Served, Vec<f32>) + Send>;

/// What a request wants of the model.
enum Task {
    Run(Run),
    /// With a prepared picture.
    Embed {
        image: Vec<f32>,
        then: RunEmbedded,
    },
}

/// Carries tasks out in their order until nobody can send any more; pictures that wait are embedded together.
fn answer(gallery: &mut dyn Served, tasks: &Receiver<Task>) {
    while let Ok(first) = tasks.recv() {
        let batch: Vec<_> = [first].into_iter().chain(tasks.try_iter().take(BATCH - 1)).collect();
        let images = batch.iter().filter_map(|task| match task {
            Task::Embed { image, .. } => Some(image.as_slice()),
            Task::Run(_) => None,
        });
        let mut embeddings = gallery.embed(&images.collect::<Vec<_>>()).into_iter();
        for task in batch {
            match task {
                Task::Embed { then, .. } => {
                    then(gallery, embeddings.next().expect("one of each picture"));
                }
                Task::Run(task) => task(gallery),
            }
        }
    }
}
