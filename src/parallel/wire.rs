//! Nodes of a sum as bytes: a line of JSON, then the gradients as little-endian floats.

use serde::{Deserialize, Serialize};

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

/// The content of a message: with the gradients of its nodes, or without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    With,
    Without,
}

/// The message by which a process sends its sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    /// Leaves of the whole tree.
    pub(super) leaves: usize,
    /// Elements of every float tensor of the module.
    pub(super) lengths: Vec<usize>,
    /// Without values, the gradients are of a module whose tensors have no element.
    pub(super) nodes: Vec<Node<Contribution>>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    leaves: usize,
    lengths: Vec<usize>,
    nodes: Vec<NodeHeader>,
}

#[derive(Serialize, Deserialize)]
struct NodeHeader {
    start: usize,
    length: usize,
    present: Vec<bool>,
    /// The bits of loss, score and weight: JSON has no infinity.
    figures: [u64; 3],
}

/// Nodes of a tree over `leaves`, all of one module.
pub(super) fn encode(leaves: usize, nodes: &[Node<Contribution>], values: Values) -> Vec<u8> {
    let lengths = nodes.first().map_or_else(Vec::new, |node| node.value.gradients.lengths.clone());
    let head = |Node { start, length, value }: &Node<Contribution>| NodeHeader {
        start: *start,
        length: *length,
        present: value.gradients.present.clone(),
        figures: [value.loss, value.score, value.weight].map(f64::to_bits),
    };
    let head = Header { leaves, lengths, nodes: nodes.iter().map(head).collect() };
    let mut bytes = serde_json::to_vec(&head).expect("plain data");
    bytes.push(b'\n');
    if values == Values::With {
        nodes.iter().for_each(|node| bytes.extend(bytes_of(&node.value.gradients.values)));
    }
    bytes
}

/// The message that was [encoded](encode), or the fault of the bytes.
pub(super) fn decode(bytes: &[u8], values: Values) -> Result<Message, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("its first line has no end")?;
    let head = serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
    let Header { leaves, lengths, nodes } = head;
    let here = match values {
        Values::With => lengths.clone(),
        Values::Without => vec![0; lengths.len()],
    };
    let mut left = &bytes[end + 1..];
    let node = |NodeHeader { start, length, present, figures }: NodeHeader| -> Result<_, String> {
        let mut lengths = here.iter().zip(&present).filter(|(_, present)| **present);
        let count = lengths.try_fold(0_usize, |sum, (length, _)| sum.checked_add(*length));
        let size = count.and_then(|count| count.checked_mul(size_of::<f32>()));
        let size =
            size.filter(|_| present.len() == here.len()).ok_or("it has no such gradients")?;
        let (own, rest) = left.split_at_checked(size).ok_or("it ends too early")?;
        left = rest;
        let gradients = FlatGradients { lengths: here.clone(), present, values: floats_of(own) };
        let [loss, score, weight] = figures.map(f64::from_bits);
        Ok(Node { start, length, value: Contribution { gradients, loss, score, weight } })
    };
    let nodes = nodes.into_iter().map(node).collect::<Result<_, _>>()?;
    match left.len() {
        0 => Ok(Message { leaves, lengths, nodes }),
        more => Err(format!("{more} bytes more than expected")),
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
            let value = Contribution { gradients, loss: 0.1, score: f64::INFINITY, weight: 5.0 };
            Node { start, length, value }
        };
        vec![node(3, 1, [true, false], &[0.1]), node(4, 4, [true, true], &[1e-40, -0.0, 3e38])]
    }

    #[test]
    fn nodes_come_back_bit_for_bit() {
        let bytes = encode(9, &nodes(), Values::With);
        let message = decode(&bytes, Values::With).unwrap();
        assert_eq!(message, Message { leaves: 9, lengths: vec![1, 2], nodes: nodes() });
        let zero = message.nodes[1].value.gradients.values[1];
        assert_eq!(zero.to_bits(), (-0.0_f32).to_bits());
    }

    #[test]
    fn without_values_the_rest_comes_back() {
        let bytes = encode(9, &nodes(), Values::Without);
        let message = decode(&bytes, Values::Without).unwrap();
        assert_eq!(message.lengths, [1, 2]);
        assert_eq!(message.nodes[0].value.gradients.present, [true, false]);
        assert_eq!(message.nodes[1].value.loss, 0.1);
    }

    #[test]
    fn a_damaged_message_is_an_error_and_not_a_panic() {
        let bytes = encode(9, &nodes(), Values::With);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], Values::With).is_err(), "{length} bytes");
        }
        let more = [&bytes[..], &[0]].concat();
        assert_eq!(decode(&more, Values::With).unwrap_err(), "1 bytes more than expected");
        let mut huge = nodes();
        huge.iter_mut().for_each(|node| node.value.gradients.lengths = vec![usize::MAX; 2]);
        assert!(decode(&encode(9, &huge, Values::With), Values::With).is_err());
        huge[0].value.gradients.present.pop();
        assert!(decode(&encode(9, &huge, Values::Without), Values::Without).is_err());
    }
}
