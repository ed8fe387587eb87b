//! What holds for every head.

use burn::backend::Autodiff;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Int, Tensor, TensorData, Tolerance};
use fewshot::learners::heads::{
    AnyHead, EmbeddedSupport, HEAD_NAMES, Head, TRANSDUCTIVE_HEAD_NAMES,
};

const MAPS: [usize; 3] = [4, 2, 2];
const FEATURES: usize = 16;
const WAYS: usize = 3;
/// Labels of the support of up to three tasks: as many of each class as of the others, and not.
const LABELS: [[usize; 6]; 3] = [[0, 2, 1, 1, 0, 2], [0, 2, 1, 1, 2, 2], [1, 1, 0, 1, 2, 1]];
const QUERIES: usize = 4;

/// All heads, with parameters of the same seed.
fn all<B: Backend>() -> Vec<AnyHead<B>> {
    let device = Default::default();
    B::seed(&device, 7);
    let names = HEAD_NAMES.iter().chain(TRANSDUCTIVE_HEAD_NAMES);
    let heads = names.map(|name| {
        let head = AnyHead::with_name(name, MAPS, &device).unwrap();
        assert_eq!(head.name(), *name);
        assert_eq!(head.transductive(), TRANSDUCTIVE_HEAD_NAMES.contains(name), "{name}");
        head
    });
    heads.collect()
}

/// Numbers that are the same on every backend.
fn drawn(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    std::iter::repeat_with(uniform).take(count).collect()
}

struct Tasks<B: Backend> {
    support: Tensor<B, 3>,
    /// Of the support of each task.
    labels: Vec<[usize; 6]>,
    queries: Tensor<B, 3>,
}

impl<B: Backend> Tasks<B> {
    /// Embeddings around a mean of each class, in an order without a pattern.
    fn new(tasks: usize) -> Self {
        let device = Default::default();
        let of = |labels: &dyn Fn(usize) -> Vec<usize>, seed: u64| {
            let count = labels(0).len();
            let mut values = Vec::new();
            for task in 0..tasks {
                let noise = drawn(count * FEATURES, seed + task as u64);
                for (example, label) in labels(task).into_iter().enumerate() {
                    let mean = drawn(FEATURES, 100 + 10 * task as u64 + label as u64);
                    let noise = &noise[example * FEATURES..];
                    values.extend(mean.iter().zip(noise).map(|(mean, noise)| mean + 0.7 * noise));
                }
            }
            let values = TensorData::new(values, [tasks, count, FEATURES]);
            Tensor::<B, 3>::from_data(values, &device)
        };
        let asked: Vec<usize> = (0..WAYS * QUERIES).map(|query| query * 7 % WAYS).collect();
        let support = of(&|task| LABELS[task].to_vec(), 1);
        Self { support, queries: of(&|_| asked.clone(), 51), labels: LABELS[..tasks].to_vec() }
    }

    fn support(&self) -> EmbeddedSupport<B> {
        self.relabelled(|label| label)
    }

    fn relabelled(&self, map: impl Fn(usize) -> usize) -> EmbeddedSupport<B> {
        let [tasks, examples, _] = self.support.dims();
        let labels = self.labels.iter().flatten().map(|&label| map(label) as i32);
        let labels = TensorData::new(labels.collect::<Vec<_>>(), [tasks, examples]);
        let labels = Tensor::<B, 2, Int>::from_data(labels, &Default::default());
        EmbeddedSupport::new(self.support.clone(), labels, WAYS)
    }

    /// One of the tasks.
    fn only(&self, task: usize) -> Self {
        let one = |x: &Tensor<B, 3>| x.clone().narrow(0, task, 1);
        Self {
            support: one(&self.support),
            labels: vec![self.labels[task]],
            queries: one(&self.queries),
        }
    }
}

fn agree<B: Backend>(what: &str, found: Tensor<B, 3>, wanted: Tensor<B, 3>) {
    let (found, wanted) = (found.into_data(), wanted.into_data());
    let finite = found.iter::<f32>().all(f32::is_finite);
    assert!(finite, "{what}: not finite");
    println!("{what}");
    // Of logarithms of small shares, for which iterations stop at other last digits.
    wanted.assert_approx_eq::<f32>(&found, Tolerance::absolute(1e-2).set_relative(5e-3));
}

/// In another order along `dim`. Candle's own selection takes contiguous tensors alone.
fn select<B: Backend>(x: Tensor<B, 3>, dim: usize, order: &[usize]) -> Tensor<B, 3> {
    let slices = order.iter().map(|&index| x.clone().narrow(dim, index, 1));
    Tensor::cat(slices.collect(), dim)
}

pub fn logits_permute_with_the_classes<B: Backend>() {
    let tasks = Tasks::<B>::new(2);
    for head in all::<B>() {
        let before = head.logits(tasks.support(), tasks.queries.clone());
        let after =
            head.logits(tasks.relabelled(|label| (label + 1) % WAYS), tasks.queries.clone());
        agree(head.name(), select(after, 2, &[1, 2, 0]), before);
    }
}

pub fn rows_permute_with_the_queries<B: Backend>() {
    let tasks = Tasks::<B>::new(2);
    let order: Vec<usize> = (0..12).map(|query| query * 5 % 12).collect();
    for head in all::<B>() {
        let before = head.logits(tasks.support(), tasks.queries.clone());
        let after = head.logits(tasks.support(), select(tasks.queries.clone(), 1, &order));
        agree(head.name(), after, select(before, 1, &order));
    }
}

pub fn a_task_among_others_is_the_task_alone<B: Backend>() {
    let tasks = Tasks::<B>::new(3);
    for head in all::<B>() {
        let all = head.logits(tasks.support(), tasks.queries.clone());
        let task = tasks.only(1);
        let alone = head.logits(task.support(), task.queries.clone());
        agree(head.name(), all.narrow(0, 1, 1), alone);
    }
}

pub fn inductive_logits_do_not_depend_on_other_queries<B: Backend>() {
    let tasks = Tasks::<B>::new(2);
    for head in all::<B>() {
        if head.transductive() {
            continue;
        }
        let fitted = head.fit(tasks.support());
        let all = fitted.logits(tasks.queries.clone());
        let one = fitted.logits(tasks.queries.clone().narrow(1, 3, 1));
        agree(head.name(), one, all.narrow(1, 3, 1));
    }
}

pub fn transductive_logits_depend_on_other_queries<B: Backend>() {
    let tasks = Tasks::<B>::new(1);
    for head in all::<B>() {
        if !head.transductive() {
            continue;
        }
        let all = head.logits(tasks.support(), tasks.queries.clone()).narrow(1, 0, 6);
        let half = head.logits(tasks.support(), tasks.queries.clone().narrow(1, 0, 6));
        let most = (all - half).abs().max().into_scalar();
        let most: f32 = most.elem();
        assert!(most > 1e-5, "{}: {most}", head.name());
    }
}

pub fn queries_at_their_class_are_classified<B: Backend>() {
    // As many of each class: some transductive heads expect that of the queries, which are the support.
    let tasks = Tasks::<B>::new(1);
    let labels: Vec<i32> = tasks.labels.iter().flatten().map(|&label| label as i32).collect();
    for head in all::<B>() {
        // Networks that were drawn compare at random; a ridge of 50 or a C of 0.1 gives up examples, and
        // so do three neighbours where a class has two.
        let other = ["relation", "feat", "leo", "r2d2", "meta-opt-net", "laplacian-shot"];
        if other.contains(&head.name()) {
            continue;
        }
        let logits = head.logits(tasks.support(), tasks.support.clone());
        let found: Vec<i32> = logits.argmax(2).into_data().iter::<i32>().collect();
        assert_eq!(found, labels, "{}", head.name());
    }
}

pub fn equal_embeddings_have_finite_logits<B: Backend>() {
    let tasks = Tasks::<B>::new(1);
    for head in all::<B>() {
        for value in [0.0, 1.0] {
            let support = tasks.support();
            let support = support.with_embeddings(support.embeddings.full_like(value));
            let logits = head.logits(support, tasks.queries.full_like(value)).into_data();
            let finite = logits.iter::<f32>().all(f32::is_finite);
            assert!(finite, "{} of {value}: {logits}", head.name());
        }
    }
}

pub fn no_query_has_no_logits_and_a_single_one_has_some<B: Backend>() {
    let tasks = Tasks::<B>::new(2);
    for head in all::<B>() {
        for count in [0, 1] {
            let queries = tasks.queries.clone().slice([0..2, 0..count]);
            let logits = head.logits(tasks.support(), queries);
            assert_eq!(logits.dims(), [2, count, WAYS], "{}", head.name());
            if count == 0 {
                // CUDA reads no tensor without elements; a launch over none would fail here.
                B::sync(&logits.device())
                    .unwrap_or_else(|error| panic!("{}: {error}", head.name()));
                continue;
            }
            let finite = logits.into_data().iter::<f32>().all(f32::is_finite);
            assert!(finite, "{} of {count} queries", head.name());
        }
    }
}

/// Heads that are fitted without gradients send none back to the embeddings of the support.
pub fn fitted_heads_send_no_gradient_back<B: Backend>() {
    let tasks = Tasks::<Autodiff<B>>::new(1);
    let fitted = [
        "baseline",
        "baseline++",
        "finetune",
        "bd-cspn",
        "laplacian-shot",
        "pt-map",
        "tim-gd",
        "tim-adm",
        "transductive-finetuning",
    ];
    let mut known = 0;
    for head in all::<Autodiff<B>>() {
        if !fitted.contains(&head.name()) {
            continue;
        }
        known += 1;
        let x = tasks.support.clone().detach().require_grad();
        let support = tasks.support().with_embeddings(x.clone());
        let logits = head.logits(support, tasks.queries.clone().detach().require_grad());
        // A leaf that the sum does depend on, so that there is a graph.
        let factor = Tensor::<Autodiff<B>, 1>::ones([1], &x.device()).require_grad();
        let gradients = (logits.sum() * factor.clone()).backward();
        assert!(
            factor.grad(&gradients).is_some() && x.grad(&gradients).is_none(),
            "{}",
            head.name()
        );
    }
    assert_eq!(known, fitted.len());
}

/// Gradients of the embeddings by the sum of weighted logits, for heads that episodes train. Nearest
/// neighbours change within the step, so that dn4 has a test of its own.
pub fn gradients_are_central_differences<B: Backend>() {
    type A<B> = Autodiff<B>;
    // The one whose classes have one, two and three examples.
    let tasks = Tasks::<A<B>>::new(2).only(1);
    let weights = TensorData::new(drawn(12 * WAYS, 9), [1, 12, WAYS]);
    let trained = [
        "prototypes",
        "simpleshot",
        "matching",
        "relation",
        "meta-baseline",
        "simple-cnaps",
        "feat",
        "r2d2",
        "meta-opt-net",
    ];
    for head in all::<A<B>>() {
        if !trained.contains(&head.name()) {
            continue;
        }
        let value = |support: Tensor<A<B>, 3>| {
            let support = tasks.support().with_embeddings(support);
            let logits = head.logits(support, tasks.queries.clone());
            let weights = Tensor::<A<B>, 3>::from_data(weights.clone(), &logits.device());
            (logits * weights).sum()
        };
        let x = tasks.support.clone().detach().require_grad();
        let gradient =
            x.grad(&value(x.clone()).backward()).unwrap_or_else(|| panic!("{}", head.name()));
        let way = TensorData::new(drawn(96, 33), [1, 6, FEATURES]);
        let way = Tensor::<A<B>, 3>::from_data(way, &x.device()) - 0.5;
        let along: f32 = (gradient * way.clone().inner()).sum().into_scalar().elem();
        let h = 5e-3;
        let at = |step: f64| -> f32 {
            value(tasks.support.clone() + way.clone() * step).into_scalar().elem()
        };
        let difference = (at(h) - at(-h)) / (2.0 * h as f32);
        let allowed = 2e-2 * difference.abs().max(along.abs()).max(0.05);
        assert!((difference - along).abs() <= allowed, "{}: {along} {difference}", head.name());
    }
}

/// Heads that are formulas of a query have their probabilities from it; these are all that are none.
pub fn formulas_have_the_probabilities_of_their_heads<B: Backend>() {
    let task = Tasks::<B>::new(2).only(1);
    let mut without = Vec::new();
    for head in all::<B>() {
        let Ok(formula) = head.formula(task.support()) else {
            without.push(head.name());
            continue;
        };
        let wanted = softmax(head.logits(task.support(), task.queries.clone()), 2);
        let found = softmax(formula.logits(task.queries.clone().squeeze_dim(0)), 1);
        let tolerance = Tolerance::absolute(1e-4);
        wanted.into_data().assert_approx_eq::<f32>(&found.unsqueeze::<3>().into_data(), tolerance);
    }
    let inductive = ["relation", "feat", "dn4", "deep-emd", "leo"];
    assert_eq!(without, [&inductive[..], TRANSDUCTIVE_HEAD_NAMES].concat());
}
