use burn::tensor::backend::Backend;
use fewshot_models::{Classifier, Encoder};

use super::{Backbone, BackboneConfig};
use crate::episode::Protocol;
use crate::hardware::{
    Activations, Bytes, Calibration, Checkpointing, HardwareError, MemoryPlanner, Method,
    ModelProfile, OptimizerKind, TaskShape,
};
use crate::kernels::Route;
use crate::learners::lanes_of;

/// Time and memory of training a backbone.
#[derive(Clone, Debug)]
pub struct Estimate {
    pub(super) backbone: Backbone,
    /// The size of the tasks.
    pub protocol: Protocol,
    route: Route,
    /// Most tasks in one network.
    lanes: usize,
    /// Memory, by formulas unless `measured` is set to that of [steps](Self::measure).
    pub planner: MemoryPlanner,
}

impl Estimate {
    /// Estimate for tasks of this size, where operations go this way. The network is drawn on `device` to count
    /// its tensors; nothing is computed with it.
    pub fn new<B: Backend>(
        backbone: &Backbone,
        method: Method,
        protocol: Protocol,
        optimizer: OptimizerKind,
        route: Route,
        device: &B::Device,
    ) -> Self {
        let Protocol { ways, shots, queries } = protocol;
        // A label is a 64-bit integer.
        let example = Bytes(4 * backbone.image.iter().product::<usize>() as u64 + 8);
        let task = TaskShape { support: ways * shots, queries: ways * queries, example };
        let head = (method != Method::ProtoNet).then_some(ways);
        let features = backbone.features();
        let (profile, lanes) = match &backbone.config {
            BackboneConfig::Conv4(config) => {
                profile::<B, _>(config.init(device), features, head, device)
            }
            BackboneConfig::Mlp(config) => {
                profile::<B, _>(config.init(device), features, head, device)
            }
        };
        let lanes = match route {
            Route::Device(_) if lanes > 1 => usize::MAX,
            _ if lanes > 1 && matches!(method, Method::Anil { .. }) => 2 * lanes,
            _ => lanes,
        };
        let model = backbone.model();
        let planner = MemoryPlanner {
            profile,
            optimizer,
            weight_averages: 0,
            method,
            lanes: at_once(lanes, route),
            task,
            activations: Activations::modelled(model, task, route, Checkpointing::Nothing),
            measured: None,
            largest_buffer: None,
        };
        Self { backbone: backbone.clone(), protocol, route, lanes, planner }
    }

    /// With another number of tasks in one network than the network's own on a CPU, and all on an
    /// accelerator.
    pub fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self.planner.lanes = at_once(lanes, self.route);
        self
    }

    /// With so much computed again in the backward pass. Segments are of [`Method::ProtoNet`]; to
    /// other methods they mean nothing.
    pub fn with_checkpointing(mut self, checkpointing: Checkpointing) -> Self {
        let of_others = self.planner.method != Method::ProtoNet;
        let checkpointing = match checkpointing {
            Checkpointing::Segments if of_others => Checkpointing::Nothing,
            checkpointing => checkpointing,
        };
        let (task, route) = (self.planner.task, self.route);
        self.planner.activations =
            Activations::modelled(self.backbone.model(), task, route, checkpointing);
        self
    }

    /// Checks that a meta-batch of so many tasks fits, as far as its plan is known.
    ///
    /// # Errors
    /// [`HardwareError::TooManyTasks`] or [`HardwareError::LargestBuffer`], with how many would.
    pub fn check(&self, tasks: usize, budget: Bytes) -> Result<(), HardwareError> {
        let plan = self.planner.plan(tasks);
        let (need, largest) = (plan.total().bytes, plan.largest.bytes);
        let fit = || self.planner.max_tasks(budget);
        if need > budget {
            return Err(HardwareError::TooManyTasks { tasks, need, budget, fit: fit() });
        }
        if let Some(most) = plan.largest_buffer.filter(|most| largest > *most) {
            let need = largest;
            return Err(HardwareError::LargestBuffer { tasks, need, most, fit: fit() });
        }
        Ok(())
    }

    /// Operations of a meta-training step, two a multiply-accumulate.
    ///
    /// # Conventions
    /// A backward pass is twice a forward pass, and the derivative of both along a direction, which
    /// the second order needs, twice both.
    pub fn flops(&self, tasks: usize) -> f64 {
        let macs = |examples| self.backbone.model().cost(examples, self.route).macs as f64;
        let TaskShape { support, queries, .. } = self.planner.task;
        let task = match self.planner.method {
            // The body of ANIL is in the first step's graph and in the queries', and adapts in neither.
            Method::ProtoNet | Method::Anil { .. } => 3.0 * macs(support + queries),
            Method::Maml { steps } | Method::MamlChain { steps } => {
                9.0 * steps as f64 * macs(support) + 3.0 * macs(queries)
            }
            Method::Reptile { steps, batch } => 3.0 * steps as f64 * macs(batch),
            Method::FirstOrder { steps } => 3.0 * (steps as f64 * macs(support) + macs(queries)),
        };
        let mut macs_again = 0;
        if self.planner.activations.checkpointing == Checkpointing::Segments {
            // Another forward pass through all but the last segment.
            let segments = self.backbone.model().segment_costs(support + queries, self.route);
            let but_last = segments.unwrap_or_default().into_iter().rev().skip(1);
            macs_again = but_last.map(|segment| segment.macs).sum::<u64>();
        }
        2.0 * (task + macs_again as f64) * tasks as f64
    }

    /// About how long a meta-training step takes on a device that was calibrated, in seconds.
    pub fn seconds(&self, tasks: usize, calibration: &Calibration) -> Option<f64> {
        let MemoryPlanner { task, activations, .. } = &self.planner;
        let batch = match self.planner.method {
            Method::Reptile { batch, .. } => batch,
            _ => task.support + task.queries,
        };
        let joint = task.part(activations.joint.saved, batch);
        let [support, queries] = [activations.support.saved, activations.queries.saved];
        // Passes over activations, each of which is written and read on the way there and back.
        let (saved, passes) = match self.planner.method {
            Method::ProtoNet => (joint, 1),
            Method::Maml { steps } | Method::MamlChain { steps } => {
                (3 * steps as u64 * support + queries, 3 * steps as u64 + 1)
            }
            Method::Reptile { steps, .. } => (steps as u64 * joint, steps as u64),
            Method::FirstOrder { steps } => (steps as u64 * support + queries, steps as u64 + 1),
            Method::Anil { .. } => (support + queries, 2),
        };
        let traffic = activations.figure(saved.saturating_mul(4)).times(tasks as u64).bytes;
        calibration.seconds(self.flops(tasks), "f32", traffic, passes * self.launches())
    }

    /// Operations of a forward and backward pass: one each of a fused stack, some twenty of every
    /// layer elsewhere.
    fn launches(&self) -> u64 {
        match self.route {
            Route::Host(_) => 8,
            _ => 4 * 20,
        }
    }

    /// Most tasks in one network; of a method without lanes all.
    pub(super) fn lanes(&self) -> usize {
        if self.planner.method == Method::ProtoNet { usize::MAX } else { self.lanes }
    }
}

/// Most tasks that adapt at the same time, so many of them in one network: on a CPU every thread may
/// have a network.
fn at_once(lanes: usize, route: Route) -> usize {
    match route {
        Route::Host(_) => lanes.saturating_mul(rayon::current_num_threads()),
        Route::Device(_) | Route::Reference | Route::Forced => lanes,
    }
}

/// Counts a network's tensors, with a classifier's layer of so many ways on it, and the tasks that
/// may share it.
fn profile<B: Backend, E: Encoder<B>>(
    encoder: E,
    features: usize,
    head: Option<usize>,
    device: &B::Device,
) -> (ModelProfile, usize) {
    let lanes = lanes_of::<B, E>(&encoder);
    let profile = match head {
        None => ModelProfile::of::<B, E>(&encoder),
        Some(ways) => {
            ModelProfile::of::<B, _>(&Classifier::<B, E>::new(encoder, features, ways, device))
        }
    };
    (profile, lanes)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;
    use crate::catalog::backbone;

    const MIB: u64 = 1 << 20;

    fn estimate(name: &str, method: Method) -> Estimate {
        let backbone = backbone(name).unwrap();
        let adam = OptimizerKind::Adam;
        let host = Route::Host("any");
        let device = Default::default();
        Estimate::new::<Flex>(backbone, method, Protocol::new(5, 1), adam, host, &device)
    }

    #[test]
    fn operations_are_those_counted_by_hand() {
        // Of an image: three passes of 97 million multiply-accumulates, for 5 and 75 images.
        let image = 2.0 * 97_164_288.0;
        let flops = |method| estimate("conv4-mini-imagenet", method).flops(2);
        assert_eq!(flops(Method::ProtoNet), 2.0 * 3.0 * 80.0 * image);
        let five = flops(Method::Maml { steps: 5 });
        assert_eq!(five, 2.0 * (9.0 * 5.0 * 5.0 + 3.0 * 75.0) * image);
        assert!(flops(Method::FirstOrder { steps: 5 }) < five);
    }

    #[test]
    fn the_chain_keeps_less_than_the_unrolled_loop() {
        let total = |method| estimate("conv4-omniglot", method).planner.plan(2).total().bytes;
        let steps = 10;
        assert!(total(Method::FirstOrder { steps }) < total(Method::MamlChain { steps }));
        assert!(total(Method::MamlChain { steps }) < total(Method::Maml { steps }));
    }

    #[test]
    fn a_map_beyond_the_largest_buffer_is_refused() {
        let mut estimate = estimate("conv4-mini-imagenet", Method::ProtoNet);
        estimate.planner.largest_buffer = Some(Bytes(128 * MIB));
        let all = Bytes(1 << 40);
        // 80 images of 64 maps of 84 x 84 are 138 MiB.
        let refused = estimate.check(1, all).unwrap_err();
        let text = "a tensor of 1 tasks has 138 MiB, 128 MiB is the most that the device gives one: \
                      not one fits";
        assert_eq!(refused.to_string(), text);
        estimate.planner.largest_buffer = None;
        assert_eq!(estimate.check(1, all), Ok(()));
    }

    #[test]
    fn tasks_that_do_not_fit_are_refused_with_how_many_would() {
        let estimate = estimate("conv4-omniglot", Method::ProtoNet);
        let budget = Bytes(100 * MIB);
        let most = estimate.planner.max_tasks(budget).unwrap();
        assert_eq!(estimate.check(most, budget), Ok(()));
        let refused = estimate.check(most + 1, budget).unwrap_err();
        assert!(matches!(refused, HardwareError::TooManyTasks { fit, .. } if fit == Some(most)));
        let text = refused.to_string();
        assert!(text.contains(&format!("{most} would fit")), "{text}");
    }
}
