//! The driver's functions, as C calls them.
//!
//! Everything is done before a call returns, so streams are in order by themselves. A kernel that fails has its
//! context lost: that is the status of every later call.
#![allow(non_snake_case)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::errors::*;
use crate::machine::bulk::{MAGIC, TensorMap};
use crate::machine::{Kernel, Launch, executor, lower};
use crate::memory::{self, Memory};
use crate::ptx::{self, Space};
use crate::{is_set, number, stats};

type Pointer = u64;
type Handle = *mut c_void;

const SHARED_OF_BLOCK: usize = 227 * 1024;
const SHARED_BY_DEFAULT: usize = 48 * 1024;
const MULTIPROCESSORS: i32 = 132;

struct Card {
    memory: Memory,
    /// The status of every call, once a kernel has failed.
    lost: AtomicI32,
    /// One launch at a time.
    turn: Mutex<()>,
    start: Instant,
    launches: AtomicUsize,
}

fn card() -> &'static Card {
    static CARD: OnceLock<Card> = OnceLock::new();
    CARD.get_or_init(|| Card {
        memory: Memory::default(),
        lost: AtomicI32::new(SUCCESS),
        turn: Mutex::new(()),
        start: Instant::now(),
        launches: AtomicUsize::new(0),
    })
}

fn state() -> Status {
    card().lost.load(Ordering::Relaxed)
}

/// The status of the card, or else of the call.
fn unless_lost(f: impl FnOnce() -> Status) -> Status {
    match state() {
        SUCCESS => f(),
        lost => lost,
    }
}

fn workers() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let wanted = std::env::var("SOFTWARE_CUDA_THREADS").ok().and_then(|text| text.parse().ok());
        wanted
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get()))
    })
}

pub(crate) fn capability() -> i32 {
    static ARCH: OnceLock<i32> = OnceLock::new();
    *ARCH.get_or_init(|| number("SOFTWARE_CUDA_ARCH").unwrap_or(90))
}

/// Writes where the caller wants a result.
unsafe fn give<T>(to: *mut T, value: T) -> Status {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller of the driver gives a place for the value.
    unsafe { to.write_unaligned(value) };
    SUCCESS
}

unsafe extern "C" {
    fn atexit(f: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    stats::write();
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Status {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if !std::is_x86_feature_detected!("avx2") || !std::is_x86_feature_detected!("fma") {
            eprintln!("software CUDA card: this processor has no AVX2 or no FMA");
        }
        // SAFETY: a function that lives as long as the library.
        unsafe { atexit(at_exit) };
        card();
    });
    SUCCESS
}

/// Tables that NVIDIA's own libraries share with the driver: there are none.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, _name: *const c_void) -> Status {
    unsafe { give(table, std::ptr::null()) };
    NOT_FOUND
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    unsafe { give(version, 12090) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    unsafe { give(count, 1) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, index: c_int) -> Status {
    if index != 0 {
        return INVALID_DEVICE;
    }
    unsafe { give(device, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) -> Status {
    let text = b"software CUDA card\0";
    let count = text.len().min(length.max(0) as usize);
    // SAFETY: the caller has `length` bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name as *mut u8, count) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], _device: c_int) -> Status {
    unsafe { give(uuid, *b"software card 01") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Status {
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> Status {
    unsafe { give(bytes, memory::total() as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    unless_lost(|| unsafe {
        give(free, (memory::total() - card().memory.used()) as usize);
        give(total, memory::total() as usize)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _device: c_int,
) -> Status {
    // The numbers are those of CUdevice_attribute.
    let number = match attribute {
        1..=3 => 1024,  // threads of a block: in all, in x, in y
        4 => 64,        // in z
        5 => i32::MAX,  // blocks in x
        6 | 7 => 65535, // in y, in z
        8 => SHARED_BY_DEFAULT as i32,
        9 => 65536,       // constant memory
        10 => 32,         // lanes of a warp
        12 | 82 => 65536, // registers of a block, of a multiprocessor
        13 => 1_755_000,  // clock in kHz
        14 => 512,        // alignment of textures
        16 => MULTIPROCESSORS,
        36 => 2_619_000, // clock of the memory in kHz
        37 => 5120,      // width of its bus
        38 => 50 << 20,  // second-level cache
        39 => 2048,      // threads of a multiprocessor
        41 => 1,         // unified addresses
        75 => capability() / 10,
        76 => capability() % 10,
        81 => 228 * 1024, // shared memory of a multiprocessor
        83 => 1,          // managed memory
        95 => 1,          // cooperative launch
        97 if capability() >= 90 => SHARED_OF_BLOCK as i32,
        97 => 163 * 1024,
        106 => 32,   // blocks of a multiprocessor
        111 => 1024, // reserved shared memory
        115 => 1,    // memory pools
        _ => 0,
    };
    unsafe { give(value, number) }
}

// Contexts, streams, events.

static ANYTHING: u64 = 0;

fn anything() -> Handle {
    &raw const ANYTHING as Handle
}

macro_rules! always {
    ($($name:ident($($argument:ident: $ty:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $ty),*) -> Status {
            state()
        }
    )*};
}

always! {
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxReset_v2(device: c_int);
    cuCtxSetCurrent(context: Handle);
    cuCtxPushCurrent_v2(context: Handle);
    cuCtxDestroy_v2(context: Handle);
    cuCtxSynchronize();
    cuCtxSetFlags(flags: c_uint);
    cuCtxSetLimit(limit: c_int, value: usize);
    cuCtxSetCacheConfig(config: c_int);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    cuEventSynchronize(event: Handle);
    cuEventQuery(event: Handle);
    cuFuncSetCacheConfig(function: Handle, config: c_int);
    cuMemPrefetchAsync(pointer: Pointer, bytes: usize, device: c_int, stream: Handle);
    cuMemAdvise(pointer: Pointer, bytes: usize, advice: c_int, device: c_int);
    cuMemPoolTrimTo(pool: Handle, bytes: usize);
    cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: Handle);
    cuDeviceSetMemPool(device: c_int, pool: Handle);
    cuProfilerStart();
    cuProfilerStop();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, _device: c_int) -> Status {
    unsafe { give(context, anything()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxCreate_v2(
    context: *mut Handle,
    _flags: c_uint,
    _device: c_int,
) -> Status {
    unsafe { give(context, anything()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> Status {
    unsafe { give(context, anything()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> Status {
    unsafe { give(context, anything()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Status {
    unsafe { give(device, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut Handle, _device: c_int) -> Status {
    unsafe { give(pool, anything()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut Handle, _device: c_int) -> Status {
    unsafe { give(pool, anything()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemPoolGetAttribute(
    _pool: Handle,
    _attribute: c_int,
    value: *mut u64,
) -> Status {
    unsafe { give(value, card().memory.used()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) -> Status {
    unless_lost(|| unsafe { give(stream, Box::into_raw(Box::new(0u64)) as Handle) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut Handle,
    flags: c_uint,
    _priority: c_int,
) -> Status {
    unsafe { cuStreamCreate(stream, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(_stream: Handle, status: *mut c_int) -> Status {
    unsafe { give(status, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: c_uint) -> Status {
    unless_lost(|| unsafe { give(event, Box::into_raw(Box::new(0f64)) as Handle) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: Handle, _stream: Handle) -> Status {
    unless_lost(|| {
        // SAFETY: events are made by `cuEventCreate`.
        unsafe { *(event as *mut f64) = card().start.elapsed().as_secs_f64() };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: Handle,
    end: Handle,
) -> Status {
    // SAFETY: as in `cuEventRecord`.
    unsafe { give(milliseconds, ((*(end as *const f64) - *(start as *const f64)) * 1e3) as f32) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    start: Handle,
    end: Handle,
) -> Status {
    unsafe { cuEventElapsedTime(milliseconds, start, end) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    // SAFETY: as in `cuEventRecord`; the caller does not use it again.
    drop(unsafe { Box::from_raw(event as *mut f64) });
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    _stream: Handle,
    f: extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> Status {
    unless_lost(|| {
        f(data);
        SUCCESS
    })
}

// Memory.

unsafe fn allocate(pointer: *mut Pointer, bytes: usize, is_host: bool) -> Status {
    unless_lost(|| match card().memory.allocate(bytes as u64, None, is_host) {
        Ok(start) => unsafe { give(pointer, start) },
        Err(status) => status,
    })
}

fn release(pointer: Pointer) -> Status {
    if pointer == 0 {
        return state();
    }
    unless_lost(|| match card().memory.free(pointer) {
        Ok(()) => SUCCESS,
        Err(status) => {
            eprintln!(
                "software CUDA card: {pointer:#x} is freed, but {}",
                card().memory.describe(pointer)
            );
            status
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut Pointer, bytes: usize) -> Status {
    unsafe { allocate(pointer, bytes, false) }
}

/// Unlike `cuMemAlloc`, this takes no bytes at all.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(
    pointer: *mut Pointer,
    bytes: usize,
    _stream: Handle,
) -> Status {
    if bytes == 0 {
        return unless_lost(|| unsafe { give(pointer, 0) });
    }
    unsafe { allocate(pointer, bytes, false) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(
    pointer: *mut Pointer,
    bytes: usize,
    _flags: c_uint,
) -> Status {
    unsafe { allocate(pointer, bytes, false) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocHost_v2(pointer: *mut Handle, bytes: usize) -> Status {
    unsafe { allocate(pointer as *mut Pointer, bytes, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(pointer: *mut Handle, bytes: usize, _flags: c_uint) -> Status {
    unsafe { allocate(pointer as *mut Pointer, bytes, true) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(pointer: Pointer) -> Status {
    release(pointer)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(pointer: Pointer, _stream: Handle) -> Status {
    release(pointer)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(pointer: Handle) -> Status {
    release(pointer as Pointer)
}

/// Bytes up to which a reading is of zeros once launches are skipped: losses, norms and scores.
const SMALL_READING: usize = 64 * 1024;

/// Copies to the host; see [`is_skipped`].
unsafe fn copy_to_host(to: Pointer, from: Pointer, bytes: usize) -> Status {
    let status = unsafe { copy(to, from, bytes, false, true) };
    let last = card().launches.load(Ordering::Relaxed).checked_sub(1);
    if status == SUCCESS && bytes <= SMALL_READING && last.is_some_and(is_skipped) {
        // SAFETY: `copy` has written as many bytes.
        unsafe { std::ptr::write_bytes(to as *mut u8, 0, bytes) };
    }
    status
}

/// Copies after looking at the sides that are the card's.
unsafe fn copy(to: Pointer, from: Pointer, bytes: usize, to_card: bool, from_card: bool) -> Status {
    unless_lost(|| {
        if bytes == 0 {
            return SUCCESS;
        }
        for (is_card, pointer) in [(to_card, to), (from_card, from)] {
            if is_card && !card().memory.has(pointer, bytes as u64) {
                let place = card().memory.describe(pointer);
                eprintln!("software CUDA card: a copy of {bytes} bytes has {pointer:#x}, {place}");
                return INVALID_VALUE;
            }
        }
        // SAFETY: the card's side is an allocation, and the caller has the other.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        SUCCESS
    })
}

macro_rules! copies {
    ($($name:ident($($extra:ident: $ty:ty),*) $to_card:expr, $from_card:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: Pointer, from: Pointer, bytes: usize $(, _: $ty)*) -> Status {
            unsafe { copy(to, from, bytes, $to_card, $from_card) }
        }
    )*};
}

copies! {
    cuMemcpyHtoD_v2() true, false;
    cuMemcpyHtoDAsync_v2(stream: Handle) true, false;
    cuMemcpyDtoD_v2() true, true;
    cuMemcpyDtoDAsync_v2(stream: Handle) true, true;
    cuMemcpy() false, false;
    cuMemcpyAsync(stream: Handle) false, false;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: Pointer, from: Pointer, bytes: usize) -> Status {
    unsafe { copy_to_host(to, from, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: Pointer,
    from: Pointer,
    bytes: usize,
    _stream: Handle,
) -> Status {
    unsafe { copy_to_host(to, from, bytes) }
}

#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    kind: c_int,
    host: Pointer,
    device: Pointer,
    array: Handle,
    pitch: usize,
}

#[repr(C)]
struct Copy2d {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2D_v2(what: *const Copy2d) -> Status {
    // SAFETY: the caller gives a description.
    let what = unsafe { &*what };
    let host = 1;
    let start = |side: &Side| {
        let base = if side.kind == host { side.host } else { side.device };
        base + (side.y * side.pitch + side.x) as u64
    };
    for row in 0..what.height {
        let to = start(&what.to) + (row * what.to.pitch) as u64;
        let from = start(&what.from) + (row * what.from.pitch) as u64;
        let status =
            unsafe { copy(to, from, what.width, what.to.kind != host, what.from.kind != host) };
        if status != SUCCESS {
            return status;
        }
    }
    state()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2DAsync_v2(what: *const Copy2d, _stream: Handle) -> Status {
    unsafe { cuMemcpy2D_v2(what) }
}

unsafe fn fill<T: Copy>(to: Pointer, value: T, count: usize) -> Status {
    unless_lost(|| {
        if count > 0 && !card().memory.has(to, (count * size_of::<T>()) as u64) {
            return INVALID_VALUE;
        }
        // SAFETY: all of it is one allocation.
        unsafe { (0..count).for_each(|at| (to as *mut T).add(at).write_unaligned(value)) };
        SUCCESS
    })
}

macro_rules! fills {
    ($($name:ident($value:ty $(, $extra:ty)?);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(to: Pointer, value: $value, count: usize $(, _: $extra)?) -> Status {
            unsafe { fill(to, value, count) }
        }
    )*};
}

fills! {
    cuMemsetD8_v2(u8);
    cuMemsetD16_v2(u16);
    cuMemsetD32_v2(u32);
    cuMemsetD8Async(u8, Handle);
    cuMemsetD16Async(u16, Handle);
    cuMemsetD32Async(u32, Handle);
}

// Modules.

struct Loaded {
    functions: HashMap<String, Box<Callable>>,
    variables: HashMap<String, (u64, u64)>,
}

struct Callable {
    kernel: Kernel,
    most_dynamic: AtomicUsize,
}

fn load(text: &str) -> Result<Loaded, String> {
    let module = ptx::parse(text)?;
    let mut symbols = lower::Symbols { addresses: HashMap::new() };
    let mut variables = HashMap::new();
    let own = module.variables.iter().map(|variable| (variable.name.clone(), variable));
    let of_functions = module.functions.iter().flat_map(|function| {
        function
            .variables
            .iter()
            .map(move |variable| (format!("{} {}", function.name, variable.name), variable))
    });
    let all: Vec<_> = own
        .chain(of_functions)
        .filter(|(_, one)| matches!(one.space, Space::Global | Space::Const))
        .collect();
    for (key, variable) in &all {
        let bytes = variable.bytes.max(1) as u64;
        let start = card().memory.allocate(bytes, Some(variable.name.clone()), false);
        let start = start.map_err(|_| format!("no memory for {}", variable.name))?;
        symbols.addresses.insert(key.clone(), start);
        variables.insert(key.clone(), (start, variable.bytes as u64));
    }
    for (key, variable) in &all {
        let start = symbols.addresses[key];
        let mut bytes = variable.init.clone();
        for (at, name, offset) in &variable.addresses {
            let address =
                symbols.addresses.get(name).copied().unwrap_or(0).wrapping_add(*offset as u64);
            bytes[*at..at + 8].copy_from_slice(&address.to_le_bytes());
        }
        // SAFETY: the allocation has as many bytes as the variable.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                start as *mut u8,
                bytes.len().min(variable.bytes),
            )
        };
    }
    let lines = Arc::new(text.lines().map(str::to_string).collect::<Vec<_>>());
    let assembled = stats::assembled_registers(text);
    let mut functions = HashMap::new();
    for function in
        module.functions.iter().filter(|function| function.is_entry && function.body.is_some())
    {
        let mut kernel = lower::kernel(&module, &symbols, function, &lines)?;
        kernel.registers = assembled.get(&function.name).copied().unwrap_or(kernel.registers);
        let callable = Callable { most_dynamic: AtomicUsize::new(SHARED_BY_DEFAULT), kernel };
        functions.insert(function.name.clone(), Box::new(callable));
    }
    Ok(Loaded { functions, variables })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_char) -> Status {
    unless_lost(|| {
        // SAFETY: PTX is text that ends with a zero.
        let bytes = unsafe { CStr::from_ptr(image) }.to_bytes();
        if bytes.starts_with(b"\x7fELF") || bytes.starts_with(&[0x50, 0xed]) {
            eprintln!("software CUDA card: this is a program for a card, not PTX");
            return INVALID_PTX;
        }
        let text = String::from_utf8_lossy(bytes);
        if let Ok(folder) = std::env::var("SOFTWARE_CUDA_KEEP") {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let _ = std::fs::write(
                format!("{folder}/{}-{number:05}.ptx", std::process::id()),
                text.as_bytes(),
            );
        }
        match std::panic::catch_unwind(|| load(&text)) {
            Ok(Ok(loaded)) => unsafe { give(module, Box::into_raw(Box::new(loaded)) as Handle) },
            Ok(Err(error)) => {
                eprintln!("software CUDA card: unsupported or wrong PTX: {error}");
                INVALID_PTX
            }
            Err(_) => INVALID_PTX,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_char,
    _count: c_uint,
    _options: Handle,
    _values: Handle,
) -> Status {
    unsafe { cuModuleLoadData(module, image) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoad(module: *mut Handle, path: *const c_char) -> Status {
    // SAFETY: a path ends with a zero.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().to_string();
    let Ok(mut bytes) = std::fs::read(path) else { return NOT_FOUND };
    bytes.push(0);
    unsafe { cuModuleLoadData(module, bytes.as_ptr() as *const c_char) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleUnload(module: Handle) -> Status {
    unless_lost(|| {
        // SAFETY: modules are made by `cuModuleLoadData`; the caller does not use it again.
        let loaded = unsafe { Box::from_raw(module as *mut Loaded) };
        for (start, _) in loaded.variables.values() {
            let _ = card().memory.free(*start);
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> Status {
    unless_lost(|| {
        // SAFETY: as in `cuModuleUnload`; a name ends with a zero.
        let (loaded, name) =
            unsafe { (&*(module as *const Loaded), CStr::from_ptr(name).to_string_lossy()) };
        match loaded.functions.get(name.as_ref()) {
            Some(found) => unsafe { give(function, &raw const **found as Handle) },
            None => NOT_FOUND,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetGlobal_v2(
    pointer: *mut Pointer,
    bytes: *mut usize,
    module: Handle,
    name: *const c_char,
) -> Status {
    unless_lost(|| {
        // SAFETY: as in `cuModuleGetFunction`.
        let (loaded, name) =
            unsafe { (&*(module as *const Loaded), CStr::from_ptr(name).to_string_lossy()) };
        let Some(&(start, length)) = loaded.variables.get(name.as_ref()) else { return NOT_FOUND };
        unsafe {
            give(pointer, start);
            give(bytes, length as usize);
        }
        SUCCESS
    })
}

const MOST_DYNAMIC_SHARED: c_int = 8;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncSetAttribute(
    function: Handle,
    attribute: c_int,
    value: c_int,
) -> Status {
    unless_lost(|| {
        // SAFETY: functions are those of `cuModuleGetFunction`.
        let function = unsafe { &*(function as *const Callable) };
        if attribute == MOST_DYNAMIC_SHARED {
            if value < 0 || value as usize + function.kernel.static_shared > SHARED_OF_BLOCK {
                return INVALID_VALUE;
            }
            function.most_dynamic.store((value as usize).max(SHARED_BY_DEFAULT), Ordering::Relaxed);
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    function: Handle,
) -> Status {
    // SAFETY: as in `cuFuncSetAttribute`.
    let function = unsafe { &*(function as *const Callable) };
    let value_of_attribute = match attribute {
        0 => function.kernel.most_threads.unwrap_or(1024) as usize,
        1 => function.kernel.static_shared,
        3 => function.kernel.local_bytes,
        4 => function.kernel.registers as usize,
        5 | 6 => capability() as usize,
        8 => function.most_dynamic.load(Ordering::Relaxed),
        _ => 0,
    };
    unsafe { give(value, value_of_attribute as c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: Handle,
    threads: c_int,
    _shared: usize,
) -> Status {
    unsafe { give(blocks, (2048 / threads.max(1)).clamp(1, 32)) }
}

// Launches.

/// True for launches past those that `SOFTWARE_CUDA_EXECUTES` lets run: they are checked, and nothing else.
fn is_skipped(launches: usize) -> bool {
    static EXECUTED: OnceLock<Option<usize>> = OnceLock::new();
    EXECUTED.get_or_init(|| number("SOFTWARE_CUDA_EXECUTES")).is_some_and(|most| launches >= most)
}

/// True for launches past those that `SOFTWARE_CUDA_FAILS_AFTER` lets through: they lose the context.
fn fails(launches: usize) -> bool {
    static GOOD: OnceLock<Option<usize>> = OnceLock::new();
    GOOD.get_or_init(|| number("SOFTWARE_CUDA_FAILS_AFTER")).is_some_and(|most| launches >= most)
}

/// True for the launch whose number `SOFTWARE_CUDA_FAULTS_AT` gives: it is accepted, and its kernel then leaves its memory.
fn faults(launch: usize) -> bool {
    static NUMBER: OnceLock<Option<usize>> = OnceLock::new();
    NUMBER.get_or_init(|| number("SOFTWARE_CUDA_FAULTS_AT")) == &Some(launch)
}

fn launch(
    callable: &Callable,
    grid: [u32; 3],
    threads: [u32; 3],
    shared: usize,
    parameters: Vec<u8>,
) -> Status {
    let kernel = &callable.kernel;
    let count = threads.iter().map(|&count| count as u64).product::<u64>();
    let refuse = |why: &str, status: Status| {
        eprintln!(
            "software CUDA card: refused: kernel {} with a grid of {grid:?} blocks of {threads:?} threads, \
             {shared} bytes of dynamic shared memory: {why}",
            kernel.name
        );
        status
    };
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65535 || grid[2] > 65535 {
        return refuse("no such grid", INVALID_VALUE);
    }
    if threads.contains(&0) || count > 1024 || threads[2] > 64 {
        return refuse("no such block", INVALID_VALUE);
    }
    if kernel.most_threads.is_some_and(|most| count > most as u64)
        || kernel.required_threads.is_some_and(|required| required != threads)
    {
        return refuse("other threads than the kernel was compiled for", INVALID_VALUE);
    }
    if shared > callable.most_dynamic.load(Ordering::Relaxed)
        || shared + kernel.static_shared > SHARED_OF_BLOCK
    {
        return refuse("too much shared memory", INVALID_VALUE);
    }
    let card = card();
    let number = card.launches.fetch_add(1, Ordering::Relaxed);
    if fails(number) {
        card.lost.store(LAUNCH_FAILED, Ordering::Relaxed);
        return LAUNCH_FAILED;
    }
    if faults(number) {
        eprintln!(
            "software CUDA card: launch {number}, kernel {}, faults as it was told to",
            kernel.name
        );
        card.lost.store(ILLEGAL_ADDRESS, Ordering::Relaxed);
        return SUCCESS;
    }
    if is_skipped(number) {
        return SUCCESS;
    }
    let _turn = card.turn.lock().unwrap_or_else(|broken| broken.into_inner());
    let launch = Launch {
        kernel,
        grid,
        threads,
        dynamic_shared: shared,
        parameters,
        map: card.memory.map(),
        memory: &card.memory,
        counts_traffic: std::env::var_os("SOFTWARE_CUDA_STATS").is_some(),
        finds_races: is_set("SOFTWARE_CUDA_RACES"),
        start: card.start,
    };
    let start = Instant::now();
    let outcome = executor::run(&launch, workers());
    let seconds = start.elapsed().as_secs_f64();
    if is_set("SOFTWARE_CUDA_TRACE") {
        let instructions = outcome.counters.instructions();
        eprintln!(
            "software CUDA card: launch {number}: {} {grid:?} x {threads:?}: {:.3} ms, {instructions} instructions, {:.0} \
             million lanes a second",
            kernel.name,
            seconds * 1e3,
            outcome.counters.lanes as f64 / seconds / 1e6
        );
    }
    for warning in &outcome.warnings {
        eprintln!("{warning}");
    }
    if launch.counts_traffic {
        stats::record(&launch, &outcome.counters, seconds);
    }
    if let Some((status, report)) = outcome.fault {
        eprintln!("{report}");
        card.lost.store(status, Ordering::Relaxed);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    shared: c_uint,
    _stream: Handle,
    arguments: *const *const u8,
    extra: *const *const c_void,
) -> Status {
    unless_lost(|| {
        if function.is_null() {
            return INVALID_HANDLE;
        }
        // SAFETY: as in `cuFuncSetAttribute`; the caller gives as many arguments as the kernel has.
        let callable = unsafe { &*(function as *const Callable) };
        let mut parameters = vec![0u8; callable.kernel.parameter_bytes];
        unsafe {
            if !extra.is_null() {
                // Pairs of a number and a value: 1 is the buffer, 2 a pointer to its size.
                let mut at = 0;
                let (mut buffer, mut bytes) = (std::ptr::null::<u8>(), 0);
                while !(*extra.add(at)).is_null() {
                    match *extra.add(at) as usize {
                        1 => buffer = *extra.add(at + 1) as *const u8,
                        2 => bytes = *(*extra.add(at + 1) as *const usize),
                        _ => return INVALID_VALUE,
                    }
                    at += 2;
                }
                let bytes = bytes.min(parameters.len());
                std::ptr::copy_nonoverlapping(buffer, parameters.as_mut_ptr(), bytes);
            } else {
                if arguments.is_null() && !callable.kernel.parameters.is_empty() {
                    return INVALID_VALUE;
                }
                for (at, &(start, bytes)) in callable.kernel.parameters.iter().enumerate() {
                    std::ptr::copy_nonoverlapping(
                        *arguments.add(at),
                        parameters.as_mut_ptr().add(start),
                        bytes,
                    );
                }
            }
        }
        launch(callable, [grid_x, grid_y, grid_z], [x, y, z], shared as usize, parameters)
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    _function: Handle,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _x: c_uint,
    _y: c_uint,
    _z: c_uint,
    _shared: c_uint,
    _stream: Handle,
    _arguments: *const *const u8,
) -> Status {
    NOT_SUPPORTED
}

#[repr(C)]
struct LaunchConfiguration {
    grid: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const c_void,
    count: c_uint,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    what: *const LaunchConfiguration,
    function: Handle,
    arguments: *const *const u8,
    extra: *const *const c_void,
) -> Status {
    // SAFETY: the caller gives a configuration.
    unsafe {
        let what = &*what;
        let ([a, b, c], [x, y, z]) = (what.grid, what.threads);
        cuLaunchKernel(function, a, b, c, x, y, z, what.shared, what.stream, arguments, extra)
    }
}

// Maps of tensors, for copies of tiles.

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut TensorMap,
    kind: c_int,
    rank: c_uint,
    address: Pointer,
    sizes: *const u64,
    strides: *const u64,
    boxes: *const u32,
    steps: *const u32,
    interleave: c_int,
    swizzle: c_int,
    _promotion: c_int,
    fill: c_int,
) -> Status {
    let element = match kind {
        0 => 1,
        1 | 6 | 9 => 2,
        2 | 3 | 7 | 10 | 11 | 12 => 4,
        4 | 5 | 8 => 8,
        _ => return NOT_SUPPORTED,
    };
    if interleave != 0 || !(0..=3).contains(&swizzle) {
        return NOT_SUPPORTED;
    }
    let count = rank as usize;
    if !(1..=5).contains(&count) || !address.is_multiple_of(16) {
        return INVALID_VALUE;
    }
    let mut made = TensorMap {
        magic: MAGIC,
        element,
        rank: rank as u8,
        swizzle: swizzle as u8,
        fills_nan: (fill != 0) as u8,
        address,
        sizes: [1; 5],
        strides: [0; 4],
        boxes: [1; 5],
        steps: [1; 5],
        kind: kind as u8,
        rest: [0; 14],
    };
    // SAFETY: the caller gives as many values as the rank says.
    unsafe {
        for axis in 0..count {
            made.sizes[axis] = *sizes.add(axis);
            made.boxes[axis] = *boxes.add(axis);
            made.steps[axis] = *steps.add(axis) as u8;
            if axis + 1 < count {
                made.strides[axis] = *strides.add(axis);
            }
        }
    }
    let inner = made.boxes[0] as usize * element as usize;
    let most = [usize::MAX, 32, 64, 128][swizzle as usize];
    let wrong = made.sizes[..count].contains(&0)
        || made.boxes[..count].iter().any(|&size| size == 0 || size > 256)
        || made.strides[..count - 1].iter().any(|&stride| !stride.is_multiple_of(16))
        || !inner.is_multiple_of(16)
        || inner > most;
    if wrong {
        return INVALID_VALUE;
    }
    unsafe { give(map, made) }
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeIm2col() -> Status {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(status: Status, text: *mut *const c_char) -> Status {
    unsafe { give(text, describe(status).0.as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(status: Status, text: *mut *const c_char) -> Status {
    unsafe { give(text, describe(status).1.as_ptr()) }
}
