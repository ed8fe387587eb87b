//! Counts of launches, and the least time of an H100.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::machine::{CLASS_NAMES, CLASSES, Class, Launch};

/// Bits of the set of sectors that a launch touched, by a hash of their addresses.
const TOUCHED: usize = 1 << 22;

#[derive(Clone, Default)]
pub struct Counters {
    /// Instructions of warps.
    pub classes: [u64; CLASSES],
    /// Instructions of lanes.
    pub lanes: u64,
    pub blocks: u64,
    pub divergent: u64,
    pub atomics: u64,
    pub sectors_read: u64,
    pub sectors_written: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Accesses of shared memory, and those of them that conflicts of banks add.
    pub wavefronts: u64,
    pub conflicts: u64,
    pub tensor_flops: u64,
    pub tensor_time: u64,
    /// Shuffles that read a lane that was not there.
    pub missing_lanes: u64,
    touched: Vec<u64>,
}

impl Counters {
    pub fn instructions(&self) -> u64 {
        self.classes.iter().sum()
    }

    pub fn touch(&mut self, sector: u64) {
        if self.touched.is_empty() {
            self.touched = vec![0; TOUCHED / 64];
        }
        // Neighbours must fall anywhere: with one multiplication they would fill the set evenly, and no estimate would follow.
        let mut hash = sector.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = (hash >> (64 - TOUCHED.ilog2())) as usize;
        self.touched[bit / 64] |= 1 << (bit % 64);
    }

    /// Bytes of global memory that were touched at all, estimated.
    fn footprint(&self) -> f64 {
        let ones: u32 = self.touched.iter().map(|word| word.count_ones()).sum();
        let free = 1.0 - ones as f64 / TOUCHED as f64;
        -(TOUCHED as f64) * free.max(1e-6).ln() * 32.0
    }

    pub fn add(&mut self, other: &Counters) {
        for (sum, one) in self.classes.iter_mut().zip(&other.classes) {
            *sum += one;
        }
        self.lanes += other.lanes;
        self.blocks += other.blocks;
        self.divergent += other.divergent;
        self.atomics += other.atomics;
        self.sectors_read += other.sectors_read;
        self.sectors_written += other.sectors_written;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.wavefronts += other.wavefronts;
        self.conflicts += other.conflicts;
        self.tensor_flops += other.tensor_flops;
        self.tensor_time += other.tensor_time;
        self.missing_lanes += other.missing_lanes;
        if self.touched.is_empty() {
            self.touched = other.touched.clone();
        } else {
            for (sum, one) in self.touched.iter_mut().zip(&other.touched) {
                *sum |= one;
            }
        }
    }

    fn class(&self, class: Class) -> f64 {
        self.classes[class as usize] as f64
    }
}

const MULTIPROCESSORS: f64 = 132.0;
const CLOCK: f64 = 1.755e9;
const MEMORY: f64 = 3.35e12;
const L2: f64 = 5.5e12;
const TENSOR: f64 = 990e12;

/// Seconds that an H100 takes at least, and what bounds them. See the README for what this leaves out.
pub fn estimate(launch: &Launch, counters: &Counters) -> (f64, &'static str) {
    let blocks = launch.grid.iter().map(|&count| count as f64).product::<f64>();
    let threads = launch.threads.iter().product::<u32>() as f64;
    let warps = (threads / 32.0).ceil();
    // Blocks that one multiprocessor holds at once.
    let by_shared = 228.0 * 1024.0 / (launch.shared_bytes() as f64 + 1024.0);
    let by_registers = 65536.0 / (launch.kernel.registers.max(16) as f64 * warps * 32.0);
    let resident =
        (2048.0 / (warps * 32.0)).min(by_shared).min(by_registers).min(32.0).floor().max(1.0);
    // The busiest multiprocessor has this many blocks; if all were even, it would have fewer.
    let most = (blocks / MULTIPROCESSORS).ceil();
    let uneven = most * MULTIPROCESSORS / blocks;
    let each =
        |operations: f64, a_cycle: f64| operations * uneven / (MULTIPROCESSORS * a_cycle * CLOCK);
    let integer = counters.class(Class::Integer);
    let fp32 = counters.class(Class::Fp32) + counters.class(Class::Half);
    let special = counters.class(Class::Special) + counters.class(Class::Convert);
    let moved = 32.0 * (counters.sectors_read + counters.sectors_written) as f64;
    let busy = blocks.min(MULTIPROCESSORS);
    let waves = (blocks / (MULTIPROCESSORS * resident)).ceil();
    let of_a_warp = 1.0 / (blocks * warps);
    // A warp alone: dependent instructions, loads in groups of five, barriers.
    let alone = (counters.instructions() as f64 * 2.0
        + counters.class(Class::Global) * 100.0
        + counters.class(Class::Shared) * 6.0
        + counters.class(Class::Barrier) * 30.0)
        * of_a_warp
        * waves
        / CLOCK;
    let tensor = counters.tensor_time as f64 * uneven / TENSOR;
    let bounds = [
        (each(counters.instructions() as f64, 4.0), "issue"),
        (each(fp32, 4.0), "fp32"),
        (each(integer, 2.0), "int"),
        (each(special, 0.5), "special"),
        (each(counters.class(Class::Fp64), 2.0), "fp64"),
        (tensor, "tensor"),
        (counters.footprint() / MEMORY, "memory"),
        (moved / L2, "L2"),
        (moved / (busy * 64.0 * CLOCK), "L2 of few blocks"),
        (each(counters.wavefronts as f64, 1.0), "shared"),
        (alone, "latency"),
    ];
    let longest = bounds.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    let few = blocks < MULTIPROCESSORS
        && matches!(longest.1, "issue" | "fp32" | "int" | "latency" | "shared" | "tensor");
    (longest.0, if few { "too few blocks" } else { longest.1 })
}

/// Registers of a thread of each kernel as ptxas (`SOFTWARE_CUDA_PTXAS`) gives them, where statistics are asked for; empty
/// without it.
pub fn assembled_registers(ptx: &str) -> HashMap<String, u32> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let (Ok(_), Ok(ptxas)) =
        (std::env::var("SOFTWARE_CUDA_STATS"), std::env::var("SOFTWARE_CUDA_PTXAS"))
    else {
        return HashMap::new();
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("{}-{number}.ptx", std::process::id()));
    let arch = crate::driver::capability();
    let arch = if arch == 90 { "sm_90a".into() } else { format!("sm_{arch}") };
    let run = std::fs::write(&path, ptx).and_then(|()| {
        Command::new(ptxas).args(["-v", "-arch", &arch, "-o", "/dev/null"]).arg(&path).output()
    });
    let _ = std::fs::remove_file(&path);
    let Ok(output) = run else { return HashMap::new() };
    let (mut name, mut registers) = (String::new(), HashMap::new());
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            name = rest.split('\'').next().unwrap_or_default().to_owned();
        } else if let Some((_, rest)) = line.split_once("Used ") {
            let count = rest.split(' ').next().and_then(|count| count.parse().ok());
            registers.extend(count.map(|count| (name.clone(), count)));
        }
    }
    registers
}

#[derive(Default)]
struct Record {
    launches: u64,
    counters: Counters,
    seconds: f64,
    host: f64,
    bound: &'static str,
    registers: u32,
    shared: usize,
    footprint: f64,
}

/// A kernel's name, its grid and its block.
type Key = (String, [u32; 3], [u32; 3]);

static RECORDS: Mutex<BTreeMap<Key, Record>> = Mutex::new(BTreeMap::new());

pub fn record(launch: &Launch, counters: &Counters, host: f64) {
    let (seconds, bound) = estimate(launch, counters);
    let mut records = RECORDS.lock().unwrap_or_else(|broken| broken.into_inner());
    let record =
        records.entry((launch.kernel.name.clone(), launch.grid, launch.threads)).or_default();
    record.launches += 1;
    record.seconds += seconds;
    record.host += host;
    record.bound = bound;
    record.registers = launch.kernel.registers;
    record.shared = launch.shared_bytes();
    record.footprint += counters.footprint();
    let mut counters = counters.clone();
    counters.touched = Vec::new();
    record.counters.add(&counters);
}

/// Writes a line for each kernel and grid to the file of `SOFTWARE_CUDA_STATS`.
pub fn write() {
    let Ok(path) = std::env::var("SOFTWARE_CUDA_STATS") else { return };
    let records = RECORDS.lock().unwrap_or_else(|broken| broken.into_inner());
    let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(&path) else {
        eprintln!("software CUDA card: cannot write {path}");
        return;
    };
    for ((name, grid, threads), record) in records.iter() {
        let counters = &record.counters;
        let mut line = format!(
            "{{\"kernel\":\"{name}\",\"grid\":{grid:?},\"threads\":{threads:?},\"launches\":{},\"registers\":{},\"shared_bytes\":{}",
            record.launches, record.registers, record.shared
        );
        let mut put = |name: &str, value: f64| {
            let value =
                if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.4}") };
            line += &format!(",\"{name}\":{value}");
        };
        put("estimated_us", record.seconds * 1e6 / record.launches as f64);
        put("host_ms", record.host * 1e3 / record.launches as f64);
        put("warp_instructions", counters.instructions() as f64);
        for (name, count) in CLASS_NAMES.iter().zip(counters.classes) {
            if count > 0 {
                put(name, count as f64);
            }
        }
        put("lanes_active", counters.lanes as f64 / (32 * counters.instructions()).max(1) as f64);
        put("sectors_read", counters.sectors_read as f64);
        put("sectors_written", counters.sectors_written as f64);
        let ratio = |bytes: u64, sectors: u64| {
            if sectors == 0 { 1.0 } else { bytes as f64 / (32 * sectors) as f64 }
        };
        put("read_efficiency", ratio(counters.bytes_read, counters.sectors_read));
        put("write_efficiency", ratio(counters.bytes_written, counters.sectors_written));
        put("footprint_bytes", record.footprint.round());
        put("shared_wavefronts", counters.wavefronts as f64);
        put("bank_conflicts", counters.conflicts as f64);
        put("divergent_branches", counters.divergent as f64);
        put("atomics", counters.atomics as f64);
        put("tensor_flops", counters.tensor_flops as f64);
        put("missing_lanes", counters.missing_lanes as f64);
        line += &format!(",\"bound\":\"{}\"}}\n", record.bound);
        let _ = file.write_all(line.as_bytes());
    }
}
