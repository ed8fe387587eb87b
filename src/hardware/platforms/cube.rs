//! Properties of a device, from CubeCL.

use burn::tensor::backend::Backend;
use cubecl::Runtime;
use cubecl::features::Plane;

use crate::hardware::{Bytes, Capabilities, ProbeResult};

/// Tries a device of `B`, and adds what its runtime tells.
pub(super) fn probe<R: Runtime, B: Backend<Device = R::Device>>(
    device: &R::Device,
) -> Result<ProbeResult, String> {
    let ProbeResult { capabilities, memory } = ProbeResult::of::<B>(device)?;
    let client = R::client(device);
    let properties = client.properties();
    let hardware = &properties.hardware;
    let capabilities = Capabilities {
        plane: Some([hardware.plane_size_min, hardware.plane_size_max]),
        plane_operations: Some(properties.features.plane.contains(Plane::Ops)),
        shared_memory: Some(Bytes(hardware.max_shared_memory_size as u64)),
        largest_buffer: Some(Bytes(properties.memory.max_page_size)),
        bindings: Some(hardware.max_bindings),
        multiprocessors: hardware.num_streaming_multiprocessors,
        tensor_cores: hardware.num_tensor_cores,
        ..capabilities
    };
    Ok(ProbeResult { capabilities, memory })
}
