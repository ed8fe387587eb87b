//! Parameters of one block.

use fewshot_simd::buffers::Buffer;

/// Parameters of one block, or tangents of them.
#[derive(Clone, Copy, Debug)]
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
    /// The parameters of every block, from four parts of each.
    ///
    /// # Panics
    /// If a block lacks a part.
    pub fn from_parts(parts: impl IntoIterator<Item = &'a [f32]>) -> Vec<Self> {
        let mut parts = parts.into_iter();
        let mut blocks = Vec::new();
        while let Some(weight) = parts.next() {
            let [bias, gamma, beta] = [(); 3].map(|()| parts.next().expect("four parts a block"));
            blocks.push(Self { weight, bias, gamma, beta });
        }
        blocks
    }
}

/// Parameters of one block as its derivatives read them.
pub struct SavedParameters {
    /// Packed for the convolution.
    pub weight: Buffer,
    /// `[o]`
    pub gamma: Vec<f32>,
    /// `[o]`
    pub beta: Vec<f32>,
}
