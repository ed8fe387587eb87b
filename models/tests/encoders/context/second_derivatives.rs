//! Second derivatives beside central differences.

use super::*;

/// The squared length of the gradient of the loss by the context.
fn steepness<B: AutodiffBackend, E: Encoder<B>>(
    module: &E,
    images: Tensor<B, 4>,
) -> Tensor<B::InnerBackend, 1> {
    let features = module.encode(images, BnStatistics::Batch);
    let found = gradients(module, &loss(features).backward());
    let mut contexts = found.into_iter().filter(|(name, _)| name.ends_with("context"));
    let (_, gradient) = contexts.next().expect("a network with a context");
    (gradient.clone() * gradient).sum()
}

/// Of the steepness by every tensor of these names: all that the outer gradient of an inner
/// step needs, by the context and by what makes use of it.
fn assert_are_those_of_differences<E: Encoder<Once>, L: Encoder<Twice>>(
    (module, lifted): (E, impl Fn(E) -> L),
    images: [usize; 4],
    names: &[&str],
) {
    let values = any_state::<Once>(module.clone(), 50);
    let images = || uniform::<Flex, 4>(51, images);
    let once = with_state::<Once, _>(module.clone(), &values);
    let inner = Tensor::<Once, 4>::from_inner(images());
    let found = steepness(&lifted(once.clone()), Tensor::from_inner(inner.clone())).backward();
    let found = gradients::<Once>(&once, &found);
    for &name in names {
        let expected = differences_by(1e-2, &values[name], |moved| {
            let mut values = values.clone();
            values.insert(name.to_owned(), moved);
            let module = with_state::<Once, _>(module.clone(), &values);
            steepness::<Once, _>(&module, inner.clone()).into_scalar()
        });
        assert_not_flat(name, &expected);
        assert_close(name, &read(found[name].clone()), &expected, 2e-3);
    }
}

#[test]
fn of_a_conv4_are_those_of_central_differences() {
    for blocks in [1, 2, 4] {
        let config = Conv4Config::new([1, 20, 20]).with_channels(3).with_blocks(blocks);
        let config = config.with_downsampling(Downsampling::Stride).with_context(3);
        let names = ["film.context", "film.map.weight", "film.map.bias"];
        let lifted = <Conv4<Twice> as AutodiffModule<Twice>>::from_inner;
        assert_are_those_of_differences((conv4(&config), lifted), [6, 1, 20, 20], &names);
    }
}

#[test]
fn of_an_mlp_are_those_of_central_differences() {
    let names = ["context", "layers.0.weight", "layers.1.weight", "layers.1.bias"];
    let lifted = <Mlp<Twice> as AutodiffModule<Twice>>::from_inner;
    assert_are_those_of_differences((mlp(2), lifted), [6, 4, 1, 1], &names);
}
