//! Numbers to test with.

use burn::tensor::TensorData;

/// Numbers between -1 and 1, the same on every platform.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn draw(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as i64 as f32 / i64::MAX as f32
    }

    pub fn values(&mut self, length: usize) -> Vec<f32> {
        (0..length).map(|_| self.draw()).collect()
    }

    pub fn data<const D: usize>(
        &mut self,
        shape: [usize; D],
        map: impl Fn(f32) -> f32,
    ) -> TensorData {
        let values = self.values(shape.iter().product());
        TensorData::new(values.into_iter().map(map).collect::<Vec<f32>>(), shape)
    }
}
