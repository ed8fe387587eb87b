use std::collections::BTreeMap;
use std::io::Read;

use burn::tensor::DType;
use safetensors::tensor::{Dtype, Metadata};

use super::layout::Layout;
use super::source::Source;
use super::{Order, Place, Step, Stored, beyond, parameter_error, text};

/// Bytes of a header, at most. That of a network of 10 000 tensors has one million.
const HEADER: u64 = 16 << 20;

/// Bytes of the header's length.
const PREFIX: u64 = 8;

pub(super) fn tensors(file: &Source) -> Step<BTreeMap<String, Stored>> {
    let length = file.length().map_err(text)?;
    let mut reader = file.reader().map_err(text)?;
    let mut prefix = [0; PREFIX as usize];
    reader.read_exact(&mut prefix).map_err(text)?;
    let header = u64::from_le_bytes(prefix);
    if header > length - PREFIX {
        return Err(format!("its header has {header} bytes, the file {length}"));
    }
    if header > HEADER {
        return Err(format!("its header has {header} bytes, at most {HEADER} are read"));
    }
    let mut bytes = vec![0; header as usize];
    reader.read_exact(&mut bytes).map_err(text)?;
    let metadata: Metadata = serde_json::from_slice(&bytes).map_err(text)?;

    let start = PREFIX + header;
    let mut tensors = BTreeMap::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let (from, to) = (start + info.data_offsets.0 as u64, start + info.data_offsets.1 as u64);
        if to > length {
            return Err(parameter_error(&name)(beyond(from, to, length)));
        }
        let kind = kind(info.dtype)
            .ok_or_else(|| format!("is of the type {:?}, which is not read", info.dtype));
        let kind = kind.map_err(parameter_error(&name))?;
        let (file, layout) = (file.clone(), Layout::whole(info.shape.clone()));
        let (place, order) = (Place::At(from), Order::LittleEndian);
        tensors.insert(name, Stored { file, place, kind, order, layout });
    }
    let end = start + metadata.data_len() as u64;
    if end != length {
        return Err(format!("its tensors end at byte {end}, the file at byte {length}"));
    }
    Ok(tensors)
}

fn kind(kind: Dtype) -> Option<DType> {
    Some(match kind {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 | Dtype::BOOL => DType::U8,
        _ => return None,
    })
}
