//! Numbers of several precisions as f32.

/// The numbers that these bytes are, `N` bytes each.
pub(super) fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| number(bytes)).collect()
}
