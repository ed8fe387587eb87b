use burn::backend::Flex;
use burn::module::{AutodiffModule, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot::learners::heads::{
    ClassMap, Head, RelationBlock, RelationNet, RelationNetConfig, RelationPools,
    RelationStatistics,
};
use fewshot::models::nn::RunningAverage;

use super::gradients::are_differences;
use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];

fn made<B: Backend>(config: RelationNetConfig) -> RelationNet<B> {
    let device = Default::default();
    B::seed(&device, 3);
    let mut head = config.init(&device);
    // As drawn, weights are so small that every score is nearly that of the biases.
    for weight in [&mut head.fc1, &mut head.fc2] {
        *weight = Param::from_tensor((weight.val() * 60.0).detach());
    }
    let vectors = [&mut head.first.bias, &mut head.second.beta, &mut head.second.gamma];
    for (seed, vector) in vectors.into_iter().enumerate() {
        let value = vector.val();
        let noise = tensor(&drawn(value.dims()[0], 40 + seed as u64), value.dims());
        *vector = Param::from_tensor((value + noise * 0.5 + 0.3).detach());
    }
    head
}

/// A map `[c, h, w]`.
#[derive(Clone)]
struct Map {
    shape: [usize; 3],
    values: Vec<f64>,
}

impl Map {
    fn at(&self, c: usize, y: isize, x: isize) -> f64 {
        let [_, h, w] = self.shape;
        let inside = (0..h as isize).contains(&y) && (0..w as isize).contains(&x);
        if inside { self.values[(c * h + y as usize) * w + x as usize] } else { 0.0 }
    }

    fn beside(&self, other: &Self) -> Self {
        let [c, h, w] = self.shape;
        Self { shape: [2 * c, h, w], values: [&self.values[..], &other.values].concat() }
    }

    fn convolved(&self, weight: &[f64], bias: &[f64], padding: usize) -> Self {
        let [c, h, w] = self.shape;
        let shape @ [outputs, rows, columns] =
            [bias.len(), h + 2 * padding - 2, w + 2 * padding - 2];
        let mut values = Vec::new();
        for at in 0..outputs * rows * columns {
            let (o, y, x) = (at / (rows * columns), at / columns % rows, at % columns);
            let mut sum = bias[o];
            for tap in 0..c * 9 {
                let (i, dy, dx) = (tap / 9, tap / 3 % 3, tap % 3);
                let [y, x] = [y + dy, x + dx].map(|at| at as isize - padding as isize);
                sum += weight[(o * c + i) * 9 + dy * 3 + dx] * self.at(i, y, x);
            }
            values.push(sum);
        }
        Self { shape, values }
    }

    fn pooled(&self, windows: impl Fn(usize) -> Vec<(usize, usize)>) -> Self {
        let [c, h, w] = self.shape;
        let (rows, columns) = (windows(h), windows(w));
        let mut values = Vec::new();
        for channel in 0..c {
            for &(top, bottom) in &rows {
                for &(left, right) in &columns {
                    let inside = (top..bottom).flat_map(|y| (left..right).map(move |x| (y, x)));
                    let inside = inside.map(|(y, x)| self.at(channel, y as isize, x as isize));
                    values.push(inside.fold(f64::MIN, f64::max));
                }
            }
        }
        Self { shape: [c, rows.len(), columns.len()], values }
    }
}

/// Normalises and rectifies maps by their moments, or by running ones.
fn rectified(block: &RelationBlock<Flex>, maps: &[Map], running: bool) -> Vec<Map> {
    let [gamma, beta] = [&block.gamma, &block.beta].map(|of| values(of.val()));
    let running =
        running.then(|| [&block.running_mean, &block.running_var].map(|of| values(of.value())));
    let [channels, h, w] = maps[0].shape;
    let mut maps = maps.to_vec();
    for channel in 0..channels {
        let place = channel * h * w..(channel + 1) * h * w;
        let all: Vec<f64> =
            maps.iter().flat_map(|map| map.values[place.clone()].to_vec()).collect();
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let (mean, variance) = match &running {
            Some([means, variances]) => (means[channel], variances[channel]),
            None => (mean, variance),
        };
        for value in maps.iter_mut().flat_map(|map| &mut map.values[place.clone()]) {
            let normal = (*value - mean) / (variance + 1e-5).sqrt();
            *value = (normal * gamma[channel] + beta[channel]).max(0.0);
        }
    }
    maps
}

fn halves(side: usize) -> Vec<(usize, usize)> {
    (0..side / 2).map(|at| (2 * at, 2 * at + 2)).collect()
}

fn whole(side: usize) -> Vec<(usize, usize)> {
    vec![(0, side)]
}

/// Five windows, as PyTorch has them.
fn fifths(side: usize) -> Vec<(usize, usize)> {
    let end = |at: usize| ((at + 1) as f64 * side as f64 / 5.0).ceil() as usize;
    (0..5).map(|at| ((at as f64 * side as f64 / 5.0).floor() as usize, end(at))).collect()
}

/// Scores of all pairs, by loops.
fn wanted(
    head: &RelationNet<Flex>,
    config: &RelationNetConfig,
    rows: &[f64],
    queries: &[f64],
    running: bool,
) -> Vec<f64> {
    let (shape, size) = (config.map, config.map.iter().product());
    let classes = [0, 1].map(|class| {
        let mean = mean_of(rows, size, &LABELS, class).into_iter();
        let times = if config.class_map == ClassMap::Sum { 2.0 } else { 1.0 };
        Map { shape, values: mean.map(|x| x * times).collect() }
    });
    let queries = queries.chunks(size).map(|query| Map { shape, values: query.to_vec() });
    let pairs: Vec<Map> =
        queries.flat_map(|query| classes.each_ref().map(|class| class.beside(&query))).collect();
    let halved: fn(&Map) -> Map =
        |map| if map.shape[1] > 1 && map.shape[2] > 1 { map.pooled(halves) } else { map.clone() };
    let adaptive = config.pools == RelationPools::Adaptive;
    let pools: [fn(&Map) -> Map; 2] =
        if adaptive { [|map| map.pooled(fifths), |map| map.pooled(whole)] } else { [halved; 2] };
    let paddings = if adaptive { [1, 0] } else { [config.padding; 2] };
    let first = [&head.conv1_class, &head.conv1_query].map(|of| values(of.val()));
    let per_output = 9 * shape[0];
    let first: Vec<f64> = (0..config.channels)
        .flat_map(|o| {
            first.iter().flat_map(move |half| half[o * per_output..][..per_output].to_vec())
        })
        .collect();
    let blocks =
        [(first, &head.first), (values(head.conv2.val()), &head.second)].into_iter().zip(paddings);
    let maps = blocks.zip(pools).fold(pairs, |maps, (((weight, block), padding), pool)| {
        let bias = values(block.bias.val());
        let maps: Vec<Map> =
            maps.iter().map(|map| map.convolved(&weight, &bias, padding)).collect();
        rectified(block, &maps, running).iter().map(pool).collect()
    });
    let [fc1_bias, fc2_bias] = [&head.fc1_bias, &head.fc2_bias].map(|of| values(of.val()));
    let [fc1, fc2] = [&head.fc1, &head.fc2].map(|of| values(of.val()));
    let score = |map: &Map| {
        let hidden = fc1_bias.iter().enumerate().map(|(j, bias)| {
            let inputs = map.values.iter().enumerate();
            let sum = inputs.map(|(i, x)| x * fc1[i * fc1_bias.len() + j]).sum::<f64>();
            (sum + bias).max(0.0)
        });
        let sum = dot(&hidden.collect::<Vec<_>>(), &fc2) + fc2_bias[0];
        1.0 / (1.0 + (-sum).exp())
    };
    maps.iter().map(score).collect()
}

fn configurations() -> Vec<RelationNetConfig> {
    let of = |map| RelationNetConfig::new(map).with_channels(5);
    let adaptive = |map| of(map).with_pools(RelationPools::Adaptive).with_class_map(ClassMap::Mean);
    vec![
        of([3, 6, 5]),
        of([3, 1, 1]),
        of([2, 3, 1]),
        of([3, 9, 8]).with_padding(0),
        adaptive([3, 7, 5]),
        adaptive([5, 1, 1]),
    ]
}

#[test]
fn scores_are_those_of_the_network_on_all_pairs() {
    for config in configurations() {
        let size: usize = config.map.iter().product();
        let (rows, queries) = (drawn(4 * size, 1), drawn(3 * size, 2));
        for statistics in [RelationStatistics::Running, RelationStatistics::Task] {
            let mut head = made::<Flex>(config.clone().with_statistics(statistics));
            let mean = tensor(&drawn(5, 3), [5]);
            head.first.running_mean = RunningAverage::new(mean);
            let variance = tensor::<Flex, 1>(&drawn(5, 4), [5]) + 1.5;
            head.second.running_var = RunningAverage::new(variance);
            let found = logits(&head, support(&rows, &LABELS, 2), &queries);
            let running = statistics == RelationStatistics::Running;
            assert_near(&found, &wanted(&head, &config, &rows, &queries, running), 2e-5);
            assert!(found.iter().any(|score| (score - found[0]).abs() > 1e-3), "{config}");
        }
    }
}

/// Scores in training of three queries.
fn trained(head: &RelationNet<Trained>, rows: &[f64], queries: &[f64]) -> Vec<f64> {
    let queries = tensor(queries, [1, 3, queries.len() / 3]);
    values(head.train_logits(support(rows, &LABELS, 2), queries))
}

#[test]
fn each_of_several_tasks_has_its_own_moments_in_training() {
    let config = RelationNetConfig::new([3, 4, 4]).with_channels(5);
    let head = made::<Trained>(config);
    let tasks = [1, 2].map(|seed| (drawn(4 * 48, seed), drawn(3 * 48, seed + 10)));
    let alone = tasks.clone().map(|(rows, queries)| trained(&head, &rows, &queries));
    let [(a, p), (b, q)] = tasks;
    let one = support::<Trained>(&a, &LABELS, 2);
    let labels = Tensor::cat(vec![one.labels.clone(), one.labels], 0);
    let rows = tensor([a, b].concat().as_slice(), [2, 4, 48]);
    let both = fewshot::learners::heads::EmbeddedSupport::new(rows, labels, 2);
    let found = head.train_logits(both, tensor([p, q].concat().as_slice(), [2, 3, 48]));
    assert_near(&values(found), &alone.concat(), 1e-5);
}

#[test]
fn training_moves_running_averages_and_a_test_does_not() {
    let config = RelationNetConfig::new([3, 4, 4]).with_channels(5).with_momentum(1.0);
    let head = made::<Trained>(config);
    let (rows, queries) = (drawn(4 * 48, 5), drawn(3 * 48, 6));
    let trained = trained(&head, &rows, &queries);
    let test = head.valid();
    let before = values(test.first.running_mean.value());
    assert!(before.iter().all(|mean| mean.abs() > 1e-4), "{before:?}");
    // With a momentum of one, the running moments are those of the batch just seen.
    let tested = logits(&test, support(&rows, &LABELS, 2), &queries);
    assert_near(&tested, &trained, 1e-5);
    logits(&head, support(&rows, &LABELS, 2), &drawn(3 * 48, 7));
    assert_eq!(values(test.first.running_mean.value()), before);
    assert_eq!(values(head.valid().first.running_mean.value()), before);
}

#[test]
fn all_parameters_are_learned() {
    for config in configurations() {
        let size: usize = config.map.iter().product();
        let (rows, queries) = (drawn(4 * size, 7), tensor(&drawn(3 * size, 8), [1, 3, size]));
        let head = made::<Trained>(config.clone());
        println!("{config}");
        // Three convolution weights, three vectors of each block, two linear layers. The step is so
        // small that hardly a ReLU turns over.
        are_differences(&head, 3 + 6 + 4, 2e-4, |head| {
            weighted(head.train_logits(support(&rows, &LABELS, 2), queries.clone()), 9) * 3.0
        });
    }
}

#[test]
fn the_loss_is_the_mean_squared_distance_to_one_hot() {
    let head = made::<Flex>(RelationNetConfig::new([1, 1, 1]));
    let scores = tensor::<Flex, 3>(&[0.5, 0.25, 1.0, 0.0], [1, 2, 2]);
    let labels = Tensor::from_data([[1, 0]], &Default::default());
    assert_near(&values(head.loss(scores, labels)), &[(0.25 + 0.5625) / 4.0], 1e-6);
}
