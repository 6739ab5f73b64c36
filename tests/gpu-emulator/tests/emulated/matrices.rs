//! Products of bf16 matrices by all lanes of a wave, as in `kernels/fragments.h`, and the copies of the matrices to shared
//! memory.

use assay_cuda::Cuda;
use assay_gpu::{Driver, DriverError};
use assay_gpu_emulator::emulated;
use assay_rocm::Rocm;

use crate::support::{clean, floats, line, pointer, read, says};

const HEADERS: [(&str, &str); 3] = [
    ("vendor.h", include_str!("../../../../backends/gpu/kernels/vendor.h")),
    ("common.h", include_str!("../../../../backends/gpu/kernels/common.h")),
    ("fragments.h", include_str!("../../../../backends/gpu/kernels/fragments.h")),
];

/// y = a b^T and z = a b, of 16 by 16.
const SOURCE: &str = r#"
#include "fragments.h"
KERNEL k(float* y, float* z, const u16* a, const u16* b) {
    __shared__ Quad tiles[2][16 * 24 / 8];
    u16 *left_side = (u16*)tiles[0], *right_side = (u16*)tiles[1];
    for (u32 i = threadIdx.x; i < 256; i += WAVE) {
        left_side[i / 16 * 24 + i % 16] = a[i];
        right_side[i / 16 * 24 + i % 16] = b[i];
    }
    BARRIER
    Left left[1];
    left_rows(left, a, 0, 16, 16);
    Sum s, t;
    for (u32 i = 0; i < ITEMS; i++) s.at[i] = t.at[i] = 0.0f;
    if (LANES) add_product(s, left[0], right_rows(right_side, 24));
    add_product(t, left_tile(left_side, 24), right_columns(right_side, 24));
    for (u32 i = 0; i < ITEMS; i++) {
        y[line_of(i) * 16 + column_of(i)] = s.at[i];
        z[line_of(i) * 16 + column_of(i)] = t.at[i];
    }
}"#;

/// Small integers, which bf16 represents exactly and whose products f32 adds without rounding.
fn number(i: usize) -> i32 {
    (i as i32 * 37 + 5) % 23 - 11
}

fn bf16(device: &dyn Driver, from: usize) -> Result<assay_gpu::Address, DriverError> {
    let half = |i| ((number(i) as f32).to_bits() >> 16) as u16;
    let bytes: Vec<u8> = (from..from + 256).flat_map(|i| half(i).to_le_bytes()).collect();
    let address = device.allocate(bytes.len())?;
    device.copy_to_device(address, &bytes)?;
    Ok(address)
}

/// Both products, by one wave.
fn products(device: &dyn Driver, wave: u32, barrier: &str, lanes: &str) -> Result<[Vec<f32>; 2], DriverError> {
    let source = SOURCE.replace("BARRIER", barrier).replace("LANES", lanes);
    let function = device.compile_kernels(&source, &HEADERS, &[], &["k"])?[0];
    let (y, z) = (device.allocate(1024)?, device.allocate(1024)?);
    let arguments = [pointer(y), pointer(z), pointer(bf16(device, 0)?), pointer(bf16(device, 1000)?)];
    device.launch_kernel(function, line(1, wave, 0), &arguments)?;
    device.synchronize()?;
    Ok([read(device, y, 256)?, read(device, z, 256)?])
}

fn cuda() -> Cuda {
    Cuda::open(0, None).unwrap()
}

fn expected() -> [Vec<f32>; 2] {
    let (a, b) = (number, |i| number(1000 + i));
    let sum = |of: &dyn Fn(usize) -> i32| (0..16).map(of).sum::<i32>() as f32;
    let at = |i: usize| (i / 16, i % 16);
    let along = (0..256).map(|i| sum(&|k| a(at(i).0 * 16 + k) * b(at(i).1 * 16 + k)));
    let across = (0..256).map(|i| sum(&|k| a(at(i).0 * 16 + k) * b(k * 16 + at(i).1)));
    [along.collect(), across.collect()]
}

#[test]
fn a_warp_multiplies_matrices() {
    let body = || assert_eq!(products(&cuda(), 32, "__syncthreads();", "true").unwrap(), expected());
    for seed in ["0", "3"] {
        emulated("matrices::a_warp_multiplies_matrices", &[("ASSAY_GPU_EMULATOR_SEED", seed)], body, clean);
    }
}

#[test]
fn a_wave_of_64_multiplies_matrices() {
    let body = || {
        let device = Rocm::open(0, None).unwrap();
        assert_eq!(products(&device, 64, "__syncthreads();", "true").unwrap(), expected());
    };
    for seed in ["0", "3"] {
        let variables = [("ASSAY_GPU_EMULATOR_SEED", seed), ("ASSAY_GPU_EMULATOR_WAVE", "64")];
        emulated("matrices::a_wave_of_64_multiplies_matrices", &variables, body, clean);
    }
}

#[test]
fn a_product_without_some_lanes_is_found() {
    let body =
        || assert!(matches!(products(&cuda(), 32, "__syncthreads();", "threadIdx.x < 16"), Err(DriverError::Fault(_))));
    emulated("matrices::a_product_without_some_lanes_is_found", &[], body, says(&["`k`", "wait for each other"]));
}

/// Neither loading nor multiplying matrices orders memory accesses.
#[test]
fn a_barrier_is_needed_before_matrices_are_loaded() {
    let body = || assert!(matches!(products(&cuda(), 32, "", "true"), Err(DriverError::Fault(_))));
    let name = "matrices::a_barrier_is_needed_before_matrices_are_loaded";
    emulated(name, &[], body, says(&["`k`", "shared memory"]));
}

/// Reverses 64 floats through shared memory, twice: the second half is loaded while the first is used.
const COPIED: &str = r#"
#include "common.h"
KERNEL k(float* y, const float* x) {
    __shared__ Quad tile[2][8];
    if (threadIdx.x < 8) copy16(&tile[0][threadIdx.x], x + 4 * threadIdx.x, true);
    WAIT
    __syncthreads();
    if (threadIdx.x < 8) copy16(&tile[SECOND][threadIdx.x], x + 32 + 4 * threadIdx.x, threadIdx.x < 7);
    y[threadIdx.x] = ((float*)tile[0])[31 - threadIdx.x];
    arrived();
    __syncthreads();
    y[32 + threadIdx.x] = ((float*)tile[SECOND])[31 - threadIdx.x];
}"#;

fn copied(wait: &str, second: &str) -> Result<Vec<f32>, DriverError> {
    let device = cuda();
    let source = COPIED.replace("WAIT", wait).replace("SECOND", second);
    let function = device.compile_kernels(&source, &HEADERS, &[], &["k"])?[0];
    let x: Vec<f32> = (1..=64u8).map(f32::from).collect();
    let (y, x) = (device.allocate(256)?, floats(&device, &x));
    device.launch_kernel(function, line(1, 32, 0), &[pointer(y), pointer(x)])?;
    device.synchronize()?;
    read(&device, y, 64)
}

#[test]
fn copies_arrive_when_they_are_waited_for() {
    let body = || {
        let mut turned: Vec<f32> = (1..=32u8).rev().chain((33..=64u8).rev()).map(f32::from).collect();
        // Elements that are not copied are zero.
        turned[32..36].fill(0.0);
        assert_eq!(copied("arrived();", "1").unwrap(), turned);
    };
    for seed in ["0", "5"] {
        let variables = [("ASSAY_GPU_EMULATOR_SEED", seed)];
        emulated("matrices::copies_arrive_when_they_are_waited_for", &variables, body, clean);
    }
}

#[test]
fn a_copy_that_is_not_waited_for_is_found() {
    let body = || assert!(matches!(copied("", "1"), Err(DriverError::Fault(_))));
    emulated("matrices::a_copy_that_is_not_waited_for_is_found", &[], body, says(&["`k`", "since the last barrier"]));
}

#[test]
fn a_copy_over_what_is_still_read_is_found() {
    let body = || assert!(matches!(copied("arrived();", "0"), Err(DriverError::Fault(_))));
    let expected = says(&["`k`", "since the last barrier"]);
    emulated("matrices::a_copy_over_what_is_still_read_is_found", &[("ASSAY_GPU_EMULATOR_SEED", "5")], body, expected);
}
