use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hardware::Bytes;

/// Who counted the memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemorySource {
    /// [`CountingAllocator`](crate::hardware::CountingAllocator): every allocation of the process,
    /// exactly.
    Allocator,
    /// CubeCL's memory pool of the calling thread: every buffer in it, exactly. Tensors that other
    /// threads made on the device are in pools of their own.
    Pool,
    /// Nobody: the backend does not tell, or the program has not installed the allocator.
    #[default]
    Unknown,
}

/// The memory of a device. What is not known is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Given out and not yet given back; a device rounds each tensor up to its alignment.
    pub in_use: Option<Bytes>,
    /// Memory of the device that the pool holds, in use or not; more than `in_use`, and given
    /// back by [`release`](crate::hardware::release). Of pools alone.
    pub reserved: Option<Bytes>,
    /// Memory of the device; on the host, the machine's or the container's, if that is less.
    pub total: Option<Bytes>,
    /// Part of `total` that nobody uses now, other processes included.
    pub free: Option<Bytes>,
    /// Resident set of this process in the machine's memory.
    pub host: Option<Bytes>,
    /// Who counted `in_use`.
    pub source: MemorySource,
}

impl MemoryStats {
    /// These counts with the totals of device and host that `around` has.
    pub(super) fn within(self, around: Self) -> Self {
        Self { total: around.total, free: around.free, host: around.host, ..self }
    }
}

impl fmt::Display for MemoryStats {
    /// `1.50 GiB in use (3.00 GiB reserved, 14.2 GiB of 80.0 GiB free), 240 MiB of host memory`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_use {
            Some(in_use) => write!(f, "{in_use} in use")?,
            None => write!(f, "use not counted")?,
        }
        let free = self.free.zip(self.total);
        let details = [
            self.reserved.map(|bytes| format!("{bytes} reserved")),
            free.map(|(free, total)| format!("{free} of {total} free")),
        ];
        let details = details.into_iter().flatten().collect::<Vec<_>>();
        if !details.is_empty() {
            write!(f, " ({})", details.join(", "))?;
        }
        self.host.map_or(Ok(()), |bytes| write!(f, ", {bytes} of host memory"))
    }
}
