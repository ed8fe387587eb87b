//! When the thread of a device takes what was queued for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::device::Device;
use cubecl::device_handle::DeviceHandle;

/// Allocations from one look at the device's thread to the next: with their launches about eight messages.
const INTERVAL: usize = 4;

/// Devices that are told apart.
const DEVICES: usize = 64;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Hands the queued messages to the thread of the device of `like` if it has done all that it was handed
/// here, which every fourth call looks at.
///
/// CubeCL 0.10 queues 32 messages before the device's thread takes any. Until then that thread spins, and
/// sleeps for 150 microseconds at a time if they are long in coming; then a step of few launches waits for it.
/// A thread that is busy is left to it: the next message would wait for all that it has.
pub fn hand_over<R: CubeRuntime>(like: &CubeTensor<R>) {
    static BUSY: [AtomicBool; DEVICES] = [const { AtomicBool::new(false) }; DEVICES];
    let count = ALLOCATIONS.get() + 1;
    ALLOCATIONS.set(count % INTERVAL);
    if count < INTERVAL {
        return;
    }
    let device = like.device.to_id();
    let busy = &BUSY[device.index_id as usize % DEVICES];
    if !busy.swap(true, Ordering::Relaxed) {
        let handle = DeviceHandle::<R::Server>::new(device);
        handle.submit(|_| busy.store(false, Ordering::Relaxed));
        handle.flush_queue();
    }
}
