//! libhiprtc: NVRTC's functions under AMD's names.
#![allow(non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int};

use crate::compile::Vendor;
use crate::rtc::{Part, Program, build, create, destroy, read, size};

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: the caller's places are for numbers.
    unsafe {
        major.write(6);
        minor.write(3);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCreateProgram(
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
unsafe extern "C" fn hiprtcDestroyProgram(program: *mut *mut Program) -> c_int {
    unsafe { destroy(program) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCompileProgram(program: *mut Program, count: c_int, options: *const *const c_char) -> c_int {
    unsafe { build(Vendor::Amd, program, count, options) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetCodeSize(program: *mut Program, bytes: *mut usize) -> c_int {
    unsafe { size(program, Part::Image, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetCode(program: *mut Program, to: *mut c_char) -> c_int {
    unsafe { read(program, Part::Image, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetProgramLogSize(program: *mut Program, bytes: *mut usize) -> c_int {
    unsafe { size(program, Part::Log, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetProgramLog(program: *mut Program, to: *mut c_char) -> c_int {
    unsafe { read(program, Part::Log, to) }
}
