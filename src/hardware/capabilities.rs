use std::collections::BTreeMap;

use burn::tensor::DType;
use burn::tensor::backend::{Backend, DTypeUsage};
use fewshot_kernels::{Precision, route};
use serde::{Deserialize, Serialize};

use super::Bytes;

/// Abilities of a device, by its own account; unknown is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Support of `f64`, `f32`, `tf32`, `f16` and `bf16`.
    pub dtypes: BTreeMap<String, DTypeSupport>,
    /// Route of fused operations on the device.
    pub route: Option<String>,
    /// Fewest and most lanes that run in step (a warp, subgroup or plane).
    pub plane: Option<[u32; 2]>,
    /// True if lanes of a plane can exchange values.
    pub plane_operations: Option<bool>,
    /// Memory shared by the threads of a group.
    pub shared_memory: Option<Bytes>,
    /// The largest single allocation.
    pub largest_buffer: Option<Bytes>,
    /// Buffers a kernel can take.
    pub bindings: Option<u32>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Tensor cores of a multiprocessor.
    pub tensor_cores: Option<u32>,
    /// Cores this process may use, by affinity and by the quota of its control group.
    pub cores: Option<usize>,
    /// Vector instructions of the processor that make a difference here.
    pub instructions: Option<Vec<String>>,
}

/// Support of a data type by a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DTypeSupport {
    /// Stores and converts it.
    pub storage: bool,
    /// Computes with it.
    pub arithmetic: bool,
    /// Has units for products of its matrices.
    pub accelerated: bool,
}

/// Types of floating point that a device may compute with.
pub(super) const FLOATS: [(&str, DType); 4] =
    [("f64", DType::F64), ("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::BF16)];

impl Capabilities {
    /// Collects the abilities that every backend tells.
    pub(super) fn of<B: Backend>(device: &B::Device) -> Self {
        let support = |dtype| {
            let usage = B::dtype_usage(device, dtype);
            DTypeSupport {
                storage: usage.contains(DTypeUsage::Storage),
                arithmetic: usage.contains(DTypeUsage::Arithmetic),
                accelerated: usage.contains(DTypeUsage::Accelerated),
            }
        };
        // What f32 is rounded to for tensor cores; no tensor has it.
        let tf32 = Precision::Tf32.check::<B>(device).is_ok();
        let tf32 = DTypeSupport { storage: false, arithmetic: tf32, accelerated: tf32 };
        let of_tensors = FLOATS.into_iter().map(|(name, dtype)| (name, support(dtype)));
        let all = of_tensors.chain([(Precision::Tf32.dtype(), tf32)]);
        Self {
            dtypes: all.map(|(name, support)| (name.to_owned(), support)).collect(),
            route: Some(route::<B>().to_string()),
            ..Self::default()
        }
    }

    /// The data types it computes with, those with units of their own marked by a star.
    pub fn dtype_list(&self) -> String {
        let order = ["f32", "tf32", "f16", "bf16", "f64"];
        let able = order.into_iter().filter(|name| self.dtype(name).arithmetic);
        let star = |name| if self.dtype(name).accelerated { "*" } else { "" };
        able.map(|name| format!("{name}{}", star(name))).collect::<Vec<_>>().join(" ")
    }

    /// Support of the data type of this name; none, for a data type that the device was not asked
    /// about.
    pub fn dtype(&self, name: &str) -> DTypeSupport {
        self.dtypes.get(name).copied().unwrap_or_default()
    }
}
