use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};

use super::source::Source;
use super::state_dict::{StateDict, pickle};
use super::{Order, Place, Step, Stored, beyond, text};
use crate::pickle::Node;

/// Tensors of a file that PyTorch has written before 1.6: pickles of a number, a version and sizes of types, of the
/// tensors, and of the keys of the storages, which follow in this order, each after the number of its elements.
pub(super) fn tensors(file: &Source) -> Step<BTreeMap<String, Stored>> {
    let length = file.length().map_err(text)?;
    let mut reader = file.reader().map_err(text)?;
    for _ in 0..3 {
        pickle(&mut reader)?;
    }
    let dict = StateDict::read(&mut reader)?;
    let keys = pickle(&mut reader).map_err(|error| format!("keys of its storages: {error}"))?;
    let Node::List(order) = &keys.nodes[keys.root] else {
        return Err("it has no list of its storages".into());
    };

    let mut places = HashMap::new();
    {
        let sizes: HashMap<_, _> =
            dict.storages().map(|storage| (storage.key, storage.kind.size() as u64)).collect();
        for &key in order {
            let key = keys.part(key).unwrap_or_default();
            let name = String::from_utf8_lossy(key);
            let size = sizes
                .get(key)
                .ok_or_else(|| format!("its storage {name} has no type that is read"))?;
            let mut elements = [0; 8];
            if reader.read_exact(&mut elements).is_err() {
                break;
            }
            let from = reader.stream_position().map_err(text)?;
            let bytes = u64::from_le_bytes(elements).saturating_mul(*size);
            places.insert(key, (from, bytes));
            match from.checked_add(bytes) {
                Some(to) if to <= length => reader.seek_relative(bytes as i64).map_err(text)?,
                _ => break,
            }
        }
    }
    dict.stored(file, Order::LittleEndian, |storage| {
        let name = String::from_utf8_lossy(storage.key);
        let &(from, bytes) = places.get(storage.key).ok_or_else(|| {
            format!("has its storage {name} beyond the end of the file, at byte {length}")
        })?;
        match from.saturating_add(bytes) {
            to if to <= length => Ok((Place::At(from), bytes)),
            to => Err(beyond(from, to, length)),
        }
    })
}
