//! How the tensors of a PyTorch file lie in memory, which `burn-store` 0.21 does not read: it takes every tensor for
//! contiguous, and gets those of a transposed layout wrong.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::mem;
use std::path::Path;

use zip::ZipArchive;

use crate::pickle::{Node, Objects, Step, Values, run};

/// Sizes and strides of a tensor, both in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl Layout {
    /// Whether elements lie in row-major order.
    pub(super) fn is_contiguous(&self) -> bool {
        let mut wanted = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == wanted;
            wanted *= size;
            fits
        })
    }

    /// Where each element lies, in row-major order; `None` unless that is every place up to their number, once.
    pub(super) fn places(&self) -> Option<Vec<usize>> {
        let mut places = vec![0];
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let along = |place: usize| (0..size).map(move |at| place + at * stride);
            places = places.into_iter().flat_map(along).collect();
        }
        let mut taken = vec![false; places.len()];
        let dense = places
            .iter()
            .all(|&place| taken.get_mut(place).is_some_and(|taken| !mem::replace(taken, true)));
        dense.then_some(places)
    }
}

/// The layouts of all tensors of a file that PyTorch has written, by the names that `burn-store` gives them.
pub(super) fn layouts(file: &Path) -> io::Result<HashMap<String, Layout>> {
    let mut reader = BufReader::new(File::open(file)?);
    let values = match ZipArchive::new(&mut reader) {
        Ok(mut archive) => {
            let pickle = archive.file_names().find(|name| name.ends_with("data.pkl"));
            let pickle = pickle.map(str::to_owned).ok_or_else(|| broken("no data.pkl"))?;
            read(BufReader::new(archive.by_name(&pickle)?))?
        }
        Err(_) => {
            reader.rewind()?;
            // A number, a version and sizes of types come before the tensors.
            for _ in 0..3 {
                read(&mut reader)?;
            }
            read(&mut reader)?
        }
    };
    Ok(flatten(values))
}

fn read(reader: impl BufRead) -> io::Result<Values<Layout>> {
    run(reader, 0, Tensors).map_err(broken)
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Names are those of the dictionaries on the way; one that is in several places, or in itself, counts
/// where it is first.
fn flatten(mut values: Values<Layout>) -> HashMap<String, Layout> {
    let mut found = HashMap::new();
    let mut waiting = vec![(values.root, String::new())];
    while let Some((node, name)) = waiting.pop() {
        let items = match &mut values.nodes[node] {
            Node::Dict(items) => mem::take(items),
            Node::Object(layout) => {
                found.insert(name, layout.clone());
                continue;
            }
            _ => continue,
        };
        for (key, value) in items.into_iter().rev() {
            let Some(key) = values.part(key).map(String::from_utf8_lossy) else { continue };
            let name = if name.is_empty() { key.into() } else { format!("{name}.{key}") };
            waiting.push((value, name));
        }
    }
    found
}

/// Of objects, tensors and ordered dictionaries are known; all others are passed over.
struct Tensors;

impl Objects for Tensors {
    type Object = Layout;

    const FORGETS: bool = true;

    fn call(
        &mut self,
        values: &Values<Layout>,
        function: &str,
        arguments: &[usize],
    ) -> Step<Node<Layout>> {
        let sizes = |index: usize| values.sizes(*arguments.get(index)?);
        let tensor = match function {
            "collections OrderedDict" => return Ok(Node::Dict(Vec::new())),
            "torch._utils _rebuild_parameter" => {
                match arguments.first().map(|&of| &values.nodes[of]) {
                    Some(Node::Object(layout)) => Some(layout.clone()),
                    _ => None,
                }
            }
            "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor" => {
                let layout = sizes(2).zip(sizes(3));
                layout.map(|(shape, strides)| Layout { shape, strides })
            }
            _ => None,
        };
        Ok(tensor.map_or(Node::None, Node::Object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_objects_are_passed_over_and_no_dictionary_is_gone_through_twice() {
        let tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(NK\0K\x06K\x02\x86K\x01K\x06\x86tR";
        // An object with a state and items, a number of ten bytes, and the whole in itself.
        let object = b"cargparse\nNamespace\n)\x81}b(K\x01e";
        let number = b"\x8a\nabcdefghij";
        let items =
            [&b"U\x01a"[..], object, b"U\x01b", number, b"U\x01ch\0U\x01d", tensor].concat();
        let bytes = [&b"\x80\x02}q\0("[..], &items, b"u.more"].concat();
        let found = flatten(read(&bytes[..]).unwrap());
        let layout = Layout { shape: vec![6, 2], strides: vec![1, 6] };
        assert_eq!(found, HashMap::from([("d".to_owned(), layout)]));
    }

    #[test]
    fn places_are_those_of_a_transposed_tensor() {
        let layout = Layout { shape: vec![2, 3], strides: vec![1, 2] };
        assert!(!layout.is_contiguous());
        assert_eq!(layout.places().unwrap(), [0, 2, 4, 1, 3, 5]);
        let view = Layout { shape: vec![2, 2], strides: vec![3, 1] };
        assert!(view.places().is_none() && !view.is_contiguous());
        let repeated = Layout { shape: vec![2, 2], strides: vec![0, 1] };
        assert!(repeated.places().is_none());
        for strides in [vec![3, 1], vec![3, 7]] {
            let size = if strides[1] == 1 { 3 } else { 1 };
            let whole = Layout { shape: vec![2, size], strides: vec![size, strides[1]] };
            assert!(whole.is_contiguous(), "{whole:?}");
        }
    }
}
