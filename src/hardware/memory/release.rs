use burn::tensor::backend::Backend;

use super::stats::synchronise;

/// Gives memory that is kept but not used back to the system: the pages of a CubeCL pool (of the
/// calling thread) and the buffers that fused operations keep on the CPU.
///
/// For between two phases: after the last tensor of a model is dropped, before another program or a
/// larger model needs the room. Never in every step: the next step asks for the same memory again,
/// which costs far more than keeping it.
///
/// Waits until the device has done everything; a failure it reports then is logged as a warning.
pub fn release<B: Backend>(device: &B::Device) {
    synchronise::<B>(device);
    B::memory_cleanup(device);
    fewshot_kernels::release_buffers();
    synchronise::<B>(device);
}
