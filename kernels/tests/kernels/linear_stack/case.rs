//! Layers to test with, and what is asked of them.

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};
use fewshot_kernels::{LinearLayer, Precision, Route, linear_stack, route};

use crate::judge::{assert_close, largest};
use crate::numbers::Numbers;

/// Lanes of layers with examples.
#[derive(Clone, Debug)]
pub struct Case {
    pub lanes: usize,
    pub examples: usize,
    pub widths: Vec<usize>,
    pub bias: bool,
    /// Whether `x` and weights lie in memory with their axes turned, and biases are one value each.
    pub strided: bool,
}

/// Operands: `x`, then weight and bias of every layer, as flat leaves and in their shapes.
pub struct Operands<B: Backend> {
    pub x: Tensor<B, 3>,
    pub layers: Vec<LinearLayer<B>>,
}

impl Case {
    pub fn new(lanes: usize, examples: usize, widths: &[usize]) -> Self {
        Self { lanes, examples, widths: widths.to_vec(), bias: true, strided: false }
    }

    pub fn all<B: Backend>() -> Vec<Self> {
        let odd: [&[usize]; 7] = [
            &[1, 40, 40, 1],
            &[3, 16, 2],
            &[5, 7],
            &[33, 31, 1],
            &[16, 32, 16, 8],
            &[1, 1, 1, 1],
            &[2, 130, 3],
        ];
        let sizes = [(1, 1), (2, 5), (3, 16), (1, 17), (4, 33)];
        // On a device, which compiles every network, each of the widths with two of the sizes.
        let on_host = matches!(route::<B>(), Route::Host(_));
        let mut all = Vec::new();
        for (place, widths) in odd.iter().enumerate() {
            for (size, (lanes, examples)) in sizes.into_iter().enumerate() {
                if on_host || [place, place + 2].iter().any(|of| of % sizes.len() == size) {
                    all.push(Self::new(lanes, examples, widths));
                }
            }
        }
        all.push(Self { bias: false, ..Self::new(3, 6, &[4, 17, 5]) });
        all.push(Self { strided: true, ..Self::new(3, 6, &[4, 17, 5]) });
        // Work for more than one thread.
        all.push(Self::new(9, 50, &[70, 90, 40]));
        all
    }

    /// How many operands there are.
    pub fn operands(&self) -> usize {
        1 + (self.widths.len() - 1) * if self.bias { 2 } else { 1 }
    }

    /// Flat values of the operands.
    pub fn values(&self, seed: u64) -> Vec<Vec<f32>> {
        let numbers = &mut Numbers(seed);
        let mut all = vec![numbers.values(self.lanes * self.examples * self.widths[0])];
        for sides in self.widths.windows(2) {
            all.push(numbers.values(self.lanes * sides[0] * sides[1]));
            if self.bias {
                all.push(numbers.values(self.lanes * sides[1]));
            }
        }
        all
    }

    /// The operands in their shapes.
    pub fn shaped<B: Backend>(&self, flat: &[Tensor<B, 1>]) -> Operands<B> {
        let mut flat = flat.iter().cloned();
        let mut next = || flat.next().expect("an operand");
        let x = next().reshape([self.lanes, self.examples, self.widths[0]]);
        let x = if self.strided { turned(x) } else { x };
        let layer = |sides: &[usize]| {
            let weight = next().reshape([self.lanes * sides[0], sides[1]]);
            let bias = self.bias.then(&mut next);
            if !self.strided {
                return LinearLayer { weight, bias };
            }
            let one = |bias: Tensor<B, 1>| bias.clone().narrow(0, 0, 1).expand(bias.dims());
            LinearLayer { weight: turned(weight), bias: bias.map(one) }
        };
        Operands { x, layers: self.widths.windows(2).map(layer).collect() }
    }

    pub fn run<B: Backend>(&self, flat: &[Tensor<B, 1>]) -> Tensor<B, 3> {
        let Operands { x, layers } = self.shaped(flat);
        linear_stack(x, &layers, Precision::F32)
    }

    /// The outputs, and the gradients of a curved function of them by the `tracked` operands.
    pub fn first<B: AutodiffBackend>(&self, dtype: DType, tracked: &[bool]) -> Vec<Vec<f64>> {
        let leaves = leaves::<B>(&self.values(1), dtype, tracked);
        let y = self.run(&leaves);
        let gradients = curved(y.clone()).backward();
        let found = leaves.iter().filter(|leaf| leaf.is_require_grad());
        let found = found.map(|leaf| read(leaf.grad(&gradients).expect("tracked")));
        std::iter::once(read(y.inner())).chain(found).collect()
    }

    /// Gradients of the sum of all first gradients times fixed directions.
    pub fn second<B: AutodiffBackend>(&self, dtype: DType, tracked: &[bool]) -> Vec<Vec<f64>> {
        self.second_by::<B>(dtype, [tracked; 3])
    }

    /// The same of operands that are tracked at the level below and above, where the gradients of
    /// some count.
    pub fn second_by<B: AutodiffBackend>(
        &self,
        dtype: DType,
        masks: [&[bool]; 3],
    ) -> Vec<Vec<f64>> {
        self.second_of::<B>(dtype, masks, curved)
    }

    /// The same of another loss.
    pub fn second_of<B: AutodiffBackend>(
        &self,
        dtype: DType,
        [below, above, counted]: [&[bool]; 3],
        loss: impl Fn(Tensor<Autodiff<B>, 3>) -> Tensor<Autodiff<B>, 1>,
    ) -> Vec<Vec<f64>> {
        let leaves = leaves::<B>(&self.values(1), dtype, below);
        let lift = |(leaf, &tracked): (&Tensor<B, 1>, &bool)| match tracked {
            true => Tensor::<Autodiff<B>, 1>::from_inner(leaf.clone()).require_grad(),
            false => Tensor::from_inner(leaf.clone()),
        };
        let lifted: Vec<_> = leaves.iter().zip(above).map(lift).collect();
        let gradients = loss(self.run(&lifted)).backward();
        let numbers = &mut Numbers(5);
        let counted = lifted.iter().zip(counted).filter(|(_, counts)| **counts);
        let products = counted.filter(|(leaf, _)| leaf.is_require_grad()).map(|(leaf, _)| {
            let gradient = leaf.grad(&gradients).expect("tracked");
            let direction = numbers.values(gradient.dims()[0]);
            (gradient * tensor::<B>(&direction, dtype)).sum()
        });
        let total = products.reduce(|sum, product| sum + product).expect("something is tracked");
        let gradients = total.backward();
        let found = leaves.iter().filter(|leaf| leaf.is_require_grad());
        // A bias behind all weights has none of a loss that is not curved.
        let none = |leaf: &Tensor<B, 1>| vec![0.0; leaf.dims()[0]];
        found.map(|leaf| leaf.grad(&gradients).map_or_else(|| none(leaf), read)).collect()
    }
}

/// The same values, with axes in memory the other way round.
fn turned<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    tensor.swap_dims(0, D - 1).add_scalar(0.0).swap_dims(0, D - 1)
}

/// The sum of squares and products with fixed numbers.
fn curved<B: Backend>(y: Tensor<B, 3>) -> Tensor<B, 1> {
    let weights = weights(&y);
    (y.clone() * y.clone() * weights.clone() + y * weights).sum()
}

/// The sum of products with fixed numbers: its gradient does not depend on the outputs.
pub fn weighted<B: Backend>(y: Tensor<B, 3>) -> Tensor<B, 1> {
    let weights = weights(&y);
    (y * weights).sum()
}

fn weights<B: Backend>(y: &Tensor<B, 3>) -> Tensor<B, 3> {
    let weights = Numbers(3).data(y.dims(), |value| value);
    Tensor::from_data(weights, (&y.device(), y.dtype()))
}

pub fn leaves<B: AutodiffBackend>(
    values: &[Vec<f32>],
    dtype: DType,
    tracked: &[bool],
) -> Vec<Tensor<B, 1>> {
    let leaf = |(values, &tracked): (&Vec<f32>, &bool)| match tracked {
        true => tensor::<B>(values, dtype).require_grad(),
        false => tensor::<B>(values, dtype),
    };
    values.iter().zip(tracked).map(leaf).collect()
}

pub fn tensor<B: Backend>(values: &[f32], dtype: DType) -> Tensor<B, 1> {
    let wide: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
    Tensor::from_data(TensorData::from(&*wide), (&Default::default(), dtype))
}

pub fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().convert::<f64>().into_vec().expect("just converted")
}

/// Asserts that both are the same but for rounding to f32.
pub fn assert_same(what: &str, found: &[Vec<f64>], wanted: &[Vec<f64>]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let all: Vec<f32> = wanted.iter().flatten().map(|&value| value as f32).collect();
    let bound = 1e-5 * largest(&all).max(1.0);
    let narrow = |wide: &Vec<f64>| wide.iter().map(|&value| value as f32).collect::<Vec<_>>();
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let (found, wanted) = (narrow(found), narrow(wanted));
        assert_close(&format!("{what}, {index}"), &found, &wanted, bound);
    }
}
