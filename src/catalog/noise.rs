use crate::data::{ClassDataset, ImageShape, QuarterTurn, Scaling};
use crate::episode::{EpisodeError, EpisodeSampler, Protocol};

/// Tasks of images without a meaning, all different.
pub(super) fn sampler(
    [channels, height, width]: [usize; 3],
    protocol: Protocol,
) -> Result<EpisodeSampler, EpisodeError> {
    let noise = Noise {
        shape: ImageShape { channels, height, width },
        scaling: Scaling::unit(channels),
        classes: protocol.ways,
        examples: protocol.shots + protocol.queries,
    };
    EpisodeSampler::new(noise, protocol, 1)
}

struct Noise {
    shape: ImageShape,
    scaling: Scaling,
    classes: usize,
    examples: usize,
}

impl ClassDataset for Noise {
    fn classes(&self) -> usize {
        self.classes
    }

    fn class_name(&self, class: usize) -> String {
        format!("noise {class}")
    }

    fn examples(&self, _: usize) -> usize {
        self.examples
    }

    fn image_shape(&self) -> ImageShape {
        self.shape
    }

    fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    fn write_image(&self, class: usize, example: usize, _: QuarterTurn, out: &mut [u8]) {
        let start = (self.examples * class + example + 1) as u32;
        for (place, pixel) in out.iter_mut().enumerate() {
            // Knuth's multiplicative hash: neighbours differ.
            *pixel =
                ((place as u32 + 1).wrapping_mul(start).wrapping_mul(2_654_435_761) >> 24) as u8;
        }
    }
}
