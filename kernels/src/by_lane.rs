//! Lanes of an operation on a host, one after the other or on all threads.

use rayon::prelude::*;

/// Multiply-adds from which it pays to wake other threads.
const PARALLEL: usize = 1 << 20;

/// Least number of parts that lanes are given out in, where there are as many.
const GRAINS: usize = 32;

/// Runs every lane on its parts of the tensors, of which each has those of lane after lane; with what
/// `room` makes for as many as a thread takes in turn. So many multiply-adds are to do.
pub fn by_lane<T: Send, R>(
    tensors: &mut [Vec<f32>],
    (lanes, work): (usize, usize),
    room: impl Fn() -> R + Send + Sync,
    run: impl Fn(&mut R, usize, &mut [&mut [f32]]) -> T + Send + Sync,
) -> Vec<T> {
    let count = tensors.len();
    let mut rests: Vec<(usize, &mut [f32])> =
        tensors.iter_mut().map(|tensor| (tensor.len() / lanes, &mut tensor[..])).collect();
    if work < PARALLEL || rayon::current_num_threads() == 1 {
        let (mut room, mut own) = (room(), Vec::with_capacity(count));
        let each = |lane| {
            next_part(&mut rests, &mut own);
            run(&mut room, lane, &mut own)
        };
        return (0..lanes).map(each).collect();
    }
    let parts = (0..lanes).map(|_| {
        let mut own = Vec::with_capacity(count);
        next_part(&mut rests, &mut own);
        own
    });
    let parts: Vec<Vec<&mut [f32]>> = parts.collect();
    let run = |room: &mut R, (lane, mut own): (usize, Vec<&mut [f32]>)| run(room, lane, &mut own);
    // Threads that are not equally fast still end together.
    let grain = lanes.div_ceil(GRAINS);
    parts.into_par_iter().enumerate().with_max_len(grain).map_init(room, run).collect()
}

/// Takes the next part off every tensor, of which the length of a part is known, in place of what was
/// taken before.
fn next_part<'a>(rests: &mut [(usize, &'a mut [f32])], own: &mut Vec<&'a mut [f32]>) {
    own.clear();
    let parts = rests.iter_mut().map(|(length, rest)| rest.split_off_mut(..*length));
    own.extend(parts.map(|part| part.expect("a part for every lane")));
}
