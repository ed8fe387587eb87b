//! Numbers that tests compute with.

/// Numbers from -1 to 1, the same in every run.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn values(&mut self, count: usize) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// The same between other ends.
    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    pub fn between(&mut self, low: f32, high: f32, count: usize) -> Vec<f32> {
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        self.values(count).into_iter().map(|value| middle + half * value).collect()
    }
}
