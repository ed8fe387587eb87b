//! The driver's status codes, and what went wrong in a kernel.

pub type Status = i32;

pub const SUCCESS: Status = 0;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const NOT_INITIALIZED: Status = 3;
pub const INVALID_DEVICE: Status = 101;
pub const INVALID_CONTEXT: Status = 201;
pub const INVALID_PTX: Status = 218;
pub const INVALID_HANDLE: Status = 400;
pub const NOT_FOUND: Status = 500;
pub const ILLEGAL_ADDRESS: Status = 700;
pub const LAUNCH_OUT_OF_RESOURCES: Status = 701;
pub const ASSERT: Status = 710;
pub const ILLEGAL_INSTRUCTION: Status = 715;
pub const MISALIGNED_ADDRESS: Status = 716;
pub const LAUNCH_FAILED: Status = 719;
pub const NOT_SUPPORTED: Status = 801;

/// Name and sentence, as C has them.
pub fn describe(status: Status) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    match status {
        SUCCESS => (c"CUDA_SUCCESS", c"no error"),
        INVALID_VALUE => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        NOT_INITIALIZED => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        INVALID_DEVICE => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        INVALID_CONTEXT => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        INVALID_PTX => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        INVALID_HANDLE => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        NOT_FOUND => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        ILLEGAL_ADDRESS => {
            (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered")
        }
        LAUNCH_OUT_OF_RESOURCES => {
            (c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch")
        }
        ASSERT => (c"CUDA_ERROR_ASSERT", c"device-side assert triggered"),
        ILLEGAL_INSTRUCTION => {
            (c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction was encountered")
        }
        MISALIGNED_ADDRESS => (c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
        LAUNCH_FAILED => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        NOT_SUPPORTED => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
        _ => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
    }
}

/// A kernel did what ends it. Where, the executor adds.
#[derive(Debug, Clone)]
pub struct Fault {
    pub status: Status,
    pub what: String,
    pub lane: Option<usize>,
}

impl Fault {
    pub fn new(status: Status, lane: Option<usize>, what: String) -> Box<Fault> {
        Box::new(Fault { status, what, lane })
    }
}
