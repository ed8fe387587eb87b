use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::data::ImageShape;
use crate::random::Stream;

/// Attempts to draw a window that fits.
const ATTEMPTS: usize = 10;

/// A rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) top: usize,
    pub(crate) left: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl Window {
    /// A window whose area is a share of the image's, drawn from `scale`, and whose ratio of sides is drawn from `ratio`,
    /// evenly by its logarithm; `None` where ten such windows in a row are larger than `most` `[height, width]`.
    pub(super) fn draw(
        shape: ImageShape,
        scale: [f64; 2],
        ratio: impl Fn(f64) -> [f64; 2],
        log_ratio: [f64; 2],
        most: [usize; 2],
        random: &mut Stream,
    ) -> Option<Self> {
        let area = (shape.height * shape.width) as f64;
        for _ in 0..ATTEMPTS {
            let area = area * random.between(scale[0], scale[1]);
            let ratio = ratio(libm::exp(random.between(log_ratio[0], log_ratio[1])));
            let [height, width] = ratio.map(|of| (area * of).sqrt().round_ties_even() as usize);
            if (1..=most[0]).contains(&height) && (1..=most[1]).contains(&width) {
                let top = random.below(shape.height - height + 1);
                let left = random.below(shape.width - width + 1);
                return Some(Self { top, left, height, width });
            }
        }
        None
    }

    /// The bytes of the window, `[c, height, width]`.
    fn copied(self, image: &[u8], shape: ImageShape) -> Vec<u8> {
        let rows = (0..shape.channels * self.height).map(|row| {
            let (channel, row) = (row / self.height, self.top + row % self.height);
            &image[(channel * shape.height + row) * shape.width + self.left..][..self.width]
        });
        rows.collect::<Vec<_>>().concat()
    }

    /// Makes the window the whole image: resized in bytes along rows, then along columns, as PIL does it, by a triangle
    /// that widens where the image shrinks (antialiasing).
    pub(super) fn resize(self, image: &mut [u8], shape: ImageShape) {
        let ImageShape { channels, height, width } = shape;
        if [self.height, self.width] == [height, width] {
            return;
        }
        let window = self.copied(image, shape);
        let mut wide = vec![0; channels * self.height * width];
        resize_plane(&window, [channels * self.height, self.width], &mut wide, width);
        let planes = wide.chunks_exact(self.height * width);
        for (plane, out) in planes.zip(image.chunks_exact_mut(height * width)) {
            resize_plane(plane, [self.height, width], out, width);
        }
    }

    /// Makes the window black.
    pub(super) fn erase(self, image: &mut [u8], shape: ImageShape) {
        for plane in image.chunks_exact_mut(shape.height * shape.width) {
            for row in plane.chunks_exact_mut(shape.width).skip(self.top).take(self.height) {
                row[self.left..][..self.width].fill(0);
            }
        }
    }
}

/// Resizes rows of bytes, `[height, width]`, to the rows of `out`, each of `width` bytes.
fn resize_plane(plane: &[u8], [height, width]: [usize; 2], out: &mut [u8], out_width: usize) {
    let out_height = out.len() / out_width;
    let from = TypedImageRef::<U8>::from_buffer(width as u32, height as u32, plane);
    let to = TypedImage::<U8>::from_buffer(out_width as u32, out_height as u32, out);
    let (from, mut to) = (from.expect("a byte a pixel"), to.expect("a byte a pixel"));
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize_typed(&from, &mut to, &options).expect("both images have pixels");
}
