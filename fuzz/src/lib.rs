//! Files and requests of strangers. Each function takes one input of its kind as the library or the server
//! takes it, and panics where the answer is neither a refusal nor sound. `cli/tests/reliability.rs` runs the same
//! functions on the inputs that are kept in `corpus/` and `found/`.

mod server;

pub use server::requests;

use std::fs;
use std::path::Path;

use burn::backend::Flex;
use fewshot::adapted::AdaptedModel;
use fewshot::data::{
    ClassDataset, FeatureRows, Features, FolderReport, Omniglot, Pack, Picture, ReadOptions, Split,
    Splits, cifar_fs, csv_list, fonts as read_fonts, image_folder, mini_imagenet, tiered_imagenet,
};
use fewshot::learners::ProtoNet;
use fewshot::models::{Conv4, Conv4Config, Preprocessing, Pretrained, Vit, VitConfig, VitFamily};
use fewshot::train::{Checkpoint, RunHistory};
use serde_json::de::Deserializer;
use sha2::{Digest, Sha256};

/// Bytes that end a checkpoint: the SHA-256 of what comes before.
const DIGEST: usize = 32;

/// Bytes that begin a safetensors file: the length of its header.
const LENGTH: usize = 8;

/// Place of the first pixel of a pack.
const PIXELS: usize = 4096;

/// Fonts that must draw a character before it is a class.
const FONTS: usize = 20;

/// Side of images that datasets are read at.
const SIDE: usize = 4;

/// Files of adapted models.
pub fn adapted(bytes: &[u8]) {
    let device = Default::default();
    for bytes in [bytes.to_vec(), with_length(bytes)] {
        let folder = folder(&[("m.fewshot", &bytes)]);
        let path = folder.path().join("m.fewshot");
        let Ok(model) = AdaptedModel::<Flex>::open(&path, &device) else { continue };
        assert!(model.examples().values().iter().all(|value| value.is_finite()));
        let of_pictures = model.predict(&[two_pixels()]).unwrap_or_default();
        let of_embeddings = model.classify(model.examples().row(0)).unwrap_or_default();
        for prediction in of_pictures.iter().chain(&of_embeddings) {
            let sum: f64 = prediction.classes.iter().map(|(_, probability)| probability).sum();
            assert!((sum - 1.0).abs() < 1e-6, "probabilities add up to {sum}");
            let known = prediction.known.unwrap_or(0.0);
            assert!((0.0..=1.0).contains(&known), "known with probability {known}");
        }
        model.write(&path).expect("a model that was read is written");
        let again = AdaptedModel::<Flex>::open(&path, &device).expect("and read again");
        assert_eq!(again.class_names(), model.class_names());
    }
}

/// Checkpoints, also with the digest that belongs to them.
pub fn checkpoints(bytes: &[u8]) {
    let mut digested = bytes[..bytes.len().saturating_sub(DIGEST)].to_vec();
    let digest = Sha256::digest(&digested);
    digested.extend(digest);
    let device = Default::default();
    let encoder = encoder();
    for bytes in [bytes, &digested] {
        let folder = folder(&[("last.ckpt", bytes)]);
        let path = folder.path().join("last.ckpt");
        let read = Checkpoint::read(&path);
        assert!(read.is_err() || Checkpoint::is_at(&path));
        // A learner of another architecture refuses it.
        let _ = read.and_then(|read| read.load(ProtoNet::new(encoder.clone()), &device));
    }
}

/// Lists of pictures.
pub fn csv_lists(bytes: &[u8]) {
    let picture = png();
    let files = ["a.png", "b.png", "c.png", "d.png"].map(|name| (name, &picture[..]));
    let folder = folder(&[&files[..], &[("list.csv", bytes)]].concat());
    whole(csv_list(folder.path().join("list.csv"), &ReadOptions::square(SIDE), 0));
}

/// Files of features of every ending.
pub fn features(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), with_length(bytes)] {
        for name in ["f.safetensors", "f.npy", "f.npz", "f.csv"] {
            let folder = folder(&[(name, &bytes)]);
            let path = folder.path().join(name);
            let Ok(rows) = FeatureRows::open(&path) else { continue };
            assert!(rows.values().iter().all(|value| value.is_finite()));
            assert_eq!(rows.values().len(), rows.rows() * rows.length());
            let Ok(features) = Features::open(&path) else { continue };
            assert_eq!(features.values().len(), rows.values().len());
            let path = folder.path().join("f.safetensors");
            features.write(&path).expect("features that were read are written");
            assert_eq!(Features::open(&path).expect("and read again"), features);
        }
    }
}

/// Files of fonts, each as often as a class needs.
pub fn fonts(bytes: &[u8]) {
    let names: Vec<_> = (0..FONTS).map(|number| format!("{number:02}.ttf")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), bytes)).collect();
    whole(read_fonts(folder(&files).path(), &ReadOptions::square(SIDE), 0));
}

/// Omniglot's archives.
pub fn omniglot(bytes: &[u8]) {
    let names = ["images_background.zip", "images_evaluation.zip"];
    let folder = folder(&names.map(|name| (name, bytes)));
    if let Ok(omniglot) = Omniglot::open(folder.path()) {
        // Without lists and with fewer characters than are published.
        assert!(omniglot.split(Split::Vinyals).is_err());
        let _ = omniglot.split(Split::Finn { seed: 0 });
    }
}

/// Packs, also with the place, the length and the digest of the header that belong to them.
pub fn packs(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), with_header(bytes)] {
        let folder = folder(&[("p.pack", &bytes)]);
        let Ok(pack) = Pack::open(folder.path().join("p.pack")) else { continue };
        let Splits { train, validation, test } = pack.splits();
        for set in [train, validation, test] {
            let mut image = vec![0; set.image_shape().values()];
            for class in 0..set.classes() {
                let last = set.examples(class) - 1;
                let read = set.write_image(class, last, Default::default(), &mut image);
                read.expect("an image of a pack that was opened");
            }
        }
        let _ = pack.check();
    }
}

/// Pickles of published datasets.
pub fn pickles(bytes: &[u8]) {
    let each = |name: &str| ["train", "val", "test"].map(|part| name.replace('*', part));
    let options = ReadOptions::square(SIDE);
    let names = each("mini-imagenet-cache-*.pkl");
    whole(mini_imagenet(folder(&names.each_ref().map(|name| (&name[..], bytes))).path(), &options));
    let names = each("CIFAR_FS_*.pickle");
    whole(cifar_fs(folder(&names.each_ref().map(|name| (&name[..], bytes))).path(), &options));
    let names = [each("*_images_png.pkl"), each("*_labels.pkl")].concat();
    let files: Vec<_> = names.iter().map(|name| (&name[..], bytes)).collect();
    whole(tiered_imagenet(folder(&files).path(), &options));
}

/// Pictures of any format.
pub fn pictures(bytes: &[u8]) {
    if let Ok(picture) = Picture::decode(bytes, "the input") {
        let how = Preprocessing { resize: 8, crop: 8, ..Preprocessing::torchvision() };
        assert!(picture.prepared(&how).iter().all(|value| value.is_finite()));
        let small = Picture::decode(&picture.thumbnail(8), "its thumbnail");
        assert_eq!(small.expect("a thumbnail is a picture").size(), [8, 8]);
    }
    let folder = folder(&[("class/picture.png", bytes)]);
    let _ = image_folder(folder.path(), &ReadOptions::square(SIDE));
}

/// Settings and figures of runs, divided by a byte of zero.
pub fn runs(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let [config, metrics] = [(); 2].map(|()| parts.next().unwrap_or_default());
    let folder = folder(&[("config.json", config), ("metrics.jsonl", metrics)]);
    let Ok(run) = RunHistory::read(folder.path()) else { return };
    let _ = (run.state(), run.best(), run.measure(), run.seconds(), run.seconds_left());
    let _ = (run.mean_loss(), run.mean_accuracy(), run.steps_done(), run.steps_wanted());
    let _ = (run.loss_curve(), run.validation_curve());
}

/// Published weights in files of PyTorch and in safetensors.
pub fn weights(bytes: &[u8]) {
    let network: Vit<Flex> =
        VitConfig::new(VitFamily::DinoV2, 1, 2, 2, 1, 1).init(&Default::default());
    for bytes in [bytes.to_vec(), with_length(bytes)] {
        let folder = folder(&[("w.pth", &bytes)]);
        let _ = network.clone().load_weights(&folder.path().join("w.pth"));
    }
}

/// The network of the checkpoint among the seeds.
pub fn encoder() -> Conv4<Flex> {
    Conv4Config::new([1, 8, 8]).with_channels(2).with_blocks(2).init(&Default::default())
}

/// A folder of these files, which may be in folders of their own.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder for the input");
    for (name, bytes) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).expect("its folder");
        fs::write(path, bytes).expect("the input as a file");
    }
    root
}

/// A safetensors file whose header is as long as it says.
fn with_length(bytes: &[u8]) -> Vec<u8> {
    let rest = bytes.get(LENGTH..).unwrap_or_default();
    let mut headers = Deserializer::from_slice(rest).into_iter::<serde_json::Value>();
    let length = headers.next().map_or(0, |_| headers.byte_offset());
    [&(length as u64).to_le_bytes(), rest].concat()
}

/// A pack whose beginning tells of the header that follows its pixels.
fn with_header(bytes: &[u8]) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    let pixels = bytes.get(PIXELS..).unwrap_or_default();
    let Some(header) = pixels.windows(2).position(|pair| pair == b"{\"") else { return whole };
    let header = PIXELS + header;
    let length = bytes.len() - header;
    whole[24..32].copy_from_slice(&(header as u64).to_le_bytes());
    whole[32..40].copy_from_slice(&(length as u64).to_le_bytes());
    let digest = Sha256::digest(&bytes[header..]);
    whole[40..72].copy_from_slice(&digest);
    whole
}

/// Checks that what was read has classes with images of their size.
fn whole<E>(read: Result<FolderReport<Splits>, E>) {
    let Ok(FolderReport { data: splits, .. }) = read else { return };
    assert!(splits.classes().iter().all(|&classes| classes > 0), "a split without a class");
}

fn two_pixels() -> Picture {
    Picture::from_rgb(2, 1, vec![255, 0, 0, 0, 0, 255]).expect("two pixels")
}

/// A picture of one grey pixel.
fn png() -> Vec<u8> {
    include_bytes!("../corpus/pictures/grey.png").to_vec()
}
