//! `fewshot data episodes`.

use fewshot::data::Split;
use fewshot::episode::{EpisodeList, Protocol};

use crate::args::{EpisodeListArgs, Sampling, first_given};
use crate::data_spec::DataSpec;
use crate::prelude::*;
use crate::settings::{VARIED, chosen, refuse_sizes, sampled};

pub(crate) fn run(args: &EpisodeListArgs) -> Result {
    let DataSpec::Images(data) = &args.spec else {
        return Err(usage!("episodes are listed of images, not of sinusoids"));
    };
    let sampling = args.sampling.protocol.unwrap_or_default();
    if sampling == Sampling::Varied {
        refuse_sizes(first_given!(args, ways, shots, queries), VARIED)?;
    }
    data.refuse_other_options(args.split, args.read.given().is_some())?;
    backend::prepare(None)?;
    let split = args.split.unwrap_or(Split::Vinyals);
    let splits = data.open(split, args.read.over(data.default_options()?))?;
    let images = chosen(splits, args.part);
    let protocol = Protocol::new(args.ways.unwrap_or(5), args.shots.unwrap_or(1))
        .with_queries(args.queries.unwrap_or(15));
    let sampler = sampled(images.clone(), sampling, protocol, args.seed)?;
    EpisodeList::draw(&sampler, args.episodes)?.write(&args.to, &images)?;
    let (count, sizes, to) = (args.episodes, sampler.sizes(), args.to.display());
    print(format_args!("{count} episodes ({sizes}) of {data}, in {to}"))
}
