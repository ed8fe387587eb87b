use super::*;

#[derive(serde::Deserialize)]
struct Golden {
    cases: HashMap<String, GoldenTensor>,
}

#[derive(serde::Deserialize)]
struct GoldenTensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
}

impl Golden {
    fn read() -> Self {
        let file = std::fs::File::open(file("conv4.json")).unwrap();
        serde_json::from_reader(file).unwrap()
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.cases[name].data.iter().map(|&value| value as f32).collect()
    }

    fn tensor<const D: usize>(&self, name: &str) -> Tensor<Flex, D> {
        let data = TensorData::new(self.values(name), self.cases[name].shape.clone());
        Tensor::from_data(data, &Default::default())
    }

    /// The outputs are PyTorch's, and only tracking moves the running averages.
    fn assert_is_golden(&self, encoder: Conv4<Flex>) {
        let images = || self.tensor("pool/input");
        let before = state(&encoder);
        for (statistics, name) in
            [(BnStatistics::Batch, "batch"), (BnStatistics::Running, "running")]
        {
            let output = encoder.forward(images(), statistics);
            assert_eq!(output.dims(), [6, 5, 2, 2]);
            let expected = self.values(&format!("pool/{name}/output"));
            assert_close(name, &read(output), &expected, 2e-5);
        }
        assert_eq!(state(&encoder), before);

        encoder.forward(images(), BnStatistics::Track);
        let after = state(&encoder);
        for block in 0..2 {
            for (ours, theirs) in [("mean", "mean"), ("var", "variance")] {
                let name = format!("blocks.{block}.norm.running_{ours}");
                let old = self.values(&format!("pool/state/{name}"));
                let batch = self.values(&format!("pool/batch/{theirs}/{block}"));
                let moved = old.iter().zip(&batch).map(|(old, batch)| 0.9 * old + 0.1 * batch);
                assert_close(&name, &after[&name], &moved.collect::<Vec<_>>(), 2e-5);
            }
        }
    }
}

fn fresh() -> Conv4<Flex> {
    let config = Conv4Config::new([3, 9, 11]).with_channels(5).with_blocks(2);
    config.init(&Default::default())
}

#[test]
fn a_safetensors_file_of_pytorch_gives_its_outputs() {
    Golden::read().assert_is_golden(fresh().load_weights(&file("conv4.safetensors")).unwrap());
}

#[test]
fn a_state_dict_of_pytorch_gives_its_outputs() {
    Golden::read().assert_is_golden(fresh().load_weights(&file("conv4.pt")).unwrap());
}

#[test]
fn a_file_that_is_cut_is_refused() {
    let folder = TempDir::new().unwrap();
    for name in ["conv4.safetensors", "conv4.pt"] {
        let bytes = std::fs::read(file(name)).unwrap();
        let cut = folder.path().join(name);
        std::fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
        assert!(fresh().load_weights(&cut).is_err(), "{name}");
    }
}

/// The bytes in the file are PyTorch's: its own safetensors file comes back as it is.
#[test]
fn saved_weights_are_those_of_pytorch_and_load_again() {
    let folder = TempDir::new().unwrap();
    let saved = folder.path().join("saved.safetensors");
    let golden = file("conv4.safetensors");
    let encoder = fresh().load_weights(&golden).unwrap();
    encoder.save_weights(&saved).unwrap();
    assert_eq!(state(&fresh().load_weights(&saved).unwrap()), state(&encoder));
    let [saved, golden] = [saved, golden].map(|file| std::fs::read(file).unwrap());
    let [saved, golden] = [&saved, &golden].map(|bytes| SafeTensors::deserialize(bytes).unwrap());
    for (name, tensor) in saved.iter() {
        let expected = golden.tensor(name).unwrap();
        assert_eq!((tensor.shape(), tensor.data()), (expected.shape(), expected.data()), "{name}");
    }

    let drawn = |seed| {
        Flex::seed(&Default::default(), seed);
        MlpConfig::new(6).with_layers(vec![5, 4]).with_context(2).init::<Flex>(&Default::default())
    };
    let (mlp, file) = (drawn(1), folder.path().join("mlp.safetensors"));
    mlp.save_weights(&file).unwrap();
    assert_ne!(state(&drawn(2)), state(&mlp));
    assert_eq!(state(&drawn(2).load_weights(&file).unwrap()), state(&mlp));
}

/// Through bytes, so that only names and shapes count.
pub fn carried<R: Record<Flex>, S: Record<Flex>>(record: R) -> S {
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<Flex>::record(&recorder, record, ()).unwrap();
    Recorder::<Flex>::load(&recorder, bytes, &Default::default()).unwrap()
}

#[test]
fn a_linear_record_of_burn_gives_its_outputs_and_goes_back() {
    let device = Default::default();
    for bias in [true, false] {
        let burns = burn::nn::LinearConfig::new(5, 3).with_bias(bias).init::<Flex>(&device);
        let ours = LinearConfig::new(5, 3).with_bias(bias).init::<Flex>(&device);
        let x = uniform(1, [4, 5]);
        let expected = burns.forward(x.clone()).into_data();
        let apart = ours.forward(x.clone()).into_data();
        assert_ne!(apart, expected);

        let ours = ours.load_record(carried(burns.into_record()));
        let found = ours.forward(x.clone()).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));

        let burns = burn::nn::LinearConfig::new(5, 3).with_bias(bias).init::<Flex>(&device);
        let burns = burns.load_record(carried(ours.into_record()));
        let found = burns.forward(x).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }
}

#[test]
fn a_batch_norm_record_of_burn_gives_its_outputs_and_goes_back() {
    let device = Default::default();
    let fresh = || burn::nn::BatchNormConfig::new(3).init::<Flex>(&device);
    let vector = |seed| uniform::<Flex, 1>(seed, [3]);
    let burns = burn::nn::BatchNorm {
        gamma: Param::from_tensor(vector(1)),
        beta: Param::from_tensor(vector(2)),
        running_mean: RunningState::new(vector(3)),
        running_var: RunningState::new(vector(4).abs() + 0.5),
        ..fresh()
    };
    let x = uniform::<Flex, 4>(5, [2, 3, 4, 5]);
    let expected = burns.forward(x.clone()).into_data();

    let ours = BatchNormConfig::new(3).init::<Flex>(&device);
    let ours = ours.load_record(carried(burns.into_record()));
    let found = ours.forward(x.clone(), BnStatistics::Running).into_data();
    found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));

    let burns = fresh().load_record(carried(ours.into_record()));
    burns.forward(x).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
}

#[test]
fn batch_statistics_are_those_of_burns_layer_in_training() {
    let device = Default::default();
    let x = uniform::<Once, 4>(6, [3, 2, 4, 5]) * 3.0 + 1.0;
    let burns = burn::nn::BatchNormConfig::new(2).init::<Once>(&device);
    let ours = BatchNormConfig::new(2).init::<Once>(&device);
    let expected = burns.forward(x.clone()).into_data();
    let found = ours.forward(x, BnStatistics::Track).into_data();
    found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    let running = [
        (ours.running().mean, burns.running_mean.value_sync()),
        (ours.running().variance, burns.running_var.value_sync()),
    ];
    for (found, expected) in running {
        let expected = expected.into_data();
        found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }
}
