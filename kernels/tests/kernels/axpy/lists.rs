//! Lists of tensors, longer than a launch or a node of a variadic operation takes.

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use fewshot_kernels::{
    axpy_all, scaled_all, seed_cotangents, summed_all, tiled_all, with_reference,
};

use crate::judge::{assert_close, read};
use crate::numbers::Numbers;
use crate::refusal::refusal;

const LENGTHS: [usize; 7] = [3, 1, 0, 300, 17, 4, 64];

const COUNT: usize = 45;

fn leaf<B: AutodiffBackend>(place: usize, seed: u64) -> Tensor<B, 1> {
    let values = Numbers(100 * seed + place as u64).values(LENGTHS[place % LENGTHS.len()]);
    Tensor::from_data(TensorData::from(&*values), &Default::default())
}

fn wrap<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

fn primitives<B: Backend>(of: &[Tensor<B, 1>]) -> Vec<FloatTensor<B>> {
    of.iter().map(|tensor| tensor.clone().into_primitive().tensor()).collect()
}

fn sums<B: Backend>(y: &[Tensor<B, 1>], alpha: f64, x: &[Tensor<B, 1>]) -> Vec<Tensor<B, 1>> {
    axpy_all::<B>(primitives(y), alpha, primitives(x)).into_iter().map(wrap).collect()
}

fn products<B: Backend>(x: &[Tensor<B, 1>], alpha: f64) -> Vec<Tensor<B, 1>> {
    scaled_all::<B>(primitives(x), alpha).into_iter().map(wrap).collect()
}

fn tiles<B: Backend>(x: &[Tensor<B, 1>], lanes: usize) -> Vec<Tensor<B, 1>> {
    tiled_all::<B>(primitives(x), lanes).into_iter().map(wrap).collect()
}

fn totals<B: Backend>(x: &[Tensor<B, 1>], lanes: usize) -> Vec<Tensor<B, 1>> {
    summed_all::<B>(primitives(x), lanes).into_iter().map(wrap).collect()
}

/// A number that depends on all of these that have elements.
fn cubes<B: Backend>(of: &[Tensor<B, 1>]) -> Tensor<B, 1> {
    let filled = of.iter().filter(|tensor| tensor.dims() != [0]);
    let cube = |tensor: &Tensor<B, 1>| tensor.clone().powi_scalar(3).sum();
    filled.map(cube).reduce(|sum, more| sum + more).expect("some have elements")
}

fn elements<B: Backend>(tensor: Tensor<B, 1>) -> Vec<f32> {
    if tensor.dims() == [0] { Vec::new() } else { read(tensor) }
}

/// Terms of which some are tracked: neither, one or both of a sum.
fn terms<B: AutodiffBackend>() -> [Vec<Tensor<B, 1>>; 2] {
    [1, 2].map(|seed: u64| {
        let term = |place| {
            let term = leaf::<B>(place, seed);
            if place / 2 % 3 == seed as usize { term } else { term.require_grad() }
        };
        (0..COUNT).map(term).collect()
    })
}

/// Sums, products, tiles, their totals, and the gradients of a function of all.
fn first<B: AutodiffBackend>() -> Vec<Option<Vec<f32>>> {
    let [y, x] = terms::<B>();
    let (sums, products, tiles) = (sums(&y, -0.4, &x), products(&x, 3.0), tiles(&y, 2));
    let found = [sums, products, totals(&tiles, 2), tiles];
    let cubes = found.each_ref().map(|of| cubes(of));
    let gradients = cubes.into_iter().reduce(|sum, more| sum + more).unwrap().backward();
    let terms = y.into_iter().chain(x);
    let gradients = terms.map(|term| term.grad(&gradients).map(read));
    let values = found.into_iter().flatten().map(|value| Some(elements(value.inner())));
    values.chain(gradients).collect()
}

fn assert_same(found: &[Option<Vec<f32>>], wanted: &[Option<Vec<f32>>]) {
    assert_eq!(found.len(), wanted.len());
    for (place, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found.is_some(), wanted.is_some(), "tensor {place}");
        if let (Some(found), Some(wanted)) = (found, wanted) {
            // Of numbers up to ten; a device may round product and sum at once.
            assert_close(&format!("tensor {place}"), found, wanted, 1e-5);
        }
    }
}

pub fn lists_are_sums_one_by_one<B: AutodiffBackend>() {
    let (found, wanted) = (first::<B>(), with_reference(first::<B>));
    assert!(wanted.iter().any(Option::is_none) && wanted[2] == Some(Vec::new()));
    assert_same(&found, &wanted);
    let [y, x] = terms::<B>();
    let alone = y.iter().zip(&x).map(|(y, x)| match y.dims() {
        // Burn's own operations launch no blocks over nothing, which CUDA refuses.
        [0] => Vec::new(),
        _ => read(y.clone().inner() + x.clone().inner() * 0.7),
    });
    let together = sums(&y, 0.7, &x).into_iter().map(|sum| Some(elements(sum.inner())));
    assert_same(&together.collect::<Vec<_>>(), &alone.map(Some).collect::<Vec<_>>());
    let tiles = tiles(&y, 3).into_iter().map(|tile| elements(tile.inner()));
    assert!(tiles.eq(y.iter().map(|y| elements(y.clone().inner()).repeat(3))));
    let terms = y.iter().chain(&x).map(|term| elements(term.clone().inner()));
    let again = [1, 2].into_iter().flat_map(|seed| (0..COUNT).map(move |at| leaf::<B>(at, seed)));
    assert!(terms.eq(again.map(|term| elements(term.inner()))), "terms are not overwritten");
    assert!(sums::<B>(&[], 1.0, &[]).is_empty() && products::<B>(&[], 1.0).is_empty());
}

/// The gradients of the sum of cubes of gradients.
fn second<B: AutodiffBackend>() -> Vec<Option<Vec<f32>>> {
    let [y, x] = terms::<B>();
    let lifted = |of: &[Tensor<B, 1>]| -> Vec<_> {
        let lift = |one: &Tensor<B, 1>| Tensor::<Autodiff<B>, 1>::from_inner(one.clone());
        of.iter().map(|one| lift(one).require_grad()).collect()
    };
    let (above_y, above_x) = (lifted(&y), lifted(&x));
    let (sums, products) = (sums(&above_y, 0.7, &above_x), products(&above_x, -2.0));
    let tiles = tiles(&above_y, 2);
    let of_lanes = cubes(&tiles) + cubes(&totals(&tiles, 2));
    let gradients = (cubes(&sums) + cubes(&products) + of_lanes).backward();
    let terms = above_y.iter().chain(&above_x);
    let found: Vec<_> = terms.filter_map(|term| term.grad(&gradients)).collect();
    let gradients = cubes(&found).backward();
    y.into_iter().chain(x).map(|term| term.grad(&gradients).map(read)).collect()
}

pub fn lists_have_gradients_of_gradients<B: AutodiffBackend>() {
    let (found, wanted) = (second::<B>(), with_reference(second::<B>));
    assert_eq!(found.len(), wanted.len());
    for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found.is_some(), wanted.is_some(), "tensor {place}");
        for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
            let error = (found - wanted).abs();
            assert!(error <= 1e-4 * (1.0 + wanted.abs()), "tensor {place}: {found}, not {wanted}");
        }
    }
}

pub fn what_nothing_depends_on_has_no_gradient<B: AutodiffBackend>() {
    let tracked =
        |seed| -> Vec<_> { (3..6).map(|at| leaf::<B>(at, seed).require_grad()).collect() };
    let (y, x) = (tracked(1), tracked(2));
    // Not leaves, so that the graph goes on behind the lists.
    let twice: Vec<_> = x.iter().map(|x| x.clone() * 2.0).collect();
    let found = cubes(&sums(&y, 0.5, &twice)[1..2]).backward();
    for place in 0..3 {
        assert_eq!(y[place].grad(&found).is_some(), place == 1, "y {place}");
        let gradient = x[place].grad(&found).map(read);
        let used = gradient.is_some_and(|gradient| gradient.iter().any(|&value| value != 0.0));
        assert_eq!(used, place == 1, "x {place}");
    }
}

/// The gradients of a sum of squares that are given cotangents, and of cubes beside them; some are constants.
fn pulled_back<B: AutodiffBackend>(lengths: impl Iterator<Item = usize>) -> Vec<Option<Vec<f32>>> {
    let places: Vec<_> = lengths.collect();
    let leaves: Vec<_> = places.iter().map(|&at| leaf::<B>(at, 1)).collect();
    let tracked = |(at, leaf): (usize, Tensor<B, 1>)| match at % 4 {
        3 => leaf,
        _ => leaf.require_grad(),
    };
    let leaves: Vec<_> = leaves.into_iter().enumerate().map(tracked).collect();
    let square = |leaf: &Tensor<B, 1>| match leaf.dims() {
        [0] => leaf.clone(),
        _ => leaf.clone() * leaf.clone(),
    };
    let squares: Vec<_> = leaves.iter().map(square).collect();
    let cotangents: Vec<_> = places.iter().map(|&at| leaf::<B>(at, 2)).collect();
    let seed = wrap::<B>(seed_cotangents::<B>(primitives(&squares), primitives(&cotangents)));
    let gradients = (seed + cubes(&leaves)).backward();
    leaves.iter().map(|leaf| leaf.grad(&gradients).map(elements)).collect()
}

pub fn cotangents_are_pulled_back_as_through_a_sum_of_products<B: AutodiffBackend>() {
    // Together on an accelerator, and one by one, as some have no elements.
    let filled = || (0..COUNT).filter(|at| LENGTHS[at % LENGTHS.len()] > 0);
    let wanted = with_reference(|| pulled_back::<B>(filled()));
    assert!(wanted.iter().any(Option::is_none));
    assert_same(&pulled_back::<B>(filled()), &wanted);
    assert_same(&pulled_back::<B>(0..COUNT), &with_reference(|| pulled_back::<B>(0..COUNT)));
}

pub fn cotangents_that_do_not_fit_are_refused<B: AutodiffBackend>() {
    let seed = |xs: &[usize], cotangents: &[usize]| {
        let leaves =
            |of: &[usize], seed| of.iter().map(|&at| leaf::<B>(at, seed)).collect::<Vec<_>>();
        let [xs, cotangents] = [leaves(xs, 1), leaves(cotangents, 2)].map(|all| primitives(&all));
        seed_cotangents::<B>(xs, cotangents)
    };
    for (said, xs, cotangents) in [
        ("a cotangent for every tensor", &[0, 1][..], &[0][..]),
        ("the shape of its tensor", &[0, 1], &[0, 3]),
        ("one tensor at least", &[], &[]),
    ] {
        assert!(refusal(|| seed(xs, cotangents)).contains(said), "{said}");
    }
}
