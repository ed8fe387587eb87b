//! Files of weights that are cut, or made to take all memory.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::pictures::text;
use super::{complaint, fewshot, image_folder};

#[test]
#[ignore = "needs the weights of EfficientNet-Lite0 in FEWSHOT_LITE0"]
fn cut_weights_adapt_nothing() {
    let file = std::env::var_os("FEWSHOT_LITE0").expect("FEWSHOT_LITE0 is the file of weights");
    let whole = fs::read(file).unwrap();
    let support = image_folder(2, 2);
    let (cut, out) = (support.path().join("cut.pth"), support.path().join("out.fewshot"));
    let backbone = format!("efficientnet-lite0:{}", text(&cut));
    let words = ["--support", text(support.path()), "--out", text(&out)];
    for length in [18_637_771, whole.len() / 2] {
        fs::write(&cut, &whole[..length]).unwrap();
        let said = complaint(&fewshot(&[&["adapt", "--backbone", &backbone][..], &words].concat()));
        assert!(said.contains("cut.pth: the parameter "), "{said}");
        assert!(said.contains(&format!(" byte {length}")), "{said}");
        assert!(!out.exists());
    }
}

/// A pickle in a file as PyTorch wrote them before 1.6, without storages.
fn legacy(pickle: &[u8]) -> Vec<u8> {
    let start =
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.";
    [&start[..], b"\x80\x02", pickle, b".\x80\x02]."].concat()
}

/// What a command printed, and the largest size in memory, in MiB, at which it was seen.
#[cfg(target_os = "linux")]
fn watched(words: &[&str]) -> (Output, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fewshot"));
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.env("RAYON_NUM_THREADS", "2").spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kibibytes.unwrap_or(0) >> 10);
        thread::sleep(Duration::from_millis(2));
    }
    (child.wait_with_output().unwrap(), peak)
}

/// Within 256 MiB beyond the memory that the command needs to refuse a small file.
#[cfg(target_os = "linux")]
#[test]
fn weights_of_strangers_take_little_memory_and_time() {
    let support = image_folder(2, 2);
    let weights = support.path().join("w.pth");
    let backbone = format!("resnet18:{}", text(&weights));
    let adapt = |content: &[u8]| {
        fs::write(&weights, content).unwrap();
        let out = support.path().join("x.fewshot");
        let words = ["--backbone", &backbone, "--support", text(support.path()), "--out"];
        watched(&[&["adapt", "--backend", "flex"], &words[..], &[text(&out)]].concat())
    };
    let (harmless, least) = adapt(&legacy(b"}"));
    assert!(complaint(&harmless).contains("is missing") && least > 0, "{least} MiB");

    let list = [&b"]q\0"[..], &b"](h\0h\0eq\0".repeat(40)].concat();
    let nested = [&b"}q\0"[..], &b"}(U\x01ah\0uq\0".repeat(20_000)].concat();
    let values = b")".repeat(3 << 20);
    let named =
        [&b"}q\x01X\0\0\x10\0"[..], &[b'x'; 1 << 20], b"q\0", &b"h\0h\0\x93".repeat(1 << 19)]
            .concat();
    let sizes =
        [&b"("[..], &b"K\x01".repeat(1 << 20), b"tq\0ctorch._utils\n_rebuild_tensor_v2\nq\x01"]
            .concat();
    let sizes = [&sizes[..], &b"h\x01(NK\0h\0h\0tR".repeat(1 << 17)].concat();
    for (name, pickle) in
        [("list", list), ("nested", nested), ("values", values), ("named", named), ("sizes", sizes)]
    {
        let begun = Instant::now();
        let (output, peak) = adapt(&legacy(&pickle));
        let said = complaint(&output);
        assert!(said.contains("cannot read weights from"), "{name}: {said}");
        assert!(peak < least + 256, "{name}: {peak} MiB, and {least} for a small file");
        assert!(begun.elapsed() < Duration::from_secs(20), "{name}");
    }
}
