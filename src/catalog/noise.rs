use crate::data::{ImageSet, ImageShape};
use crate::episode::{DataPlacement, EpisodeSampler, Protocol};

/// Tasks of images without a meaning, all different, from host memory.
///
/// # Panics
/// For tasks without a class, a shot or a query.
pub(super) fn noise([channels, height, width]: [usize; 3], protocol: Protocol) -> EpisodeSampler {
    let shape = ImageShape { channels, height, width };
    let images = 1..=(protocol.ways * protocol.examples()) as u32;
    let places = 1..=shape.values() as u32;
    // Knuth's multiplicative hash: neighbours differ.
    let pixel = |image: u32, place: u32| {
        (place.wrapping_mul(image).wrapping_mul(2_654_435_761) >> 24) as u8
    };
    let pixels: Vec<u8> =
        images.flat_map(|image| places.clone().map(move |place| pixel(image, place))).collect();
    let classes = (0..protocol.ways).map(|class| (class.to_string(), protocol.examples()));
    let images = ImageSet::new(shape, pixels, classes).expect("as many pixels as the images have");
    let sampler = EpisodeSampler::new(images, protocol, 1);
    let sampler = sampler.expect("tasks of classes with shots and queries");
    sampler.with_data_on(DataPlacement::Host)
}
