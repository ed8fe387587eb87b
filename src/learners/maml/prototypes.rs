use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use fewshot_models::BnStatistics;

use crate::episode::Examples;
use crate::learners::Network;

/// Weight and bias of the linear layer that classifies by squared distances to class means `c`,
/// `2 c` and `-|c|^2`, flattened, task after task.
pub(super) fn prototypical_head<B: Backend, N: Network<B>>(
    network: &N,
    support: &Examples<B>,
    statistics: BnStatistics,
) -> [Tensor<B, 1>; 2] {
    let features = network.features_lanes(support.inputs.clone(), statistics);
    let shots = support.targets.clone().sum_dim(1);
    // [t, d, ways]
    let sums = product(features.swap_dims(1, 2), support.targets.clone());
    let means = sums / shots;
    let lengths = (means.clone() * means.clone()).sum_dim(1);
    [(means * 2.0).flatten(0, 2), (-lengths).flatten(0, 2)]
}
