//! The inner loops, compiled once for each set of vector instructions.

use std::sync::LazyLock;

use super::activate::Strip;
use super::activate_vjp::{Slope, Target};
use super::contract::Contraction;
use super::moments::Correlation;
use super::planes::Planes;
use super::portable::Portable;
use super::product::Product;
use super::rank::RankUpdate;
use super::softmax::Rows;
use super::steps::Steps;
use super::transforms::{Corner, CornerMut};
use crate::environment::{self, UnknownKernels};
use crate::precision::Precision;

/// The inner loops for one set of vector instructions.
///
/// All of them work on tiles of `tile()` adjacent channels.
pub trait InstructionSet: Planes + Steps + Send + Sync {
    /// What the set of instructions is called.
    fn name(&self) -> &'static str;

    /// Channels in a tile.
    fn tile(&self) -> usize;

    /// See [`contract`](super::contract::contract).
    fn contract(&self, job: &Contraction<'_>, out: &mut [f32]);

    /// See [`product`](super::product::product).
    fn product(&self, job: &Product<'_>, out: &mut [f32]);

    /// See [`transposed`](super::product::transposed).
    fn transposed(&self, from: &[f32], columns: usize, to: &mut [f32]);

    /// See [`deviations`](super::moments::deviations).
    fn deviations(&self, y: &[f32], out: &mut [f32]);

    /// See [`correlate`](super::moments::correlate).
    fn correlate(&self, pair: &Correlation<'_>, out: &mut [f32]);

    /// See [`activate`](super::activate::activate).
    fn activate(&self, strip: &Strip<'_>, out: &mut [f32], out_row: usize);

    /// See [`activate_jvp`](super::activate::activate_jvp).
    fn activate_jvp(&self, strip: &Strip<'_>, tangent: &Strip<'_>, out: &mut [f32], out_row: usize);

    /// See [`add_tilted`](super::activate_vjp::add_tilted).
    fn add_tilted(&self, part: &[f32], tilted: (&[f32], &[f32]), w: usize, target: Target<'_>);

    /// See [`rectify`](super::gates::rectify).
    fn rectify(&self, x: &mut [f32]);

    /// See [`gate`](super::gates::gate).
    fn gate(&self, by: &[f32], values: &mut [f32]);

    /// See [`activate_vjp`](super::activate_vjp::activate_vjp).
    fn activate_vjp(&self, strip: &Strip<'_>, grad: &[f32], slope: &Slope<'_>, target: Target<'_>);

    /// See [`rank_update`](super::rank::rank_update).
    fn rank_update(&self, job: &RankUpdate<'_>, w: &mut [f32]);

    /// See [`round`](super::rounding::round).
    fn round(&self, precision: Precision, values: &mut [f32]);

    /// See [`softmax_scores`](super::softmax::softmax_scores).
    fn softmax_scores(&self, rows: &mut Rows<'_>);

    /// See [`expand_input`](super::transforms::expand_input).
    fn expand_input(&self, from: &Corner<'_>, out: &mut [f32], step: usize);

    /// See [`expand_delta`](super::transforms::expand_delta).
    fn expand_delta(&self, from: &Corner<'_>, out: &mut [f32], step: usize);

    /// See [`reduce_output`](super::transforms::reduce_output).
    fn reduce_output(&self, from: &[f32], step: usize, to: CornerMut<'_>);

    /// See [`expand_weight`](super::transforms::expand_weight).
    fn expand_weight(&self, from: (&[f32], usize), out: (&mut [f32], usize));

    /// See [`reduce_weight`](super::transforms::reduce_weight).
    fn reduce_weight(&self, from: (&[f32], usize), out: (&mut [f32], usize));
}

/// The bodies this processor can run, fastest first.
pub fn bodies() -> Vec<&'static dyn InstructionSet> {
    let mut bodies: Vec<&'static dyn InstructionSet> = Vec::new();
    #[cfg(target_arch = "x86_64")]
    if let Some(body) = super::avx512::Avx512::detect() {
        bodies.push(body);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(body) = super::avx2::Avx2::detect() {
        bodies.push(body);
    }
    bodies.push(&Portable::<4>);
    #[cfg(test)]
    bodies.push(&Portable::<16>);
    bodies
}

/// The body that operations run on: the one that `FEWSHOT_KERNELS` names, or the fastest.
///
/// # Panics
/// If `FEWSHOT_KERNELS` names something this processor does not have.
pub fn chosen() -> &'static dyn InstructionSet {
    static CHOSEN: LazyLock<Result<&'static dyn InstructionSet, UnknownKernels>> =
        LazyLock::new(|| named(environment::requested()));
    match &*CHOSEN {
        Ok(body) => *body,
        Err(error) => panic!("{error}"),
    }
}

/// The body that a value of `FEWSHOT_KERNELS` means; the fastest where it names none.
pub fn named(wanted: Option<&str>) -> Result<&'static dyn InstructionSet, UnknownKernels> {
    let bodies = bodies();
    let Some(wanted) = wanted.filter(|wanted| *wanted != "reference") else {
        return Ok(bodies[0]);
    };
    let simple = |name: &str| name.replace('-', "").to_lowercase();
    let found = bodies.iter().find(|body| simple(body.name()) == simple(wanted));
    found.copied().ok_or_else(|| UnknownKernels {
        found: wanted.to_owned(),
        instructions: bodies.iter().map(|body| simple(body.name())).collect(),
    })
}

/// One method of [`InstructionSet`] that runs the loop of the same name.
macro_rules! compile_loop {
    ($simd:ty, ($(#[$feature:meta])?), fn $name:ident($($arg:ident: $type:ty),*)) => {
        fn $name(&self, $($arg: $type),*) {
            $(#[$feature])?
            fn run(simd: $simd, $($arg: $type),*) {
                $name(simd, $($arg),*);
            }
            // SAFETY: `self` proves the features.
            #[allow(unused_unsafe)]
            unsafe {
                run(*self, $($arg),*)
            }
        }
    };
}
pub(super) use compile_loop;

/// Implements [`InstructionSet`] for a [`Simd`](super::simd::Simd), compiling every loop under the attribute.
///
/// A function cannot be generic over target features, so each loop is inlined into a function that
/// has them.
macro_rules! implement_body {
    ($simd:ty $(, $feature:meta)?) => {
        super::planes::implement_planes!($simd, ($(#[$feature])?));
        super::steps::implement_steps!($simd, ($(#[$feature])?));

        const _: () = {
            use super::activate::{Strip, activate, activate_jvp};
            use super::instruction_set::{InstructionSet, compile_loop};
            use super::contract::{Contraction, contract};
            use super::gates::{gate, rectify};
            use super::moments::{Correlation, correlate, deviations};
            use super::product::{Product, product, transposed};
            use super::rank::{RankUpdate, rank_update};
            use super::rounding::round;
            use super::softmax::{Rows, softmax_scores};
            use super::activate_vjp::{Slope, Target, activate_vjp, add_tilted};
            use super::transforms::{Corner, CornerMut};
            use super::transforms::{expand_delta, expand_input, reduce_output};
            use super::transforms::{expand_weight, reduce_weight};
            use crate::precision::Precision;

            impl InstructionSet for $simd {
                fn name(&self) -> &'static str {
                    <$simd as Simd>::NAME
                }

                fn tile(&self) -> usize {
                    <$simd as Simd>::TILE
                }

                compile_loop!($simd, ($(#[$feature])?),
                    fn contract(job: &Contraction<'_>, out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn product(job: &Product<'_>, out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn transposed(from: &[f32], columns: usize, to: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn deviations(y: &[f32], out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn correlate(pair: &Correlation<'_>, out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn activate(strip: &Strip<'_>, out: &mut [f32], out_row: usize));
                compile_loop!($simd, ($(#[$feature])?),
                    fn activate_jvp(
                        strip: &Strip<'_>, tangent: &Strip<'_>, out: &mut [f32], out_row: usize
                    ));
                compile_loop!($simd, ($(#[$feature])?),
                    fn add_tilted(
                        part: &[f32], tilted: (&[f32], &[f32]), w: usize, target: Target<'_>
                    ));
                compile_loop!($simd, ($(#[$feature])?),
                    fn rectify(x: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn gate(by: &[f32], values: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn activate_vjp(
                        strip: &Strip<'_>, grad: &[f32], slope: &Slope<'_>, target: Target<'_>
                    ));
                compile_loop!($simd, ($(#[$feature])?),
                    fn rank_update(job: &RankUpdate<'_>, w: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn round(precision: Precision, values: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn softmax_scores(rows: &mut Rows<'_>));
                compile_loop!($simd, ($(#[$feature])?),
                    fn expand_input(from: &Corner<'_>, out: &mut [f32], step: usize));
                compile_loop!($simd, ($(#[$feature])?),
                    fn expand_delta(from: &Corner<'_>, out: &mut [f32], step: usize));
                compile_loop!($simd, ($(#[$feature])?),
                    fn reduce_output(from: &[f32], step: usize, to: CornerMut<'_>));
                compile_loop!($simd, ($(#[$feature])?),
                    fn expand_weight(from: (&[f32], usize), out: (&mut [f32], usize)));
                compile_loop!($simd, ($(#[$feature])?),
                    fn reduce_weight(from: (&[f32], usize), out: (&mut [f32], usize)));
            }
        };
    };
}
pub(super) use implement_body;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_found_by_its_name() {
        for body in bodies() {
            assert_eq!(named(Some(body.name())).ok().unwrap().name(), body.name());
        }
        for wanted in [None, Some("reference")] {
            assert_eq!(named(wanted).ok().unwrap().name(), bodies()[0].name());
        }
    }

    #[test]
    fn a_name_that_no_body_has_is_told_with_those_there_are() {
        let error = named(Some("mmx")).err().unwrap();
        assert_eq!(error.found, "mmx");
        let text = error.to_string();
        assert!(text.starts_with("FEWSHOT_KERNELS is mmx, but may be here: reference, "), "{text}");
        assert!(text.ends_with("portable"), "{text}");
    }
}
