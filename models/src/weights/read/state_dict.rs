use std::collections::BTreeMap;
use std::io::BufRead;
use std::mem;

use burn::tensor::DType;

use super::layout::Layout;
use super::source::Source;
use super::{Order, Place, Stored, parameter_error};
use crate::pickle::{Node, Objects, Step, Values, run};

/// Characters of all names of tensors, and 64 for each, at most: a dictionary may be in another many times.
const NAMES: usize = 4 << 20;

/// The tensors that a pickle of PyTorch declares.
pub(super) struct StateDict {
    values: Values<Tensor>,
    tensors: Vec<(String, Tensor)>,
}

/// Arguments that a tensor is rebuilt from, by the numbers of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    storage: usize,
    offset: usize,
    sizes: usize,
    strides: usize,
}

/// The numbers that tensors share, as a pickle declares them.
pub(super) struct Storage<'a> {
    pub(super) key: &'a [u8],
    pub(super) kind: DType,
    elements: usize,
}

impl StateDict {
    pub(super) fn read(pickle: impl BufRead) -> Step<Self> {
        let mut values = self::pickle(pickle)?;
        let tensors = flatten(&mut values)?;
        for (name, tensor) in &tensors {
            storage(&values, tensor.storage).map_err(parameter_error(name))?;
        }
        Ok(Self { values, tensors })
    }

    /// Every storage, also one that is in no dictionary, maybe several times.
    pub(super) fn storages(&self) -> impl Iterator<Item = Storage<'_>> {
        (0..self.values.nodes.len()).filter_map(|node| storage(&self.values, node).ok())
    }

    /// The tensors, where `place` finds the storages and says how many bytes each has.
    ///
    /// # Errors
    /// The error of the first tensor whose storage is absent, or has another size than the tensor declares.
    pub(super) fn stored(
        self,
        file: &Source,
        order: Order,
        mut place: impl FnMut(&Storage) -> Step<(Place, u64)>,
    ) -> Step<BTreeMap<String, Stored>> {
        let mut stored = |tensor: &Tensor| {
            let storage = storage(&self.values, tensor.storage)?;
            let (place, length) = place(&storage)?;
            let declared = storage.elements as u64 * storage.kind.size() as u64;
            if length != declared {
                return Err(format!(
                    "declares a storage of {declared} bytes, that of the file has {length}"
                ));
            }
            let offset = match self.values.nodes[tensor.offset] {
                Node::Int(offset) => usize::try_from(offset).ok(),
                _ => None,
            };
            let [shape, strides] =
                [tensor.sizes, tensor.strides].map(|sizes| self.values.sizes(sizes));
            let (Some(offset), Some(shape), Some(strides)) = (offset, shape, strides) else {
                return Err("has no offset, sizes and strides".into());
            };
            let layout = Layout::within(storage.elements, offset, shape, strides)?;
            Ok(Stored { file: file.clone(), place, kind: storage.kind, order, layout })
        };
        let tensors = self.tensors.iter().map(|(name, tensor)| {
            let stored = stored(tensor).map_err(parameter_error(name))?;
            Ok((name.clone(), stored))
        });
        tensors.collect()
    }
}

/// The values of a pickle, and what tensors in it are rebuilt from.
pub(super) fn pickle(pickle: impl BufRead) -> Step<Values<Tensor>> {
    run(pickle, 0, Tensors)
}

/// Reads a storage's persistent id: a word, its type, its key, its device, its number of elements, and in early files that
/// of which it is a view.
fn storage(values: &Values<Tensor>, node: usize) -> Step<Storage<'_>> {
    let Node::List(id) = &values.nodes[node] else { return Err("has no storage".into()) };
    let (&[word, kind, key, _, elements], view) = id.split_first_chunk().ok_or("has no storage")?;
    let (Some(b"storage"), Node::Function(_, kind), Some(key), &Node::Int(elements)) =
        (values.part(word), &values.nodes[kind], values.part(key), &values.nodes[elements])
    else {
        return Err("has no storage".into());
    };
    if !view.iter().all(|&view| matches!(values.nodes[view], Node::None)) {
        return Err("lies in a view of another storage, which is not read".into());
    }
    let name = &values.bytes[kind.clone()];
    let kind = self::kind(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(&name[..name.len().min(40)]);
        format!("has a {name}, which is not read")
    })?;
    let elements = usize::try_from(elements).ok().filter(|all| all.checked_mul(8).is_some());
    let elements = elements.ok_or("has a storage of an impossible size")?;
    Ok(Storage { key, kind, elements })
}

fn kind(storage: &[u8]) -> Option<DType> {
    Some(match storage {
        b"DoubleStorage" => DType::F64,
        b"FloatStorage" => DType::F32,
        b"HalfStorage" => DType::F16,
        b"BFloat16Storage" => DType::BF16,
        b"LongStorage" => DType::I64,
        b"IntStorage" => DType::I32,
        b"ShortStorage" => DType::I16,
        b"CharStorage" => DType::I8,
        b"ByteStorage" | b"BoolStorage" => DType::U8,
        _ => return None,
    })
}

/// Names are those of the dictionaries on the way; one that is in several places, or in itself, counts
/// where it is first.
fn flatten(values: &mut Values<Tensor>) -> Step<Vec<(String, Tensor)>> {
    if !matches!(values.nodes[values.root], Node::Dict(_)) {
        return Err(
            "it holds no dictionary of tensors, as state_dict() of a network gives it".into()
        );
    }
    let (mut tensors, mut characters) = (Vec::new(), 0);
    let mut waiting = vec![(values.root, String::new())];
    while let Some((node, name)) = waiting.pop() {
        let items = match &mut values.nodes[node] {
            Node::Dict(items) => mem::take(items),
            &mut Node::Object(tensor) => {
                tensors.push((name, tensor));
                continue;
            }
            _ => continue,
        };
        for (key, value) in items.into_iter().rev() {
            let Some(key) = values.part(key) else { continue };
            if !matches!(values.nodes[value], Node::Dict(_) | Node::Object(_)) {
                continue;
            }
            characters += name.len() + key.len() + 64;
            if characters > NAMES {
                return Err(format!("names of its tensors have more than {NAMES} characters"));
            }
            let key = String::from_utf8_lossy(key);
            let name = if name.is_empty() { key.into() } else { format!("{name}.{key}") };
            waiting.push((value, name));
        }
    }
    Ok(tensors)
}

/// Makes tensors and ordered dictionaries; all other objects are passed over.
struct Tensors;

impl Objects for Tensors {
    type Object = Tensor;

    const FORGETS: bool = true;

    fn call(
        &mut self,
        values: &Values<Tensor>,
        function: &str,
        arguments: &[usize],
    ) -> Step<Node<Tensor>> {
        Ok(match (function, arguments) {
            ("collections OrderedDict", _) => Node::Dict(Vec::new()),
            (
                "torch._utils _rebuild_parameter" | "torch._utils _rebuild_parameter_with_state",
                &[data, ..],
            ) => match values.nodes[data] {
                Node::Object(tensor) => Node::Object(tensor),
                _ => Node::None,
            },
            (
                "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor",
                &[storage, offset, sizes, strides, ..],
            ) => Node::Object(Tensor { storage, offset, sizes, strides }),
            _ => Node::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pickle: &[u8]) -> Step<Vec<String>> {
        let dict = StateDict::read(pickle)?;
        Ok(dict.tensors.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn unknown_objects_are_passed_over_and_no_dictionary_is_gone_through_twice() {
        let storage = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x0ctQ";
        let rest = b"K\0K\x06K\x02\x86K\x01K\x06\x86tR";
        let tensor = &[&b"ctorch._utils\n_rebuild_tensor_v2\n("[..], storage, rest].concat();
        // An object with a state and items, a number of ten bytes, and the whole in itself.
        let object = b"cargparse\nNamespace\n)\x81}b(K\x01e";
        let number = b"\x8a\nabcdefghij";
        let items =
            [&b"U\x01a"[..], object, b"U\x01b", number, b"U\x01ch\0U\x01d", tensor].concat();
        let bytes = [&b"\x80\x02}q\0("[..], &items, b"u.more"].concat();
        let dict = StateDict::read(&bytes[..]).unwrap();
        let [(name, tensor)] = &dict.tensors[..] else { panic!("{:?}", dict.tensors) };
        assert_eq!(name, "d");
        assert_eq!(dict.values.sizes(tensor.sizes).unwrap(), [6, 2]);
        assert_eq!(dict.values.sizes(tensor.strides).unwrap(), [1, 6]);
    }

    #[test]
    fn a_pickle_of_no_dictionary_is_said() {
        let error = names(b"\x80\x02].").unwrap_err();
        assert!(error.starts_with("it holds no dictionary of tensors"), "{error}");
    }

    #[test]
    fn nested_and_repeated_dictionaries_end() {
        // A dictionary that is in the next twice, without a tensor.
        let mut doubled = b"\x80\x02}".to_vec();
        for _ in 0..60 {
            doubled.extend_from_slice(b"q\x000}(U\x01ah\0U\x01bh\0u");
        }
        assert_eq!(names(&[&doubled[..], b"."].concat()).unwrap(), [""; 0]);
        // Dictionaries within one another: the innermost is made first.
        let mut deep = b"\x80\x02}q\x010".to_vec();
        for _ in 0..20_000 {
            deep.extend_from_slice(b"}(U\x01ah\x01uq\x010");
        }
        deep.extend_from_slice(b"h\x01.");
        let error = names(&deep).unwrap_err();
        assert_eq!(error, "names of its tensors have more than 4194304 characters");
    }
}
