use fewshot_kernels::augment_images::Window;

use crate::data::ImageShape;
use crate::random::Stream;

/// Attempts to draw a window that fits.
const ATTEMPTS: usize = 10;

/// A window whose area is a share of the image's, drawn from `scale`, and whose ratio of sides is drawn from `ratio`,
/// evenly by its logarithm; `None` where ten such windows in a row are larger than `most` `[height, width]`.
pub(super) fn draw_window(
    shape: ImageShape,
    scale: [f64; 2],
    ratio: impl Fn(f64) -> [f64; 2],
    log_ratio: [f64; 2],
    most: [usize; 2],
    random: &mut Stream,
) -> Option<Window> {
    let area = (shape.height * shape.width) as f64;
    for _ in 0..ATTEMPTS {
        let area = area * random.between(scale[0], scale[1]);
        let ratio = ratio(libm::exp(random.between(log_ratio[0], log_ratio[1])));
        let [height, width] = ratio.map(|of| (area * of).sqrt().round_ties_even() as usize);
        if (1..=most[0]).contains(&height) && (1..=most[1]).contains(&width) {
            let top = random.below(shape.height - height + 1);
            let left = random.below(shape.width - width + 1);
            return Some(Window { top, left, height, width });
        }
    }
    None
}
