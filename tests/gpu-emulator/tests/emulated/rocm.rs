//! The ROCm driver on the emulator, for waves of 32 and of 64.

use assay_gpu::{Architecture, Argument, Driver, DriverError};
use assay_gpu_emulator::emulated;
use assay_rocm::Rocm;

use crate::products::products_of_all_kinds;
use crate::support::{clean, floats, kernel, line, pointer, read, says};

const WAVE: &str = "ASSAY_GPU_EMULATOR_WAVE";

#[track_caller]
fn open() -> Rocm {
    Rocm::open(0, None).unwrap()
}

#[test]
fn facts_memory_and_copies() {
    let body = || {
        let device = open();
        let properties = device.properties();
        assert_eq!((properties.architecture.clone(), properties.wave), (Architecture::Hip("gfx942".into()), 64));
        assert_eq!(Ok(properties), assay_rocm::probe(0).as_ref());
        assert_eq!((properties.driver.as_str(), properties.compiler.as_str()), ("HIP 6.3.42134", "hipRTC 6.3"));
        let (before, total) = device.memory_info().unwrap();
        assert_eq!(total, properties.memory);
        let a = floats(&device, &[1.0, 2.0, 3.0]);
        let b = device.allocate(12).unwrap();
        device.copy_on_device(b, a, 12).unwrap();
        device.zero_memory(a, 4).unwrap();
        assert_eq!(read(&device, a, 3).unwrap(), [0.0, 2.0, 3.0]);
        assert_eq!(read(&device, b, 3).unwrap(), [1.0, 2.0, 3.0]);
        device.free(a).unwrap();
        device.free(b).unwrap();
        assert_eq!(device.memory_info().unwrap(), (before, total));
        assert!(Rocm::open(1, None).unwrap_err().contains("there is no AMD device 1"));
    };
    emulated("rocm::facts_memory_and_copies", &[(WAVE, "64")], body, clean);
}

/// Sums over a wave; the last lane's ballot.
const WAVES: &str = r#"
extern "C" __global__ void __launch_bounds__(256) k(float* y, const float* x, unsigned int n) {
    float v = x[threadIdx.x];
    for (int by = warpSize / 2; by > 0; by /= 2) v += __shfl_xor(v, by);
    unsigned long long all = __ballot(1);
    y[threadIdx.x] = v + (float)(__popcll(all));
}"#;

#[test]
fn shuffles_reach_over_a_wave_of_32() {
    emulated("rocm::shuffles_reach_over_a_wave_of_32", &[(WAVE, "32")], || shuffles(32), clean);
}

#[test]
fn shuffles_reach_over_a_wave_of_64() {
    emulated("rocm::shuffles_reach_over_a_wave_of_64", &[(WAVE, "64")], || shuffles(64), clean);
}

fn shuffles(wave: usize) {
    let device = open();
    let function = kernel(&device, WAVES, "k");
    let (y, x) = (device.allocate(128 * 4).unwrap(), floats(&device, &[1.0; 128]));
    device.launch_kernel(function, line(1, 128, 0), &[pointer(y), pointer(x), Argument::U32(128)]).unwrap();
    assert_eq!(read(&device, y, 128).unwrap(), vec![2.0 * wave as f32; 128]);
}

#[test]
fn products_are_row_major_and_take_a_bias() {
    emulated("rocm::products_are_row_major_and_take_a_bias", &[], || products_of_all_kinds(&open()), clean);
}

#[test]
fn a_captured_sequence_is_replayed() {
    let body = || {
        let device = open();
        let source = r#"extern "C" __global__ void k(float* y) { y[threadIdx.x] += 1.0f; }"#;
        let function = kernel(&device, source, "k");
        let y = floats(&device, &[0.0; 32]);
        device.begin_capture().unwrap();
        device.launch_kernel(function, line(1, 32, 0), &[pointer(y)]).unwrap();
        let graph = device.end_capture().unwrap();
        assert_eq!(read(&device, y, 32).unwrap(), [0.0; 32]);
        device.launch_graph(graph).unwrap();
        assert!(device.measure_time(&mut || device.launch_graph(graph)).unwrap() >= 0.0);
        assert_eq!(read(&device, y, 32).unwrap(), [2.0; 32]);
    };
    emulated("rocm::a_captured_sequence_is_replayed", &[], body, clean);
}

#[test]
fn a_refused_source_gives_the_compilers_log() {
    let body = || match open().compile_kernels("extern \"C\" __global__ void k() { wrong }", &[], &[], &["k"]) {
        Err(DriverError::Compile { log }) => assert!(log.contains("wrong"), "{log}"),
        other => panic!("{other:?}"),
    };
    emulated("rocm::a_refused_source_gives_the_compilers_log", &[], body, clean);
}

fn launches() -> Option<DriverError> {
    let device = open();
    let function = kernel(&device, r#"extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }"#, "k");
    let y = device.allocate(128).unwrap();
    let launch =
        |_| device.launch_kernel(function, line(1, 33, 0), &[pointer(y)]).and_then(|()| device.synchronize()).err();
    (0..10).find_map(launch)
}

#[test]
fn a_fault_is_told() {
    let body = || assert!(matches!(launches(), Some(DriverError::Fault(text)) if text.contains("IllegalAddress")));
    emulated("rocm::a_fault_is_told", &[], body, says(&["`k`", "(32, 0, 0)", "writes"]));
}

#[test]
fn a_lost_device_is_told() {
    let body = || assert!(matches!(launches(), Some(DriverError::Lost(_))));
    emulated("rocm::a_lost_device_is_told", &[("ASSAY_GPU_EMULATOR_FAIL", "lost:1")], body, clean);
}
