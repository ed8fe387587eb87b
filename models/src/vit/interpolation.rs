//! Positions for grids of another size.

/// DINOv2 without registers adds so much to the side of a grid before it divides by that of training.
const OFFSET: f64 = 0.1;

/// Weights `[to, from]` of bicubic interpolation, which with a scale of `(to + 0.1) / from` reads beside the centres.
pub(super) fn bicubic(from: usize, to: usize) -> Vec<f32> {
    let mut weights = vec![0.0; to * from];
    for (place, row) in weights.chunks_exact_mut(from).enumerate() {
        let at = (place as f64 + 0.5) * from as f64 / (to as f64 + OFFSET) - 0.5;
        let first = at.floor();
        for step in -1..=2 {
            let neighbour = (first as i64 + step).clamp(0, from as i64 - 1);
            row[neighbour as usize] += cubic(at - (first + step as f64), -0.75) as f32;
        }
    }
    weights
}

/// Weights `[to, from]` of antialiased bicubic interpolation: a window as wide as the shrinkage asks for, cut off at the edges.
pub(super) fn antialiased(from: usize, to: usize) -> Vec<f32> {
    let scale = from as f64 / to as f64;
    let wide = scale.max(1.0);
    let mut weights = Vec::with_capacity(to * from);
    for place in 0..to {
        let centre = (place as f64 + 0.5) * scale;
        let row = (0..from).map(|at| cubic((at as f64 + 0.5 - centre) / wide, -0.5));
        let sum: f64 = row.clone().sum();
        weights.extend(row.map(|weight| (weight / sum) as f32));
    }
    weights
}

/// Keys' kernel with this slope at 1: PyTorch's is -0.75, antialiased -0.5.
fn cubic(distance: f64, slope: f64) -> f64 {
    let (x, a) = (distance.abs(), slope);
    match x {
        _ if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        _ if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}
