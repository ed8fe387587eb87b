//! Values of easyfsl 1.5.0 on the same embeddings; `tests/golden/easyfsl.py` has made them.

use burn::backend::Flex;
use burn::module::Param;
use burn::tensor::{Int, Tensor, TensorData};
use fewshot::learners::heads::{
    AfterPower, BdCspn, ClassMap, EmbeddedSupport, EntropyUpdate, FeatConfig, FeatureTransform,
    Finetune, Head, LaplacianShot, LengthNormalisation, MatchingAttention, MatchingContext,
    MatchingNetConfig, PrototypeScore, Prototypes, PtMap, RectificationWeights, RelationNetConfig,
    RelationPools, ScoredQueries, Similarity, SimpleShot, Tim, TimSolver, TransductiveFineTuning,
};
use fewshot::models::nn::RunningAverage;
use serde_json::Value;

/// Largest difference, absolute or as a share of the value, whichever is more.
const TOLERANCE: f32 = 1e-4;

type Logits = Tensor<Flex, 3>;

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/easyfsl.json")).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn count(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count")) as usize
}

fn flat(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        value => vec![number(value) as f32],
    }
}

/// Nested lists.
fn tensor<const D: usize>(value: &Value) -> Tensor<Flex, D> {
    let mut level = value;
    let dims = [(); D].map(|()| {
        let items = level.as_array().unwrap();
        level = &items[0];
        items.len()
    });
    Tensor::from_data(TensorData::new(flat(value), dims), &Default::default())
}

fn parameter<const D: usize>(value: &Value) -> Param<Tensor<Flex, D>> {
    Param::from_tensor(tensor(value))
}

/// The weight of a linear layer, of which PyTorch keeps the transpose.
fn matrix(value: &Value) -> Param<Tensor<Flex, 2>> {
    Param::from_tensor(tensor(value).transpose())
}

/// A task, of vectors or of maps.
struct Task {
    support: EmbeddedSupport<Flex>,
    queries: Tensor<Flex, 3>,
}

impl Task {
    fn new(setting: &Value, [support, labels, queries]: [&str; 3]) -> Self {
        let rows = |name: &str| tensor::<2>(&setting[name]).unsqueeze();
        let labels = tensor::<1>(&setting[labels]).int();
        let labels: Tensor<Flex, 2, Int> = labels.unsqueeze();
        let support = EmbeddedSupport::new(rows(support), labels, count(&setting["ways"]));
        Self { support, queries: rows(queries) }
    }

    /// Divided by their lengths, if the options say so and the head does not do it by itself.
    fn normalised(self, options: &Value) -> Self {
        if lengths(options) == LengthNormalisation::Given {
            return self;
        }
        let unit = |x: Tensor<Flex, 3>| x.clone() / x.square().sum_dim(2).sqrt();
        let support = self.support.with_embeddings(unit(self.support.embeddings.clone()));
        Self { support, queries: unit(self.queries) }
    }
}

fn lengths(options: &Value) -> LengthNormalisation {
    match &options["feature_normalization"] {
        Value::Null => LengthNormalisation::Given,
        power => {
            assert_eq!(number(power), 2.0);
            LengthNormalisation::Unit
        }
    }
}

/// Whether `method` with every set of options in the golden values is what `computed` makes of it.
fn agrees(method: &str, computed: impl Fn(Task, &Value) -> Logits) {
    let golden = golden();
    let names = match method {
        "RelationNetworks" => ["support_maps", "support_maps_labels", "queries_maps"],
        _ => ["support", "support_labels", "queries_features"],
    };
    for setting in golden["settings"].as_array().unwrap() {
        for (variant, case) in setting["methods"][method].as_object().unwrap() {
            let found = computed(Task::new(setting, names), &case["options"]);
            let wanted = tensor::<2>(&case["logits"]);
            let of = format!("{method}, {variant}, {} shots", setting["shots"]);
            assert_eq!(found.dims()[1..], wanted.dims(), "{of}");
            close(&of, &found.into_data().to_vec().unwrap(), &flat(&case["logits"]));
        }
    }
}

fn close(of: &str, found: &[f32], wanted: &[f32]) {
    let mut worst = 0.0f32;
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let difference = (found - wanted).abs() / wanted.abs().max(1.0);
        assert!(difference <= TOLERANCE, "{of}: value {at} is {found}, not {wanted}");
        worst = worst.max(difference);
    }
    println!("{of}: {worst:.1e}");
}

#[test]
fn prototypes_are_those_of_easyfsl() {
    agrees("PrototypicalNetworks", |task, options| {
        let Task { support, queries } = task.normalised(options);
        let head = Prototypes { score: PrototypeScore::Euclidean, ..Prototypes::new() };
        head.fit(support).logits(queries)
    });
}

#[test]
fn simple_shot_is_that_of_easyfsl() {
    agrees("SimpleShot", |task, options| {
        let score = PrototypeScore::Cosine;
        let of = |transform| SimpleShot { score, transform, ..SimpleShot::new() };
        let head = match (lengths(options), options["feature_centering"].as_str()) {
            (LengthNormalisation::Given, None) => of(FeatureTransform::Unchanged),
            (LengthNormalisation::Unit, None) => of(FeatureTransform::Normalised),
            (_, Some(name)) => {
                of(FeatureTransform::Normalised).with_base_mean(tensor(&golden()[name]))
            }
        };
        head.fit(task.support).logits(task.queries)
    });
}

#[test]
fn matching_networks_are_those_of_easyfsl() {
    agrees("MatchingNetworks", |task, options| {
        let mut head = MatchingNetConfig::new(count(&options["feature_dimension"]))
            .with_attention(MatchingAttention::UnscaledQuery)
            .with_context(MatchingContext::Full)
            .init(&Default::default());
        let context = head.full_context.as_mut().unwrap();
        let weights = &golden()["weights"]["MatchingNetworks"];
        let encoders = [&weights["support_encoder"], &weights["query_encoder"]];
        for (cell, of, suffix) in [
            (&mut context.forwards, encoders[0], "_l0"),
            (&mut context.backwards, encoders[0], "_l0_reverse"),
            (&mut context.attending, encoders[1], ""),
        ] {
            let of = |name| &of[format!("{name}{suffix}")];
            cell.weight_ih = matrix(of("weight_ih"));
            cell.weight_hh = matrix(of("weight_hh"));
            let biases = [of("bias_ih"), of("bias_hh")].map(tensor::<1>);
            cell.bias = Param::from_tensor(biases.into_iter().reduce(|a, b| a + b).unwrap());
        }
        head.fit(task.support).logits(task.queries)
    });
}

#[test]
fn relation_networks_are_those_of_easyfsl() {
    agrees("RelationNetworks", |task, options| {
        let golden = golden();
        let map: Vec<_> = golden["map"].as_array().unwrap().iter().map(count).collect();
        let channels = count(&options["feature_dimension"]);
        let mut head = RelationNetConfig::new(map.try_into().unwrap())
            .with_channels(channels)
            .with_class_map(ClassMap::Mean)
            .with_pools(RelationPools::Adaptive)
            .init(&Default::default());
        let of = |name: &str| &golden["weights"]["RelationNetworks"][name];
        let halves = tensor::<4>(of("0.0.weight")).chunk(2, 1);
        [head.conv1_class, head.conv1_query] =
            [0, 1].map(|half: usize| Param::from_tensor(halves[half].clone()));
        head.conv2 = parameter(of("1.0.weight"));
        for (block, at) in [(&mut head.first, 0), (&mut head.second, 1)] {
            block.bias = parameter(of(&format!("{at}.0.bias")));
            block.gamma = parameter(of(&format!("{at}.1.weight")));
            block.beta = parameter(of(&format!("{at}.1.bias")));
            block.running_mean = RunningAverage::new(tensor(of(&format!("{at}.1.running_mean"))));
            block.running_var = RunningAverage::new(tensor(of(&format!("{at}.1.running_var"))));
        }
        head.fc1 = matrix(of("3.weight"));
        head.fc1_bias = parameter(of("3.bias"));
        head.fc2 = matrix(of("5.weight"));
        head.fc2_bias = parameter(of("5.bias"));
        head.fit(task.support).logits(task.queries)
    });
}

#[test]
fn feat_is_that_of_easyfsl() {
    agrees("FEAT", |task, _| {
        let golden = golden();
        let of = |name: &str| &golden["weights"]["FEAT"][name];
        let mut head = FeatConfig::new(task.queries.dims()[2])
            .with_score(PrototypeScore::Euclidean)
            .with_temperature(1.0)
            .init(&Default::default());
        head.query = matrix(of("w_qs.weight"));
        head.key = matrix(of("w_ks.weight"));
        head.value = matrix(of("w_vs.weight"));
        head.output = matrix(of("fc.weight"));
        head.bias = parameter(of("fc.bias"));
        head.norm.gamma = parameter(of("layer_norm.weight"));
        head.norm.beta = Some(parameter(of("layer_norm.bias")));
        head.fit(task.support).logits(task.queries)
    });
}

#[test]
fn finetune_is_that_of_easyfsl() {
    agrees("Finetune", |task, options| {
        let Task { support, queries } = task.normalised(options);
        let temperature = number(&options["temperature"]);
        let head = Finetune {
            steps: count(&options["fine_tuning_steps"]),
            rate: number(&options["fine_tuning_lr"]),
            temperature,
        };
        head.fit(support).logits(queries) / temperature
    });
}

#[test]
fn transductive_fine_tuning_is_that_of_easyfsl() {
    agrees("TransductiveFinetuning", |task, options| {
        let Task { support, queries } = task.normalised(options);
        let temperature = number(&options["temperature"]);
        let head = TransductiveFineTuning {
            similarity: Similarity::Euclidean,
            update: EntropyUpdate::Joint,
            steps: count(&options["fine_tuning_steps"]),
            rate: number(&options["fine_tuning_lr"]),
            temperature,
        };
        head.logits(support, queries) / temperature
    });
}

#[test]
fn tim_is_that_of_easyfsl() {
    agrees("TIM", |task, options| {
        let Task { support, queries } = task.normalised(options);
        let temperature = number(&options["temperature"]);
        let [cross_entropy, marginal_entropy, conditional_entropy] =
            ["cross", "marginal", "conditional"]
                .map(|term| number(&options[format!("{term}_entropy_weight")]));
        let head = Tim {
            solver: TimSolver::Gd,
            similarity: Similarity::Cosine,
            steps: count(&options["fine_tuning_steps"]),
            rate: number(&options["fine_tuning_lr"]),
            temperature,
            cross_entropy,
            marginal_entropy,
            conditional_entropy,
        };
        head.logits(support, queries) / temperature
    });
}

#[test]
fn bd_cspn_is_that_of_easyfsl() {
    agrees("BDCSPN", |task, options| {
        let (lengths, scored) = (lengths(options), ScoredQueries::Unshifted);
        let head = BdCspn { scale: 1.0, lengths, scored };
        head.logits(task.support, task.queries)
    });
}

#[test]
fn laplacian_shot_is_that_of_easyfsl() {
    agrees("LaplacianShot", |task, options| {
        let head = LaplacianShot {
            weights: RectificationWeights::WithinClass,
            scale: 1.0,
            lengths: lengths(options),
            scored: ScoredQueries::Unshifted,
            // easyfsl counts a query among its neighbours and leaves it out.
            neighbours: count(&options["knn"]) - 1,
            lambda: number(&options["lambda_regularization"]),
            steps: count(&options["inference_steps"]),
            ..LaplacianShot::new()
        };
        head.logits(task.support, task.queries).exp()
    });
}

#[test]
fn pt_map_is_that_of_easyfsl() {
    agrees("PTMAP", |task, options| {
        let Task { support, queries } = task.normalised(options);
        let head = PtMap {
            after_power: AfterPower::Nothing,
            power: number(&options["power_factor"]),
            lambda: number(&options["lambda_regularization"]),
            steps: count(&options["fine_tuning_steps"]),
            rate: number(&options["fine_tuning_lr"]),
        };
        head.logits(support, queries).exp()
    });
}
