use std::collections::HashSet;

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{Estimate, Method, backbones};
use crate::episode::Protocol;
use crate::hardware::{Bytes, Calibration, OptimizerKind};
use crate::kernels::Route;

/// Prediction of how a backbone does at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Name of the backbone.
    pub backbone: String,
    /// Memory for training on one task at a time.
    pub need: Bytes,
    /// True if that fits the budget.
    pub fits: bool,
    /// Most tasks of a meta-batch that fit.
    pub max_tasks: usize,
    /// About how long a training step of one task takes, in seconds: an estimate to rank by.
    pub seconds: Option<f64>,
    /// Numbers that are trained.
    pub parameters: u64,
}

/// A device to recommend for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Memory that may be used.
    pub budget: Bytes,
    /// The largest single allocation, where there is a limit that is known.
    pub largest_buffer: Option<Bytes>,
    /// Route of operations on the device.
    pub route: Route,
    /// Rates of the device, where they were measured.
    pub calibration: Option<&'a Calibration>,
}

/// The backbones that take images of this shape, best first: those that fit before those that do
/// not, and then by the time of a training step.
///
/// Nobody knows the accuracy of a backbone beforehand: of those that are quick enough, larger
/// ones mostly do better. The networks are drawn on `device` to count their tensors.
pub fn recommend<B: Backend>(
    image: [usize; 3],
    protocol: Protocol,
    method: Method,
    target: Target<'_>,
    device: &B::Device,
) -> Vec<Recommendation> {
    let Target { budget, largest_buffer, route, calibration } = target;
    let fitting = backbones().iter().filter_map(|backbone| backbone.for_images(image));
    // Networks that differ in the size of their images alone are one here.
    let mut seen = HashSet::new();
    let fitting = fitting.filter(|backbone| seen.insert(format!("{:?}", backbone.config)));
    let recommendations = fitting.map(|backbone| {
        let adam = OptimizerKind::Adam;
        let mut estimate = Estimate::new::<B>(&backbone, method, protocol, adam, route, device);
        estimate.planner.largest_buffer = largest_buffer;
        Recommendation {
            need: estimate.planner.plan(1).total().bytes,
            fits: estimate.check(1, budget).is_ok(),
            max_tasks: estimate.planner.max_tasks(budget).unwrap_or(0),
            seconds: calibration.and_then(|calibration| estimate.seconds(1, calibration)),
            parameters: estimate.planner.profile.trainable_values(),
            backbone: backbone.name,
        }
    });
    let mut ranked = recommendations.collect::<Vec<_>>();
    ranked.sort_by(|one, other| {
        let time = |entry: &Recommendation| entry.seconds.unwrap_or(f64::INFINITY);
        let by_fit = other.fits.cmp(&one.fits);
        by_fit.then(time(one).total_cmp(&time(other))).then(one.need.cmp(&other.need))
    });
    ranked
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::collections::BTreeMap;

    use burn::backend::Flex;

    use super::*;

    fn ranked(image: [usize; 3], budget: Bytes, rate: f64) -> Vec<Recommendation> {
        let calibration = Calibration {
            measured: 0,
            threads: 1,
            products: BTreeMap::from([("f32".to_owned(), rate)]),
            ways: BTreeMap::new(),
            copy: 1e10,
            copied: Bytes(1 << 20),
            launch: 1e-6,
            issue: None,
            squares: BTreeMap::new(),
        };
        let protocol = Protocol::new(5, 1);
        let method = Method::ProtoNet;
        let device = Default::default();
        let (route, calibration) = (Route::Host("any"), Some(&calibration));
        let target = Target { budget, largest_buffer: None, route, calibration };
        recommend::<Flex>(image, protocol, method, target, &device)
    }

    #[test]
    fn what_fits_and_is_quick_comes_first() {
        let ranked = ranked([3, 84, 84], Bytes(8 << 30), 1e11);
        assert_eq!(ranked.len(), 4, "conv4-omniglot and conv4-mini-imagenet are one");
        assert!(ranked.iter().all(|entry| entry.fits && entry.max_tasks > 0));
        let times = ranked.iter().map(|entry| entry.seconds.unwrap()).collect::<Vec<_>>();
        assert!(times.is_sorted(), "{times:?}");
        let place = |name: &str| ranked.iter().position(|entry| entry.backbone == name).unwrap();
        assert!(place("conv4-mini-imagenet-32") < place("conv4-omniglot"));
    }

    #[test]
    fn a_small_budget_pushes_what_does_not_fit_to_the_end() {
        let ranked = ranked([3, 84, 84], Bytes(100 << 20), 1e11);
        assert!(ranked.is_sorted_by_key(|entry| !entry.fits));
        let last = ranked.last().unwrap();
        assert!(!last.fits && last.max_tasks == 0 && last.need > Bytes(100 << 20), "{last:?}");
    }

    #[test]
    fn images_too_small_for_four_halvings_leave_the_convolutions_out() {
        let ranked = ranked([1, 8, 8], Bytes(8 << 30), 1e11);
        let names = ranked.iter().map(|entry| entry.backbone.as_str()).collect::<Vec<_>>();
        assert!(names.contains(&"mlp-omniglot") && !names.contains(&"conv4-omniglot"), "{names:?}");
    }

    #[test]
    fn a_faster_device_takes_less_time() {
        let slow = &ranked([1, 28, 28], Bytes(8 << 30), 1e10)[0];
        let quick = &ranked([1, 28, 28], Bytes(8 << 30), 1e12)[0];
        assert!(quick.seconds < slow.seconds);
    }
}
