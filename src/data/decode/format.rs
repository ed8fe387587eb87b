use std::path::Path;

use image::ImageFormat;

use super::Fault;

/// The format of a picture by its content.
pub(super) fn format_of(bytes: &[u8], name: &Path) -> Result<ImageFormat, Fault> {
    use ImageFormat::{Bmp, Gif, Jpeg, Png, Tiff, WebP};
    match image::guess_format(bytes) {
        Ok(format @ (Bmp | Gif | Jpeg | Png | Tiff | WebP)) => Ok(format),
        Ok(other) => Err(Fault::Refused(format!("{other:?}").to_uppercase())),
        Err(_) => {
            let refused = refused_by_brand(bytes).or_else(|| refused_by_extension(name));
            Err(refused.map_or(Fault::Unknown, |name| Fault::Refused(name.to_owned())))
        }
    }
}

/// AVIF or HEIC, by the brands of a file of ISO's base media format.
fn refused_by_brand(bytes: &[u8]) -> Option<&'static str> {
    let length = u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    let brands = bytes.get(4..length.min(bytes.len()))?.strip_prefix(b"ftyp")?;
    let has = |prefixes: &[&[u8]]| {
        let one = |brand: &[u8]| prefixes.iter().any(|prefix| brand.starts_with(prefix));
        brands.chunks_exact(4).any(one)
    };
    match has(&[b"avi"]) {
        true => Some("AVIF"),
        false => has(&[b"hei", b"hev", b"mif", b"msf"]).then_some("HEIC"),
    }
}

fn refused_by_extension(name: &Path) -> Option<&'static str> {
    match name.extension()?.to_string_lossy().to_lowercase().as_str() {
        "avif" => Some("AVIF"),
        "heic" | "heif" => Some("HEIC"),
        _ => None,
    }
}
