use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use prost::Message;

use super::schema::{
    AttributeProto, AttributeType, DataType, DimensionProto, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};

/// Version of the set of standard operators.
const OPERATOR_SET: i64 = 17;

/// Version of the file format that came with these operators.
const FORMAT: i64 = 8;

/// Name of the first axis of inputs and outputs, of any size.
const BATCH: &str = "n";

/// Bytes of a file, at most: readers of protobuf refuse more.
const MOST_BYTES: usize = i32::MAX as usize;

/// Errors of writing a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OnnxError {
    #[error("the graph takes {bytes} bytes, an ONNX file has at most {MOST_BYTES}")]
    TooLarge { bytes: usize },
}

/// A value of a [`Graph`]: an input, a constant, or the result of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(String);

/// Type of the elements of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Numbers of 32 bits.
    F32,
    /// Bytes.
    U8,
}

/// A setting of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f32),
    /// Whole numbers.
    Ints(Vec<i64>),
}

/// A graph of ONNX: nodes in the order in which they are added, with the constants that they take.
///
/// # Conventions
/// Inputs and outputs have a first axis `n` of any size. Values get names of their own; inputs and outputs are called as they are
/// named here.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    graph: GraphProto,
    values: usize,
}

impl Graph {
    /// A graph of this name, without nodes.
    pub fn new(name: &str) -> Self {
        Self { graph: GraphProto { name: name.to_owned(), ..GraphProto::default() }, values: 0 }
    }

    /// An input `[n, shape..]`.
    pub fn input(&mut self, name: &str, elements: ElementType, shape: &[usize]) -> Value {
        self.graph.input.push(information(name, elements, shape));
        Value(name.to_owned())
    }

    /// Makes a value an output `[n, shape..]` of `f32` with this name.
    pub fn output(&mut self, value: &Value, name: &str, shape: &[usize]) {
        self.push_node("Identity", &[value], &[], vec![name.to_owned()]);
        self.graph.output.push(information(name, ElementType::F32, shape));
    }

    /// A constant of `f32`, whose name begins with `name`.
    ///
    /// # Panics
    /// When there are not as many values as the shape says.
    pub fn constant(&mut self, name: &str, shape: &[usize], values: &[f32]) -> Value {
        let count: usize = shape.iter().product();
        assert_eq!(values.len(), count, "values of a constant {shape:?}");
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializer(name, shape, DataType::Float, bytes)
    }

    /// A constant of whole numbers.
    pub fn integers(&mut self, name: &str, values: &[i64]) -> Value {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializer(name, &[values.len()], DataType::Int64, bytes)
    }

    /// A whole number, as an index without axes.
    pub fn index(&mut self, value: i64) -> Value {
        self.initializer("index", &[], DataType::Int64, value.to_le_bytes().to_vec())
    }

    /// A constant with the values of a tensor.
    pub fn tensor<B: Backend, const D: usize>(
        &mut self,
        name: &str,
        tensor: Tensor<B, D>,
    ) -> Value {
        let shape = tensor.dims();
        let values: Vec<f32> = tensor.into_data().iter().collect();
        self.constant(name, &shape, &values)
    }

    /// The result of an operator of the standard domain.
    pub fn node(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: &[(&str, Attribute)],
    ) -> Value {
        let [result] = self.results(operator, inputs, attributes);
        result
    }

    /// Several results of an operator.
    pub fn results<const N: usize>(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: &[(&str, Attribute)],
    ) -> [Value; N] {
        let stem = operator.to_lowercase();
        let results = std::array::from_fn(|_| Value(self.fresh(&stem)));
        let names = results.iter().map(|Value(name)| name.clone()).collect();
        self.push_node(operator, inputs, attributes, names);
        results
    }

    /// The bytes of an ONNX file with this metadata.
    ///
    /// # Errors
    /// For a graph of 2 GiB or more.
    pub fn into_file(self, metadata: &[(&str, &str)]) -> Result<Vec<u8>, OnnxError> {
        let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let standard = OperatorSetIdProto { domain: String::new(), version: OPERATOR_SET };
        let model = ModelProto {
            ir_version: FORMAT,
            producer_name: "fewshot".to_owned(),
            producer_version: env!("CARGO_PKG_VERSION").to_owned(),
            graph: Some(self.graph),
            opset_import: vec![standard],
            metadata_props: metadata.iter().map(entry).collect(),
        };
        match model.encoded_len() {
            bytes if bytes > MOST_BYTES => Err(OnnxError::TooLarge { bytes }),
            _ => Ok(model.encode_to_vec()),
        }
    }

    fn initializer(
        &mut self,
        name: &str,
        shape: &[usize],
        elements: DataType,
        raw_data: Vec<u8>,
    ) -> Value {
        let name = self.fresh(name);
        let dims = shape.iter().map(|&size| size as i64).collect();
        let data_type = elements.into();
        let tensor = TensorProto { dims, data_type, name: name.clone(), raw_data };
        self.graph.initializer.push(tensor);
        Value(name)
    }

    fn push_node(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: &[(&str, Attribute)],
        output: Vec<String>,
    ) {
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|Value(name)| name.clone()).collect(),
            name: format!("node_{}", self.graph.node.len()),
            op_type: operator.to_owned(),
            attribute: attributes.iter().map(attribute).collect(),
            output,
        });
    }

    /// A name that no other value has.
    fn fresh(&mut self, stem: &str) -> String {
        self.values += 1;
        format!("{stem}_{}", self.values)
    }
}

fn attribute((name, attribute): &(&str, Attribute)) -> AttributeProto {
    let named = AttributeProto { name: (*name).to_owned(), ..AttributeProto::default() };
    match attribute.clone() {
        Attribute::Int(i) => {
            AttributeProto { i: Some(i), r#type: AttributeType::Int.into(), ..named }
        }
        Attribute::Float(f) => {
            AttributeProto { f: Some(f), r#type: AttributeType::Float.into(), ..named }
        }
        Attribute::Ints(ints) => {
            AttributeProto { ints, r#type: AttributeType::Ints.into(), ..named }
        }
    }
}

fn information(name: &str, elements: ElementType, shape: &[usize]) -> ValueInfoProto {
    let any = DimensionProto { dim_value: None, dim_param: Some(BATCH.to_owned()) };
    let fixed = |&size: &usize| DimensionProto { dim_value: Some(size as i64), dim_param: None };
    let dim = std::iter::once(any).chain(shape.iter().map(fixed)).collect();
    let elements = match elements {
        ElementType::F32 => DataType::Float,
        ElementType::U8 => DataType::Uint8,
    };
    let tensor =
        TensorTypeProto { elem_type: elements.into(), shape: Some(TensorShapeProto { dim }) };
    let r#type = Some(TypeProto { tensor_type: Some(tensor) });
    ValueInfoProto { name: name.to_owned(), r#type }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message within another: the key of its field, its length, its bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        // Fields up to 15 and lengths below 128 take a byte each; the type of what has a length is 2.
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    /// A whole number.
    fn number(field: u8, value: u8) -> Vec<u8> {
        vec![field << 3, value]
    }

    #[test]
    fn a_small_graph_is_the_bytes_of_the_schema() {
        let mut graph = Graph::new("g");
        let x = graph.input("x", ElementType::U8, &[3]);
        let one = graph.constant("c", &[1], &[1.0]);
        let y = graph.node("Add", &[&x, &one], &[("axis", Attribute::Int(0))]);
        graph.output(&y, "y", &[3]);
        let file = graph.into_file(&[("k", "v")]).unwrap();

        let names = |number, names: &[&str]| {
            names.iter().flat_map(|name| field(number, name.as_bytes())).collect::<Vec<_>>()
        };
        // Its type is 20, a field above 15: 20 * 8 is 160, in seven bits a byte 0xa0 0x01.
        let axis = [field(1, b"axis"), number(3, 0), vec![0xa0, 0x01, 2]].concat();
        let add = [
            names(1, &["x", "c_1"]),
            names(2, &["add_2"]),
            field(3, b"node_0"),
            field(4, b"Add"),
            field(5, &axis),
        ];
        let identity =
            [names(1, &["add_2"]), names(2, &["y"]), field(3, b"node_1"), field(4, b"Identity")];
        let constant =
            [field(1, &[1]), number(2, 1), field(8, b"c_1"), field(9, &[0x00, 0x00, 0x80, 0x3f])];
        let information = |name: &[u8], elements| {
            let shape = [field(1, &field(2, b"n")), field(1, &number(1, 3))].concat();
            let tensor = [number(1, elements), field(2, &shape)].concat();
            [field(1, name), field(2, &field(1, &tensor))].concat()
        };
        let of_graph = [
            field(1, &add.concat()),
            field(1, &identity.concat()),
            field(2, b"g"),
            field(5, &constant.concat()),
            field(11, &information(b"x", 2)),
            field(12, &information(b"y", 1)),
        ]
        .concat();
        // Longer than 127 bytes, the graph has a length of two bytes.
        let length = [of_graph.len() as u8 | 0x80, (of_graph.len() >> 7) as u8];
        assert!((128..1 << 14).contains(&of_graph.len()));
        let expected = [
            number(1, 8),
            field(2, b"fewshot"),
            field(3, env!("CARGO_PKG_VERSION").as_bytes()),
            vec![7 << 3 | 2],
            length.to_vec(),
            of_graph,
            field(8, &number(2, 17)),
            field(14, &[field(1, b"k"), field(2, b"v")].concat()),
        ];
        assert_eq!(file, expected.concat());
    }

    #[test]
    fn values_have_names_of_their_own() {
        let mut graph = Graph::new("g");
        let x = graph.input("x", ElementType::F32, &[4]);
        let [a, b] = graph.results("Split", &[&x], &[("axis", Attribute::Int(1))]);
        let c = graph.node("Add", &[&a, &b], &[]);
        let d = graph.node("Add", &[&c, &b], &[]);
        let all = [x, a, b, c, d];
        let distinct = (0..5).all(|i| (0..i).all(|j| all[i] != all[j]));
        assert!(distinct, "{all:?}");
    }

    #[test]
    #[should_panic(expected = "values of a constant [2, 2]")]
    fn a_constant_has_as_many_values_as_its_shape_says() {
        Graph::new("g").constant("c", &[2, 2], &[1.0; 3]);
    }
}
