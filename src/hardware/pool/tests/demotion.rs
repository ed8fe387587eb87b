use burn::backend::Flex;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use fewshot_models::{BnStatistics, Conv4, Conv4Config, Encoder};

use super::*;
use crate::hardware::module_bytes;
use crate::hardware::pool::{PoolError, Pooled};

type Network = Pooled<Flex, Conv4<Flex>>;

/// All tensors of a module with their ids.
#[derive(Default)]
struct Tensors(Vec<(ParamId, TensorData)>);

impl<B: Backend> ModuleVisitor<B> for Tensors {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push((param.id, param.val().into_data()));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.0.push((param.id, param.val().into_data()));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.0.push((param.id, param.val().into_data()));
    }
}

fn tensors<M: Module<Flex>>(module: &M) -> Vec<(ParamId, TensorData)> {
    let mut found = Tensors::default();
    module.visit(&mut found);
    found.0
}

fn never() -> Result<Network, String> {
    Err("it was to come back from host memory".to_owned())
}

#[test]
fn a_network_comes_back_from_host_memory_bit_for_bit() {
    let device = Default::default();
    let config = Conv4Config::new([1, 16, 16]).with_channels(8);
    let network = || Pooled::new(config.init::<Flex>(&device));
    let need = network().bytes();
    let template = config.clone();
    let pool = ModelPool::<usize, Network>::new([(cpu(0), Bytes(need.0 * 3 / 2))]).with_host(
        Bytes(need.0 * 2),
        move |_, network: &Network| {
            let config = template.clone();
            network.to_host(move || config.init(&Default::default()))
        },
    );

    let first = pool.get_or_load(&key(0), need, || Ok::<_, String>(network())).unwrap();
    let images = Tensor::<Flex, 4>::ones([2, 1, 16, 16], &device) * 0.3;
    let (before, features) =
        (tensors(&*first as &Conv4<Flex>), first.encode(images.clone(), BnStatistics::Batch));
    drop(first);
    pool.get_or_load(&key(1), need, || Ok::<_, String>(network())).unwrap();
    assert!(pool.contains_on_host(&key(0)) && !pool.contains(&key(0)));
    assert_eq!(pool.statistics().host.unwrap().bytes, need);

    let again = pool.get_or_load(&key(0), Bytes(1), never).unwrap();
    assert_eq!(tensors(&*again as &Conv4<Flex>), before);
    let repeated = again.encode(images, BnStatistics::Batch).into_data();
    assert_eq!(repeated, features.into_data());
    let counted = pool.statistics();
    assert_eq!((counted.loads, counted.restores, counted.demotions), (2, 1, 2));
    assert_eq!((counted.evictions, counted.demotions_failed), (2, 0));
    assert_eq!(counted.host.unwrap().models, 1, "model 1 changed places with model 0");
}

#[test]
fn the_oldest_record_goes_when_the_host_is_full() {
    let memory = Memory::default();
    let pool = pool(10).with_host(Bytes(20), |_, block: &Block| Ok(block.to_host()));
    let load = |id, bytes| {
        pool.get_or_load(&key(id), Bytes(bytes), || Ok::<_, String>(memory.block(bytes))).unwrap();
    };
    for id in 0..4 {
        load(id, 10);
    }
    let on_host = (0..4).filter(|&id| pool.contains_on_host(&key(id))).collect::<Vec<_>>();
    assert_eq!(on_host, [1, 2]);
    load(0, 10);
    assert_eq!(pool.statistics().loads, 5, "what went for good is loaded again");
    pool.clear();
    let usage = pool.statistics().host.unwrap();
    assert_eq!((usage.bytes, usage.peak_bytes, usage.models), (Bytes(0), Bytes(20), 0));
}

#[test]
fn what_the_host_cannot_keep_is_dropped_and_counted() {
    let memory = Memory::default();
    let pool = pool(30).with_host(Bytes(20), |key, block: &Block| match key.id {
        0 => Err("it cannot be read".to_owned()),
        // Its record is larger than the model was.
        1 => Ok(HostRecord::new(Bytes(21), || Err("never".to_owned()))),
        _ => Ok(block.to_host()),
    });
    for (id, bytes) in [(0, 5), (1, 5), (2, 21), (3, 20)] {
        pool.get_or_load(&key(id), Bytes(bytes), || Ok::<_, String>(memory.block(bytes))).unwrap();
        pool.evict_all();
    }
    let counted = pool.statistics();
    assert_eq!((counted.evictions, counted.demotions, counted.demotions_failed), (4, 1, 3));
    assert!(pool.contains_on_host(&key(3)));
    assert_eq!((memory.now(), counted.host.unwrap().bytes), (0, Bytes(20)));
}

#[test]
fn a_record_that_does_not_come_back_is_dropped_with_its_reason() {
    let memory = Memory::default();
    let pool = pool(10).with_host(Bytes(10), |_, block: &Block| {
        Ok(HostRecord::new(Bytes(block.bytes), || Err("it is damaged".to_owned())))
    });
    let load = || pool.get_or_load(&key(0), Bytes(10), || Ok::<_, String>(memory.block(10)));
    drop(load().unwrap());
    pool.evict_all();
    let expected = PoolError::Restore {
        key: "0 as f32 on flex:0".to_owned(),
        reason: "it is damaged".to_owned(),
    };
    assert_eq!(load().err().unwrap(), expected);
    let counted = pool.statistics();
    assert_eq!((counted.loads_failed, counted.bytes), (1, Bytes(0)));
    assert_eq!(counted.host.unwrap().bytes, Bytes(0));
    load().unwrap();
    assert_eq!(pool.statistics().loads, 2);
}

/// Tensors of every kind, one of them in two places.
#[derive(Module, Debug)]
struct Mixed<B: Backend> {
    half: Param<Tensor<B, 2>>,
    tied: Param<Tensor<B, 2>>,
    /// A clone that was trained apart.
    apart: Param<Tensor<B, 2>>,
    double: Param<Tensor<B, 1>>,
    counts: Param<Tensor<B, 1, Int>>,
    mask: Param<Tensor<B, 1, Bool>>,
}

fn mixed(sizes: [usize; 2], fill: f32) -> Mixed<Flex> {
    let device = Default::default();
    let range = Tensor::<Flex, 1, Int>::arange(0..(sizes[0] * sizes[1]) as i64, &device);
    let half = (range.clone().float() * fill).reshape(sizes).cast(DType::BF16);
    let double = range.clone().float().cast(DType::F64) / 3.0;
    let half = Param::initialized(ParamId::new(), half);
    Mixed {
        tied: half.clone(),
        apart: half.clone().map(|value| value + 1.0),
        double: Param::initialized(ParamId::new(), double),
        counts: Param::initialized(ParamId::new(), range.clone() * 7),
        mask: Param::initialized(ParamId::new(), range.greater_elem(2)),
        half,
    }
}

#[test]
fn every_tensor_keeps_its_own_type_and_tied_ones_stay_one() {
    let module = Pooled::<Flex, _>::new(mixed([2, 3], 0.37));
    let before = tensors::<Mixed<Flex>>(&module);
    let types = before.iter().map(|(_, data)| data.dtype).collect::<Vec<_>>();
    assert_eq!(types[..4], [DType::BF16, DType::BF16, DType::BF16, DType::F64]);

    let record = module.to_host(|| mixed([2, 3], 0.0)).unwrap();
    let integers = before[4].1.bytes.len() as u64 + before[5].1.bytes.len() as u64;
    assert_eq!(record.bytes(), Bytes(2 * 6 * 2 + 6 * 8 + integers), "tied once, apart besides");
    let again = record.restore().unwrap();
    assert_eq!(tensors::<Mixed<Flex>>(&again), before);
}

#[test]
fn a_template_of_another_shape_is_refused() {
    let module = Pooled::<Flex, _>::new(mixed([2, 3], 0.37));
    let wrong = module.to_host(|| mixed([3, 2], 0.0)).unwrap().restore().err().unwrap();
    assert_eq!(wrong, "tensor 1 is Shape { dims: [2, 3] }, the template's Shape { dims: [3, 2] }");
    let layer = |inputs| fewshot_models::nn::LinearConfig::new(inputs, 2);
    let biased = Pooled::<Flex, _>::new(layer(3).init(&Default::default()));
    let bare = move || layer(3).with_bias(false).init(&Default::default());
    let fewer = biased.to_host(bare).unwrap().restore().err().unwrap();
    assert_eq!(fewer, "the record has 2 tensors, the template 1");
}

#[test]
fn a_module_weighs_what_its_tensors_hold() {
    let device = Default::default();
    // A weight of [3, 4] and a bias of [4], which Burn draws only when they are used.
    let linear = burn::nn::LinearConfig::new(3, 4).init::<Flex>(&device);
    assert_eq!(module_bytes::<Flex, _>(&linear), Bytes(4 * (12 + 4)));
    let conv4 = Conv4Config::omniglot().init::<Flex>(&device);
    // Four blocks with weights, biases, and scale, shift, mean and variance of 64 channels.
    let numbers = 64 * 9 * (1 + 3 * 64) + 4 * 64 * 5;
    assert_eq!(module_bytes::<Flex, _>(&conv4), Bytes(4 * numbers));
    let mixed = mixed([2, 3], 1.0);
    let [counts, mask] = [4, 5].map(|index| tensors(&mixed)[index].1.bytes.len() as u64);
    assert_eq!(module_bytes::<Flex, _>(&mixed), Bytes(2 * 6 + 8 * 6 + counts + mask));
}
