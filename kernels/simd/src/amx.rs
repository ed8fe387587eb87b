//! Products of bf16 matrices on the tile registers of AMX.
//!
//! A tile register holds 16 rows of 64 bytes. The compiler has no stable intrinsics for them, hence the
//! assembly.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};

use super::amx_convolution::{BLOCK, BlockProduct};
use super::avx512::Avx512;

/// AMX with products of bf16, and AVX-512 with conversions to it. Only [`Amx::detect`] makes one.
///
/// Both take numbers below the smallest normal `f32` for zero.
#[derive(Clone, Copy, Debug)]
pub struct Amx(Avx512);

impl Amx {
    /// The proof that this process may use both, if it may.
    pub fn detect() -> Option<Self> {
        let avx512 = Avx512::detect()?;
        let available = is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
            && has_tiles()
            && permitted();
        available.then_some(Self(avx512))
    }

    /// The instructions of AVX-512.
    pub fn avx512(self) -> Avx512 {
        self.0
    }

    /// Computes `job` into `c`; nothing, if there are no steps or no blocks.
    ///
    /// # Panics
    /// If a block leaves its matrix.
    pub fn blocks(self, job: &BlockProduct<'_>, c: &mut [f32]) {
        let most = |places: &[[usize; 2]], k: usize| places.iter().map(|place| place[k]).max();
        let (Some(block), Some(step)) = (most(job.blocks, 0), most(job.steps, 0)) else {
            return;
        };
        let (to, b) = (most(job.blocks, 1).unwrap_or(0), most(job.steps, 1).unwrap_or(0));
        let rows = job.a_row.saturating_mul(BLOCK - 1);
        let inside = |parts: &[usize], len| {
            parts.iter().fold(0usize, |sum, &part| sum.saturating_add(part)) <= len
        };
        assert!(inside(&[block, step, rows, BLOCK], job.a.len()), "leaves `a`");
        assert!(inside(&[b, BLOCK * BLOCK], job.b.len()), "leaves `b`");
        assert!(inside(&[to, BLOCK * BLOCK], c.len()), "leaves `c`");
        // SAFETY: `self` proves AMX, and the blocks are inside their matrices, as checked above.
        unsafe { multiply(job, c.as_mut_ptr()) }
    }
}

/// True if the processor has tiles and multiplies bf16 in them.
fn has_tiles() -> bool {
    const LEAF: u32 = 7;
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    #[allow(unused_unsafe, reason = "safe from Rust 1.94 on")]
    // SAFETY: every 64-bit x86 has CPUID.
    let features = unsafe {
        match __cpuid(0).eax >= LEAF {
            true => __cpuid_count(LEAF, 0).edx,
            false => 0,
        }
    };
    features & (BF16 | TILES) == BF16 | TILES
}

/// Asks Linux to save the tiles of this process's threads: without that, using them is a fault.
fn permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const REQUEST_PERMISSION: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let failed: usize;
    // SAFETY: the call reads no memory, and the kernel changes no registers but these.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => failed,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    failed == 0
}

/// Operand of `ldtilecfg`: palette 1, and all tiles with 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static WHOLE_TILES: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Operands of the assembly, which has more of them than there are registers.
#[repr(C)]
struct Operands {
    a: *const u16,
    c: *mut f32,
    steps: *const [usize; 2],
    step_count: usize,
    blocks_end: *const [usize; 2],
    accumulate: usize,
    config: *const TileConfig,
}

/// Computes the blocks, with a quarter of `c` in each of four tiles.
///
/// # Safety
/// The processor has AMX and the process may use it. There are steps and blocks, and all are inside
/// their matrices.
unsafe fn multiply(job: &BlockProduct<'_>, c: *mut f32) {
    let operands = Operands {
        a: job.a.as_ptr(),
        c,
        steps: job.steps.as_ptr(),
        step_count: job.steps.len(),
        blocks_end: job.blocks.as_ptr_range().end,
        accumulate: usize::from(job.accumulate),
        config: &raw const WHOLE_TILES,
    };
    // SAFETY: the caller promises the instructions, and that what is read and written is there. The
    // tiles are configured, used and released in here.
    unsafe {
        asm!(
            "mov {x}, [{operands} + 48]; ldtilecfg [{x}]",
            "2:", // A block.
            "mov {x}, [{blocks}]",
            "mov {a}, [{operands}]; lea {a}, [{a} + 2*{x}]",
            "mov {x}, [{blocks} + 8]",
            "mov {c}, [{operands} + 8]; lea {c}, [{c} + 4*{x}]",
            "cmp qword ptr [{operands} + 40], 0; je 3f",
            "tileloadd tmm0, [{c} + 2*{line}]",
            "tileloadd tmm1, [{c} + 2*{line} + 64]",
            "tileloadd tmm2, [{c} + 2*{line} + 2048]",
            "tileloadd tmm3, [{c} + 2*{line} + 2112]",
            "jmp 4f",
            "3:",
            "tilezero tmm0; tilezero tmm1; tilezero tmm2; tilezero tmm3",
            "4:",
            "mov {step}, [{operands} + 16]; mov {left}, [{operands} + 24]",
            "5:", // A step.
            "mov {x}, [{step}]",
            "lea {x}, [{a} + 2*{x}]",
            "tileloadd tmm4, [{x} + {a_row}]",
            "lea {x}, [{x} + 8*{a_row}]; lea {x}, [{x} + 8*{a_row}]",
            "tileloadd tmm5, [{x} + {a_row}]",
            "mov {x}, [{step} + 8]",
            "lea {x}, [{b} + 2*{x}]",
            "tileloadd tmm6, [{x} + {line}]",
            "tileloadd tmm7, [{x} + {line} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {step}, 16",
            "dec {left}; jnz 5b",
            "tilestored [{c} + 2*{line}], tmm0",
            "tilestored [{c} + 2*{line} + 64], tmm1",
            "tilestored [{c} + 2*{line} + 2048], tmm2",
            "tilestored [{c} + 2*{line} + 2112], tmm3",
            "add {blocks}, 16",
            "cmp {blocks}, [{operands} + 32]; jne 2b",
            "tilerelease",
            operands = in(reg) &raw const operands,
            b = in(reg) job.b.as_ptr(),
            a_row = in(reg) 2 * job.a_row,
            line = in(reg) 64usize,
            blocks = inout(reg) job.blocks.as_ptr() => _,
            a = out(reg) _, c = out(reg) _, x = out(reg) _, step = out(reg) _, left = out(reg) _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
