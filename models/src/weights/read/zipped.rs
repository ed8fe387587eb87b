use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufReader, Read};

use zip::{CompressionMethod, ZipArchive};

use super::source::{ReadSeek, Source};
use super::state_dict::StateDict;
use super::{Order, Place, Step, Stored, text};

type Archive<'a> = ZipArchive<BufReader<Box<dyn ReadSeek + 'a>>>;

/// Bytes of the pickle, at most.
const PICKLE: u64 = 32 << 20;

/// Bytes that all storages may have beyond four times those of the file, where they are compressed.
const INFLATED: u64 = 64 << 20;

/// Tensors of a file that PyTorch has written since 1.6.
pub(super) fn tensors(file: &Source) -> Step<BTreeMap<String, Stored>> {
    let length = file.length().map_err(text)?;
    let mut archive = ZipArchive::new(file.reader().map_err(text)?)
        .map_err(|error| format!("its zip archive is cut or damaged: {error}"))?;
    let is_pickle = |name: &&str| *name == "data.pkl" || name.ends_with("/data.pkl");
    let pickle = archive.file_names().find(is_pickle).map(str::to_owned);
    let pickle = pickle.ok_or("its zip archive has no data.pkl")?;
    let folder = pickle.trim_end_matches("data.pkl");
    let order = order(&mut archive, folder)?;
    let dict = StateDict::read(&content(&mut archive, &pickle, PICKLE)?[..])
        .map_err(|error| format!("{pickle}: {error}"))?;

    let (mut left, mut known) = (INFLATED + 4 * length, HashMap::new());
    dict.stored(file, order, |storage| {
        let name = format!("{folder}data/{}", String::from_utf8_lossy(storage.key));
        if let Some(&entry) = known.get(&name) {
            return Ok(entry);
        }
        let entry = whole(&mut archive, &name, &mut left)?;
        known.insert(name, entry);
        Ok(entry)
    })
}

fn order(archive: &mut Archive, folder: &str) -> Step<Order> {
    let name = format!("{folder}byteorder");
    if archive.index_for_name(&name).is_none() {
        return Ok(Order::LittleEndian);
    }
    match &content(archive, &name, 16)?[..] {
        b"little" => Ok(Order::LittleEndian),
        b"big" => Ok(Order::BigEndian),
        other => Err(format!("{name} is {:?}", String::from_utf8_lossy(other))),
    }
}

/// All of an entry, whose checksum is right.
fn content(archive: &mut Archive, name: &str, most: u64) -> Step<Vec<u8>> {
    let damaged = |error: String| format!("{name} cannot be read: {error}");
    let entry = archive.by_name(name).map_err(text).map_err(damaged)?;
    let mut bytes = Vec::new();
    entry.take(most + 1).read_to_end(&mut bytes).map_err(text).map_err(damaged)?;
    match bytes.len() as u64 > most {
        true => Err(format!("{name} has more than {most} bytes")),
        false => Ok(bytes),
    }
}

/// Where a storage begins and how many bytes it has, after all of it was read.
fn whole(archive: &mut Archive, name: &str, left: &mut u64) -> Step<(Place, u64)> {
    let damaged = |error: String| format!("has its storage in {name}, which is damaged: {error}");
    let Some(index) = archive.index_for_name(name) else {
        return Err(format!("has its storage in {name}, which is not in the file"));
    };
    let mut entry = archive.by_index(index).map_err(text).map_err(damaged)?;
    let size = entry.size();
    *left = left.checked_sub(size).ok_or_else(|| {
        format!("has its storage in {name}, with which all have far more bytes than the file")
    })?;
    let read = io::copy(&mut entry.by_ref().take(size + 1), &mut io::sink());
    let read = read.map_err(text).map_err(damaged)?;
    if read != size {
        return Err(damaged(format!("it has {size} bytes, {read} are there")));
    }
    match (entry.compression(), entry.data_start()) {
        (CompressionMethod::Stored, Some(start)) => Ok((Place::At(start), size)),
        _ => Ok((Place::Packed(index), size)),
    }
}
