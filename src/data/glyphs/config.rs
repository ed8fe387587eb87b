use serde::{Deserialize, Serialize};

/// Numbers of generated characters and of their drawers, and the differences between drawers.
///
/// The character of a number is the same whatever the counts are: fewer alphabets or drawers give
/// the first of those that more would give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlyphsConfig {
    /// Another seed gives other alphabets.
    pub seed: u64,
    /// Alphabets to learn from; more of them teach an encoder better. Omniglot's background set has
    /// 30.
    pub train_alphabets: usize,
    /// Alphabets to choose hyperparameters on.
    pub validation_alphabets: usize,
    /// Alphabets to test on. Omniglot's evaluation set has 20.
    pub test_alphabets: usize,
    /// Characters in each alphabet; Omniglot's have 14 to 55.
    pub characters: usize,
    /// Images of each character; Omniglot has 20.
    pub drawers: usize,
    /// Height and width in pixels; papers use 28.
    pub size: usize,
    /// Amount of difference between drawers, and between drawings of one drawer; 1 by default. At 0 all
    /// draw a character alike; the larger it is, the harder characters are to recognise.
    pub variation: f64,
}

impl GlyphsConfig {
    /// The default counts with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The names of the three parts and their numbers of alphabets.
    pub(super) fn parts(&self) -> [(&'static str, usize); 3] {
        [
            ("train", self.train_alphabets),
            ("validation", self.validation_alphabets),
            ("test", self.test_alphabets),
        ]
    }

    pub(super) fn check(&self) {
        let counts = [self.characters, self.drawers, self.size];
        let alphabets = self.parts().map(|(_, alphabets)| alphabets);
        let all = counts.into_iter().chain(alphabets).all(|count| count > 0);
        assert!(all, "every count of glyphs must be at least 1: {self:?}");
        let variation = self.variation;
        assert!(variation.is_finite() && variation >= 0.0, "glyphs cannot vary by {variation}");
    }
}

impl Default for GlyphsConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            train_alphabets: 30,
            validation_alphabets: 5,
            test_alphabets: 10,
            characters: 20,
            drawers: 20,
            size: 28,
            variation: 1.0,
        }
    }
}
