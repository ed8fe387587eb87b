//! Augmented batches, and pictures read from files, beside `benches/augment.py`.
//!
//! `FEWSHOT_PICTURES` names the folder of pictures that the script makes; without it pictures are made here.

use std::fs;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fewshot::data::{Preset, ReadOptions, image_folder};
use fewshot::episode::TaskSource;
use fewshot::prelude::*;
use image::RgbImage;

const CLASSES: u32 = 10;
const EACH: u32 = 40;

/// Photographs, as far as JPEG is concerned: slopes, edges and a little noise.
fn make(folder: &Path) {
    for class in 0..CLASSES {
        let folder = folder.join(class.to_string());
        fs::create_dir_all(&folder).expect("a temporary folder can be written");
        for example in 0..EACH {
            let number = class * EACH + example;
            let picture = RgbImage::from_fn(500, 375, |x, y| {
                let edge = if (x / 50 + y / 40 + number).is_multiple_of(3) { 60 } else { 0 };
                let noise = (x * 7919 + y * 104_729 + number * 31) % 17;
                image::Rgb([x / 3, y / 2, (x + y) / 6].map(|slope| (slope + edge + noise) as u8))
            });
            picture.save(folder.join(format!("{example:03}.jpg"))).expect("a picture is written");
        }
    }
}

fn augment(criterion: &mut Criterion) {
    let temporary = tempfile::tempdir().expect("there is room for pictures");
    let folder = std::env::var_os("FEWSHOT_PICTURES").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| {
        make(temporary.path());
        temporary.path().to_owned()
    });
    let read = || image_folder(&folder, &ReadOptions::square(84)).expect("whole pictures").data;
    let images = read();
    let mut group = criterion.benchmark_group("augment");
    group.sample_size(10);
    group.throughput(Throughput::Elements(images.images() as u64));
    group.bench_function("read/jpeg/84", |bencher| bencher.iter(read));
    let protocol = Protocol::new(10, 1).with_queries(15);
    group.throughput(Throughput::Elements((protocol.ways * protocol.examples()) as u64));
    for preset in [Preset::FlipCrop, Preset::Standard, Preset::Strong] {
        let sampler = images.sampler(protocol, 1).expect("the pictures serve the protocol");
        let sampler = sampler.with_augmentation(preset.for_image(images.image_shape()));
        let preparer = sampler.expect("a preset fits").preparer().expect("it changes images");
        let mut index = 0;
        group.bench_function(format!("{preset}/84"), |bencher| {
            bencher.iter(|| {
                index += 1;
                preparer(index..index + 1)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, augment);
criterion_main!(benches);
