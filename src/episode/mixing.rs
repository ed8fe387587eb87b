use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use fewshot_kernels::select;
use serde::{Deserialize, Serialize};

use super::{EpisodeError, uploaded};
use crate::data::{ImageShape, Window};
use crate::random::{Purpose, Stream};

/// Images of an episode mixed in pairs, with their labels, for [classical training](crate::learners::BaseClassifier).
///
/// Each image has a partner by a random permutation of all images of its episode, and the share that stays its own is
/// drawn once an episode from a Beta distribution with both parameters equal to alpha. Mixup adds the partner, weighted;
/// CutMix pastes a window of the partner, around a random place and cut off at the border. The loss is the mean of the
/// losses for both labels, weighted by the shares of pixels. Where both alphas are given, each episode is mixed by one of
/// the two, with equal chance.
///
/// # Source
/// Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; Yun et al., "CutMix: Regularization Strategy to
/// Train Strong Classifiers with Localizable Features", ICCV 2019.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mixing {
    /// Alpha of mixup; `None` for no mixup.
    pub mixup: Option<f64>,
    /// Alpha of CutMix; `None` for no CutMix.
    pub cutmix: Option<f64>,
}

/// Least and greatest alpha: beyond them a share is nearly always 0 or 1, or nearly always a half.
const ALPHAS: [f64; 2] = [0.01, 1000.0];

/// The mixture of one episode.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mixture {
    /// Partner of each image.
    partners: Vec<usize>,
    method: Method,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    /// Share of the image itself.
    Blend(f64),
    /// Window of the partner.
    Paste(Window),
}

/// Mixed images of a batch of episodes.
pub(crate) struct MixedImages<B: Backend> {
    /// `[t, n, c, h, w]`
    pub(crate) images: Tensor<B, 5>,
    /// Place of each image's partner among all images of the batch, `[t * n]`.
    pub(crate) partners: Tensor<B, 1, Int>,
    /// Share of each image that is its own, `[t * n]`.
    pub(crate) shares: Tensor<B, 1>,
}

impl Mixing {
    /// True if images stay apart.
    pub fn is_none(&self) -> bool {
        self.mixup.is_none() && self.cutmix.is_none()
    }

    /// Checks the alphas.
    ///
    /// # Errors
    /// For an alpha that is not from 0.01 to 1000.
    pub fn check(&self) -> Result<(), EpisodeError> {
        let [least, most] = ALPHAS;
        let mut alphas = [self.mixup, self.cutmix].into_iter().flatten();
        match alphas.find(|alpha| !(least..=most).contains(alpha)) {
            Some(alpha) => Err(EpisodeError::MixingAlpha { least, most, actual: alpha }),
            None => Ok(()),
        }
    }

    /// The mixture of episode `index`, of so many images; `None` without an alpha.
    pub(super) fn draw(
        &self,
        images: usize,
        shape: ImageShape,
        seed: u64,
        index: u64,
    ) -> Option<Mixture> {
        let mut random = Stream::new(seed, Purpose::Mixing, [index, 0]);
        let cuts = match (self.mixup, self.cutmix) {
            (Some(_), Some(_)) => random.chance(0.5),
            (_, cutmix) => cutmix.is_some(),
        };
        let alpha = if cuts { self.cutmix } else { self.mixup };
        let share = beta(alpha?, &mut random);
        let method = match cuts {
            true => Method::Paste(window(share, shape, &mut random)),
            false => Method::Blend(share),
        };
        Some(Mixture { partners: random.permutation(images), method })
    }
}

/// The window that leaves this share of an image, where it is within the image.
fn window(share: f64, shape: ImageShape, random: &mut Stream) -> Window {
    let cut = (1.0 - share).sqrt();
    let [rows, columns] = [shape.height, shape.width].map(|side| {
        let (middle, half) = (random.below(side), (side as f64 * cut) as usize / 2);
        middle.saturating_sub(half)..(middle + half).min(side)
    });
    let (top, left) = (rows.start, columns.start);
    Window { top, left, height: rows.len(), width: columns.len() }
}

/// A draw of the Beta distribution of two equal parameters.
fn beta(alpha: f64, random: &mut Stream) -> f64 {
    let [one, other] = [0; 2].map(|_| log_gamma_draw(alpha, random));
    1.0 / (1.0 + libm::exp(other - one))
}

/// The logarithm of a draw of the Gamma distribution. For a small alpha the draw itself may be too small for a number.
///
/// # Source
/// Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", ACM TOMS 2000.
fn log_gamma_draw(alpha: f64, random: &mut Stream) -> f64 {
    if alpha < 1.0 {
        let larger = log_gamma_draw(alpha + 1.0, random);
        return larger + libm::log(1.0 - random.unit()) / alpha;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal = normal(random);
        let cube = (1.0 + c * normal).powi(3);
        let uniform = 1.0 - random.unit();
        if cube > 0.0
            && libm::log(uniform) < 0.5 * normal * normal + d - d * cube + d * libm::log(cube)
        {
            return libm::log(d * cube);
        }
    }
}

/// A draw of the normal distribution, by Box and Muller.
fn normal(random: &mut Stream) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - random.unit())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * random.unit())
}

impl Mixture {
    /// Share of pixels that are an image's own.
    fn share(&self, shape: ImageShape) -> f64 {
        match self.method {
            Method::Blend(share) => share,
            Method::Paste(Window { height, width, .. }) => {
                1.0 - (height * width) as f64 / (shape.height * shape.width) as f64
            }
        }
    }

    /// Share of each pixel that is an image's own, `[h, w]`.
    fn mask(&self, shape: ImageShape) -> Vec<f32> {
        let pixels = 0..shape.height * shape.width;
        match self.method {
            Method::Blend(share) => pixels.map(|_| share as f32).collect(),
            Method::Paste(Window { top, left, height, width }) => pixels
                .map(|place| {
                    let (row, column) = (place / shape.width, place % shape.width);
                    let is_pasted = (top..top + height).contains(&row)
                        && (left..left + width).contains(&column);
                    if is_pasted { 0.0 } else { 1.0 }
                })
                .collect(),
        }
    }
}

/// Mixes the images of each task, `[t, n, c, h, w]`.
pub(super) fn mix<B: Backend>(images: Tensor<B, 5>, mixtures: &[Mixture]) -> MixedImages<B> {
    let [tasks, examples, channels, height, width] = images.dims();
    assert_eq!(tasks, mixtures.len(), "a mixture for each task");
    let (shape, device) = (ImageShape::new(channels, height, width), images.device());
    let partners = mixtures.iter().enumerate().flat_map(|(task, mixture)| {
        mixture.partners.iter().map(move |partner| (task * examples + partner) as i32)
    });
    let places: Vec<_> = partners.collect();
    let partners: Tensor<B, 1, Int> = uploaded(places.clone(), [tasks * examples], &device);
    let masks = mixtures.iter().flat_map(|mixture| mixture.mask(shape)).collect();
    let mask: Tensor<B, 5> = uploaded(masks, [tasks, 1, 1, height, width], &device);
    let shares = mixtures.iter().flat_map(|mixture| {
        std::iter::repeat_n(mixture.share(shape) as f32, mixture.partners.len())
    });
    let shares = uploaded(shares.collect(), [tasks * examples], &device);
    let others = select(images.clone().flatten::<4>(0, 1), 0, places);
    let others = others.reshape([tasks, examples, channels, height, width]);
    let mask = mask.cast(images.dtype());
    let images = images * mask.clone() + others * (mask.neg() + 1.0);
    MixedImages { images, partners, shares }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::Tolerance;

    use super::*;

    const SHAPE: ImageShape = ImageShape::new(2, 6, 8);

    fn images() -> Tensor<Flex, 5> {
        let values = (0..2 * 3 * 96).map(|value| (value * value % 101) as f32).collect();
        uploaded(values, [2, 3, 2, 6, 8], &Default::default())
    }

    fn mixture(method: Method) -> Mixture {
        Mixture { partners: vec![2, 0, 1], method }
    }

    #[test]
    fn a_share_of_one_is_no_mixing() {
        let window = Window { top: 3, left: 2, height: 0, width: 5 };
        let mixtures = [mixture(Method::Blend(1.0)), mixture(Method::Paste(window))];
        let mixed = mix(images(), &mixtures);
        mixed.images.into_data().assert_eq(&images().into_data(), true);
        assert_eq!(mixed.shares.into_data().to_vec::<f32>().unwrap(), [1.0; 6]);
    }

    #[test]
    fn a_share_of_zero_is_the_partner() {
        let whole = Window { top: 0, left: 0, height: 6, width: 8 };
        let mixtures = [mixture(Method::Blend(0.0)), mixture(Method::Paste(whole))];
        let mixed = mix(images(), &mixtures);
        let partners = mixed.partners.clone().into_data().iter::<i64>().collect::<Vec<_>>();
        assert_eq!(partners, [2, 0, 1, 5, 3, 4]);
        let expected = images().flatten::<4>(0, 1).select(0, mixed.partners);
        mixed.images.flatten::<4>(0, 1).into_data().assert_eq(&expected.into_data(), true);
        assert_eq!(mixed.shares.into_data().to_vec::<f32>().unwrap(), [0.0; 6]);
    }

    #[test]
    fn images_are_blended_and_pasted_by_their_shares() {
        let window = Window { top: 1, left: 2, height: 3, width: 4 };
        let mixed = mix(images(), &[mixture(Method::Blend(0.75)), mixture(Method::Paste(window))]);
        let (all, before) = (mixed.images.into_data(), images().into_data());
        let (all, before) = (all.as_slice::<f32>().unwrap(), before.as_slice::<f32>().unwrap());
        for place in 0..96 {
            // The first image of each task and its partner, the third.
            let blended = 0.75 * before[place] + 0.25 * before[2 * 96 + place];
            assert!((all[place] - blended).abs() < 1e-4);
            let (row, column) = (place % 48 / 8, place % 8);
            let pasted = (1..4).contains(&row) && (2..6).contains(&column);
            let source = if pasted { 5 } else { 3 };
            assert_eq!(all[3 * 96 + place], before[source * 96 + place], "{row} {column}");
        }
        let shares = mixed.shares.into_data();
        let expected = [[0.75; 3], [0.75; 3]].concat();
        shares.assert_approx_eq::<f32>(
            &burn::tensor::TensorData::from(expected.as_slice()),
            Tolerance::default(),
        );
    }

    #[test]
    fn shares_have_mean_and_variance_of_the_distribution() {
        for alpha in [0.05, 0.2, 1.0, 4.0] {
            let mut random = Stream::new(1, Purpose::Mixing, [0, 0]);
            let draws: Vec<_> = (0..8000).map(|_| beta(alpha, &mut random)).collect();
            assert!(draws.iter().all(|share| (0.0..=1.0).contains(share)));
            let mean = draws.iter().sum::<f64>() / 8000.0;
            let variance = draws.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / 8000.0;
            let expected = 0.25 / (2.0 * alpha + 1.0);
            assert!((mean - 0.5).abs() < 0.02, "{alpha}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.07, "{alpha}: {variance} {expected}");
        }
    }

    #[test]
    fn windows_take_the_rest_of_the_area_where_they_are_within_the_image() {
        let shape = ImageShape::new(3, 80, 80);
        let mut random = Stream::new(1, Purpose::Mixing, [0, 0]);
        let areas: Vec<_> = (0..400).map(|_| window(0.75, shape, &mut random)).collect();
        assert!(areas.iter().all(|of| of.height <= 40 && of.width <= 40));
        assert!(areas.iter().any(|of| of.height == 40 && of.width == 40));
        assert!(areas.iter().any(|of| of.top == 0 && of.height < 40));
        assert!(areas.iter().all(|of| of.top + of.height <= 80 && of.left + of.width <= 80));
    }

    #[test]
    fn a_mixture_depends_on_seed_and_index_and_both_methods_take_turns() {
        let both = Mixing { mixup: Some(0.2), cutmix: Some(1.0) };
        let draw = |seed, index| both.draw(5, SHAPE, seed, index).unwrap();
        assert_eq!(draw(1, 4), draw(1, 4));
        assert!(draw(1, 4) != draw(1, 5) && draw(1, 4) != draw(2, 4));
        let cuts = (0..400).filter(|&at| matches!(draw(1, at).method, Method::Paste(_))).count();
        assert!((150..250).contains(&cuts), "{cuts}");
        let mut partners = draw(3, 3).partners;
        partners.sort_unstable();
        assert_eq!(partners, [0, 1, 2, 3, 4]);
        assert_eq!(Mixing::default().draw(5, SHAPE, 1, 1), None);
        let only = Mixing { mixup: Some(1.0), cutmix: None }.draw(5, SHAPE, 1, 1).unwrap();
        assert!(matches!(only.method, Method::Blend(_)));
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Mixing { mixup: Some(alpha), cutmix: None }.check().is_err(), "{alpha}");
        }
    }
}
