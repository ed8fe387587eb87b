//! One launch over many tensors.
//!
//! A kernel takes an operand of all tensors as a sequence of arrays, and is compiled for how many
//! there are; how long they are comes with the launch. An array of a sequence cannot be chosen by a number
//! that the device computes, so each read and write finds its array by binary search.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::{Launch, array, common_width, cubes, grid, unit_below, unit_launch, units};

/// Tensors of a launch at most: enough for most networks, and few to compile for.
const MOST_TENSORS: usize = 64;

/// Arrays of a launch at most. CUDA before 12.1 hands 4 KiB to a kernel, of which an array takes 16
/// bytes, and a tensor up to 12 more.
const MOST_ARRAYS: usize = 192;

/// The number of tensors in a launch that binds so many arrays of each, and `shared` ones besides.
pub fn most_tensors<R: CubeRuntime>(
    client: &ComputeClient<R>,
    arrays: usize,
    shared: usize,
) -> usize {
    // CubeCL binds lengths and factors itself.
    let bindings = (client.properties().hardware.max_bindings as usize).saturating_sub(shared + 1);
    (bindings.min(MOST_ARRAYS) / arrays).clamp(1, MOST_TENSORS)
}

/// The arrays of these tensors.
pub fn arrays<'a, R: CubeRuntime, E: CubePrimitive>(
    of: impl IntoIterator<Item = &'a CubeTensor<R>>,
) -> SequenceArg<R, Array<E>> {
    of.into_iter().map(array).collect()
}

/// A launch of one unit for each vector of several tensors.
pub struct Vectors {
    /// Elements of a vector.
    pub width: usize,
    /// Vectors of all tensors. More units start, and must do nothing.
    pub total: usize,
    starts: Vec<usize>,
}

impl Vectors {
    /// Over tensors of these lengths, which are not zero, with elements up to this size.
    pub fn of<R: CubeRuntime>(
        client: &ComputeClient<R>,
        lengths: &[usize],
        element_size: usize,
    ) -> Self {
        let width = common_width(client, lengths, element_size);
        let (starts, total) = running_sums(lengths.iter().map(|length| length / width));
        Self { width, total, starts }
    }

    /// In cubes of one size for all lengths, which a kernel is not to be compiled for.
    pub fn launch<'a, R: CubeRuntime>(&self, client: &'a ComputeClient<R>) -> Launch<'a, R> {
        unit_launch(client, self.total, CubeDim::new_1d(units(client)))
    }

    /// The first unit of each tensor.
    pub fn starts<R: CubeRuntime>(&self) -> SequenceArg<R, usize> {
        self.starts.iter().copied().collect()
    }
}

/// A launch of some cubes for each of several tensors, which share its vectors.
pub struct Shares {
    /// Units of a cube.
    pub units: u32,
    /// Cubes of all tensors.
    pub total: usize,
    firsts: Vec<usize>,
    cubes: Vec<usize>,
    vectors: Vec<usize>,
}

impl Shares {
    /// Over tensors of so many vectors, not zero.
    pub fn of<R: CubeRuntime>(
        client: &ComputeClient<R>,
        vectors: impl Iterator<Item = usize>,
    ) -> Self {
        let (units, vectors) = (units(client), vectors.collect::<Vec<_>>());
        let cubes: Vec<_> = vectors.iter().map(|&vectors| cubes(vectors, units)).collect();
        let (firsts, total) = running_sums(cubes.iter().copied());
        Self { units, total, firsts, cubes, vectors }
    }

    pub fn launch<'a, R: CubeRuntime>(&self, client: &'a ComputeClient<R>) -> Launch<'a, R> {
        grid(client, [self.total, 1, 1], self.units)
    }

    pub fn arg<R: CubeRuntime>(&self) -> ShareListLaunch<R> {
        let sequence = |values: &Vec<usize>| values.iter().copied().collect();
        ShareListLaunch::new(sequence(&self.firsts), sequence(&self.cubes), sequence(&self.vectors))
    }
}

/// The sums before each of these, and the whole.
fn running_sums(of: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut sum = 0;
    let before = of.map(|value| {
        sum += value;
        sum - value
    });
    (before.collect(), sum)
}

/// By tensor: its first cube, its cubes, and its vectors.
#[derive(CubeType, CubeLaunch)]
pub struct ShareList {
    firsts: Sequence<usize>,
    cubes: Sequence<usize>,
    vectors: Sequence<usize>,
}

/// The share of a cube.
#[derive(CubeType, Clone)]
pub struct Share {
    /// The number of its tensor.
    pub of: usize,
    /// The first cube of that tensor, and how many there are.
    pub first: usize,
    pub cubes: usize,
    /// Vectors of the tensor.
    pub vectors: usize,
    /// Where this unit begins, and how far it goes from there to its next vector.
    pub start: usize,
    pub step: usize,
}

/// The share of this cube in the work of its tensor.
#[cube]
pub fn share(list: &ShareList, #[comptime] units: u32) -> Share {
    let of = find(&list.firsts, CUBE_POS);
    let first = pick(&list.firsts, of);
    let cubes = pick(&list.cubes, of);
    let vectors = pick(&list.vectors, of);
    let start = (CUBE_POS - first) * comptime!(units as usize) + UNIT_POS as usize;
    Share { of, first, cubes, vectors, start, step: cubes * comptime!(units as usize) }
}

/// A vector among those of several tensors.
#[derive(CubeType, Clone, Copy)]
pub struct Spot {
    /// The number of its tensor.
    pub of: usize,
    /// Its place there.
    pub at: usize,
}

/// The vector of this unit among so many, where tensors have these first units; one without ends here.
#[cube]
pub fn spot(starts: &Sequence<usize>, vectors: usize) -> Spot {
    spot_of(starts, unit_below(vectors))
}

/// The vector of this number.
#[cube]
pub fn spot_of(starts: &Sequence<usize>, vector: usize) -> Spot {
    let of = find(starts, vector);
    Spot { of, at: vector - pick(starts, of) }
}

/// The number of the last of `starts`, which grow, that is not behind `at`.
#[cube]
fn find(starts: &Sequence<usize>, at: usize) -> usize {
    let count = comptime!(starts.len());
    find_among(starts, at, 0usize, count)
}

#[cube]
fn find_among(
    starts: &Sequence<usize>,
    at: usize,
    #[comptime] from: usize,
    #[comptime] to: usize,
) -> usize {
    if comptime!(to - from == 1) {
        from.runtime()
    } else {
        let middle = comptime!((from + to) / 2);
        if at < *starts.index(middle) {
            find_among(starts, at, from, middle)
        } else {
            find_among(starts, at, middle, to)
        }
    }
}

/// The number at place `of`.
#[cube]
pub fn pick(numbers: &Sequence<usize>, of: usize) -> usize {
    let count = comptime!(numbers.len());
    pick_among(numbers, of, 0usize, count)
}

#[cube]
fn pick_among(
    numbers: &Sequence<usize>,
    of: usize,
    #[comptime] from: usize,
    #[comptime] to: usize,
) -> usize {
    if comptime!(to - from == 1) {
        *numbers.index(from)
    } else {
        let middle = comptime!((from + to) / 2);
        if of < middle {
            pick_among(numbers, of, from, middle)
        } else {
            pick_among(numbers, of, middle, to)
        }
    }
}

/// The vector at place `at` of array `of`.
#[cube]
pub fn load<E: CubePrimitive>(arrays: &Sequence<Array<E>>, of: usize, at: usize) -> E {
    let count = comptime!(arrays.len());
    load_among::<E>(arrays, of, at, 0usize, count)
}

#[cube]
fn load_among<E: CubePrimitive>(
    arrays: &Sequence<Array<E>>,
    of: usize,
    at: usize,
    #[comptime] from: usize,
    #[comptime] to: usize,
) -> E {
    if comptime!(to - from == 1) {
        arrays.index(from)[at]
    } else {
        let middle = comptime!((from + to) / 2);
        if of < middle {
            load_among::<E>(arrays, of, at, from, middle)
        } else {
            load_among::<E>(arrays, of, at, middle, to)
        }
    }
}

/// Writes `value` to place `at` of array `of`.
#[cube]
pub fn store<E: CubePrimitive>(arrays: &mut Sequence<Array<E>>, of: usize, at: usize, value: E) {
    let count = comptime!(arrays.len());
    store_among::<E>(arrays, of, at, value, 0usize, count);
}

#[cube]
fn store_among<E: CubePrimitive>(
    arrays: &mut Sequence<Array<E>>,
    of: usize,
    at: usize,
    value: E,
    #[comptime] from: usize,
    #[comptime] to: usize,
) {
    if comptime!(to - from == 1) {
        let array = arrays.index_mut(from);
        array[at] = value;
    } else {
        let middle = comptime!((from + to) / 2);
        if of < middle {
            store_among::<E>(arrays, of, at, value, from, middle);
        } else {
            store_among::<E>(arrays, of, at, value, middle, to);
        }
    }
}
