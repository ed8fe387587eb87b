//! What CubeCL tells of a device.

use cubecl::Runtime;
use cubecl::features::Plane;

use crate::hardware::{Bytes, Capabilities};

/// `capabilities` with what the runtime of the device adds.
pub(super) fn describe<R: Runtime>(device: &R::Device, capabilities: Capabilities) -> Capabilities {
    let client = R::client(device);
    let properties = client.properties();
    let hardware = &properties.hardware;
    Capabilities {
        plane: Some([hardware.plane_size_min, hardware.plane_size_max]),
        plane_operations: Some(properties.features.plane.contains(Plane::Ops)),
        shared_memory: Some(Bytes(hardware.max_shared_memory_size as u64)),
        largest_buffer: Some(Bytes(properties.memory.max_page_size)),
        bindings: Some(hardware.max_bindings),
        multiprocessors: hardware.num_streaming_multiprocessors,
        tensor_cores: hardware.num_tensor_cores,
        ..capabilities
    }
}
