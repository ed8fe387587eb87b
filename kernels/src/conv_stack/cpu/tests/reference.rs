//! The stack in `f64`, written as directly as it can be.

use super::super::shape::{BlockShape, Geometry, StackShape};

/// What one block keeps for its backward pass.
struct Kept {
    x: Vec<f64>,
    xhat: Vec<f64>,
    inv_std: Vec<f64>,
    z: Vec<f64>,
    /// Pixel of the convolution that each output comes from.
    source: Vec<usize>,
}

/// Everything there is to compare.
pub struct Reference {
    pub y: Vec<f64>,
    pub moments: Vec<f64>,
    pub dx: Vec<f64>,
    pub dparams: Vec<f64>,
    /// How far the closest decision of ReLU or max-pool is from turning, for a gamma or beta of one.
    /// Ties do not count.
    pub margin: f64,
}

struct Split<'a> {
    weight: &'a [f64],
    bias: &'a [f64],
    gamma: &'a [f64],
    beta: &'a [f64],
}

fn split<'a>(g: &Geometry, params: &'a [f64]) -> Split<'a> {
    let (weight, rest) = params.split_at(g.weight());
    let (bias, rest) = rest.split_at(g.c_out);
    let (gamma, beta) = rest.split_at(g.c_out);
    Split { weight, bias, gamma, beta }
}

/// Every (output index, input index, weight index) product of a convolution.
fn products(n: usize, g: &Geometry, mut visit: impl FnMut(usize, usize, usize)) {
    let (h, w) = g.conv();
    for (image, o, i) in triples(n, g.c_out, g.c_in) {
        for (row, column, k) in triples(h, w, 9) {
            let (y, x) = (row * g.stride + k / 3, column * g.stride + k % 3);
            if (1..=g.h_in).contains(&y) && (1..=g.w_in).contains(&x) {
                let out = ((image * g.c_out + o) * h + row) * w + column;
                let from = ((image * g.c_in + i) * g.h_in + y - 1) * g.w_in + x - 1;
                visit(out, from, (o * g.c_in + i) * 9 + k);
            }
        }
    }
}

fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |i| (i / (b * c), i / c % b, i % c))
}

fn block_forward(
    n: usize,
    g: &Geometry,
    x: Vec<f64>,
    p: &Split<'_>,
    given: Option<&[f64]>,
    epsilon: f64,
) -> (Vec<f64>, Vec<f64>, Kept) {
    let (h, w) = g.conv();
    let channel = |i: usize| i / (h * w) % g.c_out;
    let mut conv: Vec<f64> = (0..n * g.c_out * h * w).map(|i| p.bias[channel(i)]).collect();
    products(n, g, |out, from, k| conv[out] += x[from] * p.weight[k]);
    let count = (n * h * w) as f64;
    let mut mean = vec![0.0; g.c_out];
    conv.iter().enumerate().for_each(|(i, y)| mean[channel(i)] += y / count);
    let mut variance = vec![0.0; g.c_out];
    for (i, y) in conv.iter().enumerate() {
        variance[channel(i)] += (y - mean[channel(i)]).powi(2) / count;
    }
    let moments = [mean.clone(), variance.clone()].concat();
    if let Some(given) = given {
        (mean, variance) = (given[..g.c_out].to_vec(), given[g.c_out..].to_vec());
    }
    let inv_std: Vec<f64> = variance.iter().map(|v| 1.0 / (v + epsilon).sqrt()).collect();
    let xhat: Vec<f64> = conv
        .iter()
        .enumerate()
        .map(|(i, y)| (y - mean[channel(i)]) * inv_std[channel(i)])
        .collect();
    let z: Vec<f64> = xhat
        .iter()
        .enumerate()
        .map(|(i, v)| v * p.gamma[channel(i)] + p.beta[channel(i)])
        .collect();
    let source = sources(n, g, &z);
    let out = source.iter().map(|&s| if z[s] <= 0.0 { 0.0 } else { z[s] }).collect();
    (out, moments, Kept { x, xhat, inv_std, z, source })
}

fn sources(n: usize, g: &Geometry, z: &[f64]) -> Vec<usize> {
    let ((h, w), (oh, ow)) = (g.conv(), g.out());
    if !g.pool {
        return (0..z.len()).collect();
    }
    triples(n * g.c_out, oh, ow)
        .map(|(plane, row, column)| {
            let corner = plane * h * w + 2 * row * w + 2 * column;
            let mut best = corner;
            for i in [corner, corner + 1, corner + w, corner + w + 1] {
                if z[i] > z[best] || z[i].is_nan() {
                    best = i;
                }
            }
            best
        })
        .collect()
}

/// The margin of one block.
fn margin(g: &Geometry, z: &[f64], source: &[usize], p: &Split<'_>) -> f64 {
    let ((h, w), mut least) = (g.conv(), f64::INFINITY);
    for &best in source {
        let (c, row, column) = (best / (h * w) % g.c_out, best / w % h, best % w);
        let corner = best - row % 2 * w - column % 2;
        let window = [corner, corner + 1, corner + w, corner + w + 1];
        let gaps = window.iter().take(if g.pool { 4 } else { 0 }).map(|&i| z[best] - z[i]);
        let size = p.gamma[c].abs() + p.beta[c].abs();
        let distances = gaps.chain([z[best].abs()]).filter(|&distance| distance > 0.0);
        least = distances.map(|distance| distance / size).fold(least, f64::min);
    }
    least
}

/// Gradients of the input and of weight, bias, gamma and beta.
fn block_backward(
    n: usize,
    g: &Geometry,
    kept: &Kept,
    p: &Split<'_>,
    grad: &[f64],
    batch: bool,
) -> (Vec<f64>, Vec<f64>) {
    let (h, w) = g.conv();
    let channel = |i: usize| i / (h * w) % g.c_out;
    let mut dz = vec![0.0; kept.z.len()];
    for (&source, grad) in kept.source.iter().zip(grad) {
        dz[source] += if kept.z[source] <= 0.0 { 0.0 } else { *grad };
    }
    let (mut dgamma, mut dbeta) = (vec![0.0; g.c_out], vec![0.0; g.c_out]);
    for (i, dz) in dz.iter().enumerate() {
        dgamma[channel(i)] += dz * kept.xhat[i];
        dbeta[channel(i)] += dz;
    }
    let count = (n * h * w) as f64;
    let dconv: Vec<f64> = (0..dz.len())
        .map(|i| {
            let c = channel(i);
            let mean = (dbeta[c] + kept.xhat[i] * dgamma[c]) / count;
            p.gamma[c] * kept.inv_std[c] * (dz[i] - if batch { mean } else { 0.0 })
        })
        .collect();
    let (mut dx, mut dweight) = (vec![0.0; kept.x.len()], vec![0.0; g.weight()]);
    products(n, g, |out, from, k| {
        dx[from] += dconv[out] * p.weight[k];
        dweight[k] += dconv[out] * kept.x[from];
    });
    let mut dbias = vec![0.0; g.c_out];
    if !batch {
        dconv.iter().enumerate().for_each(|(i, d)| dbias[channel(i)] += d);
    }
    (dx, [dweight, dbias, dgamma, dbeta].concat())
}

/// Forward and backward of the whole stack.
pub fn reference(
    shape: &StackShape,
    x: &[f32],
    params: &[f32],
    given: Option<&[f32]>,
    epsilon: f32,
    dy: &[f32],
) -> Reference {
    let given = given.map(wide);
    exact(shape, wide(x), &wide(params), given.as_deref(), f64::from(epsilon), wide(dy))
}

pub fn wide(from: &[f32]) -> Vec<f64> {
    from.iter().map(|&v| f64::from(v)).collect()
}

/// [`reference`] of `f64`.
pub fn exact(
    shape: &StackShape,
    mut x: Vec<f64>,
    params: &[f64],
    given: Option<&[f64]>,
    epsilon: f64,
    mut grad: Vec<f64>,
) -> Reference {
    let blocks = shape.geometry();
    let (mut kept, mut moments) = (Vec::new(), Vec::new());
    let (mut start, mut first, mut least) = (0, 0, f64::INFINITY);
    for g in &blocks {
        let p = split(g, &params[start..start + g.parameters()]);
        let given = given.map(|given| &given[first..first + 2 * g.c_out]);
        let (out, m, k) = block_forward(shape.n, g, x, &p, given, epsilon);
        least = least.min(margin(g, &k.z, &k.source, &p));
        (x, start, first) = (out, start + g.parameters(), first + 2 * g.c_out);
        moments.extend(m);
        kept.push(k);
    }
    let mut dparams = Vec::new();
    for (g, kept) in blocks.iter().zip(&kept).rev() {
        start -= g.parameters();
        let p = split(g, &params[start..start + g.parameters()]);
        let (dx, d) = block_backward(shape.n, g, kept, &p, &grad, given.is_none());
        grad = dx;
        dparams = [d, dparams].concat();
    }
    Reference { y: x, moments, dx: grad, dparams, margin: least }
}

/// A stack of equal blocks.
pub fn stack(
    [n, c, h, w]: [usize; 4],
    channels: &[usize],
    stride: usize,
    pool: bool,
) -> StackShape {
    let block = |&channels_out| BlockShape { channels_out, stride, pool };
    StackShape { n, c, h, w, blocks: channels.iter().map(block).collect() }
}
