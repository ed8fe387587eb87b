//! Streams of random numbers, each a pure function of its purpose and index.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Distribution, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The purpose of random numbers. The values are part of the key: they never change.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Purpose {
    GlyphStyle = 1,
    GlyphHand = 2,
    GlyphDrawing = 3,
    SplitClasses = 4,
    Episode = 5,
    Sinusoid = 6,
    MiniBatch = 7,
    Sources = 8,
    Segment = 10,
    AfterTrials = 11,
    QueryCounts = 12,
    VariedEpisode = 20,
    Augmentation = 21,
    Mixing = 22,
    Epoch = 23,
}

/// A key drawn from the backend's generator: three numbers of 24 bits.
pub(crate) fn backend_key<B: Backend>(device: &B::Device) -> u64 {
    let uniform = Distribution::Uniform(0.0, 1.0);
    let drawn = Tensor::<B, 1>::random([3], uniform, (device, DType::F32)).into_data();
    drawn
        .iter::<f64>()
        .fold(0, |key: u64, part| key.rotate_left(24) ^ (part * f64::from(1 << 24)) as u64)
}

/// A stream keyed by seed, purpose and two indices.
///
/// Only integers and exactly rounded arithmetic are used, and none of a library's own sampling, so
/// that a seed means the same on every platform and with every version of `rand`.
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    pub(crate) fn new(seed: u64, purpose: Purpose, index: [u64; 2]) -> Self {
        let mut key = [0; 32];
        let words = [seed, purpose as u64, index[0], index[1]];
        for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A seed for another generator.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        const ULP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.0.next_u64() >> 11) as f64 * ULP
    }

    /// Uniform between two numbers.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A sum of three uniform numbers (Irwin-Hall), nearly normal, with mean 0 and the given standard
    /// deviation, never beyond three of them. It needs no function of the platform's mathematics library.
    pub(crate) fn irwin_hall(&mut self, deviation: f64) -> f64 {
        let sum = self.unit() + self.unit() + self.unit();
        deviation * (2.0 * sum - 3.0)
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform in `0..bound`, up to a bias below `bound / 2^64`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// The numbers `0..count` in random order.
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }

    /// `amount` different numbers of `0..count` in random order.
    pub(crate) fn sample(&mut self, count: usize, amount: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for first in 0..amount {
            numbers.swap(first, first + self.below(count - first));
        }
        numbers.truncate(amount);
        numbers
    }
}

/// A random order of the numbers `0..count`, of which each place is computed by itself.
///
/// # Source
/// Luby and Rackoff, "How to Construct Pseudorandom Permutations from Pseudorandom Functions", 1988; numbers beyond the last are
/// permuted again, as Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002, do.
pub(crate) struct Shuffle {
    keys: [u64; 8],
    /// Bits of either half of a number.
    half: u32,
    count: u64,
}

impl Shuffle {
    pub(crate) fn new(mut stream: Stream, count: usize) -> Self {
        let bits = usize::BITS - count.saturating_sub(1).leading_zeros();
        let keys = std::array::from_fn(|_| stream.seed());
        Self { keys, half: bits.div_ceil(2).max(1), count: count as u64 }
    }

    /// The number at this place, which is below the count.
    pub(crate) fn number(&self, place: usize) -> usize {
        let mut number = place as u64;
        assert!(number < self.count, "place {place} of {}", self.count);
        loop {
            number = self.permuted(number);
            if number < self.count {
                return number as usize;
            }
        }
    }

    /// A permutation of all numbers of two halves.
    fn permuted(&self, number: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mixed(right ^ key) & mask));
        }
        (left << self.half) | right
    }
}

/// A bijection in which each bit depends on all; of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffle(seed: u64, count: usize) -> Vec<usize> {
        let order = Shuffle::new(Stream::new(seed, Purpose::Epoch, [0, 0]), count);
        (0..count).map(|place| order.number(place)).collect()
    }

    #[test]
    fn a_shuffle_has_every_number_once() {
        for count in (1..70).chain([1000, 4096, 4097]) {
            let mut order = shuffle(3, count);
            assert!(count < 10 || order != shuffle(4, count));
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_number_is_at_every_place_of_a_shuffle_equally_often() {
        let mut counts = [[0; 6]; 6];
        let mut followers = [[0; 6]; 6];
        for seed in 0..6000 {
            let order = shuffle(seed, 6);
            order.iter().enumerate().for_each(|(place, number)| counts[place][*number] += 1);
            followers[order[0]][order[1]] += 1;
        }
        // Five standard deviations.
        assert!(
            counts.as_flattened().iter().all(|count| (855..1145).contains(count)),
            "{counts:?}"
        );
        let pairs =
            (0..36).filter(|pair| pair / 6 != pair % 6).map(|pair| followers[pair / 6][pair % 6]);
        assert!(pairs.clone().all(|count: i32| (130..270).contains(&count)), "{followers:?}");
    }

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut stream = Stream::new(7, Purpose::SplitClasses, [0, 1]);
        assert_eq!(stream.permutation(8), [6, 5, 3, 4, 7, 0, 1, 2]);
        assert_eq!(shuffle(7, 8), [3, 6, 7, 5, 4, 1, 2, 0]);
    }

    #[test]
    fn a_sample_has_no_number_twice_and_leaves_none_out() {
        let mut stream = Stream::new(3, Purpose::Episode, [0, 0]);
        let mut seen = [0; 6];
        for _ in 0..600 {
            let mut sample = stream.sample(6, 3);
            sample.iter().for_each(|&number| seen[number] += 1);
            sample.sort_unstable();
            sample.dedup();
            assert_eq!(sample.len(), 3);
        }
        assert!(seen.iter().all(|&count| (240..360).contains(&count)), "{seen:?}");
        assert!(stream.sample(4, 0).is_empty());
    }

    #[test]
    fn every_part_of_the_key_changes_the_stream() {
        let first = |seed, purpose, index| Stream::new(seed, purpose, index).unit();
        let base = first(1, Purpose::GlyphStyle, [0, 0]);
        assert_eq!(base, first(1, Purpose::GlyphStyle, [0, 0]));
        assert_ne!(base, first(2, Purpose::GlyphStyle, [0, 0]));
        assert_ne!(base, first(1, Purpose::GlyphHand, [0, 0]));
        assert_ne!(base, first(1, Purpose::GlyphStyle, [1, 0]));
        assert_ne!(base, first(1, Purpose::GlyphStyle, [0, 1]));
    }

    #[test]
    fn numbers_keep_to_their_range_and_spread() {
        let mut stream = Stream::new(0, Purpose::GlyphStyle, [0, 0]);
        let bells: Vec<f64> = (0..4000).map(|_| stream.irwin_hall(2.0)).collect();
        let mean = bells.iter().sum::<f64>() / 4000.0;
        let variance = bells.iter().map(|x| x * x).sum::<f64>() / 4000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        assert!((variance - 4.0).abs() < 0.3, "{variance}");
        assert!(bells.iter().all(|x| x.abs() <= 6.0));
        assert!((0..4000).all(|_| stream.below(3) < 3));
        let mut order = stream.permutation(50);
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }
}
