//! `fewshot backbones`: networks whose weights are published, and their download.

mod get;

use clap::Subcommand;
use fewshot::adapted::{PUBLISHED_WEIGHTS, PublishedWeights};

use crate::prelude::*;

#[derive(Debug, Subcommand)]
pub(crate) enum BackbonesCommand {
    /// List the networks, with where their weights are published and whether they are in the cache.
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Download the weights of a network into the cache, where its name alone finds them.
    ///
    /// The file is checked against the published sha256, and is there whole or not at all. Set FEWSHOT_WEIGHTS_MIRROR to take
    /// files from another address; there they have the names that they are published by.
    Get {
        /// One of the networks of `fewshot backbones list`
        #[arg(value_name = "NAME")]
        name: String,
        /// File to write instead of the cache's
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

pub(crate) fn backbones(command: BackbonesCommand) -> Result {
    match command {
        BackbonesCommand::List { json: true } => {
            print(PUBLISHED_WEIGHTS.iter().map(described).collect::<Value>())
        }
        BackbonesCommand::List { json: false } => print(listed()),
        BackbonesCommand::Get { name, to } => {
            get::get(PublishedWeights::named(&name)?, to.as_deref())
        }
    }
}

fn described(weights: &PublishedWeights) -> Value {
    let file = weights.file;
    json!({
        "name": weights.name,
        "network": weights.network,
        "features": weights.features,
        "licence": weights.licence,
        "page": weights.page,
        "url": file.map(|file| file.url),
        "within": file.and_then(|file| file.within),
        "sha256": file.map(|file| file.sha256),
        "megabytes": file.map(|file| file.megabytes),
        "cached": weights.cached().map(|path| path.display().to_string()),
    })
}

fn listed() -> String {
    let head = ["NAME", "NETWORK", "FEATURES", "SIZE", "LICENCE", "CACHED", "FROM"];
    let row = |weights: &PublishedWeights| {
        let size = known(weights.file.map(|file| format!("{} MB", file.megabytes)));
        let from = match weights.file {
            Some(file) => file.url.to_owned(),
            None => format!("links at {}: no file with a checksum, take NAME:FILE", weights.page),
        };
        let cached = if weights.cached().is_some() { "yes" } else { "no" };
        let PublishedWeights { name, network, features, licence, .. } = *weights;
        [name, network, &features.to_string(), &size, licence, cached, &from].map(str::to_owned)
    };
    table([head.map(str::to_owned)].into_iter().chain(PUBLISHED_WEIGHTS.iter().map(row)))
}
