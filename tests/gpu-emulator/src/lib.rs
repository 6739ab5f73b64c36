//! Emulates the GPU vendors' libraries in tests: kernels run on the processor, and every access is checked.
//!
//! The library exports the functions of libcuda, libnvrtc and libcublasLt, and of libamdhip64, libhiprtc and librocblas
//! that our backends call, under the vendors' names; in a folder that is searched first, it is loaded instead of them.
//! [`emulated`] sets this up for a test.
//!
//! A kernel is compiled by the host's C++ compiler, with instrumented loads and stores. The threads of a block are
//! fibers, so that barriers, shuffles and shared memory have their usual meaning.
//!
//! # Checks
//!
//! - Loads and stores: within an allocation (by the byte), aligned, and only of initialised bytes. An address is never
//!   reused, so a use after free is always found.
//! - Shared memory: a race is reported if two threads access the same byte, at least one of them writes, and no barrier
//!   or synchronising operation of their warp is between them.
//! - Barriers and shuffles: a deadlock, a lane outside of its mask, and a source lane that does not participate.
//! - With a seed (`ASSAY_GPU_EMULATOR_SEED`), blocks and threads run in another order and interrupt each other, which
//!   reveals kernels whose bits depend on the order.
//! - Launches that exceed the limits of the kernel or the device; calls that a capture does not allow; leaks at the end
//!   of a context.
//!
//! A problem is a line on standard error and in the file `ASSAY_GPU_EMULATOR_REPORT`, and an error code of the call that
//! would return it on hardware. `ASSAY_GPU_EMULATOR_FAIL` injects failures: `allocation:N` and `bytes:N`, `lost:N` and
//! `fault:N` (at the N-th launch); with the suffix `@D` only on device D. `ASSAY_GPU_EMULATOR_GELU=0` removes GELU from
//! libcublasLt's epilogues, as if the library had no algorithm for it. `ASSAY_GPU_EMULATOR_DEVICES` sets the number of
//! devices; every process has a separate emulator with separate devices.
//!
//! # In reading order
//!
//! `testing.rs` is for tests. `engine.rs` is the device; `memory.rs`, `run.rs` and `product.rs` are its parts;
//! `compile.rs` and `source.rs` are the compiler; `cuda.rs`, `rtc.rs` and `cublaslt.rs` have NVIDIA's names, `hip.rs`,
//! `hiprtc.rs` and `rocblas.rs` AMD's. The code that runs with a kernel is C++, in `device/`.

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
