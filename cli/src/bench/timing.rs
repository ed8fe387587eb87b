use std::time::Instant;

use super::Scale;
use crate::prelude::*;

/// Length of a measurement: at least so many rounds, and on until this much time has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeats {
    pub(super) rounds: usize,
    pub(super) seconds: f64,
}

/// Runs of the quicker of two for one of the slower.
const QUICKER_RUNS: usize = 8;

impl Repeats {
    pub(super) fn for_scale(scale: Scale) -> Self {
        scale.choose(Self { rounds: 3, seconds: 4.0 }, Self { rounds: 2, seconds: 0.0 })
    }

    pub(super) fn spread(self, work: &mut dyn FnMut()) -> Spread {
        let [spread] = self.turns([work]);
        spread
    }

    pub(super) fn turns<const N: usize>(self, mut works: [&mut dyn FnMut(); N]) -> [Spread; N] {
        works.iter_mut().for_each(|work| work());
        let mut times = [(); N].map(|()| Vec::new());
        self.rounds(|| {
            works.iter_mut().zip(&mut times).for_each(|(work, times)| times.push(seconds(work)));
        });
        times.map(Spread::new)
    }

    /// Times of `work` and `slower`, in turns: what slows the machine down for a while slows both.
    pub(super) fn spreads(
        self,
        work: &mut dyn FnMut(),
        slower: impl Fn(&mut dyn FnMut()),
    ) -> [Spread; 2] {
        work();
        slower(work);
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        self.rounds(|| {
            let turn = seconds(&mut || slower(work));
            slow.push(turn);
            let mut taken = 0.0;
            for _ in 0..QUICKER_RUNS {
                let time = seconds(work);
                quick.push(time);
                taken += time;
                if taken >= turn {
                    break;
                }
            }
        });
        [Spread::new(quick), Spread::new(slow)]
    }

    fn rounds(self, mut round: impl FnMut()) {
        let begin = Instant::now();
        for done in 1.. {
            round();
            if done >= self.rounds && begin.elapsed().as_secs_f64() >= self.seconds {
                return;
            }
        }
    }
}

fn seconds(work: &mut dyn FnMut()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

/// Seconds that something took, run after run.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    fn new(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { sorted: times }
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Linear between the two nearest runs.
    fn quantile(&self, share: f64) -> f64 {
        let place = share * (self.sorted.len() - 1) as f64;
        let below = place.floor() as usize;
        let above = self.sorted[(below + 1).min(self.sorted.len() - 1)];
        self.sorted[below] + (above - self.sorted[below]) * place.fract()
    }

    /// Milliseconds: the median, and the quartiles around it.
    pub(super) fn text(&self) -> String {
        let digits = self.digits();
        let [low, high] = [0.25, 0.75].map(|share| self.quantile(share) * 1e3);
        format!("{} ({low:.digits$}-{high:.digits$})", self.median_text())
    }

    pub(super) fn median_text(&self) -> String {
        let digits = self.digits();
        format!("{:.digits$}", self.median() * 1e3)
    }

    /// Number of significant digits of a millisecond.
    fn digits(&self) -> usize {
        match self.median() * 1e3 {
            ..10.0 => 2,
            ..1000.0 => 1,
            _ => 0,
        }
    }

    pub(super) fn json(&self) -> Value {
        let ms = |share| rounded(self.quantile(share) * 1e3, 5);
        json!({
            "min": ms(0.0),
            "lower_quartile": ms(0.25),
            "median": ms(0.5),
            "upper_quartile": ms(0.75),
            "runs": self.sorted.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_the_nearest_runs() {
        let spread = Spread::new(vec![4.0, 1.0, 2.0, 8.0]);
        assert_eq!(
            [0.0, 0.25, 0.5, 1.0].map(|share| spread.quantile(share)),
            [1.0, 1.75, 3.0, 8.0]
        );
        assert_eq!(Spread::new(vec![5.0]).median(), 5.0);
        assert_eq!(spread.text(), "3000 (1750-5000)");
    }

    #[test]
    fn each_round_runs_both_and_the_quicker_one_more_often() {
        let ran = std::cell::Cell::new(0);
        let slower = |work: &mut dyn FnMut()| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            work();
        };
        let [quick, slow] =
            Repeats { rounds: 3, seconds: 0.0 }.spreads(&mut || ran.set(ran.get() + 1), slower);
        assert_eq!(slow.sorted.len(), 3);
        assert_eq!(quick.sorted.len(), 3 * QUICKER_RUNS);
        assert_eq!(ran.get(), 2 + slow.sorted.len() + quick.sorted.len());
        assert!(slow.median() > quick.median());
    }
}
