use image::ImageFormat;

use super::Fault;

/// Refuses a file that ends before its format says so: decoders fill in what is missing.
pub(super) fn check(bytes: &[u8], format: ImageFormat) -> Result<(), Fault> {
    let (whole, missing) = match format {
        ImageFormat::Jpeg => (has_end_of_jpeg(bytes), "its end-of-image marker"),
        ImageFormat::Png => (png_chunk(bytes, b"IEND").is_some(), "its chunk IEND"),
        ImageFormat::WebP => (has_all_of_riff(bytes), "a part of the bytes that its header counts"),
        // Their decoders ask for all that they need.
        _ => (true, ""),
    };
    if whole { Ok(()) } else { Err(Fault::Cut(missing)) }
}

/// Walks from marker to marker as libjpeg does, over segments (one may have a small picture with an end of its own) and
/// over what scans are coded in, where 0 follows each 255 that is no marker. Whatever comes after the end is of no account.
fn has_end_of_jpeg(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    let mut rest = bytes;
    loop {
        let Some(marker) = rest.iter().position(|&byte| byte == 0xff) else { return false };
        rest = &rest[marker..];
        let Some(code) = rest.iter().position(|&byte| byte != 0xff) else { return false };
        let kind = rest[code];
        rest = &rest[code + 1..];
        match kind {
            END => return true,
            // No marker; one without a length; restarts; the start.
            0x00 | 0x01 | 0xd0..=0xd8 => {}
            _ => {
                let length = rest.first_chunk().map(|&length| u16::from_be_bytes(length));
                let after = length.and_then(|length| rest.get(usize::from(length)..));
                let Some(after) = after else { return false };
                rest = after;
            }
        }
    }
}

/// The content of the first chunk of this kind in a PNG file, if the chunk is whole.
pub(super) fn png_chunk<'a>(bytes: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let (kind, content) = (rest.get(4..8)?, rest.get(8..)?.get(..length)?);
        // Behind a checksum of four bytes.
        let next = rest.get(8 + length + 4..)?;
        if kind == name {
            return Some(content);
        }
        rest = next;
    }
}

fn has_all_of_riff(bytes: &[u8]) -> bool {
    let counted = bytes.get(4..).and_then(<[u8]>::first_chunk);
    counted.is_some_and(|&counted| bytes.len() as u64 >= 8 + u64::from(u32::from_le_bytes(counted)))
}
