use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use ab_glyph::{Font, FontVec, OutlinedGlyph};
use image::{DynamicImage, GrayImage, Luma};
use rayon::prelude::*;

use super::image_folder::{BrokenImage, Source, files_below, read_parts, shuffled_into_parts};
use crate::data::{DataError, FolderReport, OnBroken, ReadOptions, Result, Splits, class_name};

/// Fonts that must draw a character: as many as people drew each of Omniglot's.
const FONTS: usize = 20;

/// Characters as classes, each drawn by the fonts in a folder and in those below: bright (255) on black (0).
///
/// ```text
/// DIR/serif/A.ttf
/// DIR/B.otf
/// ```
///
/// # Conventions
/// A class is a letter or digit of any script ([`char::is_alphanumeric`]) that at least 20 of the fonts draw.
/// Characters that a font lacks or leaves empty are left out, and so is a picture equal to one drawn before,
/// by another font or, as with many a Latin and Greek A, for a character of lower code. Characters that Unicode takes for
/// spellings of one, such as K and the sign of Kelvin, are one class; fillers are none. A line of text is as
/// high as the image, and the character is in its middle; one that is larger is made smaller. Classes are
/// shuffled by `seed` and shared out as [`image_folder_splits`](crate::data::image_folder_splits) does: the
/// two cases of a letter may be in two splits. Papers use 28 x 28 pixels of grey for characters; in color the
/// three channels are the same.
///
/// # Errors
/// If there is no font, one is broken and is not to be skipped, or fewer than 3 characters are drawn by enough fonts.
pub fn fonts(
    dir: impl AsRef<Path>,
    options: &ReadOptions,
    seed: u64,
) -> Result<FolderReport<Splits>> {
    options.shape()?;
    let dir = dir.as_ref();
    let files = files_below(dir, &["ttf", "otf"])?;
    if files.is_empty() {
        return Err(DataError::no_classes(dir, "ttf or otf file"));
    }
    let (mut fonts, mut skipped) = (Vec::new(), Vec::new());
    for file in files {
        match (open(&file), options.on_broken) {
            (Ok(font), _) => fonts.push(font),
            (Err(DataError::Damaged { path, reason, .. }), OnBroken::Skip) => {
                skipped.push(BrokenImage { path, reason });
            }
            (Err(error), _) => return Err(error),
        }
    }
    let classes = drawn(&fonts, options);
    if classes.is_empty() {
        let expected = "letter or digit that 20 different fonts draw";
        return Err(DataError::no_classes(dir, expected));
    }
    let decode = |image: &GrayImage, _| Ok(DynamicImage::from(image.clone()));
    let report = read_parts(dir, shuffled_into_parts(classes, seed)?, options, decode)?;
    Ok(FolderReport { skipped, ..report })
}

impl Source for GrayImage {
    fn identity(&self, _: &Path) -> Cow<'_, [u8]> {
        self.as_raw().into()
    }
}

fn open(path: &Path) -> Result<FontVec> {
    let bytes = fs::read(path).map_err(DataError::read(path))?;
    FontVec::try_from_vec(bytes).map_err(DataError::damaged(path, "font"))
}

/// The characters that enough fonts draw, in order of name.
fn drawn(fonts: &[FontVec], options: &ReadOptions) -> Vec<(String, Vec<GrayImage>)> {
    let mut counts = BTreeMap::<char, usize>::new();
    for font in fonts {
        let letters: HashSet<char> = font.codepoint_ids().map(|(_, letter)| letter).collect();
        for letter in letters.into_iter().filter(|letter| letter.is_alphanumeric()) {
            *counts.entry(letter).or_default() += 1;
        }
    }
    counts.retain(|_, count| *count >= FONTS);
    let letters: Vec<char> = counts.into_keys().collect();
    let pictures: Vec<Vec<GrayImage>> = letters
        .par_iter()
        .map(|letter| fonts.iter().filter_map(|font| draw(font, *letter, options)).collect())
        .collect();
    let mut seen = HashSet::new();
    let mut classes = BTreeMap::<String, Vec<GrayImage>>::new();
    for (letter, mut pictures) in letters.into_iter().zip(pictures) {
        let Ok(name) = class_name(&letter.to_string()) else { continue };
        pictures.retain(|picture| seen.insert(picture.as_raw().clone()));
        classes.entry(name).or_default().append(&mut pictures);
    }
    classes.into_iter().filter(|(_, pictures)| pictures.len() >= FONTS).collect()
}

/// A character by a font; `None` if nothing is seen of it.
fn draw(font: &FontVec, letter: char, options: &ReadOptions) -> Option<GrayImage> {
    let (width, height) = (options.width as f32, options.height as f32);
    let glyph = font.glyph_id(letter);
    if glyph.0 == 0 || font.height_unscaled() <= 0.0 {
        return None;
    }
    let outline = |scale: f32| font.outline_glyph(glyph.with_scale(scale));
    let size =
        |outline: &OutlinedGlyph| (outline.px_bounds().width(), outline.px_bounds().height());
    let mut outlined = outline(height)?;
    let (wide, high) = size(&outlined);
    let fits = f32::min((width - 1.0) / wide, (height - 1.0) / high);
    if wide > width || high > height {
        outlined = outline(height * fits)?;
    }
    let (wide, high) = size(&outlined);
    let (left, top) = (((width - wide) / 2.0) as u32, ((height - high) / 2.0) as u32);
    let mut picture = GrayImage::new(options.width as u32, options.height as u32);
    outlined.draw(|x, y, coverage| {
        if let Some(pixel) = picture.get_pixel_mut_checked(x + left, y + top) {
            *pixel = Luma([(coverage * 255.0).round() as u8]);
        }
    });
    picture.iter().any(|&value| value > 0).then_some(picture)
}

#[cfg(test)]
mod tests;
