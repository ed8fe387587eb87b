//! Distances and prototypes.

pub use fewshot_kernels::{
    Metric, MetricError, ProtoLoss, distances, mahalanobis, proto_loss, prototypes, scores,
};
