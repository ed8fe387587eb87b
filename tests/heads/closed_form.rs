//! Heads that solve a convex problem, against PyTorch in double precision and scikit-learn.

use burn::backend::{Autodiff, Flex};
use burn::module::{ModuleVisitor, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use fewshot::learners::heads::{
    EmbeddedSupport, Head, LogisticRegression, MetaOptNet, R2d2Config, RidgeErrors,
};
use serde_json::Value;

type Host = Flex;
type Tracked = Autodiff<Flex>;

const EPISODES: [(&str, usize); 4] =
    [("five_way", 5), ("many_shots", 3), ("two_way", 2), ("uneven", 3)];

struct Golden(Value);

impl Golden {
    fn read() -> Self {
        Self(serde_json::from_str(include_str!("../golden/closed_form.json")).unwrap())
    }

    fn data(&self, episode: &str, key: &str) -> TensorData {
        let case = &self.0["cases"][format!("{episode}/{key}")];
        let numbers = |key: &str| case[key].as_array().unwrap().iter();
        let shape: Vec<usize> = numbers("shape").map(|x| x.as_u64().unwrap() as usize).collect();
        let values: Vec<f32> = numbers("data").map(|x| x.as_f64().unwrap() as f32).collect();
        TensorData::new(values, shape)
    }

    fn labels<B: Backend>(&self, episode: &str, key: &str) -> Tensor<B, 2, Int> {
        let data = self.data(episode, key);
        Tensor::from_data(data.convert::<i64>(), &Default::default())
    }

    fn tensor<B: Backend>(&self, episode: &str, key: &str) -> Tensor<B, 3> {
        Tensor::from_data(self.data(episode, key), &Default::default())
    }

    fn support<B: Backend>(&self, (episode, ways): (&str, usize)) -> EmbeddedSupport<B> {
        let labels = self.labels(episode, "support_labels");
        EmbeddedSupport::new(self.tensor(episode, "support"), labels, ways)
    }
}

fn assert_near(found: TensorData, expected: TensorData, tolerance: f32, what: &str) {
    let values = |data: &TensorData| data.iter::<f32>().collect::<Vec<_>>();
    let (found, expected) = (values(&found), values(&expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    for (found, expected) in found.into_iter().zip(expected) {
        let fits = (found - expected).abs() <= tolerance * largest;
        assert!(fits, "{what}: found {found}, expected {expected}");
    }
}

/// Gradients of a head's parameters, in the order of its fields.
struct OfParameters<'a, B: AutodiffBackend> {
    gradients: &'a B::Gradients,
    found: Vec<TensorData>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for OfParameters<'_, B> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        self.found.extend(parameter.val().grad(self.gradients).map(Tensor::into_data));
    }
}

/// Logits and all gradients of `head` are those of the golden file, the parameters' by `names`.
fn is_golden<H: Head<Tracked>>(head: &H, episode: (&str, usize), name: &str, names: &[&str]) {
    let golden = Golden::read();
    let (of, _) = episode;
    let mut support = golden.support::<Tracked>(episode);
    support.embeddings = support.embeddings.require_grad();
    let queries = golden.tensor::<Tracked>(of, "queries").require_grad();
    let logits = head.fit(support.clone()).logits(queries.clone());
    let loss = head.loss(logits.clone(), golden.labels(of, "query_labels"));
    let gradients = loss.backward();
    let near = |found: TensorData, key: &str, tolerance| {
        let key = format!("{name}/{key}");
        assert_near(found, golden.data(of, &key), tolerance, &format!("{of}, {key}"));
    };
    near(logits.into_data(), "logits", 1e-5);
    near(support.embeddings.grad(&gradients).unwrap().into_data(), "gradient/support", 1e-4);
    near(queries.grad(&gradients).unwrap().into_data(), "gradient/queries", 1e-4);
    let mut visitor = OfParameters { gradients: &gradients, found: Vec::new() };
    head.visit(&mut visitor);
    assert!(visitor.found.len() >= names.len());
    for (found, name) in visitor.found.into_iter().zip(names) {
        near(found, &format!("gradient/{name}"), 1e-4);
    }
}

#[test]
fn r2d2_is_a_ridge_regression_with_exact_gradients() {
    let head = R2d2Config::new().with_scale(3.0).init(&Default::default());
    for episode in EPISODES {
        is_golden(&head, episode, "r2d2_paper", &["log_lambda", "scale"]);
    }
}

#[test]
fn r2d2_as_in_the_authors_code_averages_errors_and_has_an_intercept() {
    let config = R2d2Config::new()
        .with_errors(RidgeErrors::Averaged)
        .with_intercept(true)
        .with_lambda(2.0)
        .with_scale(10.0);
    for episode in EPISODES {
        is_golden(
            &config.init(&Default::default()),
            episode,
            "r2d2_code",
            &["log_lambda", "scale"],
        );
        let fixed = config.clone().with_learned_lambda(false).init(&Default::default());
        is_golden(&fixed, episode, "r2d2_code", &["scale"]);
    }
    let code = R2d2Config::of_authors_code(1e-4);
    assert_eq!((code.lambda, code.learned_lambda, code.scale), (50.0, false, 1e-4));
    assert_eq!((code.errors, code.intercept), (RidgeErrors::Averaged, true));
}

#[test]
fn meta_opt_net_is_the_machine_of_crammer_and_singer_with_exact_gradients() {
    let device = Default::default();
    let head = MetaOptNet::new(&device).with_scale(2.0);
    for episode in EPISODES {
        is_golden(&head, episode, "svm", &["scale"]);
    }
}

/// On embeddings as they are.
fn raw_regression() -> LogisticRegression {
    LogisticRegression { unit_length: false, ..LogisticRegression::new() }
}

#[test]
fn logistic_regression_has_the_logits_of_scikit_learn() {
    let golden = Golden::read();
    let heads = [("logistic", LogisticRegression::new()), ("logistic_raw", raw_regression())];
    for (name, head) in heads {
        for episode in EPISODES {
            let fitted = head.fit(golden.support::<Host>(episode));
            let mut found = fitted.logits(golden.tensor(episode.0, "queries"));
            if episode.1 == 2 {
                let [first, second] = [0, 1].map(|class| found.clone().narrow(2, class, 1));
                found = second - first;
            }
            let expected = golden.data(episode.0, &format!("{name}/logits"));
            assert_near(found.into_data(), expected, 1e-5, &format!("{}, {name}", episode.0));
        }
    }
}

/// The derivative of the sum of all squared logits by the support.
fn gradient<B: AutodiffBackend, H: Head<B>>(
    head: &H,
    support: &EmbeddedSupport<B>,
    queries: &Tensor<B, 3>,
) -> Tensor<B::InnerBackend, 3> {
    let x = support.embeddings.clone().require_grad();
    let logits = head.fit(support.with_embeddings(x.clone())).logits(queries.clone());
    let gradients = logits.powi_scalar(2).sum().backward();
    x.grad(&gradients).unwrap()
}

fn drawn<B: Backend>(shape: [usize; 3]) -> Tensor<B, 3> {
    let count = shape.iter().product::<usize>() as u32;
    // A fixed sequence that looks like noise.
    let values = (0..count).map(|i| ((i as f32 + 1.0) * 12.9898).sin() * 43.7 % 1.0);
    Tensor::from_data(TensorData::new(values.collect(), shape), &Default::default())
}

/// `f(x + 0.01 v) - f(x - 0.01 v)` over 0.02.
fn difference<const D: usize>(
    f: impl Fn(Tensor<Host, 3>) -> Tensor<Host, D>,
    x: &Tensor<Host, 3>,
    v: &Tensor<Host, 3>,
) -> Tensor<Host, D> {
    let step = v.clone() * 0.01;
    let ahead = f(x.clone() + step.clone());
    (ahead - f(x.clone() - step)) / 0.02
}

#[test]
fn a_logistic_regression_is_differentiated_at_its_solution() {
    let golden = Golden::read();
    for head in [LogisticRegression::new(), raw_regression()] {
        for episode in EPISODES {
            let (support, queries) =
                (golden.support::<Host>(episode), golden.tensor::<Host>(episode.0, "queries"));
            let v = drawn(support.embeddings.dims());
            let tracked = golden.support::<Tracked>(episode);
            let gradient = gradient(&head, &tracked, &golden.tensor(episode.0, "queries"));
            let found = (gradient * v.clone()).sum();
            let loss = |x| {
                let logits = head.fit(support.with_embeddings(x)).logits(queries.clone());
                logits.powi_scalar(2).sum()
            };
            let expected = difference(loss, &support.embeddings, &v);
            assert_near(found.into_data(), expected.into_data(), 3e-3, episode.0);
        }
    }
}

#[test]
fn the_intercepts_of_a_logistic_regression_are_differentiated_too() {
    let golden = Golden::read();
    let support = golden.support::<Host>(EPISODES[0]);
    let v = drawn(support.embeddings.dims());
    let head = raw_regression();
    // Queries at the origin, whose logits are the intercepts.
    let loss = |x| {
        let logits = head
            .fit(support.with_embeddings(x))
            .logits(Tensor::zeros([2, 1, 16], &Default::default()));
        logits.powi_scalar(2).sum()
    };
    let expected = difference(loss, &support.embeddings, &v);
    let origin = Tensor::zeros([2, 1, 16], &Default::default());
    let gradient = gradient(&head, &golden.support::<Tracked>(EPISODES[0]), &origin);
    assert_near((gradient * v).sum().into_data(), expected.into_data(), 3e-3, "intercepts");
}

/// The second derivative under two levels of autodiff is the difference of first derivatives.
fn second_derivative_is_exact<H, T>(twice: &H, once: &T, episode: (&str, usize))
where
    H: Head<Autodiff<Tracked>>,
    T: Head<Tracked>,
{
    let golden = Golden::read();
    let support = golden.support::<Tracked>(episode);
    let queries = golden.tensor::<Tracked>(episode.0, "queries");
    let v = drawn::<Host>(support.embeddings.dims());
    let x = support.embeddings.clone().require_grad();
    let lifted = golden.support::<Autodiff<Tracked>>(episode);
    let lifted = lifted.with_embeddings(Tensor::from_inner(x.clone()));
    let of_twice = gradient(twice, &lifted, &Tensor::from_inner(queries.clone()));
    let product = (of_twice * Tensor::from_inner(v.clone())).sum();
    let found = x.grad(&product.backward()).unwrap();
    let first = |x| gradient(once, &support.with_embeddings(Tensor::from_inner(x)), &queries);
    let expected = difference(first, &support.embeddings.clone().inner(), &v);
    assert_near(found.into_data(), expected.into_data(), 1e-2, episode.0);
}

#[test]
fn second_derivatives_of_r2d2_are_exact() {
    let config = R2d2Config::new().with_lambda(3.0).with_scale(1.0);
    let (twice, once) = (config.init(&Default::default()), config.init(&Default::default()));
    for episode in EPISODES {
        second_derivative_is_exact(&twice, &once, episode);
    }
}

#[test]
fn second_derivatives_of_meta_opt_net_are_exact_while_no_bound_changes() {
    // With C = 10, a bound of the five-way episode changes within 1e-3 along these differences,
    // where the first derivative jumps.
    for (c, episodes) in [(0.1, &EPISODES[..]), (10.0, &EPISODES[1..])] {
        let twice = MetaOptNet { c, ..MetaOptNet::new(&Default::default()) };
        let once = MetaOptNet { c, ..MetaOptNet::new(&Default::default()) };
        for episode in episodes {
            second_derivative_is_exact(&twice, &once, *episode);
        }
    }
}

#[test]
fn a_machine_on_larger_embeddings_with_a_smaller_bound_is_the_same() {
    let golden = Golden::read();
    let queries = golden.tensor::<Host>("many_shots", "queries");
    let logits = |scale: f64| {
        let mut support = golden.support(EPISODES[1]);
        support.embeddings = support.embeddings * scale;
        let square = scale * scale;
        let plain = MetaOptNet::new(&Default::default());
        let head = MetaOptNet { c: 0.1 / square, ridge: square, ..plain };
        head.fit(support).logits(queries.clone() * scale).into_data()
    };
    for scale in [1e-3, 1e-1, 10.0, 1e3] {
        assert_near(logits(scale), logits(1.0), 1e-5, &format!("scale {scale}"));
    }
}

#[test]
fn a_machine_without_bounds_in_reach_separates_with_a_margin_of_one() {
    // Two examples on an axis: the classes' weights differ by 2 / 20 = 1 / |x|.
    let device = Default::default();
    let support = Tensor::<Host, 3>::from_data([[[10.0], [-10.0]]], &device);
    let support = EmbeddedSupport::new(support, Tensor::from_data([[0, 1]], &device), 2);
    let head = MetaOptNet { ridge: 1e-6, ..MetaOptNet::new(&device) }.fit(support);
    let found = head.logits(Tensor::from_data([[[10.0]]], &device)).into_data();
    assert_near(found, TensorData::from([[[0.5, -0.5]]]), 1e-5, "margin");
}

#[test]
fn a_confident_logistic_regression_converges() {
    // The derivative by an intercept is zero where the errors of its class add up to zero.
    let golden = Golden::read();
    for (scale, c) in [(30.0, 1.0), (300.0, 100.0), (1.0, 1e4)] {
        let mut support = golden.support::<Host>(EPISODES[1]);
        support.embeddings = support.embeddings * scale;
        let head = LogisticRegression { c, unit_length: false };
        let logits = head.fit(support.clone()).logits(support.embeddings.clone());
        let p = burn::tensor::activation::softmax(logits, 2);
        let errors = (support.one_hot() - p).sum_dim(1).abs().max().into_scalar();
        assert!(errors < 1e-4, "scale {scale}, C {c}: errors sum to {errors}");
    }
}

#[test]
fn degenerate_tasks_have_finite_logits_and_gradients() {
    fn check<H: Head<Tracked>>(head: &H, shape: [usize; 3], value: f64, ways: usize) {
        let device = Default::default();
        let [tasks, examples, features] = shape;
        let labels: Vec<i64> =
            (0..tasks * examples).map(|i| (i % examples % ways) as i64).collect();
        let labels = TensorData::new(labels, [tasks, examples]);
        let labels = Tensor::<Tracked, 2, Int>::from_data(labels, &device);
        let x = Tensor::<Tracked, 3>::full(shape, value, &device).require_grad();
        let fitted = head.fit(EmbeddedSupport::new(x.clone(), labels, ways));
        for queries in [0, 2] {
            let logits = fitted.logits(Tensor::full([tasks, queries, features], value, &device));
            assert_eq!(logits.dims(), [tasks, queries, ways]);
            let finite = |data: TensorData| data.iter::<f32>().all(f32::is_finite);
            assert!(finite(logits.clone().into_data()), "{} {shape:?}", head.name());
            if queries * features > 0 {
                let gradients = logits.powi_scalar(2).sum().backward();
                assert!(
                    finite(x.grad(&gradients).unwrap().into_data()),
                    "{} {shape:?}",
                    head.name()
                );
            }
        }
    }
    let device = Default::default();
    for (shape, ways) in [([2, 4, 3], 2), ([1, 1, 3], 1), ([2, 6, 2], 3), ([1, 2, 0], 2)] {
        for value in [0.0, 1.0, 1e3] {
            check(&R2d2Config::new().init(&device), shape, value, ways);
            check(&R2d2Config::of_authors_code(1.0).init(&device), shape, value, ways);
            check(&MetaOptNet::new(&device), shape, value, ways);
            check(&LogisticRegression::new(), shape, value, ways);
            check(&raw_regression(), shape, value, ways);
        }
    }
}
