use fewshot::data::{ClassDataset, ImageSet, Pack, Sinusoids, Split};

use crate::args::ReadArgs;
use crate::data_spec::{DataSpec, ImageSpec};
use crate::prelude::*;

pub(crate) fn run(spec: &DataSpec, split: Split, read: ReadArgs) -> Result {
    match spec {
        DataSpec::Images(images) => {
            backend::prepare(None)?;
            tell_images(images, split, read)
        }
        DataSpec::Sinusoids => {
            if let Some(option) = read.given() {
                return Err(usage!("{option} is for images, not for sinusoids"));
            }
            let Sinusoids { amplitude, phase, x } = Sinusoids::default();
            print("sinusoid, y = amplitude * sin(x - phase), all three uniform")?;
            let parts = [("amplitude", amplitude), ("phase", phase), ("x", x)];
            parts.into_iter().try_for_each(|(name, [low, high])| {
                print(format_args!("{name:<10} {low:.4} to {high:.4}"))
            })
        }
    }
}

fn tell_images(spec: &ImageSpec, split: Split, read: ReadArgs) -> Result {
    spec.refuse_other_options(None, read.given().is_some())?;
    let splits = spec.open(split, read.over(spec.default_options()?))?;
    print(format_args!("{spec}, split by {}", spec.split_name(split)))?;
    print(format_args!("images     {}", splits.train.image_shape()))?;
    let parts =
        [("train", &splits.train), ("validation", &splits.validation), ("test", &splits.test)];
    for (name, set) in parts {
        print(format_args!("{name:<10} {}", describe(set)))?;
    }
    match spec.pack() {
        Some(file) => print(format_args!("made of    {}", Pack::open(file)?.source())),
        None => Ok(()),
    }
}

fn describe(set: &ImageSet) -> String {
    let counts = (0..set.classes()).map(|class| set.examples(class));
    let (fewest, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
    let each = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
    let turns = if set.draws_turns() { ", in turns drawn per class and episode" } else { "" };
    format!("{} classes of {each} images{turns}, from {}", set.classes(), set.class_name(0))
}
