use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The least deviation of what LEO draws.
const LEAST_DEVIATION: f64 = 1e-10;

/// A draw from normal distributions.
pub(super) struct Draw<B: Backend> {
    pub value: Tensor<B, 3>,
    /// Derivative by what its deviation is made of; zero without noise.
    slope: Option<Tensor<B, 3>>,
}

/// Means and deviations `[t, ways, k]`, from `moments` `[t, ways, 2k]` as in [`Draw::new`].
pub(super) fn moments<B: Backend>(moments: Tensor<B, 3>, spread: f64) -> [Tensor<B, 3>; 2] {
    let half = moments.dims()[2] / 2;
    let [mean, grown] = [0, half].map(|from| moments.clone().narrow(2, from, half));
    [mean, (grown.exp() - (1.0 - spread)).clamp_min(LEAST_DEVIATION)]
}

impl<B: Backend> Draw<B> {
    /// From `moments` `[t, ways, 2k]`, means and then what deviations are made of; they are
    /// `spread` where that is zero.
    pub fn new(
        moments: Tensor<B, 3>,
        spread: f64,
        noise: impl Fn(&Tensor<B, 3>) -> Option<Tensor<B, 3>>,
    ) -> Self {
        let half = moments.dims()[2] / 2;
        let grown = || moments.clone().narrow(2, half, half).exp();
        let [mean, deviation] = self::moments(moments.clone(), spread);
        let Some(noise) = noise(&mean) else { return Self { value: mean, slope: None } };
        let free = deviation.clone().greater_elem(LEAST_DEVIATION).float();
        let slope = grown() * noise.clone() * free;
        Self { value: mean + deviation * noise, slope: Some(slope) }
    }

    /// Gradient by the moments, `[t, ways, 2k]`, from that by the value.
    pub fn by_moments(&self, by_value: Tensor<B, 3>) -> Tensor<B, 3> {
        let by_spread = match &self.slope {
            Some(slope) => by_value.clone() * slope.clone(),
            None => by_value.zeros_like(),
        };
        Tensor::cat(vec![by_value, by_spread], 2)
    }
}
