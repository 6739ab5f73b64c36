//! Common parts of the vendors' C interfaces.

use std::ffi::c_void;

use crate::engine::{Done, Refusal};

/// Copies the arguments behind a launch's pointers, with the sizes of the kernel's parameters.
pub(crate) unsafe fn arguments(sizes: &[u32], pointers: *mut *mut c_void) -> Done<Vec<Vec<u8>>> {
    let values = sizes.iter().enumerate().map(|(i, &size)| {
        // SAFETY: a launch gives one pointer for each parameter.
        let pointer = unsafe { *pointers.add(i) };
        if pointer.is_null() {
            return Err(Refusal::InvalidValue);
        }
        Ok(unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size as usize) }.to_vec())
    });
    values.collect()
}
