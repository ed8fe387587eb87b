use serde::{Deserialize, Serialize};

/// The steps from a picture to an image like those that a pretrained network was trained on.
///
/// The shorter side is resized to [`resize`](Self::resize), the middle is cropped, and of values between 0 and 1 the mean
/// of their channel is taken off and the rest divided by its deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preprocessing {
    /// Length of the shorter side.
    pub resize: usize,
    /// Side of the square that is cropped.
    pub crop: usize,
    /// Kind of interpolation.
    pub interpolation: Interpolation,
    /// Means of red, green and blue.
    pub mean: [f32; 3],
    /// Deviations of red, green and blue.
    pub deviation: [f32; 3],
}

/// An interpolation, with a window as wide as the shrinkage asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// Triangles.
    Bilinear,
    /// Cubic splines with a slope of -0.5.
    Bicubic,
}

impl Preprocessing {
    /// Mean and deviation of ImageNet's pictures, as torchvision gives them.
    pub(crate) const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

    /// 256 to 224 by bilinear interpolation: torchvision's networks.
    pub fn torchvision() -> Self {
        let [mean, deviation] = Self::IMAGENET;
        Self { resize: 256, crop: 224, interpolation: Interpolation::Bilinear, mean, deviation }
    }

    /// 256 to 224 by bicubic interpolation: DINOv2.
    pub fn dinov2() -> Self {
        Self { interpolation: Interpolation::Bicubic, ..Self::torchvision() }
    }

    /// 224 by bicubic interpolation: CLIP.
    pub fn clip() -> Self {
        Self {
            resize: 224,
            crop: 224,
            interpolation: Interpolation::Bicubic,
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            deviation: [0.268_629_54, 0.261_302_6, 0.275_777_1],
        }
    }

    /// 256 to 224 by bicubic interpolation, bytes less 127 divided by 128: EfficientNet-Lite.
    pub fn efficientnet_lite() -> Self {
        let [mean, deviation] = [[127.0 / 255.0; 3], [128.0 / 255.0; 3]];
        Self { interpolation: Interpolation::Bicubic, mean, deviation, ..Self::torchvision() }
    }

    /// 92 to 84 by bilinear interpolation with ImageNet's mean and deviation: ResNet-12 and WRN-28-10 on miniImageNet.
    pub fn mini_imagenet() -> Self {
        Self { resize: 92, crop: 84, ..Self::torchvision() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VitConfig;

    #[test]
    fn each_family_of_vision_transformers_has_pictures_of_its_own() {
        assert_eq!(VitConfig::dinov2_b14().preprocessing(), Preprocessing::dinov2());
        assert_eq!(VitConfig::clip_b32().preprocessing(), Preprocessing::clip());
    }
}
