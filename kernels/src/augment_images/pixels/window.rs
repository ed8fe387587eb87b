//! Pixels that move: windows, resized or erased, and shifts.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

/// A rectangle of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Window {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

/// The pixel that comes to a place, from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Rows, negative for one above.
    pub down: i32,
    /// Columns, negative for one to the left.
    pub right: i32,
}

/// The bytes of a window, `[c, height, width]`.
fn copied(window: Window, image: &[u8], [channels, height, width]: [usize; 3]) -> Vec<u8> {
    let rows = (0..channels * window.height).map(|row| {
        let (channel, row) = (row / window.height, window.top + row % window.height);
        &image[(channel * height + row) * width + window.left..][..window.width]
    });
    rows.collect::<Vec<_>>().concat()
}

/// Makes the window the whole image: resized in bytes along rows, then along columns, as PIL does it, by a triangle
/// that widens where the image shrinks (antialiasing).
pub fn resize(window: Window, image: &mut [u8], shape: [usize; 3]) {
    let [channels, height, width] = shape;
    if [window.height, window.width] == [height, width] {
        return;
    }
    let bytes = copied(window, image, shape);
    let mut wide = vec![0; channels * window.height * width];
    resize_plane(&bytes, [channels * window.height, window.width], &mut wide, width);
    let planes = wide.chunks_exact(window.height * width);
    for (plane, out) in planes.zip(image.chunks_exact_mut(height * width)) {
        resize_plane(plane, [window.height, width], out, width);
    }
}

/// Makes the window black.
pub fn erase(window: Window, image: &mut [u8], [_, height, width]: [usize; 3]) {
    for plane in image.chunks_exact_mut(height * width) {
        for row in plane.chunks_exact_mut(width).skip(window.top).take(window.height) {
            row[window.left..][..window.width].fill(0);
        }
    }
}

/// Moves all pixels.
pub fn shift(Shift { down, right }: Shift, image: &mut [u8], [_, height, width]: [usize; 3]) {
    let before = image.to_vec();
    image.fill(0);
    // Rows and columns whose pixel was in the image.
    let [rows, columns] = [(down, height), (right, width)].map(|(by, side)| {
        let (by, side) = (by as isize, side as isize);
        (-by).clamp(0, side) as usize..(side - by).clamp(0, side) as usize
    });
    if rows.is_empty() || columns.is_empty() {
        return;
    }
    let from = columns.start.wrapping_add_signed(right as isize);
    let planes = before.chunks_exact(height * width);
    for (plane, out) in planes.zip(image.chunks_exact_mut(height * width)) {
        for row in rows.clone() {
            let row_before = &plane[row.wrapping_add_signed(down as isize) * width..][..width];
            out[row * width..][columns.clone()]
                .copy_from_slice(&row_before[from..from + columns.len()]);
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
