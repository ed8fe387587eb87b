//! Nodes of a sum as bytes: little-endian, counts as u64.

use super::flat::elements;
use super::{Contribution, FlatGradients, Node};

/// The same floats on every machine.
pub(super) fn bytes_of(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    for (bytes, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The floats of [`bytes_of`]; what is left of a last one is dropped.
pub(super) fn floats_of(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.as_chunks::<{ size_of::<f32>() }>().0;
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// Whether a message has the gradients of its nodes, or only what else is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    With,
    Without,
}

/// What a process sends of its sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    /// Leaves of the whole tree.
    pub(super) leaves: usize,
    /// Elements of every float tensor of the module.
    pub(super) lengths: Vec<usize>,
    /// Without values, the gradients are of a module whose tensors have no element.
    pub(super) nodes: Vec<Node<Contribution>>,
}

/// Nodes of a tree over `leaves`, all of one module.
pub(super) fn encode(leaves: usize, nodes: &[Node<Contribution>], values: Values) -> Vec<u8> {
    let lengths = nodes.first().map_or(&[][..], |node| &node.value.gradients.lengths);
    let mut bytes = Vec::new();
    for count in [leaves, nodes.len(), lengths.len()].iter().chain(lengths) {
        bytes.extend((*count as u64).to_le_bytes());
    }
    for Node { start, length, value } in nodes {
        bytes.extend([*start, *length].iter().flat_map(|count| (*count as u64).to_le_bytes()));
        bytes.extend([value.loss, value.score, value.weight].iter().flat_map(|v| v.to_le_bytes()));
        bytes.extend(value.gradients.present.iter().map(|present| u8::from(*present)));
        if values == Values::With {
            bytes.extend(bytes_of(&value.gradients.values));
        }
    }
    bytes
}

/// What was [encoded](encode), or what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8], values: Values) -> Result<Message, String> {
    let mut reader = Reader { bytes };
    let (leaves, nodes, tensors) = (reader.count()?, reader.count()?, reader.count()?);
    let lengths = (0..tensors).map(|_| reader.count()).collect::<Result<Vec<_>, _>>()?;
    let here = match values {
        Values::With => lengths.clone(),
        Values::Without => vec![0; lengths.len()],
    };
    let nodes = (0..nodes).map(|_| reader.node(&here)).collect::<Result<_, _>>()?;
    match reader.bytes.len() {
        0 => Ok(Message { leaves, lengths, nodes }),
        more => Err(format!("{more} bytes more than expected")),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn node(&mut self, lengths: &[usize]) -> Result<Node<Contribution>, String> {
        let (start, length) = (self.count()?, self.count()?);
        let (loss, score, weight) = (self.number()?, self.number()?, self.number()?);
        let present = self.take(lengths.len())?.iter().map(|byte| match byte {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} where 0 or 1 is expected")),
        });
        let present = present.collect::<Result<Vec<_>, _>>()?;
        let size = elements(lengths, &present)
            .and_then(|elements| elements.checked_mul(size_of::<f32>()))
            .ok_or("more elements than memory can have")?;
        let values = floats_of(self.take(size)?);
        let gradients = FlatGradients { lengths: lengths.to_vec(), present, values };
        Ok(Node { start, length, value: Contribution { gradients, loss, score, weight } })
    }

    fn count(&mut self) -> Result<usize, String> {
        let count = u64::from_le_bytes(self.word()?);
        usize::try_from(count).map_err(|_| format!("a count of {count}"))
    }

    fn number(&mut self) -> Result<f64, String> {
        Ok(f64::from_le_bytes(self.word()?))
    }

    fn word(&mut self) -> Result<[u8; 8], String> {
        let bytes = self.take(8)?;
        bytes.try_into().map_err(|_| format!("{} bytes where 8 are expected", bytes.len()))
    }

    fn take(&mut self, wanted: usize) -> Result<&'a [u8], String> {
        let found = self.bytes.len();
        let (taken, rest) = self
            .bytes
            .split_at_checked(wanted)
            .ok_or_else(|| format!("it ends {found} bytes further on, {wanted} are expected"))?;
        self.bytes = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<Node<Contribution>> {
        let node = |start, length, present: [bool; 2], values: &[f32]| {
            let gradients = FlatGradients {
                lengths: vec![1, 2],
                present: present.to_vec(),
                values: values.to_vec(),
            };
            let value = Contribution { gradients, loss: 0.1, score: -3.0, weight: 5.0 };
            Node { start, length, value }
        };
        vec![node(3, 1, [true, false], &[0.1]), node(4, 4, [true, true], &[1e-40, -0.0, 3e38])]
    }

    #[test]
    fn nodes_come_back_bit_for_bit() {
        let bytes = encode(9, &nodes(), Values::With);
        let found = decode(&bytes, Values::With).unwrap();
        assert_eq!(found, Message { leaves: 9, lengths: vec![1, 2], nodes: nodes() });
        let zero = found.nodes[1].value.gradients.values[1];
        assert_eq!(zero.to_bits(), (-0.0_f32).to_bits());
    }

    #[test]
    fn without_values_the_rest_comes_back() {
        let bytes = encode(9, &nodes(), Values::Without);
        assert_eq!(bytes.len(), 8 * 5 + 2 * (8 * 5 + 2));
        let found = decode(&bytes, Values::Without).unwrap();
        assert_eq!(found.lengths, [1, 2]);
        assert_eq!(found.nodes[0].value.gradients.present, [true, false]);
        assert_eq!(found.nodes[1].value.loss, 0.1);
    }

    #[test]
    fn a_damaged_message_is_an_error_and_not_a_panic() {
        let bytes = encode(9, &nodes(), Values::With);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], Values::With).is_err(), "{length} bytes");
        }
        let more = [&bytes[..], &[0]].concat();
        assert_eq!(decode(&more, Values::With).unwrap_err(), "1 bytes more than expected");
        let mut flag = bytes.clone();
        flag[8 * 10] = 2;
        assert_eq!(decode(&flag, Values::With).unwrap_err(), "2 where 0 or 1 is expected");
        let mut huge = bytes;
        huge[8 * 3..8 * 5].fill(255);
        assert!(decode(&huge, Values::With).is_err());
    }
}
