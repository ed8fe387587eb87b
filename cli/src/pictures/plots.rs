//! A confusion matrix, and embeddings in two dimensions.

use fewshot::data::Features;
use fewshot::plot::{self, Panel, PlotError};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::prelude::*;

const CELL: usize = 34;
const LABELS: usize = 150;
const RIGHT: RGBColor = RGBColor(31, 119, 180);
const WRONG: RGBColor = RGBColor(214, 39, 40);

/// Classes from which on a drawing has only the most confused ones, and how many these are.
const MANY: usize = 60;
const SHOWN: usize = 40;

/// Points of a map, at most about so many.
const POINTS: usize = 4000;

/// Classes that a map names, at most.
const NAMED: usize = 28;

/// Draws how many examples of the class of a row were taken for that of a column; of 60 classes and more, of the 40 that are
/// confused most often.
pub(super) fn write_confusion(path: &Path, names: &[String], counts: &[Vec<usize>]) -> Result {
    let (title, classes) = match names.len() {
        MANY.. => {
            (format!("the {SHOWN} most confused of {} classes", names.len()), confused(counts))
        }
        few => (String::new(), (0..few).collect()),
    };
    let names: Vec<_> = classes.iter().map(|&class| names[class].clone()).collect();
    let row = |&class: &usize| classes.iter().map(|&other| counts[class][other]).collect();
    let counts: Vec<_> = classes.iter().map(row).collect();
    let size = confusion_size(classes.len());
    plot::write(path, size, &[()], |root, ()| confusion(root, &title, &names, &counts))
        .map_err(CliError::Failed)
}

/// Classes in most mistakes, as the picture's own or as what it was taken for, in the order of their numbers.
fn confused(counts: &[Vec<usize>]) -> Vec<usize> {
    let mut mistakes = vec![0; counts.len()];
    for (own, row) in counts.iter().enumerate() {
        for (taken, &count) in row.iter().enumerate().filter(|(taken, _)| *taken != own) {
            mistakes[own] += count;
            mistakes[taken] += count;
        }
    }
    let mut classes: Vec<_> = (0..counts.len()).collect();
    classes.sort_by_key(|&class| std::cmp::Reverse(mistakes[class]));
    classes.truncate(SHOWN);
    classes.sort_unstable();
    classes
}

fn confusion_size(classes: usize) -> (u32, u32) {
    let side = (LABELS + CELL * classes + 20) as u32;
    (side, side)
}

fn confusion(
    root: &Panel,
    title: &str,
    names: &[String],
    counts: &[Vec<usize>],
) -> Result<(), PlotError> {
    let heading = ("sans-serif", 13).into_font().color(&BLACK);
    if !title.is_empty() {
        let place = heading.pos(Pos::new(HPos::Left, VPos::Center));
        let foot = (LABELS + CELL * names.len() + 10) as i32;
        root.draw(&Text::new(title.to_owned(), (LABELS as i32, foot), place))?;
    }
    let most = counts.iter().flatten().max().copied().unwrap_or(0).max(1);
    let style = heading;
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
    let every = examples.rows().div_ceil(POINTS);
    let examples_shown = match every {
        1 => "Examples".to_owned(),
        _ => format!("One example in {every}"),
    };
    let caption = format!("{examples_shown} along the two principal axes of their embeddings");
    let mut chart = ChartBuilder::on(root)
        .caption(caption, ("sans-serif", 15))
        .margin(12)
        .margin_right(160)
        .build_cartesian_2d(range(0), range(1))?;
    chart.configure_mesh().disable_mesh().disable_axes().draw()?;
    for class in 0..examples.classes() {
        let colour = Palette99::pick(class).to_rgba();
        let circles = examples
            .rows_of(class)
            .filter(|row| row.is_multiple_of(every))
            .map(|row| Circle::new((points[row][0], points[row][1]), 4, colour.filled()));
        chart.draw_series(circles)?;
        let y = 40 + 18 * class.min(NAMED) as i32;
        let name = match class {
            ..NAMED => examples.class_name(class).to_owned(),
            NAMED => format!("and {} more", examples.classes() - NAMED),
            _ => continue,
        };
        if class < NAMED {
            root.draw(&Circle::new((574, y), 4, colour.filled()))?;
        }
        let style = ("sans-serif", 13).into_font().color(&BLACK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(name, (584, y), style))?;
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
            plot::drawn(confusion_size(2), &[()], |root, ()| confusion(root, "", &names, &counts));
        let drawing = drawing.unwrap();
        for text in ["owl", "wren"] {
            assert_eq!(drawing.matches(text).count(), 2, "{text}");
        }
        assert_eq!(drawing.matches("<rect").count(), 5, "four cells on a ground");
        assert_eq!(drawing.matches("<text").count(), 4 + 3, "names and counts above zero");
    }

    #[test]
    fn the_most_confused_of_many_classes_are_drawn() {
        let classes = 300;
        let names: Vec<_> = (0..classes).map(|class| format!("class {class}")).collect();
        let mut counts = vec![vec![0; classes]; classes];
        (0..classes).for_each(|class| counts[class][class] = 20);
        // Every seventh is taken for its neighbour, the later the more often.
        (0..classes - 1).step_by(7).for_each(|class| counts[class][class + 1] = class + 1);
        let confused = confused(&counts);
        assert_eq!(confused.len(), 40);
        assert_eq!(confused[38..], [294, 295]);
        assert!(confused.iter().all(|class| class % 7 < 2 && *class >= 161), "{confused:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("confusion.svg");
        write_confusion(&path, &names, &counts).unwrap();
        let drawing = std::fs::read_to_string(&path).unwrap();
        assert!(drawing.contains("the 40 most confused of 300 classes"));
        assert!(drawing.contains("class 294") && !drawing.contains("class 10\n"));
        assert!(drawing.len() < 1_000_000, "{}", drawing.len());
        // One class less than many.
        let (few, counts) = (&names[..59], vec![vec![1; 59]; 59]);
        write_confusion(&path, few, &counts).unwrap();
        let drawing = std::fs::read_to_string(&path).unwrap();
        assert!(drawing.contains("class 58") && !drawing.contains("most confused"));
    }

    #[test]
    fn a_map_of_many_pictures_has_some_of_them() {
        let class = |class: usize| {
            let values = (0..200).map(|row| (class * row % 37) as f32);
            (format!("class {class:02}"), values.collect::<Vec<_>>())
        };
        let examples = Features::new(2, (0..100).map(class)).unwrap();
        let drawing = plot::drawn(MAP, &[()], |root, ()| map(root, &examples)).unwrap();
        assert!(drawing.contains("One example in 3"));
        assert_eq!(drawing.matches("<circle").count(), 10_000_usize.div_ceil(3) + NAMED);
        assert!(drawing.contains("class 27") && !drawing.contains("class 28"));
        assert!(drawing.contains("and 72 more"));
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
