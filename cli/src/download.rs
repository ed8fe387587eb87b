use std::fs;
use std::io::Read;
use std::time::Duration;

use fewshot::files;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::prelude::*;

enum Sum {
    Md5(&'static str),
    Sha256(&'static str),
}

const IMAGES: &str = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/";
const LISTS: &str =
    "https://raw.githubusercontent.com/jakesnell/prototypical-networks/master/data/omniglot/";

/// Published files: below which address, and where below that and in the folder; sums of the zip files
/// as torchvision has them, of the lists as at commit c9bb4d2.
const FILES: [(&str, &str, Sum); 5] = [
    (IMAGES, "images_background.zip", Sum::Md5("68d2efa1b9178cc56df9314c21c6e718")),
    (IMAGES, "images_evaluation.zip", Sum::Md5("6b91aef0f799c5bb55b94e3f2daec811")),
    (
        LISTS,
        "splits/vinyals/train.txt",
        Sum::Sha256("984522c194c30fb678ce53304a160a42faf5403ad4f9a67010f32dd3a35738e0"),
    ),
    (
        LISTS,
        "splits/vinyals/val.txt",
        Sum::Sha256("11f99e54faee3e26f53d3231c1cceac5bf7b8730e9be31cb6dab256551dc0c1a"),
    ),
    (
        LISTS,
        "splits/vinyals/test.txt",
        Sum::Sha256("845264cc5c156180828ccf17915668b17ee21424d0170df6e7d81676aa5d1204"),
    ),
];

/// Larger than any of the files by far: what is longer is something else.
const LIMIT: u64 = 64 << 20;

pub(crate) fn omniglot(folder: &Path) -> Result {
    let mirror = std::env::var("FEWSHOT_OMNIGLOT_MIRROR").ok();
    for (address, path, sum) in &FILES {
        let target = folder.join(path);
        if fs::read(&target).is_ok_and(|bytes| sum.holds(&bytes)) {
            print(format_args!("{} is there", target.display()))?;
            continue;
        }
        let address = mirror.as_deref().unwrap_or(address).trim_end_matches('/');
        let url = format!("{address}/{path}");
        let mut bytes = Vec::new();
        let body = body(&url, Duration::from_secs(1800))?.take(LIMIT).read_to_end(&mut bytes);
        body.map_err(|error| failed!("cannot download {url}: {error}"))?;
        if !sum.holds(&bytes) {
            return Err(failed!("{url} is not the published file: its checksum differs"));
        }
        let made = target.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| files::replace(&target, &bytes))
            .map_err(|error| failed!("{}: {error}", target.display()))?;
        print(format_args!("{} is downloaded", target.display()))?;
    }
    Ok(())
}

/// The answer of an address, behind a progress bar. The answer must be read within `patience`.
pub(crate) fn body(url: &str, patience: Duration) -> Result<impl Read + use<>> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_recv_body(Some(patience));
    let response = ureq::Agent::from(config.build()).get(url).call();
    let body = response.map_err(|error| failed!("cannot download {url}: {error}"))?.into_body();
    let bar = body.content_length().map_or_else(ProgressBar::no_length, ProgressBar::new);
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {eta}");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_message(url.rsplit('/').next().unwrap_or(url).to_owned());
    Ok(bar.with_finish(ProgressFinish::AndClear).wrap_read(body.into_reader()))
}

impl Sum {
    fn holds(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Md5(sum) => format!("{:x}", Md5::digest(bytes)) == *sum,
            Self::Sha256(sum) => format!("{:x}", Sha256::digest(bytes)) == *sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standards() {
        assert!(Sum::Md5("900150983cd24fb0d6963f7d28e17f72").holds(b"abc"));
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(Sum::Sha256(sha).holds(b"abc"));
        assert!(!Sum::Sha256(sha).holds(b"abd"));
    }
}
