//! Problems that hardware does not report, but the emulator does.

use assay_gpu::{Argument, Driver, DriverError};
use assay_gpu_emulator::emulated;

use crate::support::{clean, floats, kernel, line, open, pointer, read, says};

/// Runs one block of 64 threads of a kernel `void k(float* y, const float* x, unsigned int n)` on 64 floats.
fn run(source: &str) -> Result<Vec<f32>, DriverError> {
    let device = open();
    let function = kernel(&device, source, "k");
    let x: Vec<f32> = (0..64u8).map(f32::from).collect();
    let (y, x) = (device.allocate(64 * 4)?, floats(&device, &x));
    device.launch_kernel(function, line(1, 64, 0), &[pointer(y), pointer(x), Argument::U32(64)])?;
    device.synchronize()?;
    read(&device, y, 64)
}

/// Reverses the block's floats: each thread reads a value that another thread wrote to shared memory.
const TURNED: &str = r#"
extern "C" __global__ void __launch_bounds__(256) k(float* y, const float* x, unsigned int n) {
    __shared__ float tile[64];
    unsigned int i = threadIdx.x;
    tile[i] = x[i];
    BARRIER
    y[i] = tile[n - 1 - i];
}"#;

#[test]
fn a_barrier_orders_shared_memory() {
    for seed in ["0", "3"] {
        let body = || {
            let turned: Vec<f32> = (0..64u8).rev().map(f32::from).collect();
            assert_eq!(run(&TURNED.replace("BARRIER", "__syncthreads();")).unwrap(), turned);
        };
        emulated("checks::a_barrier_orders_shared_memory", &[("ASSAY_GPU_EMULATOR_SEED", seed)], body, clean);
    }
}

#[test]
fn a_missing_barrier_is_found() {
    let body = || assert!(matches!(run(&TURNED.replace("BARRIER", "")), Err(DriverError::Fault(_))));
    for seed in ["0", "7"] {
        let variables = [("ASSAY_GPU_EMULATOR_SEED", seed)];
        emulated("checks::a_missing_barrier_is_found", &variables, body, says(&["`k`", "shared memory", "thread ("]));
    }
}

#[test]
fn a_race_in_device_memory_shows_under_a_seed() {
    // Each thread adds to one float without an atomic instruction, so the result depends on the order.
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    unsigned int i = threadIdx.x;
    y[i] = 0.0f;
    __syncthreads();
    y[0] = y[0] * 0.5f + x[i];
}"#;
    let name = "checks::a_race_in_device_memory_shows_under_a_seed";
    let mut bits = std::collections::BTreeSet::new();
    for seed in ["0", "1", "2"] {
        emulated(
            name,
            &[("ASSAY_GPU_EMULATOR_SEED", seed)],
            || println!("bits {:?}", run(source).unwrap()[0]),
            |ran| {
                let said = String::from_utf8_lossy(&ran.output.stdout);
                bits.extend(said.lines().filter_map(|line| line.split_once("bits ")).map(|(_, bits)| bits.to_owned()));
            },
        );
    }
    assert!(bits.len() > 1 || std::env::var_os("ASSAY_GPU_EMULATOR_INSIDE").is_some(), "{bits:?}");
}

#[test]
fn a_read_beyond_the_end_is_found() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    y[threadIdx.x] = x[threadIdx.x + 1];
}"#;
    let body = || match run(source) {
        Err(DriverError::Fault(text)) => assert!(text.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{text}"),
        other => panic!("{other:?}"),
    };
    let expected = says(&["`k`, thread (63, 0, 0)", "reads 4 bytes at 0 bytes behind the end", "256 bytes"]);
    emulated("checks::a_read_beyond_the_end_is_found", &[], body, expected);
}

#[test]
fn a_read_before_any_write_is_found() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    y[threadIdx.x] += x[threadIdx.x];
}"#;
    let body = || assert!(matches!(run(source), Err(DriverError::Fault(_))));
    emulated("checks::a_read_before_any_write_is_found", &[], body, says(&["nobody wrote", "byte 0 of allocation"]));
}

#[test]
fn unwritten_shared_memory_is_found() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    __shared__ float tile[64];
    if (threadIdx.x < 32) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}"#;
    let body = || assert!(matches!(run(source), Err(DriverError::Fault(_))));
    emulated(
        "checks::unwritten_shared_memory_is_found",
        &[],
        body,
        says(&["shared memory that nobody wrote", "(32, 0, 0)"]),
    );
}

#[test]
fn shared_memory_has_an_end() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[threadIdx.x];
}"#;
    let body = || {
        let device = open();
        let function = kernel(&device, source, "k");
        let (y, x) = (device.allocate(256).unwrap(), floats(&device, &[1.0; 64]));
        let arguments = [pointer(y), pointer(x), Argument::U32(64)];
        device.launch_kernel(function, line(1, 64, 256), &arguments).unwrap();
        assert_eq!(read(&device, y, 64).unwrap(), [1.0; 64]);
        device.launch_kernel(function, line(1, 64, 252), &arguments).unwrap();
        assert!(matches!(device.synchronize(), Err(DriverError::Fault(_))));
    };
    emulated("checks::shared_memory_has_an_end", &[], body, says(&["(63, 0, 0)", "dynamic shared memory"]));
}

#[test]
fn use_after_free_is_found() {
    let body = || {
        let device = open();
        let source = r#"extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }"#;
        let function = kernel(&device, source, "k");
        let y = device.allocate(256).unwrap();
        device.free(y).unwrap();
        assert!(device.free(y).is_err());
        device.launch_kernel(function, line(1, 64, 0), &[pointer(y)]).unwrap();
        assert!(matches!(device.synchronize(), Err(DriverError::Fault(_))));
    };
    emulated("checks::use_after_free_is_found", &[], body, says(&["writes", "which was freed"]));
}

#[test]
fn threads_that_wait_for_each_other_are_found() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) __syncthreads();
    v = __shfl_xor_sync(0xffffffffu, v, 1);
    y[threadIdx.x] = v;
}"#;
    let body = || assert!(matches!(run(source), Err(DriverError::Fault(_))));
    emulated("checks::threads_that_wait_for_each_other_are_found", &[], body, says(&["wait for each other"]));
}

#[test]
fn shuffles_and_votes_move_what_they_say() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    float v = x[threadIdx.x];
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    y[threadIdx.x] = odd == 0xaaaaaaaau ? v + __shfl_sync(0xffffffffu, v, 0) : -1.0f;
}"#;
    let body = || {
        // 0 + .. + 31 = 496, and 32 * 32 more in the second warp; each is doubled.
        let expected: Vec<f32> = (0..64).map(|i| if i < 32 { 992.0 } else { 992.0 + 2048.0 }).collect();
        assert_eq!(run(source).unwrap(), expected);
    };
    emulated("checks::shuffles_and_votes_move_what_they_say", &[("ASSAY_GPU_EMULATOR_SEED", "5")], body, clean);
}

#[test]
fn a_crash_in_a_kernel_is_its_fault() {
    let source = r#"
extern "C" __global__ void k(float* y, const float* x, unsigned int n) {
    if (threadIdx.x == 3) __trap();
    y[threadIdx.x] = *(const float*)(unsigned long long)n;
}"#;
    let body = || assert!(matches!(run(source), Err(DriverError::Fault(_))));
    emulated("checks::a_crash_in_a_kernel_is_its_fault", &[], body, says(&["`k`"]));
}

#[test]
fn a_launch_beyond_the_bounds_is_refused() {
    let body = || {
        let device = open();
        let source = r#"extern "C" __global__ void __launch_bounds__(128) k(float* y) { y[threadIdx.x] = 1.0f; }"#;
        let function = kernel(&device, source, "k");
        let y = device.allocate(1024).unwrap();
        assert!(matches!(
            device.launch_kernel(function, line(1, 256, 0), &[pointer(y)]),
            Err(DriverError::Call { .. })
        ));
        device.launch_kernel(function, line(1, 128, 0), &[pointer(y)]).unwrap();
        device.synchronize().unwrap();
    };
    emulated("checks::a_launch_beyond_the_bounds_is_refused", &[], body, says(&["256 threads, and takes 128"]));
}
