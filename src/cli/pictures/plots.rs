//! A confusion matrix, and embeddings in two dimensions.

use fewshot::data::Features;
use fewshot::plot::{self, Panel, PlotError};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::cli::prelude::*;

const CELL: usize = 34;
const LABELS: usize = 150;
const RIGHT: RGBColor = RGBColor(31, 119, 180);
const WRONG: RGBColor = RGBColor(214, 39, 40);

/// How many pictures of the class of a row were taken for that of a column.
pub(super) fn write_confusion(path: &Path, names: &[String], counts: &[Vec<usize>]) -> Result {
    let size = confusion_size(names.len());
    plot::write(path, size, &[()], |root, ()| confusion(root, names, counts))
        .map_err(CliError::Failed)
}

fn confusion_size(classes: usize) -> (u32, u32) {
    let side = (LABELS + CELL * classes + 20) as u32;
    (side, side)
}

fn confusion(root: &Panel, names: &[String], counts: &[Vec<usize>]) -> Result<(), PlotError> {
    let most = counts.iter().flatten().max().copied().unwrap_or(0).max(1);
    let style = ("sans-serif", 13).into_font().color(&BLACK);
    let place = |index: usize| (LABELS + CELL * index) as i32;
    for (row, (name, counts)) in names.iter().zip(counts).enumerate() {
        let middle = place(row) + CELL as i32 / 2;
        let left = style.pos(Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(name.clone(), (LABELS as i32 - 8, middle), left))?;
        let above = style.transform(FontTransform::Rotate270);
        let above = above.pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(name.clone(), (middle, LABELS as i32 - 8), above))?;
        for (column, &count) in counts.iter().enumerate() {
            let corner = (place(column), place(row));
            let other = (corner.0 + CELL as i32 - 2, corner.1 + CELL as i32 - 2);
            let colour = if row == column { RIGHT } else { WRONG };
            let share = 0.85 * count as f64 / most as f64;
            let opacity = if count == 0 { 0.03 } else { 0.15 + share };
            root.draw(&Rectangle::new([corner, other], colour.mix(opacity).filled()))?;
            let centre = (corner.0 + CELL as i32 / 2 - 1, middle - 1);
            let inside = style.pos(Pos::new(HPos::Center, VPos::Center));
            if count > 0 {
                root.draw(&Text::new(count.to_string(), centre, inside))?;
            }
        }
    }
    Ok(())
}

/// The embeddings along their two principal axes, a colour a class.
pub(super) fn write_map(path: &Path, examples: &Features) -> Result {
    plot::write(path, MAP, &[()], |root, ()| map(root, examples)).map_err(CliError::Failed)
}

const MAP: (u32, u32) = (720, 560);

fn map(root: &Panel, examples: &Features) -> Result<(), PlotError> {
    let points = principal(examples);
    let range = |axis: usize| {
        let along = points.iter().map(|point| point[axis]);
        let low = along.clone().fold(f64::INFINITY, f64::min);
        let high = along.fold(f64::NEG_INFINITY, f64::max);
        let room = 0.05 * (high - low).max(1e-6);
        low - room..high + room
    };
    let mut chart = ChartBuilder::on(root)
        .caption("Pictures along the two principal axes of their embeddings", ("sans-serif", 15))
        .margin(12)
        .margin_right(160)
        .build_cartesian_2d(range(0), range(1))?;
    chart.configure_mesh().disable_mesh().disable_axes().draw()?;
    for class in 0..examples.classes() {
        let colour = Palette99::pick(class).to_rgba();
        let circles = examples
            .rows_of(class)
            .map(|row| Circle::new((points[row][0], points[row][1]), 4, colour.filled()));
        chart.draw_series(circles)?;
        let y = 40 + 18 * class as i32;
        root.draw(&Circle::new((574, y), 4, colour.filled()))?;
        let style = ("sans-serif", 13).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(examples.class_name(class).to_owned(), (584, y), style))?;
    }
    Ok(())
}

/// Rows along the two axes of their largest variance, found by the power method.
fn principal(examples: &Features) -> Vec<[f64; 2]> {
    let centred = examples.centred(&examples.mean());
    let rows: Vec<Vec<f64>> = (0..centred.rows())
        .map(|row| centred.row(row).iter().map(|&x| f64::from(x)).collect())
        .collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut axes: Vec<Vec<f64>> = Vec::new();
    for first in 0..2 {
        // Any start that is not at right angles to the axis.
        let mut axis: Vec<f64> =
            (0..centred.length()).map(|i| ((i * 31 + first * 17) as f64).sin()).collect();
        for _ in 0..60 {
            let mut next = vec![0.0; axis.len()];
            for row in &rows {
                let along = dot(row, &axis);
                next.iter_mut().zip(row).for_each(|(next, x)| *next += along * x);
            }
            for other in &axes {
                let along = dot(&next, other);
                next.iter_mut().zip(other).for_each(|(next, x)| *next -= along * x);
            }
            let length = dot(&next, &next).sqrt();
            if length <= f64::MIN_POSITIVE {
                break;
            }
            axis = next.iter().map(|x| x / length).collect();
        }
        axes.push(axis);
    }
    rows.iter().map(|row| [dot(row, &axes[0]), dot(row, &axes[1])]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confusion_has_its_counts_and_names() {
        let names = ["owl".to_owned(), "wren".to_owned()];
        let counts = [vec![5, 2], vec![0, 7]];
        let drawing =
            plot::drawn(confusion_size(2), &[()], |root, ()| confusion(root, &names, &counts));
        let drawing = drawing.unwrap();
        for text in ["owl", "wren"] {
            assert_eq!(drawing.matches(text).count(), 2, "{text}");
        }
        assert_eq!(drawing.matches("<rect").count(), 5, "four cells on a ground");
        assert_eq!(drawing.matches("<text").count(), 4 + 3, "names and counts above zero");
    }

    #[test]
    fn principal_axes_are_those_of_the_largest_variance() {
        let class = |sign: f32| {
            let row = |i: i32| [0.0, sign * 10.0 + i as f32, 3.0 * (i % 2) as f32];
            (sign.to_string(), (0..6).flat_map(row).collect::<Vec<_>>())
        };
        let examples = Features::new(3, [class(-1.0), class(1.0)]).unwrap();
        let points = principal(&examples);
        let spread = |axis: usize| points.iter().map(|p| p[axis] * p[axis]).sum::<f64>();
        assert!(spread(0) > 10.0 * spread(1) && spread(1) > 10.0, "{points:?}");
        let (left, right) = points.split_at(6);
        assert!(left.iter().all(|p| p[0].signum() != right[0][0].signum()));
        let drawing = plot::drawn(MAP, &[()], |root, ()| map(root, &examples)).unwrap();
        assert_eq!(drawing.matches("<circle").count(), 12 + 2);
    }
}
