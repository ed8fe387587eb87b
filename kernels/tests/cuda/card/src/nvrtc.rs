//! NVRTC's functions, which keep the PTX of a program by a hash of its source and options.
//!
//! A program that is not kept goes to the real library, whose path is in `SOFTWARE_CUDA_NVRTC`. PTX lies in the folder
//! `SOFTWARE_CUDA_PTX`, which several processes may share.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::OnceLock;

type Status = c_int;
type Handle = *mut c_void;

const SUCCESS: Status = 0;
const INVALID_INPUT: Status = 3;
const INVALID_PROGRAM: Status = 4;
const INTERNAL_ERROR: Status = 11;
const NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> Handle;
    fn dlsym(library: Handle, name: *const c_char) -> Handle;
}

type Read = unsafe extern "C" fn(Handle, *mut c_char) -> Status;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> Status;

/// The functions of the real library.
struct Library {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    ptx: (Size, Read),
    log: (Size, Read),
    describe: unsafe extern "C" fn(Status) -> *const c_char,
}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref()
}

#[allow(clippy::missing_transmute_annotations)]
fn load() -> Option<Library> {
    let path = CString::new(std::env::var("SOFTWARE_CUDA_NVRTC").ok()?).ok()?;
    // SAFETY: the path ends with a zero, and the functions have the types of NVRTC's header.
    unsafe {
        let library = dlopen(path.as_ptr(), NOW);
        if library.is_null() {
            eprintln!("software CUDA card: no library {path:?}");
            return None;
        }
        let symbol = |name: &CStr| {
            let symbol = dlsym(library, name.as_ptr());
            (!symbol.is_null()).then_some(symbol)
        };
        macro_rules! function {
            ($name:literal) => {
                std::mem::transmute(symbol($name)?)
            };
        }
        Some(Library {
            version: function!(c"nvrtcVersion"),
            create: function!(c"nvrtcCreateProgram"),
            compile: function!(c"nvrtcCompileProgram"),
            destroy: function!(c"nvrtcDestroyProgram"),
            ptx: (function!(c"nvrtcGetPTXSize"), function!(c"nvrtcGetPTX")),
            log: (function!(c"nvrtcGetProgramLogSize"), function!(c"nvrtcGetProgramLog")),
            describe: function!(c"nvrtcGetErrorString"),
        })
    }
}

/// A program, with its PTX and the compiler's messages once it is compiled; both end with a zero.
struct Program {
    source: CString,
    name: Option<CString>,
    ptx: Vec<u8>,
    log: Vec<u8>,
}

impl Program {
    /// The file of its PTX, if PTX is kept.
    fn file(&self, options: &[&CStr]) -> Option<PathBuf> {
        let folder = PathBuf::from(std::env::var_os("SOFTWARE_CUDA_PTX")?);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: there is a place for each number.
        unsafe { (library()?.version)(&mut major, &mut minor) };
        let half = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, major, minor, options, &self.source).hash(&mut hasher);
            hasher.finish()
        };
        Some(folder.join(format!("{:016x}{:016x}.ptx", half(0), half(1))))
    }

    /// Compiles by the real library.
    fn compile(&mut self, options: &[*const c_char]) -> Status {
        let Some(library) = library() else { return INTERNAL_ERROR };
        let mut program = std::ptr::null_mut();
        let name = self.name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        let none = std::ptr::null();
        // SAFETY: source, name and options end with a zero, and there are as many options as it says.
        unsafe {
            let status = (library.create)(&mut program, self.source.as_ptr(), name, 0, none, none);
            if status != SUCCESS {
                return status;
            }
            let status = (library.compile)(program, options.len() as c_int, options.as_ptr());
            self.log = text(library.log, program);
            if status == SUCCESS {
                self.ptx = text(library.ptx, program);
            }
            (library.destroy)(&mut program);
            status
        }
    }
}

/// A text of the real library's program.
///
/// # Safety
/// The program is one of that library.
unsafe fn text((size, read): (Size, Read), program: Handle) -> Vec<u8> {
    let mut length = 0;
    // SAFETY: the text has as many bytes as the library says.
    unsafe {
        size(program, &mut length);
        let mut text = vec![0u8; length];
        read(program, text.as_mut_ptr() as *mut c_char);
        text
    }
}

/// Writes PTX under a name that no other process reads until the file is whole.
fn keep(file: &PathBuf, ptx: &[u8]) {
    let part = file.with_extension(format!("{}.part", std::process::id()));
    if std::fs::write(&part, ptx).and_then(|()| std::fs::rename(&part, file)).is_err() {
        eprintln!("software CUDA card: cannot write {}", file.display());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Status {
    // SAFETY: the caller gives two places.
    library().map_or(INTERNAL_ERROR, |library| unsafe { (library.version)(major, minor) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut Handle,
    source: *const c_char,
    name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> Status {
    if source.is_null() || headers != 0 {
        return INVALID_INPUT;
    }
    // SAFETY: source and name end with a zero, and the caller gives a place for the program.
    unsafe {
        let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_owned());
        let source = CStr::from_ptr(source).to_owned();
        let made = Program { source, name, ptx: Vec::new(), log: vec![0] };
        *program = Box::into_raw(Box::new(made)) as Handle;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(
    program: Handle,
    count: c_int,
    options: *const *const c_char,
) -> Status {
    // SAFETY: programs are those of `nvrtcCreateProgram`; there are as many options, which end with a zero.
    let (program, options): (_, Vec<*const c_char>) = unsafe {
        let options = (0..count.max(0) as usize).map(|at| *options.add(at)).collect();
        (&mut *(program as *mut Program), options)
    };
    let texts: Vec<&CStr> =
        options.iter().map(|option| unsafe { CStr::from_ptr(*option) }).collect();
    let file = program.file(&texts);
    if let Some(ptx) = file.as_ref().and_then(|file| std::fs::read(file).ok()) {
        program.ptx = ptx;
        return SUCCESS;
    }
    let status = program.compile(&options);
    match (status, &file) {
        (SUCCESS, Some(file)) => keep(file, &program.ptx),
        (SUCCESS, None) => {}
        _ => eprintln!(
            "software CUDA card: a program is not compiled: {}",
            String::from_utf8_lossy(&program.log).trim_end_matches('\0').trim_end()
        ),
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(program: *mut Handle) -> Status {
    // SAFETY: programs are those of `nvrtcCreateProgram`; the caller does not use it again.
    unsafe {
        if (*program).is_null() {
            return INVALID_PROGRAM;
        }
        drop(Box::from_raw(*program as *mut Program));
        *program = std::ptr::null_mut();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetErrorString(status: Status) -> *const c_char {
    // SAFETY: the library describes every status.
    library().map_or(c"no NVRTC".as_ptr(), |library| unsafe { (library.describe)(status) })
}

macro_rules! texts {
    ($($size:ident, $read:ident: $part:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $size(program: Handle, size: *mut usize) -> Status {
            // SAFETY: programs are those of `nvrtcCreateProgram`, and the caller gives a place for the size.
            unsafe { *size = (*(program as *const Program)).$part.len() };
            SUCCESS
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $read(program: Handle, to: *mut c_char) -> Status {
            // SAFETY: programs are those of `nvrtcCreateProgram`, and the caller has as many bytes as the size says.
            unsafe {
                let text = &(*(program as *const Program)).$part;
                std::ptr::copy_nonoverlapping(text.as_ptr(), to as *mut u8, text.len());
            }
            SUCCESS
        }
    )*};
}

texts! {
    nvrtcGetPTXSize, nvrtcGetPTX: ptx;
    nvrtcGetProgramLogSize, nvrtcGetProgramLog: log;
}
