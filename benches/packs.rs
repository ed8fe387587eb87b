//! Episodes from a pack beside the same from memory, and steps of training on them: those of a pack are read ahead of
//! their step, or in it.
//!
//! `FEWSHOT_PACK=FILE cargo bench --bench packs` measures nothing and writes a pack of 200 000 images of 3x84x84, 4.2 GB,
//! which `fewshot train --data pack:FILE --json` then learns from: `peak_rss_mb` is its memory.

#[path = "../tests/sources/mod.rs"]
mod sources;

use std::env;
use std::path::Path;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use criterion::{Bencher, Criterion, criterion_group};
use fewshot::data::{ImageShape, Pack, PackWriter, Shades};
use fewshot::episode::{Classification, TaskSource};
use fewshot::prelude::*;
use sources::BatchesAlone;

const SHAPE: ImageShape = ImageShape::new(3, 84, 84);

/// Images of a class.
const EACH: usize = 100;

/// Classes whose images are noise about a colour of their own, a fifth of them each to validate and to test.
fn write(path: &Path, classes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let pack = PackWriter::create(path)?;
    let mut noise = 1_u32;
    let mut of_class = vec![0; EACH * SHAPE.values()];
    for class in 0..classes {
        for (place, pixel) in of_class.iter_mut().enumerate() {
            // Xorshift: Marsaglia (2003).
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let colour = (class * 97 + place / (SHAPE.height * SHAPE.width) % 3 * 31) % 192;
            *pixel = colour as u8 + (noise % 64) as u8;
        }
        pack.append(&of_class)?;
    }
    let set = pack.images(SHAPE, (0..classes).map(|class| (format!("class {class}"), EACH)))?;
    let fifth = classes / 5;
    let part = |from: usize, to: usize| set.select(&(from..to).collect::<Vec<_>>());
    let splits = Splits {
        train: part(2 * fifth, classes),
        validation: part(0, fifth),
        test: part(fifth, 2 * fifth),
    };
    Ok(pack.finish(&splits, Shades::Kept, "noise about a colour".into())?)
}

/// All images of a set, in memory.
fn in_memory(set: &ImageSet) -> ImageSet {
    let mut pixels = vec![0; set.images() * SHAPE.values()];
    let places =
        (0..set.classes()).flat_map(|class| (0..EACH).map(move |example| (class, example)));
    for ((class, example), out) in places.zip(pixels.chunks_exact_mut(SHAPE.values())) {
        set.write_image(class, example, Default::default(), out).expect("the pack is read");
    }
    let names = (0..set.classes()).map(|class| (set.class_name(class), EACH));
    ImageSet::new(SHAPE, pixels, names).expect("pixels of all images")
}

/// Ten steps of a small network on these episodes.
fn train(bencher: &mut Bencher, source: impl TaskSource<Kind = Classification> + Clone) {
    let network = Conv4Config::new([3, 84, 84]).with_channels(4);
    bencher.iter(|| {
        let learner = ProtoNet::<Autodiff<Flex>, _>::new(network.init(&Default::default()));
        let trainer = MetaTrainer::new(learner, Adam::new().init()).episodes(source.clone());
        trainer.steps(10).observe(|_| {}).fit::<Autodiff<Flex>>().expect("the run ends")
    });
}

fn packs(criterion: &mut Criterion) {
    let path = env::temp_dir().join(format!("bench-{}.pack", std::process::id()));
    write(&path, 50).expect("the pack is written");
    let packed = Pack::open(&path).expect("the pack is read").splits().train;
    let sets = [("memory", in_memory(&packed)), ("pack", packed)];
    episodes(criterion, &sets);
    steps(criterion, &sets);
    std::fs::remove_file(path).expect("the pack is there");
}

fn steps(criterion: &mut Criterion, [(_, memory), (_, pack)]: &[(&str, ImageSet); 2]) {
    let protocol = Protocol::new(5, 1).with_queries(15);
    let [memory, pack] =
        [memory, pack].map(|set| set.sampler(protocol, 1).expect("the protocol fits"));
    let mut group = criterion.benchmark_group("steps");
    group.bench_function("memory", |bencher| train(bencher, memory.clone()));
    group.bench_function("pack in the step", |bencher| train(bencher, BatchesAlone(pack.clone())));
    group.bench_function("pack ahead", |bencher| train(bencher, pack.clone()));
    group.finish();
}

fn episodes(criterion: &mut Criterion, sets: &[(&str, ImageSet); 2]) {
    let device = Default::default();
    let mut group = criterion.benchmark_group("packs");
    for protocol in [Protocol::new(5, 1).with_queries(15), Protocol::new(20, 5).with_queries(15)] {
        for (name, set) in sets {
            let sampler = set.sampler(protocol, 1).expect("the protocol fits");
            let mut index = 0;
            group.bench_function(format!("{name}/{protocol}"), |bencher| {
                bencher.iter(|| {
                    index += 1;
                    let batch = sampler.batch::<Flex>([index], &device);
                    Flex::sync(&device).expect("the device answers");
                    batch
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, packs);

fn main() {
    match env::var_os("FEWSHOT_PACK") {
        Some(path) => write(path.as_ref(), 200_000 / EACH).expect("the pack is written"),
        None => {
            benches();
            Criterion::default().configure_from_args().final_summary();
        }
    }
}
