//! Stands in for the GPU vendors' libraries in tests: kernels run on the processor, and every access is checked.
//!
//! The library exports what our backends call of libcuda, libnvrtc and libcublasLt, and of libamdhip64, libhiprtc and
//! librocblas, under the vendors' names; in a folder that is searched before all others it is found in their place.
//! [`emulated`] sets this up for a test.
//!
//! A kernel is compiled by the host's C++ compiler, its loads and stores instrumented. The threads of a block are
//! fibers, so that barriers, shuffles and shared memory mean what they mean.
//!
//! # What is checked
//!
//! - Loads and stores: within an allocation (by the byte), aligned, and of what was written before. An address is
//!   never given out twice, so that a use after free is always found.
//! - Shared memory: two threads that touch the same byte, one of them writing, with no barrier or meeting of their warp
//!   between them, are a race.
//! - Barriers and shuffles: a deadlock, a lane outside of its mask, and a source lane that takes no part.
//! - With a seed (`ASSAY_GPU_EMULATOR_SEED`), blocks and threads run in another order and interrupt each other: a
//!   kernel whose bits depend on that shows it.
//! - Launches beyond the bounds of the kernel or the device; calls that a capture does not allow; leaks at the end of
//!   a context.
//!
//! A problem is a line on standard error and in the file `ASSAY_GPU_EMULATOR_REPORT`, and an error code of the call
//! that hardware would give it from. `ASSAY_GPU_EMULATOR_FAIL` makes things fail that are sound: `allocation:N` and
//! `bytes:N`, `lost:N` and `fault:N` (at the N-th launch); with `@D` behind it on device D alone.
//! `ASSAY_GPU_EMULATOR_GELU=0` takes GELU out of libcublasLt's epilogues, as where the library has no algorithm for it.
//! `ASSAY_GPU_EMULATOR_DEVICES` says how many devices there are; every process has its own emulator, and its own devices.
//!
//! # In reading order
//!
//! `testing.rs` is for tests. `engine.rs` is the device; `memory.rs`, `run.rs` and `product.rs` are its parts;
//! `compile.rs` and `source.rs` are the compiler; `cuda.rs`, `rtc.rs` and `cublaslt.rs` are NVIDIA's
//! names, `hip.rs`, `hiprtc.rs` and `rocblas.rs` AMD's. What
//! runs with a kernel is C++, in `device/`.

mod abi;
mod compile;
mod cublaslt;
mod cuda;
mod engine;
mod hip;
mod hiprtc;
mod memory;
mod product;
mod report;
mod rocblas;
mod rtc;
mod run;
mod settings;
mod source;
mod testing;

pub use testing::{Emulated, emulated, library_folder};
