//! Classification of examples by models that were not learned from them.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::calibration::{self, Calibration};
use super::examples::support;
use crate::data::Features;
use crate::learners::heads::{AnyHead, Head};

/// Parts that examples are left out in, at most; where there are more examples, several are left out at once.
const FOLDS: usize = 128;

/// Classifications of examples by models that were learned from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossValidation {
    /// Number of examples of the class of a row that were taken for the class of a column; `[classes][classes]`.
    /// Classes with one example are columns only.
    pub confusion: Vec<Vec<usize>>,
    /// Number of parts that the examples were divided into, each part left out as a whole; the number of
    /// examples where each was left out alone. `None` for models whose file does not note it.
    pub folds: Option<usize>,
}

impl CrossValidation {
    /// A fault of numbers that were read for these examples, if there is one.
    pub(super) fn fault(&self, examples: &Features) -> Option<String> {
        let classes = examples.classes();
        let sizes = self.confusion.iter().map(Vec::len).chain([self.confusion.len()]);
        if sizes.into_iter().any(|size| size != classes) {
            return Some(format!("its confusions are not of its {classes} classes"));
        }
        for (class, row) in self.confusion.iter().enumerate() {
            let counted = row.iter().fold(0, |sum: usize, &count| sum.saturating_add(count));
            let (there, name) = (examples.examples(class), examples.class_name(class));
            if counted > there {
                return Some(format!(
                    "its confusions have {counted} examples of {name}, it holds {there}"
                ));
            }
        }
        let left_out = self.examples();
        let folds = self.folds.unwrap_or(left_out);
        let possible = (1..=left_out).contains(&folds);
        (!possible)
            .then(|| format!("it says that {left_out} examples were left out in {folds} folds"))
    }

    /// Number of examples that were left out.
    pub fn examples(&self) -> usize {
        self.confusion.iter().flatten().sum()
    }

    /// Per cent of these that were classified right.
    pub fn accuracy(&self) -> f64 {
        let right = self.confusion.iter().enumerate().map(|(class, row)| row[class]);
        100.0 * right.sum::<usize>() as f64 / self.examples() as f64
    }

    /// Pairs of classes (of the example, taken for) with how many mistakes, most first.
    pub fn mistakes(&self) -> Vec<([usize; 2], usize)> {
        let rows = self.confusion.iter().enumerate();
        let all = rows.flat_map(|(own, row)| {
            row.iter().enumerate().map(move |(taken, count)| ([own, taken], *count))
        });
        let mut mistakes: Vec<_> =
            all.filter(|([own, taken], count)| own != taken && *count > 0).collect();
        mistakes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        mistakes
    }
}

/// Leaves every example of a class with several out once, and calibrates by their classifications.
pub(super) fn cross_validate<B: Backend>(
    head: &AnyHead<B>,
    examples: &Features,
    device: &B::Device,
) -> (Option<CrossValidation>, Calibration) {
    let several = (0..examples.classes()).filter(|&class| examples.examples(class) > 1);
    let rows: Vec<_> =
        several.flat_map(|class| examples.rows_of(class).map(move |row| (row, class))).collect();
    if rows.is_empty() {
        return (None, Calibration::default());
    }
    let classes = examples.classes();
    let mut confusion = vec![vec![0; classes]; classes];
    let (mut all, mut labels) = (Vec::new(), Vec::new());
    let folds = rows.len().min(FOLDS);
    for fold in 0..folds {
        // Neighbours are of one class, so that those left out at once are of many.
        let out: Vec<_> = rows.iter().skip(fold).step_by(folds).copied().collect();
        let support_rows: Vec<_> =
            (0..examples.rows()).filter(|row| out.iter().all(|(out, _)| out != row)).collect();
        let fitted = head.fit(support(examples, &support_rows, device));
        let queries = out.iter().flat_map(|(row, _)| examples.row(*row).to_vec()).collect();
        let queries = TensorData::new::<f32, _>(queries, [1, out.len(), examples.length()]);
        let logits = fitted.logits(Tensor::from_data(queries, device)).into_data();
        let logits: Vec<f32> = logits.iter().collect();
        for (logits, (_, class)) in logits.chunks_exact(classes).zip(&out) {
            confusion[*class][taken_for(logits, *class)] += 1;
            all.push(logits.to_vec());
            labels.push(*class);
        }
    }
    let means = means(examples);
    let similar = |&(row, class): &(usize, usize)| {
        let row = examples.row(row);
        let own = means[class].iter().zip(row).map(|(sum, x)| sum - f64::from(*x));
        let others = means.iter().enumerate().filter(|(other, _)| *other != class);
        let nearest = others.map(|(_, mean)| cosine(mean, row)).fold(-1.0, f64::max);
        (cosine(&own.collect::<Vec<_>>(), row), nearest)
    };
    let (near, far): (Vec<_>, Vec<_>) = rows.iter().map(similar).unzip();
    let temperature = calibration::temperature(&all, &labels);
    let known = calibration::known(&near, &far);
    (Some(CrossValidation { confusion, folds: Some(folds) }), Calibration { temperature, known })
}

/// Logits are equal that differ by no more than this part of the larger one: by rounding.
const TIE: f32 = 1e-6;

/// The class that an example of the class `own` is taken for: another one, unless the own one has the largest of the
/// logits and no other has as large a one.
fn taken_for(logits: &[f32], own: usize) -> usize {
    let others = (0..logits.len()).filter(|&class| class != own);
    let other = others.max_by(|&one, &other| logits[one].total_cmp(&logits[other]));
    let is_less = |other: &usize| {
        let [other, own] = [logits[*other], logits[own]];
        other + TIE * other.abs().max(own.abs()) < own
    };
    other.filter(|other| !is_less(other)).unwrap_or(own)
}

/// `true` where all embeddings are equal but for rounding.
pub(super) fn all_equal(examples: &Features) -> bool {
    let first = examples.row(0);
    let largest = first.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let near = |(one, other): (&f32, &f32)| (one - other).abs() <= TIE * largest;
    (1..examples.rows()).all(|row| examples.row(row).iter().zip(first).all(near))
}

/// The sum of the rows of each class: their mean up to its length.
pub(super) fn means(examples: &Features) -> Vec<Vec<f64>> {
    let mean = |class| {
        let mut sum = vec![0.0; examples.length()];
        for row in examples.class_values(class).chunks_exact(examples.length()) {
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        sum
    };
    (0..examples.classes()).map(mean).collect()
}

/// The cosine between two vectors, 0 where one is zero.
pub(super) fn cosine(mean: &[f64], row: &[f32]) -> f64 {
    let pairs = || mean.iter().zip(row.iter().map(|&x| f64::from(x)));
    let dot: f64 = pairs().map(|(a, b)| a * b).sum();
    let squares = pairs().fold([0.0, 0.0], |[a, b], (x, y)| [a + x * x, b + y * y]);
    let lengths = (squares[0] * squares[1]).sqrt();
    if lengths > 0.0 { dot / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_is_not_right_whatever_the_order() {
        assert_eq!(taken_for(&[1.0, 1.0], 0), 1);
        assert_eq!(taken_for(&[1.0, 1.0], 1), 0);
        assert_eq!(taken_for(&[2.0, 1.0, 1.0], 1), 0);
        assert_eq!(taken_for(&[1.0, 2.0, 1.0], 1), 1);
        // One step of f32 is rounding, ten thousandths are not.
        assert_eq!(taken_for(&[-3.0, -3.0_f32.next_up()], 1), 0);
        assert_eq!(taken_for(&[-3.0, -2.9999], 1), 1);
        assert_eq!(taken_for(&[0.0, f32::NAN], 1), 0);
    }

    #[test]
    fn equal_embeddings_are_seen_through_rounding() {
        let equal = |one: f32, other: f32| {
            let classes = [("a".to_owned(), vec![0.0, one]), ("b".to_owned(), vec![0.0, other])];
            all_equal(&Features::new(2, classes).unwrap())
        };
        assert!(equal(0.3, 0.3) && equal(0.0, 0.0) && equal(0.3, 0.3_f32.next_up()));
        assert!(!equal(0.3, 0.3001) && !equal(0.0, 1e-20));
    }
}
