//! The flat parameters, block by block.

use super::shape::Geometry;

/// Parameters of one block.
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    /// `[o, i, 3, 3]`
    pub weight: &'a [f32],
    /// `[o]`
    pub bias: &'a [f32],
    /// `[o]`
    pub gamma: &'a [f32],
    /// `[o]`
    pub beta: &'a [f32],
}

impl<'a> Parameters<'a> {
    /// The parameters of every block.
    pub fn split(blocks: &[Geometry], mut flat: &'a [f32]) -> Vec<Self> {
        let wanted: usize = blocks.iter().map(Geometry::parameters).sum();
        assert_eq!(flat.len(), wanted, "the stack's parameters");
        let mut take = |len: usize| flat.split_off(..len).expect("the length was checked");
        blocks
            .iter()
            .map(|block| {
                let weight = take(block.weight());
                let [bias, gamma, beta] = [(); 3].map(|()| take(block.c_out));
                Self { weight, bias, gamma, beta }
            })
            .collect()
    }
}
