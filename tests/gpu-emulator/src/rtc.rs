//! A program of a runtime compiler; libnvrtc and libhiprtc differ only in names.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int};

use crate::compile::{Vendor, compile, image};

const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const COMPILATION: c_int = 6;

/// A source, and its compiled code.
pub(crate) struct Program {
    source: String,
    headers: Vec<(String, String)>,
    image: Vec<u8>,
    /// Terminated by a zero, for C callers.
    log: Vec<u8>,
}

unsafe fn text(from: *const c_char) -> String {
    // SAFETY: the callers hand in C strings.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

unsafe fn texts(count: c_int, from: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the callers hand in so many C strings.
    (0..count).map(|i| unsafe { text(*from.add(i)) }).collect()
}

pub(crate) unsafe fn create(
    program: *mut *mut Program,
    source: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    if program.is_null() || source.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: guaranteed by the caller, according to the library's documentation.
    unsafe {
        let (texts_of, names) = (texts(count, headers), texts(count, names));
        let headers = names.into_iter().zip(texts_of).collect();
        let made = Program { source: text(source), headers, image: Vec::new(), log: vec![0] };
        program.write(Box::into_raw(Box::new(made)));
    }
    SUCCESS
}

pub(crate) unsafe fn destroy(program: *mut *mut Program) -> c_int {
    if program.is_null() || unsafe { (*program).is_null() } {
        return INVALID_PROGRAM;
    }
    // SAFETY: it came from `create`, and is destroyed once.
    drop(unsafe { Box::from_raw(*program) });
    SUCCESS
}

pub(crate) unsafe fn build(
    vendor: Vendor,
    program: *mut Program,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: it came from `create`.
    let Some(program) = (unsafe { program.as_mut() }) else { return INVALID_PROGRAM };
    let options = unsafe { texts(count, options) };
    match compile(vendor, &program.source, &program.headers, &options) {
        Ok(code) => {
            program.image = image(&code);
            SUCCESS
        }
        Err(log) => {
            program.log = log.into_bytes();
            program.log.push(0);
            COMPILATION
        }
    }
}

/// The readable properties of a program.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Image,
    Log,
}

unsafe fn part<'a>(program: *mut Program, part: Part) -> Option<&'a [u8]> {
    // SAFETY: it came from `create`.
    let program = unsafe { program.as_ref() }?;
    Some(match part {
        Part::Image => &program.image,
        Part::Log => &program.log,
    })
}

pub(crate) unsafe fn size(program: *mut Program, which: Part, bytes: *mut usize) -> c_int {
    match unsafe { part(program, which) } {
        Some(found) if !bytes.is_null() => {
            // SAFETY: the caller's place is for a size.
            unsafe { bytes.write(found.len()) };
            SUCCESS
        }
        _ => INVALID_PROGRAM,
    }
}

pub(crate) unsafe fn read(program: *mut Program, which: Part, to: *mut c_char) -> c_int {
    match unsafe { part(program, which) } {
        Some(found) if !to.is_null() => {
            // SAFETY: the caller asked for the size first.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr().cast(), to, found.len()) };
            SUCCESS
        }
        _ => INVALID_PROGRAM,
    }
}

// libnvrtc.

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: the caller's places are for numbers.
    unsafe {
        major.write(13);
        minor.write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"NVRTC_SUCCESS",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

/// The architectures for which this compiler generates code.
const ARCHITECTURES: [c_int; 4] = [75, 80, 90, 100];

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> c_int {
    // SAFETY: the caller's place is for a number.
    unsafe { count.write(ARCHITECTURES.len() as c_int) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetSupportedArchs(architectures: *mut c_int) -> c_int {
    // SAFETY: the caller asked for the number first.
    unsafe { std::ptr::copy_nonoverlapping(ARCHITECTURES.as_ptr(), architectures, ARCHITECTURES.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut Program,
    source: *const c_char,
    _name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    unsafe { create(program, source, count, headers, names) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut Program) -> c_int {
    unsafe { destroy(program) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(program: *mut Program, count: c_int, options: *const *const c_char) -> c_int {
    unsafe { build(Vendor::Nvidia, program, count, options) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut Program, bytes: *mut usize) -> c_int {
    unsafe { size(program, Part::Image, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetCUBIN(program: *mut Program, to: *mut c_char) -> c_int {
    unsafe { read(program, Part::Image, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTXSize(program: *mut Program, bytes: *mut usize) -> c_int {
    unsafe { size(program, Part::Image, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTX(program: *mut Program, to: *mut c_char) -> c_int {
    unsafe { read(program, Part::Image, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut Program, bytes: *mut usize) -> c_int {
    unsafe { size(program, Part::Log, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLog(program: *mut Program, to: *mut c_char) -> c_int {
    unsafe { read(program, Part::Log, to) }
}
