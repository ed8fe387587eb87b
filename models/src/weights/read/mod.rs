//! Tensors of a file, each of which is whole: safetensors, or what PyTorch has written.

mod layout;
mod legacy;
mod safetensors;
mod source;
mod state_dict;
mod zipped;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::rc::Rc;

use burn::tensor::{DType, TensorData};
use burn_store::{TensorSnapshot, TensorSnapshotError};
use zip::ZipArchive;

use super::WeightsError;
use super::arranged::in_f32;
use crate::pickle::Step;
use layout::Layout;
use source::Source;

/// Tensors by name.
pub(super) type Snapshots = BTreeMap<String, TensorSnapshot>;

/// All tensors of a file, by name.
///
/// # Errors
/// Where a tensor is not wholly in the file, also one that no network takes.
pub(super) fn read(file: &Path) -> Result<Snapshots, WeightsError> {
    let opened = File::open(file).map_err(unreadable(file))?;
    snapshots(&Source::Disk(Rc::new(opened)), file)
}

/// The same of the content of a file of this name.
pub(super) fn decode(content: Rc<[u8]>, name: &Path) -> Result<Snapshots, WeightsError> {
    snapshots(&Source::Memory(content), name)
}

fn snapshots(source: &Source, name: &Path) -> Result<Snapshots, WeightsError> {
    let tensors = stored(source).map_err(unreadable(name))?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, tensor.snapshot())).collect())
}

pub(super) fn unreadable<E: ToString>(file: &Path) -> impl Fn(E) -> WeightsError {
    move |error| WeightsError::Unreadable { file: file.to_owned(), reason: error.to_string() }
}

/// The first bytes of files of PyTorch before 1.6.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// Where tar archives have their name.
const TAR: usize = 257;

fn stored(file: &Source) -> Step<BTreeMap<String, Stored>> {
    let mut start = Vec::new();
    let reader = file.reader().map_err(text)?;
    reader.take(TAR as u64 + 5).read_to_end(&mut start).map_err(text)?;
    // A safetensors file begins with the length of its header, which is JSON.
    if start.get(8) == Some(&b'{') {
        safetensors::tensors(file)
    } else if start.starts_with(b"PK\x03\x04") {
        zipped::tensors(file)
    } else if start.starts_with(LEGACY) {
        legacy::tensors(file)
    } else if start.get(TAR..) == Some(b"ustar") {
        Err("it is a tar archive of an early PyTorch; load it there and save it again".into())
    } else {
        Err("it is neither a safetensors file nor one of torch.save".into())
    }
}

/// A tensor that lies in a file.
struct Stored {
    file: Source,
    place: Place,
    kind: DType,
    order: Order,
    layout: Layout,
}

/// Where the storage of a tensor begins.
#[derive(Clone, Copy)]
enum Place {
    /// At a byte of the file.
    At(u64),
    /// In this entry of a zip archive, compressed.
    Packed(usize),
}

/// The order of a number's bytes.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    LittleEndian,
    BigEndian,
}

impl Stored {
    fn snapshot(self) -> TensorSnapshot {
        in_f32(Vec::new(), self.layout.shape.clone(), move || {
            self.values().map_err(|error| TensorSnapshotError::IoError(error.to_string()))
        })
    }

    fn values(&self) -> io::Result<TensorData> {
        let (size, span) = (self.kind.size(), self.layout.span());
        let (skipped, mut bytes) = ((span.start * size) as u64, vec![0; span.len() * size]);
        match self.place {
            Place::At(at) => {
                let mut reader = self.file.reader()?;
                reader.seek(SeekFrom::Start(at + skipped))?;
                reader.read_exact(&mut bytes)?;
            }
            Place::Packed(entry) => {
                let mut archive = ZipArchive::new(self.file.reader()?)?;
                let mut entry = archive.by_index(entry)?;
                io::copy(&mut entry.by_ref().take(skipped), &mut io::sink())?;
                entry.read_exact(&mut bytes)?;
            }
        }
        if self.order == Order::BigEndian {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        let shape = self.layout.shape.clone();
        let data = TensorData::from_bytes_vec(self.layout.in_rows(bytes, size), shape, self.kind);
        Ok(TensorData::new(data.iter::<f32>().collect(), data.shape))
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The reason why a file is refused, with the parameter that it is about.
fn parameter_error(name: &str) -> impl Fn(String) -> String {
    move |reason| format!("the parameter {name} {reason}")
}

/// Bytes that a file of `length` has not.
fn beyond(from: u64, to: u64, length: u64) -> String {
    format!("takes bytes {from} to {to} of the file, which ends at byte {length}")
}

#[cfg(test)]
mod tests;
