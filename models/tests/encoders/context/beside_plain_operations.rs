//! Values and gradients beside the same in plain Burn operations.

use super::*;

/// Leaves of the graph, flat, by the names of a module's parameters.
struct Leaves(BTreeMap<String, Tensor<Once, 1>>);

impl Leaves {
    fn new(state: &State) -> Self {
        let leaf = |values: &Vec<f32>| tensor(values.clone(), [values.len()]).require_grad();
        Self(state.iter().map(|(name, values)| (name.clone(), leaf(values))).collect())
    }

    fn get(&self, name: impl AsRef<str>) -> Tensor<Once, 1> {
        self.0[name.as_ref()].clone()
    }

    /// The values of a vector, one a channel.
    fn channels(&self, name: &str) -> Tensor<Once, 4> {
        let value = self.get(name);
        let channels = value.dims()[0];
        value.reshape([1, channels, 1, 1])
    }
}

fn normalised(x: Tensor<Once, 4>) -> Tensor<Once, 4> {
    let mean = |x: Tensor<Once, 4>| x.mean_dim(0).mean_dim(2).mean_dim(3);
    let x = x.clone() - mean(x);
    x.clone() / (mean(x.clone() * x) + 1e-5).sqrt()
}

fn modulated(x: Tensor<Once, 4>, leaves: &Leaves) -> Tensor<Once, 4> {
    let channels = x.dims()[1];
    let context: Tensor<Once, 2> = leaves.get("film.context").unsqueeze();
    let [_, size] = context.dims();
    let weight = leaves.get("film.map.weight").reshape([size, 2 * channels]);
    let both = context.matmul(weight).reshape([2 * channels]) + leaves.get("film.map.bias");
    let [scale, shift] = [0, channels]
        .map(|first| both.clone().slice(first..first + channels).reshape([1, channels, 1, 1]));
    scale * x + shift
}

fn encode(mut x: Tensor<Once, 4>, leaves: &Leaves, config: &Conv4Config) -> Tensor<Once, 2> {
    let pool = config.downsampling == Downsampling::MaxPool;
    let stride = if pool { 1 } else { 2 };
    for block in 0..config.blocks {
        let name = |leaf: &str| format!("blocks.{block}.{leaf}");
        let weight = leaves.get(name("conv.weight"));
        let weight = weight.reshape([config.channels, x.dims()[1], 3, 3]);
        let options = ConvOptions::new([stride; 2], [1; 2], [1; 2], 1);
        x = normalised(conv2d(x, weight, Some(leaves.get(name("conv.bias"))), options));
        x = leaves.channels(&name("norm.gamma")) * x + leaves.channels(&name("norm.beta"));
        if block == 2 || config.blocks < 3 && block + 1 == config.blocks {
            x = modulated(x, leaves);
        }
        x = relu(x);
        if pool {
            x = max_pool2d(x, [2; 2], [2; 2], [0; 2], [1; 2], false);
        }
    }
    x.flatten(1, 3)
}

fn assert_is_plain(config: Conv4Config, seed: u64) {
    let module: Conv4<Once> = conv4(&config);
    let values = any_state(module.clone(), seed);
    let (module, leaves) = (with_state(module, &values), Leaves::new(&values));
    let [c, h, w] = config.image;
    let images = || uniform(seed, [5, c, h, w]);

    let features = module.encode(images(), BnStatistics::Batch);
    let expected = encode(images(), &leaves, &config);
    assert_close("features", &read(features.clone()), &read(expected.clone()), 1e-4);
    let found = gradients(&module, &loss(features).backward());
    let expected = loss(expected).backward();
    assert_eq!(found.len(), 4 * config.blocks + 3);
    for (name, found) in found {
        // Rounding errors of zero: the mean takes it away.
        if !name.ends_with("conv.bias") {
            let expected = read(leaves.get(&name).grad(&expected).unwrap());
            assert_not_flat(&name, &expected);
            assert_close(&name, &read(found), &expected, 1e-3);
        }
    }
}

#[test]
fn the_third_block_is_modulated() {
    let config = Conv4Config::new([2, 17, 16]).with_channels(4).with_context(3);
    assert_is_plain(config.clone(), 100);
    assert_is_plain(config.with_downsampling(Downsampling::Stride), 200);
}

#[test]
fn the_last_of_fewer_blocks_is_modulated() {
    for blocks in [1, 2, 3] {
        let config = conv4_config().with_blocks(blocks).with_context(5);
        assert_is_plain(config, 300);
    }
}

#[test]
fn the_context_is_behind_an_mlps_input() {
    let module: Mlp<Once> = mlp(2);
    let values = any_state(module.clone(), 400);
    let (module, leaves) = (with_state(module, &values), Leaves::new(&values));
    let x = || uniform::<Once, 2>(401, [6, 4]);
    let weight = leaves.get("layers.0.weight").reshape([6, 5]);
    let context = leaves.get("context").reshape([1, 2]).matmul(weight.clone().slice(4..6));
    let hidden = x().matmul(weight.slice(0..4)) + context;
    let hidden = relu(hidden + leaves.get("layers.0.bias").unsqueeze());
    let expected = hidden.matmul(leaves.get("layers.1.weight").reshape([5, 3]));
    let expected = expected + leaves.get("layers.1.bias").unsqueeze();

    let features = module.forward(x());
    assert_close("features", &read(features.clone()), &read(expected.clone()), 1e-5);
    let found = gradients(&module, &loss(features).backward());
    let expected = loss(expected).backward();
    assert_eq!(found.len(), 5);
    for (name, found) in found {
        let expected = leaves.get(&name).grad(&expected).unwrap();
        assert_close(&name, &read(found), &read(expected), 1e-4);
    }
}
