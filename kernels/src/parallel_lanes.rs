//! A loop over lanes on a host: sequential, or parallel on all threads.

use rayon::prelude::*;

/// Multiply-adds from which waking other threads pays.
const MIN_PARALLEL_WORK: usize = 1 << 20;

/// Least number of chunks that the lanes are divided into, where there are as many lanes.
const MIN_CHUNKS: usize = 32;

/// Calls `run(workspace, lane, parts)` for every lane and returns the results in lane order; `parts` has
/// the lane's slice of every tensor, which is `1 / lanes` of its length. `workspace` makes what calls on
/// one thread reuse. `work` is the number of multiply-adds of all lanes; little work stays on one thread.
pub fn map_lanes<T: Send, R>(
    tensors: &mut [Vec<f32>],
    (lanes, work): (usize, usize),
    workspace: impl Fn() -> R + Send + Sync,
    run: impl Fn(&mut R, usize, &mut [&mut [f32]]) -> T + Send + Sync,
) -> Vec<T> {
    let count = tensors.len();
    let mut rests: Vec<(usize, &mut [f32])> =
        tensors.iter_mut().map(|tensor| (tensor.len() / lanes, &mut tensor[..])).collect();
    if work < MIN_PARALLEL_WORK || rayon::current_num_threads() == 1 {
        let (mut workspace, mut own) = (workspace(), Vec::with_capacity(count));
        let each = |lane| {
            next_part(&mut rests, &mut own);
            run(&mut workspace, lane, &mut own)
        };
        return (0..lanes).map(each).collect();
    }
    let parts = (0..lanes).map(|_| {
        let mut own = Vec::with_capacity(count);
        next_part(&mut rests, &mut own);
        own
    });
    let parts: Vec<Vec<&mut [f32]>> = parts.collect();
    let run = |workspace: &mut R, (lane, mut own): (usize, Vec<&mut [f32]>)| {
        run(workspace, lane, &mut own)
    };
    // Small chunks balance threads of unequal speed.
    let grain = lanes.div_ceil(MIN_CHUNKS);
    parts.into_par_iter().enumerate().with_max_len(grain).map_init(workspace, run).collect()
}

/// Takes the next part off every tensor, of which the length of a part is known, in place of what was
/// taken before.
fn next_part<'a>(rests: &mut [(usize, &'a mut [f32])], own: &mut Vec<&'a mut [f32]>) {
    own.clear();
    let parts = rests.iter_mut().map(|(length, rest)| rest.split_off_mut(..*length));
    own.extend(parts.map(|part| part.expect("a part for every lane")));
}
