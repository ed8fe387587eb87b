//! Class means and their transpose over slices.

use rayon::prelude::*;

/// Floats that are worth a task of their own.
const TASK: usize = 1 << 16;

/// The rows of each class of each task, in order.
struct Members {
    /// Rows sorted by class, each class's together.
    rows: Vec<usize>,
    /// Where the rows of each class begin, and where the last end.
    bounds: Vec<usize>,
}

impl Members {
    fn new(labels: &[usize], examples: usize, ways: usize) -> Self {
        let classes = labels.len() / examples.max(1) * ways;
        let class = |row: usize| row / examples * ways + labels[row];
        let mut bounds = vec![0; classes + 1];
        (0..labels.len()).for_each(|row| bounds[class(row) + 1] += 1);
        (0..classes).for_each(|class| bounds[class + 1] += bounds[class]);
        let (mut next, mut rows) = (bounds.clone(), vec![0; labels.len()]);
        for row in 0..labels.len() {
            rows[next[class(row)]] = row;
            next[class(row)] += 1;
        }
        Self { rows, bounds }
    }

    fn of(&self, class: usize) -> &[usize] {
        &self.rows[self.bounds[class]..self.bounds[class + 1]]
    }
}

/// The mean of the rows `x` `[t, n, d]` of each class, `[t, ways, d]`.
pub fn class_means(x: &[f32], labels: &[usize], [n, ways, d]: [usize; 3]) -> Vec<f32> {
    let tasks = labels.len() / n.max(1);
    let members = Members::new(labels, n, ways);
    let mut means = vec![0.0f32; tasks * ways * d];
    let mean = |(class, mean): (usize, &mut [f32])| {
        let rows = members.of(class);
        for &row in rows {
            let row = &x[row * d..(row + 1) * d];
            mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        let count = rows.len() as f32;
        mean.iter_mut().for_each(|sum| *sum /= count);
    };
    let classes = TASK.div_ceil((n * d / ways.max(1)).max(1));
    let each = means.par_chunks_mut(d.max(1)).enumerate();
    each.with_min_len(classes).for_each(mean);
    means
}

/// For each label the row of `g` `[t, ways, d]`, divided by the number of rows of its class.
pub fn class_spread(g: &[f32], labels: &[usize], [n, ways, d]: [usize; 3]) -> Vec<f32> {
    let mut counts = vec![0.0f32; labels.len() / n.max(1) * ways];
    let class = |row: usize| row / n * ways + labels[row];
    (0..labels.len()).for_each(|row| counts[class(row)] += 1.0);
    let mut rows = vec![0.0f32; labels.len() * d];
    let each = rows.par_chunks_mut(d.max(1)).enumerate();
    each.with_min_len(TASK.div_ceil(d.max(1))).for_each(|(row, out)| {
        let (class, count) = (class(row), counts[class(row)]);
        let g = &g[class * d..(class + 1) * d];
        out.iter_mut().zip(g).for_each(|(out, g)| *out = g / count);
    });
    rows
}
