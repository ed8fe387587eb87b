use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Progress;
use crate::episode::TaskKind;
use crate::files;
use crate::learners::Learner;

const MAGIC: &[u8; 8] = b"FEWSHOT2";

/// First bytes of checkpoints of every version.
const NAME: &[u8] = b"FEWSHOT";
const DIGEST: usize = 32;

/// One file with everything a run needs to go on, or a learner needs to be used.
///
/// # Conventions
/// `FEWSHOT2`, the length of the header as a little-endian u64, the header as JSON, the records it
/// lists as named MessagePack in full precision, and the SHA-256 of all that.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    header: Header,
    records: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Header {
    architecture: String,
    settings: serde_json::Value,
    progress: Progress,
    records: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: usize,
}

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum CheckpointError {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file that is no checkpoint.
    #[error("{} is not a checkpoint of this library", path.display())]
    Foreign { path: PathBuf },
    /// A checkpoint of another format.
    #[error("{} is a checkpoint of another version of this library", path.display())]
    Version { path: PathBuf },
    /// A file that is not as it was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// A checkpoint of another learner or network.
    #[error("the checkpoint holds {actual}, not {expected}")]
    Architecture { actual: String, expected: String },
    /// A record that is absent or does not read.
    #[error("the checkpoint's record of the {name} cannot be used: {reason}")]
    Record { name: &'static str, reason: String },
}

impl Checkpoint {
    /// A checkpoint without records.
    ///
    /// `settings` is whatever the caller wants to find again.
    pub fn new(architecture: String, settings: serde_json::Value, progress: Progress) -> Self {
        let header = Header { architecture, settings, progress, records: Vec::new() };
        Self { header, records: Vec::new() }
    }

    /// With one more record.
    pub fn with<B: Backend>(self, name: &'static str, record: impl Record<B>) -> Self {
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
        let bytes = Recorder::<B>::record(&recorder, record, ())
            .expect("writing MessagePack to memory does not fail");
        self.with_bytes(name, bytes)
    }

    pub(super) fn with_bytes(mut self, name: &'static str, bytes: Vec<u8>) -> Self {
        self.header.records.push(Entry { name: name.to_owned(), bytes: bytes.len() });
        self.records.push(bytes);
        self
    }

    /// True if the file at `path` begins like checkpoints of every version.
    pub fn is_at(path: &Path) -> bool {
        let mut start = [0; NAME.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && start == NAME
    }

    /// Architecture of the learner.
    pub fn architecture(&self) -> &str {
        &self.header.architecture
    }

    /// Settings of the run, as its trainer stored them.
    pub fn settings(&self) -> &serde_json::Value {
        &self.header.settings
    }

    /// Bytes of the record called `name`; 0 where there is none.
    pub fn size_of(&self, name: &str) -> usize {
        let entries = self.header.records.iter();
        entries.filter(|entry| entry.name == name).map(|entry| entry.bytes).sum()
    }

    /// Progress of the run.
    pub fn progress(&self) -> &Progress {
        &self.header.progress
    }

    /// The record called `name`.
    ///
    /// # Errors
    /// When there is none, or it is not of this type.
    pub fn record<B: Backend, R: Record<B>>(
        &self,
        name: &'static str,
        device: &B::Device,
    ) -> Result<R, CheckpointError> {
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
        let bytes = self.bytes(name)?.to_vec();
        Recorder::<B>::load(&recorder, bytes, device)
            .map_err(|error| CheckpointError::Record { name, reason: error.to_string() })
    }

    /// `learner` with the parameters that were saved.
    ///
    /// # Errors
    /// When it is not of the checkpoint's architecture.
    pub fn load<B: Backend, K: TaskKind, L: Learner<B, K>>(
        &self,
        learner: L,
        device: &B::Device,
    ) -> Result<L, CheckpointError> {
        let expected = learner.architecture();
        if expected != self.header.architecture {
            let actual = self.header.architecture.clone();
            return Err(CheckpointError::Architecture { actual, expected });
        }
        Ok(learner.load_record(self.record::<B, _>("learner", device)?))
    }

    pub(super) fn bytes(&self, name: &'static str) -> Result<&[u8], CheckpointError> {
        let position = self.header.records.iter().position(|entry| entry.name == name);
        match position {
            Some(position) => Ok(&self.records[position]),
            None => Err(CheckpointError::Record { name, reason: "there is none".to_owned() }),
        }
    }

    /// Writes the file beside and renames it, so that a kill leaves the old one or the new one.
    ///
    /// # Errors
    /// When the file cannot be written; an older one at `path` is then still there.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        files::replace(path, &self.to_bytes())
            .map_err(|source| CheckpointError::Io { path: path.to_owned(), source })
    }

    /// Bytes of the file that [`write`](Self::write) makes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let header = serde_json::to_vec(&self.header).expect("a header is plain data");
        let mut bytes = MAGIC.to_vec();
        bytes.extend((header.len() as u64).to_le_bytes());
        bytes.extend(header);
        bytes.extend(self.records.iter().flatten());
        let digest = Sha256::digest(&bytes);
        bytes.extend(digest);
        bytes
    }

    /// SHA-256 of the file's content, the last bytes of the file, in hexadecimal digits.
    pub fn sha256(&self) -> String {
        self.digest().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Tells checkpoints apart.
    pub(super) fn digest(&self) -> Vec<u8> {
        let bytes = self.to_bytes();
        bytes[bytes.len() - DIGEST..].to_vec()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When there is no such file, it is no checkpoint, or it is not as it was written.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let bytes = std::fs::read(path)
            .map_err(|source| CheckpointError::Io { path: path.to_owned(), source })?;
        Self::from_bytes(&bytes, path)
    }

    /// Checkpoint in the bytes of a file, with `path` for errors.
    pub(super) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, CheckpointError> {
        if !bytes.starts_with(MAGIC) {
            let path = path.to_owned();
            return Err(match bytes.starts_with(NAME) && bytes.len() > MAGIC.len() {
                true => CheckpointError::Version { path },
                false => CheckpointError::Foreign { path },
            });
        }
        let damaged = |reason: &str| CheckpointError::Damaged {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let end = bytes.len().checked_sub(DIGEST).ok_or_else(|| damaged("it is too short"))?;
        let (content, digest) = bytes.split_at(end);
        if Sha256::digest(content).as_slice() != digest {
            return Err(damaged("its checksum does not match"));
        }
        parse(content).ok_or_else(|| damaged("its header does not read"))
    }
}

/// A file whose checksum holds, without the checksum.
fn parse(content: &[u8]) -> Option<Checkpoint> {
    let (length, rest) = content.get(MAGIC.len()..)?.split_first_chunk()?;
    let (header, mut rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    let header: Header = serde_json::from_slice(header).ok()?;
    let mut records = Vec::with_capacity(header.records.len());
    for entry in &header.records {
        let (record, after) = rest.split_at_checked(entry.bytes)?;
        records.push(record.to_vec());
        rest = after;
    }
    Some(Checkpoint { header, records })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last.ckpt");
        let progress = Progress { step: 7, ..Default::default() };
        Checkpoint::new("conv4".to_owned(), serde_json::json!({"seed": 3}), progress)
            .with_bytes("learner", vec![1, 2, 3])
            .with_bytes("optimizer", vec![])
            .write(&path)
            .unwrap();
        (folder, path)
    }

    #[test]
    fn a_checkpoint_reads_as_it_was_written() {
        let (_folder, path) = written();
        assert!(Checkpoint::is_at(&path) && !Checkpoint::is_at(&path.with_extension("none")));
        let read = Checkpoint::read(&path).unwrap();
        assert_eq!(read.architecture(), "conv4");
        assert_eq!(read.settings()["seed"], 3);
        assert_eq!(read.progress().step, 7);
        assert_eq!(read.bytes("learner").unwrap(), [1, 2, 3]);
        assert!(read.bytes("optimizer").unwrap().is_empty());
        assert!(matches!(read.bytes("scheduler"), Err(CheckpointError::Record { .. })));
    }

    #[test]
    fn a_changed_byte_or_a_lost_end_is_damage() {
        let (_folder, path) = written();
        let whole = fs::read(&path).unwrap();
        for position in [8, 20, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[position] ^= 1;
            fs::write(&path, changed).unwrap();
            let error = Checkpoint::read(&path).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{position}: {error}");
        }
        for length in 0..whole.len() {
            let error = Checkpoint::from_bytes(&whole[..length], &path).unwrap_err();
            let damaged = matches!(error, CheckpointError::Damaged { .. });
            assert_eq!(damaged, length >= MAGIC.len(), "{length}: {error}");
        }
    }

    #[test]
    fn a_checkpoint_of_another_version_says_so() {
        let (_folder, path) = written();
        let mut bytes = fs::read(&path).unwrap();
        bytes[7] = b'1';
        fs::write(&path, bytes).unwrap();
        assert!(matches!(Checkpoint::read(&path), Err(CheckpointError::Version { .. })));
    }

    #[test]
    fn another_file_is_foreign() {
        let (_folder, path) = written();
        for content in ["", "FEWSHOT", "hello world, this is no checkpoint"] {
            fs::write(&path, content).unwrap();
            assert!(matches!(Checkpoint::read(&path), Err(CheckpointError::Foreign { .. })));
            assert_eq!(Checkpoint::is_at(&path), content == "FEWSHOT");
        }
    }
}
