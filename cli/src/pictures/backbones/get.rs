use std::fs::{self, File};
use std::io::{self, Read};
use std::time::Duration;

use fewshot::adapted::{AdaptedModelError, PublishedFile, PublishedWeights, weights_cache};
use fewshot::files;
use zip::ZipArchive;

use crate::download::body;
use crate::prelude::*;

const PATIENCE: Duration = Duration::from_secs(6 * 3600);

pub(super) fn get(weights: &PublishedWeights, to: Option<&Path>) -> Result {
    let (backbone, page) = (weights.name, weights.page);
    let file = weights.file.ok_or(AdaptedModelError::NoDownload { backbone, page })?;
    let no_cache = || failed!("there is no folder for the user's caches: say --to FILE");
    let (place, there) = match to {
        Some(path) => (Place::File(path.to_owned()), Some(path.to_owned())),
        None => (Place::Cache(weights_cache().ok_or_else(no_cache)?), weights.cached()),
    };
    if let Some(path) = there.filter(|path| place.has(path, &file)) {
        return print(format_args!("{} is there", path.display()));
    }
    let mirror = std::env::var("FEWSHOT_WEIGHTS_MIRROR").ok();
    let path = fetch(weights.name, &file, mirror.as_deref(), &place)?;
    print(format_args!("{} is downloaded", path.display()))
}

enum Place {
    /// Into this folder, under their sha256.
    Cache(PathBuf),
    File(PathBuf),
}

impl Place {
    fn folder(&self) -> &Path {
        match self {
            Self::Cache(folder) => folder,
            Self::File(file) => file.parent().unwrap_or(Path::new("")),
        }
    }

    fn file(&self, sha256: &str) -> PathBuf {
        match self {
            Self::Cache(folder) => folder.join(sha256),
            Self::File(file) => file.clone(),
        }
    }

    /// `true` where the file at `path` is whole, and where it belongs.
    fn has(&self, path: &Path, published: &PublishedFile) -> bool {
        let sha256 = files::sha256(path);
        sha256
            .is_ok_and(|sha256| sha256.starts_with(published.sha256) && self.file(&sha256) == path)
    }
}

fn fetch(name: &str, file: &PublishedFile, mirror: Option<&str>, place: &Place) -> Result<PathBuf> {
    let url = match (mirror, file.url.rsplit_once('/')) {
        (Some(mirror), Some((_, last))) => format!("{}/{last}", mirror.trim_end_matches('/')),
        _ => file.url.to_owned(),
    };
    let unwritten = |error: io::Error| failed!("{}: {error}", place.folder().display());
    let other = |why: String| failed!("{url} is not the published file: {why}");
    let body = body(&url, PATIENCE)?;
    let partial = Partial::within(place.folder(), name).map_err(unwritten)?;
    let mut path = partial.0.join("download");
    // Larger than the file by far: what is longer is something else.
    let limit = 2_000_000 * file.megabytes;
    let written = File::create(&path).and_then(|mut to| io::copy(&mut body.take(limit), &mut to));
    written.map_err(|error| failed!("cannot download {url}: {error}"))?;
    if let Some(within) = file.within {
        let packed = File::open(&path).map_err(unwritten)?;
        let mut packed = ZipArchive::new(packed).map_err(|error| other(error.to_string()))?;
        let member = packed.by_name(within).map_err(|error| other(error.to_string()))?;
        path = partial.0.join("member");
        let mut to = File::create(&path).map_err(unwritten)?;
        let copied = io::copy(&mut member.take(limit), &mut to);
        copied.map_err(|error| other(error.to_string()))?;
    }
    let sha256 = files::sha256(&path).map_err(unwritten)?;
    if !sha256.starts_with(file.sha256) {
        return Err(other(format!("its sha256 is {sha256}, published is {}", file.sha256)));
    }
    let to = place.file(&sha256);
    files::put(&path, &to).map_err(|error| failed!("{}: {error}", to.display()))?;
    Ok(to)
}

/// A folder of files that are not whole yet, which goes when it is dropped or the program is interrupted.
struct Partial(PathBuf);

impl Partial {
    fn within(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(format!("{name}.{}.partial", std::process::id()));
        fs::create_dir_all(&path)?;
        let partial = path.clone();
        // Where somebody listens for Ctrl-C already, the folder stays behind.
        let _ = ctrlc::set_handler(move || {
            let _ = fs::remove_dir_all(&partial);
            std::process::exit(130);
        });
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread::{JoinHandle, spawn};

    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn published(within: Option<&'static str>, sha256: &'static str) -> PublishedFile {
        PublishedFile { url: "https://nowhere.invalid/v1/abc.pth", within, sha256, megabytes: 1 }
    }

    /// An address that answers one request so, and what was asked for.
    fn served(answer: Vec<u8>) -> (String, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let server = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(&answer).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (address, server)
    }

    fn ok(body: &[u8], length: usize) -> Vec<u8> {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
        names.map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_file_is_put_into_the_cache_under_its_whole_hash() {
        for sha256 in [ABC, &ABC[..8]] {
            let folder = tempfile::tempdir().unwrap();
            let cache = folder.path().join("weights");
            let (mirror, server) = served(ok(b"abc", 3));
            let place = Place::Cache(cache.clone());
            let file = published(None, sha256);
            let path = fetch("abc", &file, Some(&mirror), &place).unwrap();
            assert!(server.join().unwrap().starts_with("GET /abc.pth "));
            assert_eq!((path, names(&cache)), (cache.join(ABC), vec![ABC.to_owned()]));
            assert_eq!(fs::read(cache.join(ABC)).unwrap(), b"abc");
            assert!(place.has(&cache.join(ABC), &file));
            fs::write(cache.join(ABC), b"abd").unwrap();
            assert!(!place.has(&cache.join(ABC), &file), "it is damaged");
        }
    }

    #[test]
    fn a_file_in_an_archive_is_taken_out_of_it() {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file("models/abc.pth", options).unwrap();
        zip.write_all(b"abc").unwrap();
        let archive = zip.finish().unwrap().into_inner();
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("own.pth");
        let place = Place::File(to.clone());
        let (mirror, _) = served(ok(&archive, archive.len()));
        let file = published(Some("models/abc.pth"), ABC);
        assert_eq!(fetch("abc", &file, Some(&mirror), &place).unwrap(), to);
        assert_eq!(fs::read(&to).unwrap(), b"abc");
        for (within, body) in [("models/abd.pth", &archive[..]), ("models/abc.pth", b"no archive")]
        {
            let (mirror, _) = served(ok(body, body.len()));
            let file = published(Some(within), ABC);
            let error = fetch("abc", &file, Some(&mirror), &place).unwrap_err().to_string();
            assert!(error.contains("is not the published file"), "{error}");
        }
        assert_eq!(names(folder.path()), ["own.pth"]);
    }

    #[test]
    fn what_is_cut_off_or_not_there_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Cache(folder.path().to_owned());
        let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
        for (answer, says) in [
            (ok(b"ab", 3), "cannot download"),
            (missing, "404"),
            (ok(b"abd", 3), "its sha256 is a52d159f"),
        ] {
            let (mirror, _) = served(answer);
            let fetched = fetch("abc", &published(None, ABC), Some(&mirror), &place);
            let error = fetched.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(names(folder.path()), [""; 0]);
        }
    }
}
