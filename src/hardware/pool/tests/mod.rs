mod admission;
mod reference;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::DType;

use super::{ModelKey, ModelPool};
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

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.0[0].fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

fn weigh(block: &Block) -> Bytes {
    Bytes(block.bytes)
}

fn cpu(index: usize) -> DeviceKey {
    DeviceKey::new("flex", index)
}

fn key(id: usize) -> ModelKey<usize> {
    ModelKey::new(cpu(0), DType::F32, id)
}

fn pool(budget: u64) -> ModelPool<usize, Block> {
    ModelPool::new([(cpu(0), Bytes(budget))], weigh)
}
