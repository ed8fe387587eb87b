//! A server that requests are sent to as they are.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

/// Requests after which a server begins again with the same model: examples that were added make it slower.
const REQUESTS: usize = 500;

/// Time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Status of a server that has more to do than it takes at a time.
const BUSY: u16 = 503;

/// Runs a program until its own input ends, as it does with the process that holds the other end, however that ends.
const WHILE_HELD: &str = "\"$0\" \"$@\" & cat >/dev/null; kill -9 $!";

static SERVER: Mutex<Option<Server>> = Mutex::new(None);

struct Server {
    process: Child,
    address: String,
    folder: TempDir,
    requests: usize,
}

/// Requests by HTTP. The server is the program that `FEWSHOT_BINARY` names.
pub fn requests(bytes: &[u8]) {
    let mut shared = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut server =
        shared.take().filter(|server| server.requests < REQUESTS).unwrap_or_else(Server::start);
    let status = server.answer(bytes);
    assert!(status.is_none_or(|status| status < 500 || status == BUSY), "status {status:?}");
    let errors = server.errors();
    assert!(!errors.contains("panicked"), "{errors}");
    *shared = Some(server);
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the model");
        let model = folder.path().join("m.fewshot");
        fs::write(&model, include_bytes!("../corpus/adapted/two_classes")).expect("the model");
        let stderr = File::create(folder.path().join("stderr")).expect("a file for its errors");
        let mut process = Command::new("sh")
            .args(["-c", WHILE_HELD])
            .arg(binary())
            .arg("serve")
            .arg(&model)
            .args(["--port", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the server");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("its first line");
        let address = line.trim().rsplit("http://").next().unwrap_or_default().to_owned();
        Self { process, address, folder, requests: 0 }
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).expect("what it said")
    }

    /// The status of the first answer, if there is one.
    fn answer(&mut self, bytes: &[u8]) -> Option<u16> {
        self.requests += 1;
        let mut stream = TcpStream::connect(&self.address)
            .unwrap_or_else(|error| panic!("the server has ended: {error}, {}", self.errors()));
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // A server that refuses a request may close before it has all of it.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            assert!(!matches!(error.kind(), TimedOut | WouldBlock), "no answer: {error}");
        }
        let line = answer.strip_prefix(b"HTTP/1.1 ")?;
        std::str::from_utf8(line.get(..3)?).ok()?.parse().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn binary() -> PathBuf {
    match option_env!("CARGO_BIN_EXE_fewshot") {
        Some(binary) => PathBuf::from(binary),
        None => env::var_os("FEWSHOT_BINARY").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug/fewshot"),
            PathBuf::from,
        ),
    }
}
