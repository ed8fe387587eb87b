//! Settings and embeddings that heads refuse, each with the reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Flex;
use burn::tensor::{Int, Tensor};
use fewshot::learners::heads::*;

use super::numbers::{drawn, support, tensor};

const MAP: [usize; 3] = [3, 2, 2];
const LABELS: [usize; 4] = [0, 1, 1, 0];

/// Message of the panic of `call`.
fn refusal(name: &str, call: &dyn Fn()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err(name);
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().expect("a message")).to_owned(),
    }
}

fn assert_refused(cases: &[(&str, &dyn Fn())]) {
    for (reason, call) in cases {
        let message = refusal(reason, call);
        assert!(message.contains(reason), "{reason}: {message}");
    }
}

/// Fits `head` to embeddings of this many features, and judges queries.
fn judge(head: &impl Head<Flex>, features: usize) {
    let embeddings = support(&drawn(4 * features, 1), &LABELS, 2);
    let queries = tensor(&drawn(3 * features, 2), [1, 3, features]);
    head.logits(embeddings, queries).into_data();
}

/// Fits `head` to maps [`MAP`], and judges queries.
fn fit(head: impl Head<Flex>) {
    judge(&head, MAP.iter().product());
}

fn sgd(change: fn(&mut Sgd)) {
    let mut sgd = Sgd::default();
    change(&mut sgd);
    fit(Baseline { sgd });
}

fn tim(solver: TimSolver, change: fn(&mut Tim)) {
    let mut head = Tim::new(solver);
    change(&mut head);
    fit(head);
}

fn fine_tuning(change: fn(&mut TransductiveFineTuning)) {
    let mut head = TransductiveFineTuning::new();
    change(&mut head);
    fit(head);
}

fn pt_map(change: fn(&mut PtMap)) {
    let mut head = PtMap::new();
    change(&mut head);
    fit(head);
}

fn laplacian(change: fn(&mut LaplacianShot<Flex>)) {
    let mut head = LaplacianShot::new();
    change(&mut head);
    fit(head);
}

fn meta_opt_net(change: fn(&mut MetaOptNet<Flex>)) {
    let mut head = MetaOptNet::new(&Default::default());
    change(&mut head);
    fit(head);
}

fn feat(change: fn(FeatConfig) -> FeatConfig) {
    change(FeatConfig::new(12)).init::<Flex>(&Default::default());
}

fn leo(change: fn(LeoConfig) -> LeoConfig) {
    change(LeoConfig::new(12)).init::<Flex>(&Default::default());
}

fn r2d2(change: fn(R2d2Config) -> R2d2Config) {
    change(R2d2Config::new()).init::<Flex>(&Default::default());
}

fn relation(change: fn(RelationNetConfig) -> RelationNetConfig) {
    change(RelationNetConfig::new(MAP)).init::<Flex>(&Default::default());
}

fn matching(change: fn(MatchingNetConfig) -> MatchingNetConfig) {
    change(MatchingNetConfig::new(12)).init::<Flex>(&Default::default());
}

/// Heads of one setting that is positive.
#[test]
fn scales_temperatures_and_prices_are_positive_numbers() {
    for number in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let positive = |name: &str, call: &dyn Fn()| {
            let (message, reason) =
                (refusal(name, call), format!("must be positive, found {number}"));
            assert!(message.starts_with(name) && message.contains(&reason), "{name}: {message}");
        };
        positive("the scale", &|| fit(Prototypes { scale: number, ..Prototypes::new() }));
        positive("the scale", &|| fit(BaselinePlusPlus { scale: number, ..Default::default() }));
        positive("the temperature", &|| fit(Finetune { temperature: number, ..Finetune::new() }));
        positive("the temperature", &|| fit(DeepEmd { temperature: number, ..DeepEmd::new(MAP) }));
        positive("the learning rate", &|| fit(Finetune { rate: number, ..Finetune::new() }));
        positive("the regulariser", &|| fit(SimpleCnaps { regulariser: number }));
        positive("the C of a logistic regression", &|| {
            fit(LogisticRegression { c: number, ..Default::default() })
        });
        positive("the scale of Meta-Baseline", &|| {
            MetaBaseline::<Flex>::new(number, &Default::default());
        });
    }
}

#[test]
fn settings_of_fitted_heads_are_in_their_range() {
    assert_refused(&[
        ("one step or more", &|| sgd(|sgd| sgd.steps = 0)),
        ("the learning rate must be positive, found NaN", &|| sgd(|sgd| sgd.rate = f64::NAN)),
        ("weight decay must not be negative", &|| sgd(|sgd| sgd.weight_decay = -0.1)),
        ("momentum, dampening", &|| sgd(|sgd| sgd.momentum = -0.1)),
        ("momentum, dampening", &|| sgd(|sgd| sgd.dampening = f64::INFINITY)),
        ("one step or more", &|| fit(Finetune { steps: 0, ..Finetune::new() })),
        ("one step or more", &|| fine_tuning(|head| head.steps = 0)),
        ("the learning rate must be positive", &|| fine_tuning(|head| head.rate = 0.0)),
        ("the temperature must be positive", &|| fine_tuning(|head| head.temperature = -1.0)),
        ("TIM-ADM solves for squared distances, not for Cosine", &|| {
            tim(TimSolver::Adm, |head| head.similarity = Similarity::Cosine)
        }),
        ("one step or more", &|| tim(TimSolver::Adm, |head| head.steps = 0)),
        ("the learning rate must be positive", &|| tim(TimSolver::Gd, |head| head.rate = 0.0)),
        ("the temperature must be positive", &|| {
            tim(TimSolver::Adm, |head| head.temperature = 0.0)
        }),
        ("the weight of the cross-entropy must be positive", &|| {
            tim(TimSolver::Adm, |head| head.cross_entropy = 0.0)
        }),
        ("the weights of entropies must not be negative, found [-1.0, 0.1]", &|| {
            tim(TimSolver::Gd, |head| head.marginal_entropy = -1.0)
        }),
        ("the weights of entropies must not be negative, found [1.0, NaN]", &|| {
            tim(TimSolver::Gd, |head| head.conditional_entropy = f64::NAN)
        }),
        ("a power must be positive", &|| pt_map(|head| head.power = 0.0)),
        ("lambda must be positive", &|| pt_map(|head| head.lambda = -1.0)),
        ("a rate is from 0 to 1, found 2", &|| pt_map(|head| head.rate = 2.0)),
        ("a rate is from 0 to 1, found -0.5", &|| pt_map(|head| head.rate = -0.5)),
        ("lambda must not be negative", &|| laplacian(|head| head.lambda = -1.0)),
        ("a tolerance must not be negative", &|| laplacian(|head| head.tolerance = f64::NAN)),
        ("a scale is above 0 and up to 40, found 0", &|| laplacian(|head| head.scale = 0.0)),
        ("a scale is above 0 and up to 40, found NaN", &|| {
            fit(BdCspn { scale: f64::NAN, ..BdCspn::new() })
        }),
        ("a scale is above 0 and up to 40, found 41", &|| {
            fit(BdCspn { scale: 41.0, ..BdCspn::new() })
        }),
        ("the C of a machine must be positive, found NaN", &|| {
            meta_opt_net(|head| head.c = f64::NAN)
        }),
        ("the ridge of a machine must be positive", &|| meta_opt_net(|head| head.ridge = 0.0)),
        ("the scale of MetaOptNet must not be zero", &|| {
            MetaOptNet::<Flex>::new(&Default::default()).with_scale(0.0);
        }),
        ("DN4 needs a neighbour", &|| fit(Dn4 { neighbours: 0, ..Dn4::new(MAP) })),
        ("give it first", &|| {
            let transform = FeatureTransform::CentredAndNormalised;
            fit(SimpleShot { transform, ..SimpleShot::new() });
        }),
    ]);
}

#[test]
fn settings_of_trained_heads_are_in_their_range() {
    assert_refused(&[
        ("the penalty of a ridge regression must be positive, found 0", &|| {
            r2d2(|config| config.with_lambda(0.0))
        }),
        ("the scale of R2-D2 must not be zero, found NaN", &|| {
            r2d2(|config| config.with_scale(f64::NAN))
        }),
        ("the temperature of FEAT must be positive", &|| feat(|feat| feat.with_temperature(0.0))),
        ("the contrastive temperature of FEAT must be positive", &|| {
            feat(|feat| feat.with_contrastive_temperature(-1.0))
        }),
        ("the weight of FEAT's contrastive loss must not be negative", &|| {
            feat(|feat| feat.with_contrastive_weight(-0.1))
        }),
        ("FEAT needs embeddings with features", &|| {
            FeatConfig::new(0).init::<Flex>(&Default::default());
        }),
        ("rates of LEO must not be negative", &|| leo(|leo| leo.with_rate(f64::NAN))),
        ("rates of LEO must not be negative", &|| leo(|leo| leo.with_fine_tuning_rate(-1.0))),
        ("penalties of weights must not be negative", &|| leo(|leo| leo.with_l2_penalty(-1.0))),
        ("penalties of weights must not be negative", &|| {
            leo(|leo| leo.with_orthogonality_penalty(-1.0))
        }),
        ("penalties of codes must not be negative", &|| leo(|leo| leo.with_code_penalty(-1.0))),
        ("penalties of codes must not be negative", &|| {
            leo(|leo| leo.with_divergence_penalty(-1.0))
        }),
        ("steps of LEO must be some: [12, 64, 0]", &|| leo(|leo| leo.with_steps(0))),
        ("steps of LEO must be some: [12, 0, 5]", &|| leo(|leo| leo.with_latents(0))),
        ("dropout is from 0 to less than 1, found 1", &|| leo(|leo| leo.with_dropout(1.0))),
        ("no size of a relation network can be zero, found [3, 2, 2, 0, 8]", &|| {
            relation(|net| net.with_channels(0))
        }),
        ("running averages is from 0 to 1, found 1.5", &|| relation(|net| net.with_momentum(1.5))),
        ("maps [3, 2, 2] are too small for padding 0", &|| relation(|net| net.with_padding(0))),
        ("maps [3, 2, 5] are too small for padding 0", &|| {
            RelationNetConfig::new([3, 2, 5]).with_padding(0).init::<Flex>(&Default::default());
        }),
        ("a full context needs a step", &|| matching(|net| net.with_context_steps(Some(0)))),
        ("the scale of a matching network's cosines must be positive", &|| {
            matching(|net| net.with_attention(MatchingAttention::Cosine { scale: 0.0 }))
        }),
        ("a matching network needs embeddings with features", &|| {
            MatchingNetConfig::new(0).init::<Flex>(&Default::default());
        }),
    ]);
}

#[test]
fn embeddings_have_the_features_that_a_head_is_made_for() {
    assert_refused(&[
        ("maps [3, 2, 2] have 12 features, found 6", &|| judge(&Dn4::new(MAP), 6)),
        ("maps [3, 2, 2] have 12 features, found 10", &|| judge(&DeepEmd::new(MAP), 10)),
        ("DN4 needs maps with pixels, found [3, 0, 2]", &|| {
            Dn4::new([3, 0, 2]);
        }),
        ("DeepEMD needs maps with pixels and several channels, found [3, 0, 2]", &|| {
            DeepEmd::new([3, 0, 2]);
        }),
        ("DeepEMD needs maps with pixels and several channels, found [1, 2, 2]", &|| {
            DeepEmd::new([1, 2, 2]);
        }),
        ("FEAT of 4 features does not take prototypes [1, 2, 3]", &|| {
            judge(&FeatConfig::new(4).init(&Default::default()), 3)
        }),
        ("LEO of 4 features does not take embeddings [1, 4, 3]", &|| {
            judge(&LeoConfig::new(4).init(&Default::default()), 3)
        }),
        ("a context of 4 features, support [1, 4, 3]", &|| {
            let config = MatchingNetConfig::new(4).with_context(MatchingContext::Full);
            judge(&config.init(&Default::default()), 3)
        }),
        ("a base mean [2] does not centre embeddings [1, 4, 3]", &|| {
            judge(&SimpleShot::new().with_base_mean(tensor(&[0.0, 1.0], [2])), 3)
        }),
    ]);
}

#[test]
fn episodes_that_do_not_fit_are_refused() {
    let labels = |shape: [usize; 2]| Tensor::<Flex, 2, Int>::zeros(shape, &Default::default());
    let embeddings = || Tensor::<Flex, 3>::zeros([2, 4, 3], &Default::default());
    let episode = |of_support, of_queries| {
        EmbeddedEpisode::new(embeddings(), [labels(of_support), labels(of_queries)], 2);
    };
    assert_refused(&[
        ("one label for each embedding", &|| {
            EmbeddedSupport::new(embeddings(), labels([2, 3]), 2);
        }),
        ("the scale must be positive, found 0", &|| {
            let (embeddings, labels) = (embeddings(), [labels([2, 2]), labels([2, 2])]);
            let head = Prototypes { scale: 0.0, ..Prototypes::new() };
            head.train_loss(EmbeddedEpisode::new(embeddings, labels, 2));
        }),
        ("one label for each embedding", &|| episode([2, 2], [2, 3])),
        ("one label for each embedding", &|| episode([1, 2], [2, 2])),
        ("one label for each embedding", &|| episode([2, 2], [1, 2])),
        ("an episode without support or without queries", &|| episode([2, 0], [2, 4])),
        ("an episode without support or without queries", &|| episode([2, 4], [2, 0])),
    ]);
    episode([2, 1], [2, 3]);
}
