use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value;

use crate::random::{Purpose, Stream};

/// A family of functions that regression tasks are drawn from, each task one function.
pub trait Functions: Debug + Send + Sync {
    /// Length of an input.
    fn inputs(&self) -> usize;

    /// Length of a target.
    fn targets(&self) -> usize;

    /// `examples` inputs of task `index`, one after the other, and the targets that its function
    /// gives them. The result is a pure function of all arguments, and its first examples do not
    /// depend on how many there are.
    fn draw(&self, seed: u64, index: u64, examples: usize) -> (Vec<f32>, Vec<f32>);

    /// The settings that a resumed run must repeat.
    fn settings(&self) -> Value;
}

/// Sine waves `y = amplitude * sin(x - phase)` of uniform amplitude and phase, at uniform `x`.
///
/// # Source
/// Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks",
/// ICML 2017, section 5.1; the sign of the phase is that of the authors' code.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sinusoids {
    /// Smallest and largest amplitude, 0.1 and 5 in the paper.
    pub amplitude: [f64; 2],
    /// Smallest and largest phase in radians, 0 and pi in the paper.
    pub phase: [f64; 2],
    /// Smallest and largest `x`, -5 and 5 in the paper.
    pub x: [f64; 2],
}

/// One of the [`Sinusoids`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sinusoid {
    /// Largest value.
    pub amplitude: f64,
    /// Where it rises through zero.
    pub phase: f64,
}

impl Sinusoids {
    /// The wave of task `index`.
    pub fn wave(&self, seed: u64, index: u64) -> Sinusoid {
        self.begin(seed, index).0
    }

    fn begin(&self, seed: u64, index: u64) -> (Sinusoid, Stream) {
        let mut random = Stream::new(seed, Purpose::Sinusoid, [index, 0]);
        let mut between = |[low, high]: [f64; 2]| random.between(low, high);
        let wave = Sinusoid { amplitude: between(self.amplitude), phase: between(self.phase) };
        (wave, random)
    }
}

impl Default for Sinusoids {
    /// The paper's.
    fn default() -> Self {
        Self { amplitude: [0.1, 5.0], phase: [0.0, std::f64::consts::PI], x: [-5.0, 5.0] }
    }
}

impl Sinusoid {
    /// Its value at `x`.
    pub fn value_at(&self, x: f64) -> f64 {
        self.amplitude * (x - self.phase).sin()
    }
}

impl Functions for Sinusoids {
    fn inputs(&self) -> usize {
        1
    }

    fn targets(&self) -> usize {
        1
    }

    fn draw(&self, seed: u64, index: u64, examples: usize) -> (Vec<f32>, Vec<f32>) {
        let (wave, mut random) = self.begin(seed, index);
        let [low, high] = self.x;
        let x: Vec<f64> = (0..examples).map(|_| random.between(low, high)).collect();
        let targets = x.iter().map(|&x| wave.value_at(x) as f32).collect();
        (x.into_iter().map(|x| x as f32).collect(), targets)
    }

    fn settings(&self) -> Value {
        serde_json::json!({ "sinusoids": self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_lie_on_the_wave_of_their_task() {
        let waves = Sinusoids::default();
        let (inputs, targets) = waves.draw(7, 3, 20);
        let wave = waves.wave(7, 3);
        for (x, y) in inputs.iter().zip(&targets) {
            let expected = wave.amplitude * (f64::from(*x) - wave.phase).sin();
            assert!((f64::from(*y) - expected).abs() < 1e-5, "{y} at {x} of {wave:?}");
        }
        assert_ne!(wave, waves.wave(7, 4));
        assert_ne!(wave, waves.wave(8, 3));
    }

    #[test]
    fn fewer_examples_are_the_first_of_more() {
        let waves = Sinusoids::default();
        let (inputs, targets) = waves.draw(1, 0, 5);
        let (more_inputs, more_targets) = waves.draw(1, 0, 10);
        assert_eq!(inputs, more_inputs[..5]);
        assert_eq!(targets, more_targets[..5]);
    }

    #[test]
    fn amplitudes_phases_and_inputs_keep_to_their_ranges_and_spread() {
        let waves = Sinusoids::default();
        let drawn: Vec<_> = (0..2000).map(|index| waves.wave(1, index)).collect();
        let mean = |value: fn(&Sinusoid) -> f64| drawn.iter().map(value).sum::<f64>() / 2000.0;
        assert!(drawn.iter().all(|wave| (0.1..=5.0).contains(&wave.amplitude)));
        assert!(drawn.iter().all(|wave| (0.0..=std::f64::consts::PI).contains(&wave.phase)));
        let spread = |value: fn(&Sinusoid) -> f64, [low, high]: [f64; 2]| {
            drawn.iter().any(|wave| value(wave) < low)
                && drawn.iter().any(|wave| value(wave) > high)
        };
        assert!(spread(|wave| wave.amplitude, [0.15, 4.95]));
        assert!(spread(|wave| wave.phase, [0.03, 3.11]));
        assert!((mean(|wave| wave.amplitude) - 2.55).abs() < 0.15);
        assert!((mean(|wave| wave.phase) - std::f64::consts::FRAC_PI_2).abs() < 0.1);
        let (inputs, _) = waves.draw(1, 0, 2000);
        assert!(inputs.iter().all(|x| (-5.0..=5.0).contains(x)));
        assert!(inputs.iter().any(|x| *x < -4.9) && inputs.iter().any(|x| *x > 4.9));
    }
}
