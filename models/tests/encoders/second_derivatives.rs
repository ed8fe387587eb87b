use super::*;

/// The squared length of the gradient by `x` of `sum(y^3) / 3`.
fn steepness<B: AutodiffBackend, const D: usize, const E: usize>(
    x: Tensor<B, D>,
    y: impl FnOnce(Tensor<B, D>) -> Tensor<B, E>,
) -> Tensor<B::InnerBackend, 1> {
    let x = x.require_grad();
    let y = y(x.clone());
    let loss = (y.clone() * y.clone() * y).sum() / 3.0;
    let gradient = x.grad(&loss.backward()).unwrap();
    (gradient.clone() * gradient).sum()
}

fn differences(at: &[f32], of: impl Fn(Vec<f32>) -> f32) -> Vec<f32> {
    differences_by(1e-3, at, of)
}

pub fn differences_by(size: f32, at: &[f32], of: impl Fn(Vec<f32>) -> f32) -> Vec<f32> {
    let moved = |index: usize, step: f32| {
        let mut values = at.to_vec();
        values[index] += step;
        of(values)
    };
    let each = 0..at.len();
    each.map(|index| (moved(index, size) - moved(index, -size)) / (2.0 * size)).collect()
}

pub fn tensor<B: Backend, const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

#[test]
fn of_linear_are_those_of_central_differences() {
    let shapes = ([4, 3], [3, 2], [2]);
    let [x, weight, bias] = [
        read(uniform::<Flex, 2>(1, shapes.0)),
        read(uniform::<Flex, 2>(2, shapes.1)),
        read(uniform::<Flex, 1>(3, shapes.2)),
    ];
    fn linear<B: Backend>(weight: Tensor<B, 2>, bias: Tensor<B, 1>) -> Linear<B> {
        let (weight, bias) = (Param::from_tensor(weight), Some(Param::from_tensor(bias)));
        Linear { weight, bias, precision: Precision::F32 }
    }
    let value = |x: &[f32], weight: &[f32], bias: &[f32]| {
        let layer =
            linear::<Once>(tensor(weight.to_vec(), shapes.1), tensor(bias.to_vec(), shapes.2));
        steepness(tensor(x.to_vec(), shapes.0), |x| layer.forward(x)).into_scalar()
    };

    let leaf_x = tensor::<Once, 2>(x.clone(), shapes.0).require_grad();
    let leaf_weight = tensor::<Once, 2>(weight.clone(), shapes.1).require_grad();
    let leaf_bias = tensor::<Once, 1>(bias.clone(), shapes.2).require_grad();
    let layer = linear::<Twice>(
        Tensor::from_inner(leaf_weight.clone()),
        Tensor::from_inner(leaf_bias.clone()),
    );
    let steepness = steepness(Tensor::from_inner(leaf_x.clone()), |x| layer.forward(x));
    let gradients = steepness.backward();
    let found = read(leaf_x.grad(&gradients).unwrap());
    assert_close("x", &found, &differences(&x, |x| value(&x, &weight, &bias)), 2e-3);
    let found = read(leaf_weight.grad(&gradients).unwrap());
    assert_close("weight", &found, &differences(&weight, |w| value(&x, &w, &bias)), 2e-3);
    let found = read(leaf_bias.grad(&gradients).unwrap());
    assert_close("bias", &found, &differences(&bias, |b| value(&x, &weight, &b)), 2e-3);
}

/// Reads parameters, or their gradients, one after another.
struct Flattened<'a> {
    gradients: Option<&'a GradientsParams>,
    values: Vec<f32>,
}

impl ModuleVisitor<Once> for Flattened<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Once, D>>) {
        self.values.extend(match self.gradients {
            None => read(param.val()),
            Some(all) => read(all.get::<Flex, D>(param.id).expect("a gradient each")),
        });
    }
}

struct Filled<'a>(std::slice::Iter<'a, f32>);

impl ModuleMapper<Once> for Filled<'_> {
    fn map_float<const D: usize>(
        &mut self,
        param: Param<Tensor<Once, D>>,
    ) -> Param<Tensor<Once, D>> {
        let dims = param.dims();
        let values = self.0.by_ref().take(dims.iter().product()).copied().collect();
        Param::initialized(param.id, tensor(values, dims).require_grad())
    }
}

#[test]
fn of_an_mlp_are_those_of_central_differences() {
    let device = Default::default();
    Once::seed(&device, 4);
    let mlp: Mlp<Once> = MlpConfig::new(3).with_layers(vec![5, 4, 2]).init(&device);
    let mut parameters = Flattened { gradients: None, values: Vec::new() };
    mlp.visit(&mut parameters);
    let (x, parameters) = (read(uniform::<Flex, 2>(6, [4, 3]) * 2.0), parameters.values);
    assert_eq!(parameters.len(), 15 + 5 + 20 + 4 + 8 + 2);
    let value = |x: &[f32], parameters: &[f32]| {
        let mlp = mlp.clone().map(&mut Filled(parameters.iter()));
        steepness(tensor(x.to_vec(), [4, 3]), |x| mlp.forward(x)).into_scalar()
    };

    let leaf = tensor::<Once, 2>(x.clone(), [4, 3]).require_grad();
    let lifted = <Mlp<Twice> as AutodiffModule<Twice>>::from_inner(mlp.clone());
    let steepness = steepness(Tensor::from_inner(leaf.clone()), |x| lifted.forward(x));
    let gradients = steepness.backward();
    let found = read(leaf.grad(&gradients).unwrap());
    assert_close("x", &found, &differences(&x, |x| value(&x, &parameters)), 5e-3);
    let gradients = GradientsParams::from_grads(gradients, &mlp);
    let mut found = Flattened { gradients: Some(&gradients), values: Vec::new() };
    mlp.visit(&mut found);
    let expected = differences(&parameters, |parameters| value(&x, &parameters));
    assert_close("parameters", &found.values, &expected, 5e-3);
}

#[test]
fn of_a_max_pool_are_at_the_largest_values() {
    let x = tensor::<Once, 4>(
        vec![1.0, -2.0, 0.5, 3.0, 0.25, 9.0, -1.0, -1.5, -2.0, -3.0, -2.5, 9.0],
        [1, 2, 2, 3],
    );
    let x = x.require_grad();
    let steepness = steepness(Tensor::from_inner(x.clone()), max_pool::<Twice>);
    // The odd column is dropped. With m the largest value, the steepness is m^4.
    assert_close("value", &read(steepness.clone()), &[81.0 + 1.0], 1e-6);
    let found = read(x.grad(&steepness.backward()).unwrap());
    let mut expected = [0.0; 12];
    (expected[3], expected[6]) = (4.0 * 27.0, -4.0);
    assert_close("gradient", &found, &expected, 1e-6);
}

#[test]
fn of_a_global_average_pool_are_spread_evenly() {
    let x = tensor::<Once, 4>(vec![1.0, 2.0, 3.0, 6.0, -1.0, 0.0, -2.0, -1.0], [1, 2, 2, 2]);
    let x = x.require_grad();
    let steepness = steepness(Tensor::from_inner(x.clone()), global_avg_pool::<Twice>);
    // With m the mean of 4 values, the steepness is m^4 / 4.
    assert_close("value", &read(steepness.clone()), &[81.0 / 4.0 + 1.0 / 4.0], 1e-6);
    let found = read(x.grad(&steepness.backward()).unwrap());
    let expected = [6.75, 6.75, 6.75, 6.75, -0.25, -0.25, -0.25, -0.25];
    assert_close("gradient", &found, &expected, 1e-6);
}

#[test]
fn of_batch_norm_are_those_of_central_differences() {
    let x = read(uniform::<Flex, 4>(6, [3, 2, 2, 1]));
    fn layer<B: Backend>() -> BatchNorm<B> {
        BatchNormConfig::new(2).with_epsilon(0.5).init(&Default::default())
    }
    let value = |x: Vec<f32>| {
        let x = tensor::<Once, 4>(x, [3, 2, 2, 1]);
        steepness(x, |x| layer().forward(x, BnStatistics::Batch)).into_scalar()
    };
    let leaf = tensor::<Once, 4>(x.clone(), [3, 2, 2, 1]).require_grad();
    let steepness = steepness(Tensor::from_inner(leaf.clone()), |x| {
        layer::<Twice>().forward(x, BnStatistics::Batch)
    });
    let found = read(leaf.grad(&steepness.backward()).unwrap());
    assert_close("x", &found, &differences(&x, value), 2e-3);
}
