//! Layers that learn without gradients, and at last a rate that gradients learn.
//!
//! `cargo run --release --example 05_plasticity`

use burn::backend::{Autodiff, Flex};
use burn::optim::{GradientsParams, Optimizer};
use burn::prelude::{Backend, Device, Tensor};
use fewshot::optim::Adam;
use fewshot::plasticity::{
    Bcm, HierarchyConfig, LearnedRate, Oja, PlasticLinearConfig, PlasticityError, PlasticityRule,
    Rate, Sanger, Sources, Subspace, explained_variance,
};

type B = Flex; // or Cuda, Wgpu: nothing else changes

fn main() -> Result<(), PlasticityError> {
    let device = Default::default();
    B::seed(&device, 1);
    components(&device)?;
    selective_neurons(&device)?;
    three_paces(&device)?;
    learned_rate(&device)
}

/// Four neurons that find four principal components in order.
fn components(device: &Device<B>) -> Result<(), PlasticityError> {
    let sources = Sources::new(30, 8, 1)?;
    let xs = sources.stream(16).next::<B>(2_000, device);
    let mut layer = PlasticLinearConfig::new(30, 4).init::<B>(device);
    for tick in 0..2_000 {
        let x = xs.clone().narrow(1, tick, 1).reshape([16, 30]);
        (layer, _) = layer.adapt(x, &Sanger, [None, None], &Rate::fixed(0.1)?);
    }
    for neuron in 0..4 {
        let component = Tensor::<B, 1>::from_floats(sources.direction(neuron).as_slice(), device);
        let row = layer.weight.val().narrow(0, neuron, 1).reshape([30]);
        let along = (row * component).sum().into_scalar();
        println!("neuron {neuron} along component {neuron}: {along:+.3}");
    }
    let explained = explained_variance(layer.weight.val(), xs.reshape([32_000, 30]));
    println!("explained variance of four components: {:.1} %", 100.0 * explained);
    Ok(())
}

/// Two neurons, two patterns: each neuron comes to answer one of them.
fn selective_neurons(device: &Device<B>) -> Result<(), PlasticityError> {
    let patterns = [[1.0, 0.2], [0.2, 1.0]].map(|p| Tensor::<B, 2>::from_floats([p], device));
    let (rule, rate) = (Bcm::new(20.0)?, Rate::fixed(0.005)?);
    let mut layer = PlasticLinearConfig::new(2, 2).init::<B>(device);
    let mut thresholds = PlasticityRule::<B>::init(&rule, 2, 2, device);
    for turn in 0..10_000 {
        (layer, thresholds) = layer.adapt(patterns[turn % 2].clone(), &rule, thresholds, &rate);
    }
    for pattern in patterns {
        let answers: Vec<f32> = layer.forward(pattern).into_data().iter().collect();
        println!("answers to a pattern: {answers:.2?}");
    }
    Ok(())
}

/// The slower a layer, the longer the means that it learns from.
fn three_paces(device: &Device<B>) -> Result<(), PlasticityError> {
    let hierarchy = HierarchyConfig::new(vec![30, 20, 10, 5], vec![1, 2, 4]).init::<B>(device)?;
    let mut stream = Sources::new(30, 8, 1)?.stream(1);
    let unseen = Sources::new(30, 8, 2)?.stream(1).next::<B>(1_000, device);
    let mut running = hierarchy.start(Subspace, Rate::fixed(0.1)?).with_relative_rates(100.0)?;
    for ticks in [1, 499, 4_500] {
        running = running.learn(stream.next::<B>(ticks, device))?;
        let explained = running.hierarchy().explained_variance(unseen.clone())?;
        println!("after {} ticks, explained variance: {explained:.2?}", running.tick());
    }
    Ok(())
}

/// Learns the rate at which Oja's rule is close to the first component after twenty inputs.
fn learned_rate(device: &Device<B>) -> Result<(), PlasticityError> {
    type A = Autodiff<Flex>;
    let sources = Sources::new(30, 8, 3)?;
    let xs = sources.stream(16).next::<A>(20, device);
    let aim = Tensor::<A, 1>::from_floats(sources.direction(0).as_slice(), device);
    let first = PlasticLinearConfig::new(30, 1).init::<A>(device);
    let (mut rate, mut optimizer) = (LearnedRate::<A>::new(0.02, device)?, Adam::new().init());
    for step in 0..=60 {
        let mut layer = first.clone();
        for tick in 0..20 {
            let x = xs.clone().narrow(1, tick, 1).reshape([16, 30]);
            (layer, _) = layer.adapt(x, &Oja, [None, None], &rate.rate());
        }
        let weight = layer.weight.val().reshape([30]);
        let along = (weight.clone() * aim.clone()).sum().powi_scalar(2);
        let squared = along / weight.powi_scalar(2).sum();
        if step % 20 == 0 {
            let (rate, squared) = (rate.rate().value(), squared.clone().into_scalar());
            println!("rate {rate:.3}: squared cosine {squared:.3}");
        }
        let gradients = (-squared.log()).backward();
        rate = optimizer.step(0.1, rate.clone(), GradientsParams::from_grads(gradients, &rate));
    }
    Ok(())
}
