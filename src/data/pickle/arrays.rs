use fewshot_models::pickle::{Node, Objects, Step, Values};

use super::{Array, Dtype, bytes_of};

/// The functions that build arrays, NumPy's numbers and bytes. Other functions are refused.
#[derive(Default)]
pub(super) struct Arrays {
    /// Bytes in [`Array::Decoded`].
    decoded: usize,
}

const COLUMNS: &str = "an array does not lie row by row";

impl Objects for Arrays {
    type Object = Array;

    const FORGETS: bool = false;

    fn call(
        &mut self,
        values: &Values<Array>,
        function: &str,
        arguments: &[usize],
    ) -> Step<Node<Array>> {
        let bytes = |index: usize| bytes_of(values, *arguments.get(index)?);
        let made = match (function, arguments) {
            // Its state follows.
            ("numpy.core.multiarray _reconstruct", _) => Some(Node::None),
            ("numpy.core.numeric _frombuffer", &[data, dtype, shape, _]) => {
                let rows = bytes(3) == Some(b"C");
                return if rows { array(values, shape, dtype, data) } else { Err(COLUMNS.into()) };
            }
            ("numpy.core.multiarray scalar", &[dtype, _]) => {
                match (&values.nodes[dtype], bytes(1)) {
                    (Node::Object(Array::Dtype(dtype)), Some(bytes))
                        if bytes.len() == dtype.size =>
                    {
                        Some(dtype.integer(bytes).map_or(Node::None, Node::Int))
                    }
                    _ => None,
                }
            }
            ("numpy dtype", _) => {
                bytes(0).and_then(Dtype::parse).map(|dtype| Node::Object(Array::Dtype(dtype)))
            }
            ("_codecs encode", _) => {
                let text = bytes(0).and_then(|text| std::str::from_utf8(text).ok());
                let latin = |text: &str| text.chars().map(|c| u8::try_from(c).ok()).collect();
                let decoded = text.and_then(latin);
                decoded.map(|bytes| self.decoded(bytes, values)).transpose()?
            }
            ("builtins bytes" | "builtins bytearray", arguments) => {
                let bytes = if arguments.is_empty() { Some(&[][..]) } else { bytes(0) };
                bytes.map(|bytes| self.decoded(bytes.to_vec(), values)).transpose()?
            }
            _ => None,
        };
        made.ok_or_else(|| {
            let first = bytes(0).unwrap_or_default();
            let first = String::from_utf8_lossy(&first[..first.len().min(40)]);
            format!("it calls {function} of {first:?}, which is not read")
        })
    }

    /// Gives an array or a type what it is made of.
    fn build(
        &mut self,
        values: &Values<Array>,
        node: usize,
        state: usize,
    ) -> Step<Option<Node<Array>>> {
        let built = match (&values.nodes[node], &values.nodes[state]) {
            (Node::Object(Array::Dtype(dtype)), Node::List(state)) if state.len() > 1 => {
                let big_endian = bytes_of(values, state[1]) == Some(b">");
                Node::Object(Array::Dtype(Dtype { big_endian, ..*dtype }))
            }
            (Node::None, Node::List(state)) if state.len() == 5 => match values.nodes[state[3]] {
                Node::Int(0) => array(values, state[1], state[2], state[4])?,
                _ => return Err(COLUMNS.into()),
            },
            _ => return Err("a state is given to what is no array and no type".into()),
        };
        Ok(Some(built))
    }
}

impl Arrays {
    /// One text may be decoded many times, and bytes be copied; no writer does it more than once.
    fn decoded(&mut self, bytes: Vec<u8>, values: &Values<Array>) -> Step<Node<Array>> {
        self.decoded += bytes.len();
        let fits = self.decoded <= 2 * values.bytes.len();
        let decoded = Node::Object(Array::Decoded(bytes));
        if fits { Ok(decoded) } else { Err("it decodes a text again and again".into()) }
    }
}

fn array(values: &Values<Array>, shape: usize, dtype: usize, data: usize) -> Step<Node<Array>> {
    let (Node::Object(Array::Dtype(dtype)), Some(bytes)) =
        (&values.nodes[dtype], bytes_of(values, data))
    else {
        return Err("an array has no type or no bytes".into());
    };
    let shape = values.sizes(shape).ok_or("an array has no shape")?;
    let length = shape.iter().try_fold(dtype.size, |all, &size| all.checked_mul(size));
    match length == Some(bytes.len()) {
        true => Ok(Node::Object(Array::Of(shape, *dtype, data))),
        false => Err(format!("an array of {shape:?} has {} bytes", bytes.len())),
    }
}
