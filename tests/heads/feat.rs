use burn::backend::Flex;
use burn::tensor::backend::Backend;
use fewshot::learners::heads::{Feat, FeatConfig, Head, PrototypeScore};

use super::gradients::are_differences;
use super::numbers::*;

const D: usize = 4;
const LABELS: [usize; 5] = [0, 1, 1, 2, 0];

fn head<B: Backend>() -> FeatConfig {
    let device = Default::default();
    B::seed(&device, 5);
    FeatConfig::new(D)
}

/// `x W` of rows of `D` values.
fn times(rows: &[f64], weight: &[f64]) -> Vec<f64> {
    let row = |row: &[f64]| {
        (0..D).map(|j| (0..D).map(|i| row[i] * weight[i * D + j]).sum::<f64>()).collect::<Vec<_>>()
    };
    rows.chunks(D).flat_map(row).collect()
}

fn adapted(head: &Feat<Flex>, means: &[f64]) -> Vec<f64> {
    let mapped = |weight: &burn::module::Param<burn::tensor::Tensor<Flex, 2>>, rows: &[f64]| {
        times(rows, &values(weight.val()))
    };
    let asking = mapped(&head.query, means);
    let (asked, value) = (mapped(&head.key, means), mapped(&head.value, means));
    let bias = values(head.bias.val());
    let (gain, shift) =
        (values(head.norm.gamma.val()), values(head.norm.beta.as_ref().unwrap().val()));
    let of_class = |(asking, mean): (&[f64], &[f64])| {
        let weights: Vec<f64> =
            asked.chunks(D).map(|asked| (dot(asking, asked) / (D as f64).sqrt()).exp()).collect();
        let total: f64 = weights.iter().sum();
        let read: Vec<f64> = (0..D)
            .map(|at| value.chunks(D).zip(&weights).map(|(v, w)| v[at] * w / total).sum())
            .collect();
        let result = mapped(&head.output, &read);
        let sum: Vec<f64> = (0..D).map(|at| mean[at] + result[at] + bias[at]).collect();
        let middle = sum.iter().sum::<f64>() / D as f64;
        let spread = sum.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / D as f64;
        let deviation = (spread + 1e-5).sqrt();
        (0..D).map(|at| (sum[at] - middle) / deviation * gain[at] + shift[at]).collect::<Vec<_>>()
    };
    asking.chunks(D).zip(means.chunks(D)).flat_map(of_class).collect()
}

#[test]
fn class_means_attend_to_each_other() {
    let (rows, queries) = (drawn(20, 1), drawn(12, 2));
    let means: Vec<f64> = (0..3).flat_map(|class| mean_of(&rows, D, &LABELS, class)).collect();
    let of = |config: FeatConfig, score: fn(&[f64], &[f64]) -> f64| {
        let mut head: Feat<Flex> = config.init(&Default::default());
        head.bias = burn::module::Param::from_tensor(tensor(&drawn(D, 3), [D]));
        let found = logits(&head, support(&rows, &LABELS, 3), &queries);
        let prototypes = adapted(&head, &means);
        let of_query = |query| prototypes.chunks(D).map(|p| score(query, p)).collect::<Vec<_>>();
        assert_near(&found, &queries.chunks(D).flat_map(of_query).collect::<Vec<_>>(), 2e-5);
    };
    of(head::<Flex>(), |q, p| -square_distance(q, p) / 64.0);
    let easyfsl = head::<Flex>().with_score(PrototypeScore::Euclidean).with_temperature(1.0);
    of(easyfsl, |q, p| -square_distance(q, p).sqrt());
}

#[test]
fn training_pulls_embeddings_to_what_their_class_becomes() {
    let (rows, queries, of_queries) = (drawn(20, 1), drawn(12, 2), [2, 0, 1]);
    let of = |weight: f64| {
        let config = head::<Flex>().with_contrastive_weight(weight);
        let head: Feat<Flex> = config.with_contrastive_temperature(2.0).init(&Default::default());
        let labels = burn::tensor::Tensor::from_data([[2, 0, 1]], &Default::default());
        let support = support(&rows, &LABELS, 3);
        let queries = tensor(&queries, [1, 3, D]);
        let logits = head.logits(support.clone(), queries.clone());
        let (_, loss) = head.train_loss(episode(support, queries, labels));
        (head, values(logits), values(loss)[0])
    };
    let (head, logits, rest) = of(0.0);
    let cross_entropy = |logits: &[f64], label: usize| {
        logits.iter().map(|logit| logit.exp()).sum::<f64>().ln() - logits[label]
    };
    let of_logits: f64 =
        logits.chunks(3).zip(of_queries).map(|(of, label)| cross_entropy(of, label)).sum();
    assert_near(&[rest], &[of_logits / 3.0], 1e-5);
    let all = [rows.clone(), queries.clone()].concat();
    let labels: Vec<usize> = LABELS.into_iter().chain(of_queries).collect();
    let centres: Vec<Vec<f64>> = (0..3)
        .map(|class| {
            let members = all.chunks(D).zip(&labels).filter(|(_, label)| **label == class);
            let members: Vec<f64> = members.flat_map(|(row, _)| row.to_vec()).collect();
            let adapted = adapted(&head, &members);
            mean_of(&adapted, D, &vec![0; adapted.len() / D], 0)
        })
        .collect();
    let contrastive = all.chunks(D).zip(&labels).map(|(row, label)| {
        let scores = centres.iter().map(|centre| -square_distance(row, centre) / 2.0);
        cross_entropy(&scores.collect::<Vec<_>>(), *label)
    });
    let contrastive = contrastive.sum::<f64>() / labels.len() as f64;
    let (_, same, found) = of(0.3);
    assert_eq!(logits, same);
    assert_near(&[found - rest], &[0.3 * contrastive], 1e-4);
}

#[test]
fn all_parameters_are_learned() {
    let (rows, queries) = (drawn(20, 4), tensor(&drawn(12, 5), [1, 3, D]));
    let head: Feat<Trained> = head::<Trained>().with_temperature(1.0).init(&Default::default());
    are_differences(&head, 7, 1e-3, |head| {
        weighted(head.fit(support(&rows, &LABELS, 3)).logits(queries.clone()), 6)
    });
}
