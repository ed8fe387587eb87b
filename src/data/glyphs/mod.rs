mod alphabet;
mod config;
mod curve;
mod hand;

use rayon::prelude::*;

use crate::data::{ImageSet, ImageShape, Splits};

use alphabet::Alphabet;
pub use config::GlyphsConfig;
use hand::Hand;

/// Characters that no one ever wrote, generated from a seed: few-shot learning without a file.
///
/// In the spirit of Omniglot. A character is two to four curved strokes; the characters of an
/// alphabet share a style; each drawer has a hand of their own (slant, size, pen) and never draws a
/// character the same way twice. Training, validation and test characters come from different
/// alphabets. Images are `1x28x28` with bright ink (255) on black (0).
///
/// With the defaults, raw pixels do not tell the test characters apart (the nearest neighbour is
/// right in about 6 of 10 cases, 5 ways, 1 shot) and a small trained encoder does. Figures on
/// glyphs show that a program works; they are not comparable with any published data set.
///
/// # Conventions
/// The bytes are the same on every platform and with every number of threads: random numbers are
/// keyed by what they are for, and drawing uses only additions, multiplications, divisions and
/// square roots, which IEEE 754 rounds in one way.
///
/// # Example
/// ```
/// use fewshot::data::{Glyphs, GlyphsConfig};
///
/// let config = GlyphsConfig { train_alphabets: 2, ..GlyphsConfig::new(7) };
/// assert_eq!(Glyphs::generate(&config).classes(), [40, 100, 200]);
/// ```
///
/// # Source
/// The image as strokes, style and motor noise follows Lake, Salakhutdinov and Tenenbaum, *Science*
/// 350 (2015) 1332-1338; the model here is far simpler than theirs.
#[derive(Clone, Copy, Debug)]
pub struct Glyphs;

impl Glyphs {
    /// Draws every character by every drawer, on all of rayon's threads. Classes are named
    /// `train03/character07`.
    ///
    /// # Panics
    /// If a count in the config is 0, or the variation is negative or not finite.
    pub fn generate(config: &GlyphsConfig) -> Splits {
        config.check();
        let parts = config.parts();
        let alphabets: Vec<Alphabet> = parts
            .iter()
            .zip(0..)
            .flat_map(|(&(_, count), part)| (0..count as u64).map(move |index| [part, index]))
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|key| Alphabet::invent(config, key))
            .collect();

        let image = config.size * config.size;
        let mut pixels = vec![0; alphabets.len() * config.characters * config.drawers * image];
        let of_alphabet = config.characters * config.drawers;
        pixels.par_chunks_exact_mut(image).enumerate().for_each(|(number, out)| {
            let alphabet = &alphabets[number / of_alphabet];
            let (character, drawer) =
                (number % of_alphabet / config.drawers, number % config.drawers);
            let hand = Hand::new(config, alphabet, drawer);
            hand.draw(alphabet, character, config.size, out);
        });

        let names = parts.iter().flat_map(|&(name, alphabets)| {
            (0..alphabets * config.characters).map(move |class| {
                let (alphabet, character) = (class / config.characters, class % config.characters);
                (format!("{name}{alphabet:02}/character{character:02}"), config.drawers)
            })
        });
        let shape = ImageShape::new(1, config.size, config.size);
        let set = ImageSet::new(shape, pixels, names)
            .expect("as many images were drawn as there are names, and no count is 0");
        let order: Vec<usize> = (0..alphabets.len() * config.characters).collect();
        let counts = parts.map(|(_, alphabets)| alphabets * config.characters);
        Splits::partition(&set, &order, counts)
    }
}

#[cfg(test)]
mod tests;
