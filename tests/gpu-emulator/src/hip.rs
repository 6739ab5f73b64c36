//! libamdhip64: the part of the runtime that the ROCm backend calls. Names, codes and order are AMD's.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::abi::arguments;
use crate::compile::code_of;
use crate::engine::{Done, Engine, Launch, Refusal, Work, current, set_current, with};
use crate::run::{Index3, Problem};
use crate::settings::settings;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;

/// The result of `hipDriverGetVersion`: 6.3.42134.
const VERSION: c_int = 60_342_134;
/// Shared memory of a block.
const SHARED: u64 = 64 * 1024;

fn code(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::InvalidValue => INVALID_VALUE,
        Refusal::OutOfMemory => 2,
        Refusal::Lost => 100,
        Refusal::InvalidDevice => 101,
        Refusal::InvalidImage => 200,
        Refusal::InvalidContext => 201,
        Refusal::InvalidHandle => 400,
        Refusal::NotFound => 500,
        Refusal::NotReady => 600,
        Refusal::Fault(Problem::OutOfBounds) => 700,
        Refusal::TooManyResources => 701,
        Refusal::Fault(Problem::Misaligned) => 716,
        Refusal::Fault(_) => 719,
        Refusal::CaptureUnsupported => 900,
        Refusal::CaptureInvalidated => 901,
    }
}

fn done(result: Done) -> c_int {
    result.map_or_else(code, |()| SUCCESS)
}

/// The default device of a thread is the first one.
fn engine<T>(work: impl FnOnce(&mut Engine) -> Done<T>) -> Done<T> {
    if current().is_err() {
        set_current(Some(0));
    }
    with(settings().wave, work)
}

unsafe fn give<T>(to: *mut T, result: Done<T>) -> c_int {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: every caller passes a pointer to a T.
    done(result.map(|value| unsafe { to.write(value) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipInit(flags: c_uint) -> c_int {
    if flags == 0 { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> c_int {
    unsafe { give(version, Ok(VERSION)) }
}

fn device(number: c_int) -> Done<usize> {
    usize::try_from(number).ok().filter(|&device| device < settings().devices).ok_or(Refusal::InvalidDevice)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> c_int {
    unsafe { give(count, Ok(settings().devices as c_int)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipSetDevice(number: c_int) -> c_int {
    done(device(number).map(|device| set_current(Some(device))))
}

/// Fills the fields of `hipDeviceProp_tR0600` that are read, at their offsets; the struct has 1472 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDevicePropertiesR0600(properties: *mut u8, number: c_int) -> c_int {
    if let Err(refusal) = device(number) {
        return code(refusal);
    }
    let target = if settings().wave == 64 { c"gfx942" } else { c"gfx1100" };
    let put = |at: usize, bytes: &[u8]| {
        // SAFETY: the caller's struct has 1472 bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), properties.add(at), bytes.len()) };
    };
    put(0, c"Assay GPU emulator".to_bytes_with_nul());
    put(288, &(settings().memory as u64).to_ne_bytes());
    put(296, &SHARED.to_ne_bytes());
    put(308, &settings().wave.to_ne_bytes());
    put(388, &4u32.to_ne_bytes());
    put(1160, target.to_bytes_with_nul());
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    match engine(|engine| engine.room()) {
        Ok((left, all)) => unsafe { give(free, Ok(left as usize)) | give(total, Ok(all as usize)) },
        Err(refusal) => code(refusal),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMalloc(address: *mut u64, bytes: usize) -> c_int {
    unsafe { give(address, engine(|engine| engine.allocate(bytes as u64))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipFree(address: u64) -> c_int {
    done(engine(|engine| engine.free(address)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipHostMalloc(memory: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    unsafe { give(memory, engine(|engine| engine.allocate_pinned(bytes)).map(|at| at.cast())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipHostFree(memory: *mut c_void) -> c_int {
    done(engine(|engine| engine.free_pinned(memory.cast())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemcpyHtoDAsync(to: u64, from: *const c_void, bytes: usize, _stream: *mut c_void) -> c_int {
    // SAFETY: the caller's memory is readable for `bytes`.
    done(engine(|engine| unsafe { engine.copy_in(to, from.cast(), bytes as u64) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemcpyDtoHAsync(to: *mut c_void, from: u64, bytes: usize, _stream: *mut c_void) -> c_int {
    // SAFETY: the caller's memory is writable for `bytes`.
    done(engine(|engine| unsafe { engine.copy_out(to.cast(), from, bytes as u64) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemcpyDtoDAsync(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.enqueue(stream as u64, Work::Copy { to, from, bytes: bytes as u64 })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipMemsetD8Async(at: u64, value: u8, bytes: usize, stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.enqueue(stream as u64, Work::Clear { at, value, bytes: bytes as u64 })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    // SAFETY: an image that starts with our mark was returned by `hiprtcGetCode`.
    let code = unsafe { code_of(image.cast()) }.ok_or(Refusal::InvalidImage);
    unsafe { give(module, code.and_then(|code| engine(|engine| engine.load(code))).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleUnload(module: *mut c_void) -> c_int {
    done(engine(|engine| engine.unload(module as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    unsafe {
        let found = engine(|engine| {
            let function = engine.function(module as u64, &name)?;
            engine.allow_dynamic(function, SHARED as u32)?;
            Ok(function)
        });
        give(function, found.map(|id| id as *mut c_void))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipModuleLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    done(engine(|engine| {
        let sizes = engine.parameters(function as u64)?;
        let launch = Launch {
            function: function as u64,
            grid: Index3 { x: grid_x, y: grid_y, z: grid_z },
            block: Index3 { x: block_x, y: block_y, z: block_z },
            shared,
            // SAFETY: the caller passes the kernel's arguments.
            arguments: unsafe { arguments(&sizes, parameters) }?,
        };
        engine.enqueue(stream as u64, Work::Launch(Arc::new(launch)))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut *mut c_void, _flags: c_uint) -> c_int {
    unsafe { give(stream, engine(Engine::stream).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamDestroy(stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_stream(stream as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamSynchronize(_stream: *mut c_void) -> c_int {
    done(engine(Engine::synchronize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamBeginCapture(stream: *mut c_void, _mode: c_int) -> c_int {
    done(engine(|engine| engine.begin_capture(stream as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int {
    unsafe { give(graph, engine(|engine| engine.end_capture(stream as u64)).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphInstantiateWithFlags(made: *mut *mut c_void, graph: *mut c_void, _flags: u64) -> c_int {
    unsafe { give(made, engine(|engine| engine.instantiate(graph as u64)).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphLaunch(executable: *mut c_void, _stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.replay(executable as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphExecDestroy(executable: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_graph(executable as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGraphDestroy(graph: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_graph(graph as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventCreate(event: *mut *mut c_void) -> c_int {
    unsafe { give(event, engine(Engine::event).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventDestroy(event: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_event(event as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.enqueue(stream as u64, Work::Record { event: event as u64 })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventSynchronize(_event: *mut c_void) -> c_int {
    done(engine(Engine::synchronize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventElapsedTime(milliseconds: *mut f32, from: *mut c_void, to: *mut c_void) -> c_int {
    unsafe { give(milliseconds, engine(|engine| engine.elapsed(from as u64, to as u64))) }
}
