mod admission;
mod demotion;
mod reference;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::DType;

use super::{Footprint, HostRecord, ModelKey, ModelPool};
use crate::hardware::{Bytes, DeviceKey};

/// The memory of a device, as what is made and dropped there tells.
#[derive(Clone, Default)]
struct Memory(Arc<[AtomicU64; 2]>);

impl Memory {
    fn now(&self) -> u64 {
        self.0[0].load(Ordering::SeqCst)
    }

    fn peak(&self) -> u64 {
        self.0[1].load(Ordering::SeqCst)
    }

    fn block(&self, bytes: u64) -> Block {
        let now = self.0[0].fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.0[1].fetch_max(now, Ordering::SeqCst);
        Block { memory: self.clone(), bytes }
    }
}

/// A model of so many bytes.
struct Block {
    memory: Memory,
    bytes: u64,
}

impl Footprint for Block {
    fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.0[0].fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Block {
    fn to_host(&self) -> HostRecord<Self> {
        let (memory, bytes) = (self.memory.clone(), self.bytes);
        HostRecord::new(Bytes(bytes), move || Ok(memory.block(bytes)))
    }
}

fn cpu(index: usize) -> DeviceKey {
    DeviceKey::new("flex", index)
}

fn key(id: usize) -> ModelKey<usize> {
    ModelKey::new(cpu(0), DType::F32, id)
}

fn pool(budget: u64) -> ModelPool<usize, Block> {
    ModelPool::new([(cpu(0), Bytes(budget))])
}
