//! Operators with what they take besides values.

use super::graph::{Attribute, Graph, Value};

/// Window of a convolution or pool, and its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Height and width of the window.
    pub window: [usize; 2],
    /// Pixels between windows.
    pub stride: usize,
    /// Zeros above, to the left, below and to the right.
    pub padding: [usize; 4],
    /// Groups of channels.
    pub groups: usize,
}

impl ConvShape {
    /// Square windows of one group with as many zeros on each side.
    pub fn square(window: usize, stride: usize, padding: usize) -> Self {
        Self { window: [window; 2], stride, padding: [padding; 4], groups: 1 }
    }

    fn attributes(self) -> Vec<(&'static str, Attribute)> {
        let list = |sizes: &[usize]| Attribute::Ints(sizes.iter().map(|&s| s as i64).collect());
        vec![
            ("kernel_shape", list(&self.window)),
            ("strides", list(&[self.stride; 2])),
            ("pads", list(&self.padding)),
        ]
    }
}

impl Graph {
    /// A number.
    pub fn number(&mut self, value: f32) -> Value {
        self.constant("number", &[], &[value])
    }

    /// Convolution of maps `[n, c, h, w]` by a weight `[out, c / groups, kh, kw]`, with a bias `[out]`.
    pub fn conv(
        &mut self,
        x: &Value,
        weight: &Value,
        bias: Option<&Value>,
        of: ConvShape,
    ) -> Value {
        let mut attributes = of.attributes();
        attributes.push(("group", Attribute::Int(of.groups as i64)));
        let inputs: Vec<_> = [x, weight].into_iter().chain(bias).collect();
        self.node("Conv", &inputs, &attributes)
    }

    /// The largest value of each window.
    pub fn max_pool(&mut self, x: &Value, of: ConvShape) -> Value {
        self.node("MaxPool", &[x], &of.attributes())
    }

    /// The mean of each map: `[n, c, h, w]` to `[n, c]`.
    pub fn average(&mut self, maps: &Value) -> Value {
        let means = self.node("GlobalAveragePool", &[maps], &[]);
        self.flatten(&means)
    }

    /// All values behind the first axis in one.
    pub fn flatten(&mut self, x: &Value) -> Value {
        self.node("Flatten", &[x], &[("axis", Attribute::Int(1))])
    }

    /// `x` with its values from `least` to `most`.
    pub fn clip(&mut self, x: &Value, [least, most]: [f32; 2]) -> Value {
        let bounds = [least, most].map(|bound| self.number(bound));
        self.node("Clip", &[x, &bounds[0], &bounds[1]], &[])
    }

    /// `x` times a number.
    pub fn scale(&mut self, x: &Value, factor: f32) -> Value {
        let factor = self.number(factor);
        self.node("Mul", &[x, &factor], &[])
    }

    /// `x` with axes in another order.
    pub fn transpose(&mut self, x: &Value, order: &[i64]) -> Value {
        self.node("Transpose", &[x], &[("perm", Attribute::Ints(order.to_vec()))])
    }

    /// `x` in another shape; 0 is the size that the axis has, -1 the rest.
    pub fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.integers("shape", shape);
        self.node("Reshape", &[x, &shape], &[])
    }

    /// Softmax along an axis.
    pub fn softmax(&mut self, x: &Value, axis: i64) -> Value {
        self.node("Softmax", &[x], &[("axis", Attribute::Int(axis))])
    }

    /// Rows `[.., d]` over their Euclidean length, or over 1e-12 if that is more.
    pub fn unit_length(&mut self, x: &Value) -> Value {
        let along = [("axes", Attribute::Ints(vec![-1])), ("keepdims", Attribute::Int(1))];
        let length = self.node("ReduceL2", &[x], &along);
        let least = self.number(1e-12);
        let length = self.node("Max", &[&length, &least], &[]);
        self.node("Div", &[x, &length], &[])
    }

    /// `x W + b`, with a weight `[from, to]`.
    pub fn linear(&mut self, x: &Value, weight: &Value, bias: &Value) -> Value {
        let product = self.node("MatMul", &[x, weight], &[]);
        self.node("Add", &[&product, bias], &[])
    }
}
