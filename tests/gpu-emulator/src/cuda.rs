//! libcuda: the part of the driver API that the CUDA backend calls. Names, codes and order are NVIDIA's.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use crate::abi::arguments;
use crate::compile::code_of;
use crate::engine::{DYNAMIC_MOST, Done, Engine, Launch, Refusal, Work, current, set_current, with};
use crate::run::{Index3, Problem};
use crate::settings::settings;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;

/// The width of CUDA's warps.
const WARP: u32 = 32;
/// The result of `cuDriverGetVersion`: 13.0.
const VERSION: c_int = 13000;

fn code(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::InvalidValue => INVALID_VALUE,
        Refusal::OutOfMemory => 2,
        Refusal::Lost => 46,
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

const NAMES: [(c_int, &CStr, &CStr); 16] = [
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"),
    (901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture"),
];

fn done(result: Done) -> c_int {
    result.map_or_else(code, |()| SUCCESS)
}

fn engine<T>(work: impl FnOnce(&mut Engine) -> Done<T>) -> Done<T> {
    with(WARP, work)
}

/// Writes the result of a call to the caller's location.
unsafe fn give<T>(to: *mut T, result: Done<T>) -> c_int {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: every caller passes a pointer to a T.
    done(result.map(|value| unsafe { to.write(value) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: c_uint) -> c_int {
    if flags == 0 { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    unsafe { give(version, Ok(VERSION)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    let found = NAMES.iter().find(|(code, _, _)| *code == error).ok_or(Refusal::InvalidValue);
    unsafe { give(text, found.map(|(_, name, _)| name.as_ptr())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    let found = NAMES.iter().find(|(code, _, _)| *code == error).ok_or(Refusal::InvalidValue);
    unsafe { give(text, found.map(|(_, _, text)| text.as_ptr())) }
}

// Devices and contexts. A device's handle is its index, a context's is that and one more, so that none is null.

fn device(handle: c_int) -> Done<usize> {
    usize::try_from(handle).ok().filter(|&device| device < settings().devices).ok_or(Refusal::InvalidDevice)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    unsafe { give(count, Ok(settings().devices as c_int)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(handle: *mut c_int, ordinal: c_int) -> c_int {
    unsafe { give(handle, device(ordinal).map(|_| ordinal)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, handle: c_int) -> c_int {
    let text = c"Assay GPU emulator".to_bytes_with_nul();
    if let Err(refusal) = device(handle) {
        return code(refusal);
    }
    if name.is_null() || (length as usize) < text.len() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's buffer has `length` bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, handle: c_int) -> c_int {
    unsafe { give(bytes, device(handle).map(|_| settings().memory)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, handle: c_int) -> c_int {
    let found = match attribute {
        1 => Ok(1024),
        8 => Ok(48 * 1024),
        10 => Ok(WARP as c_int),
        16 => Ok(4),
        75 => Ok(9),
        76 => Ok(0),
        97 => Ok(DYNAMIC_MOST as c_int),
        _ => Err(Refusal::InvalidValue),
    };
    unsafe { give(value, device(handle).and(found)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, handle: c_int) -> c_int {
    let retained = device(handle).and_then(|device| engine(|engine| engine.retain(device)).map(|()| device));
    unsafe { give(context, retained.map(|device| (device + 1) as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(handle: c_int) -> c_int {
    done(device(handle).and_then(|device| engine(|engine| engine.release(device))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    set_current((context as usize).checked_sub(1));
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    unsafe { give(context, Ok(current().map_or(0, |device| device + 1) as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> c_int {
    done(engine(Engine::synchronize))
}

// Memory.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    match engine(|engine| engine.room()) {
        Ok((left, all)) => unsafe { give(free, Ok(left as usize)) | give(total, Ok(all as usize)) },
        Err(refusal) => code(refusal),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    unsafe { give(address, engine(|engine| engine.allocate(bytes as u64))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    done(engine(|engine| engine.free(address)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    unsafe { give(memory, engine(|engine| engine.allocate_pinned(bytes)).map(|at| at.cast())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFreeHost(memory: *mut c_void) -> c_int {
    done(engine(|engine| engine.free_pinned(memory.cast())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, _stream: *mut c_void) -> c_int {
    // SAFETY: the caller's memory is readable for `bytes`.
    done(engine(|engine| unsafe { engine.copy_in(to, from.cast(), bytes as u64) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, _stream: *mut c_void) -> c_int {
    // SAFETY: the caller's memory is writable for `bytes`.
    done(engine(|engine| unsafe { engine.copy_out(to.cast(), from, bytes as u64) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.enqueue(stream as u64, Work::Copy { to, from, bytes: bytes as u64 })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.enqueue(stream as u64, Work::Clear { at, value, bytes: bytes as u64 })))
}

// Modules and launches.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    // SAFETY: an image that starts with our mark was returned by `nvrtcGetCUBIN`.
    let code = unsafe { code_of(image.cast()) }.ok_or(Refusal::InvalidImage);
    unsafe { give(module, code.and_then(|code| engine(|engine| engine.load(code))).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    done(engine(|engine| engine.unload(module as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    // SAFETY: the name is a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    unsafe { give(function, engine(|engine| engine.function(module as u64, &name)).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncSetAttribute(function: *mut c_void, attribute: c_int, value: c_int) -> c_int {
    /// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    const DYNAMIC: c_int = 8;
    match u32::try_from(value) {
        Ok(bytes) if attribute == DYNAMIC => done(engine(|engine| engine.allow_dynamic(function as u64, bytes))),
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
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

// Streams, graphs, events.

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> c_int {
    unsafe { give(stream, engine(Engine::stream).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_stream(stream as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamSynchronize(_stream: *mut c_void) -> c_int {
    done(engine(Engine::synchronize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_uint) -> c_int {
    done(engine(|engine| engine.begin_capture(stream as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int {
    unsafe { give(graph, engine(|engine| engine.end_capture(stream as u64)).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    _flags: c_ulonglong,
) -> c_int {
    unsafe { give(executable, engine(|engine| engine.instantiate(graph as u64)).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(executable: *mut c_void, _stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.replay(executable as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(executable: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_graph(executable as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_graph(graph as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_int {
    unsafe { give(event, engine(Engine::event).map(|id| id as *mut c_void)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_int {
    done(engine(|engine| engine.end_event(event as u64)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    done(engine(|engine| engine.enqueue(stream as u64, Work::Record { event: event as u64 })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(_event: *mut c_void) -> c_int {
    done(engine(Engine::synchronize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: *mut c_void, to: *mut c_void) -> c_int {
    unsafe { give(milliseconds, engine(|engine| engine.elapsed(from as u64, to as u64))) }
}
