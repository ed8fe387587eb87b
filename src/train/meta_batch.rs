//! Number of tasks of a meta-batch that fit, by training steps that leave no trace.

use std::ops::RangeInclusive;

use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::nn::draw;

use super::TrainError;
use crate::data::DataError;
use crate::episode::TaskSource;
use crate::hardware::{
    Bytes, HardwareError, MemoryFit, MemoryScope, SearchBudget, SearchReport, find_batch_size,
    guarded, release,
};
use crate::learners::MetaLearner;
use crate::precision::LossScale;
use crate::random::{Purpose, Stream, backend_key};

/// Steps of a trial: an optimizer's state is there from the second on, and so is what fused
/// operations keep for the next.
const STEPS: usize = 2;

/// Learning rate of the copies. Memory does not depend on it.
const RATE: f64 = 1e-3;

/// The largest meta-batch whose training takes at most what of `budget` is
/// [usable](SearchBudget::usable): parameters, gradients, optimizer state, activations and the tasks
/// themselves.
///
/// Every trial, of a size by [`find_batch_size`], makes two full steps with copies of `learner` and
/// `optimizer`, whose own values stay as they are. Parameters that were not drawn yet are drawn. For
/// a learner that [draws](MetaLearner::draws), the search changes what the backend draws later, in
/// the same way whatever sizes were tried: Burn 0.21 does not tell the state of its generator.
///
/// One thread may differentiate at a time. On a CPU, what other threads allocate counts as well.
///
/// # Errors
/// [`TrainError::Hardware`] with [`HardwareError::NoMeter`] where memory is not counted, as on a CPU
/// without a [`CountingAllocator`](crate::hardware::CountingAllocator), and as
/// [`find_batch_size`]; [`TrainError::Learner`] for tasks that the learner cannot be trained on, and
/// [`TrainError::UnequalTasks`] for tasks that differ in size.
pub fn find_meta_batch<B, L, T, O>(
    learner: &L,
    optimizer: &O,
    source: &T,
    device: &B::Device,
    budget: impl Into<SearchBudget>,
    range: RangeInclusive<usize>,
) -> Result<SearchReport, TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
{
    refuse_unequal(source, *range.end())?;
    let trial = trial::<B, L, T, O>(learner, optimizer, source, device)?;
    Ok(find_batch_size(range, budget, trial)?)
}

/// Memory of a meta-batch by its number of tasks, measured as in [`find_meta_batch`] at the first
/// two of `sizes` and checked at the third.
///
/// Beyond the [lanes](crate::learners::Maml::with_lanes) of a learner, on a CPU those of one network for
/// each thread, tasks follow each other and memory rises only by the tasks themselves, so sizes below
/// and above that number are not on one line.
///
/// # Errors
/// Fails like [`find_meta_batch`], and for sizes that are not in rising order.
pub fn fit_meta_batch<B, L, T, O>(
    learner: &L,
    optimizer: &O,
    source: &T,
    device: &B::Device,
    sizes: [usize; 3],
) -> Result<MemoryFit, TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
{
    refuse_unequal(source, sizes[2])?;
    let trial = trial::<B, L, T, O>(learner, optimizer, source, device)?;
    Ok(MemoryFit::measure(sizes, trial)?)
}

fn refuse_unequal(source: &impl TaskSource, tasks: usize) -> Result<(), TrainError> {
    match tasks <= 1 || source.has_equal_sizes() {
        true => Ok(()),
        false => Err(TrainError::UnequalTasks { tasks }),
    }
}

/// Steps of copies at a number of tasks.
fn trial<'a, B, L, T, O>(
    learner: &'a L,
    optimizer: &'a O,
    source: &'a T,
    device: &'a B::Device,
) -> Result<impl FnMut(usize) -> Result<Bytes, HardwareError> + 'a, TrainError>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
{
    // A copy of what was not drawn yet would draw values of its own.
    draw::<B, L>(learner);
    learner.check(&source.tasks::<B>(0..1, device)?)?;
    let key = learner.draws().then(|| backend_key::<B>(device));
    let seed = key.map(|key| Stream::new(key, Purpose::AfterTrials, [0, 0]).seed());
    Ok(move |tasks: usize| {
        // What earlier trials left there would not be asked for again.
        release::<B>(device);
        let before = learner.clone().into_record();
        let train = || -> Result<(), DataError> {
            let (mut learner, mut optimizer) = (learner.clone(), optimizer.clone());
            for step in 0..STEPS as u64 {
                let first = step * tasks as u64;
                let batch = source.tasks::<B>(first..first + tasks as u64, device)?;
                learner.at_step(step);
                let gradients = learner.meta_gradients(&batch, LossScale::ONE).gradients;
                learner = optimizer.step(RATE, learner, gradients.into_parts().0);
            }
            Ok(())
        };
        let measure = || guarded::<B, _>(device, train);
        let (done, report) = MemoryScope::measure::<B, _>(device, measure);
        // Running averages, which Burn shares among copies, get the values that they had. Taking a
        // record counts in what the steps left to be averaged, so that nothing does later.
        drop(learner.clone().into_record());
        drop(learner.clone().load_record(before));
        if let Some(seed) = seed {
            B::seed(device, seed);
        }
        release::<B>(device);
        done?.map_err(|error| HardwareError::Tasks { reason: error.to_string() })?;
        let no_meter = || HardwareError::NoMeter { device: format!("{device:?}") };
        report.peak.ok_or_else(no_meter)
    })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use fewshot_models::{Mlp, MlpConfig};

    use super::*;
    use crate::adapt::InnerLoop;
    use crate::data::Sinusoids;
    use crate::episode::RegressionSampler;
    use crate::learners::Maml;
    use crate::optim::Sgd;

    type B = Autodiff<Flex>;

    /// The unit tests of the library have no allocator that counts.
    #[test]
    fn without_a_meter_nothing_is_said_to_fit() {
        let device = Default::default();
        let network = MlpConfig::new(1).with_layers(vec![3, 1]).init::<B>(&device);
        let learner = Maml::new(network, InnerLoop::new(1, 0.01)).unwrap();
        let optimizer = Sgd::new().init::<B, Maml<B, Mlp<B>>>();
        let source = RegressionSampler::new(Sinusoids::default(), 2, 2, 1).unwrap();
        let result = find_meta_batch(&learner, &optimizer, &source, &device, Bytes(1 << 40), 1..=4);
        let Err(TrainError::Hardware(error @ HardwareError::NoMeter { .. })) = result else {
            panic!("{result:?}")
        };
        assert!(error.to_string().contains("#[global_allocator]"), "{error}");
    }
}
