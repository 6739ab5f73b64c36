//! The CUDA driver on the emulator: every call of the trait.

use assay_cuda::Cuda;
use assay_gpu::{Address, Architecture, Argument, Driver, DriverError, Element, Epilogue, Function, Operand, Product};
use assay_gpu_emulator::emulated;

use crate::products::{products_of_all_kinds, products_that_are_refused, products_with_gelu};
use crate::support::{clean, floats, kernel, line, open, pointer, read, says};

const ADD: &str = r#"
#include "scale.h"
extern "C" __global__ void add(float* y, const float* a, const float* b, float factor, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = SCALE * a[i] + factor * b[i];
}
extern "C" __global__ void count(unsigned long long* total, unsigned long long by) { atomicAdd(total, by); }
"#;

fn add(device: &Cuda) -> Vec<Function> {
    let headers = [("scale.h", "#pragma once\n#define SCALE EXTRA\n")];
    device.compile_kernels(ADD, &headers, &["-DEXTRA=2.0f"], &["add", "count"]).unwrap()
}

#[test]
fn facts_memory_and_copies() {
    let body = || {
        let device = open();
        let properties = device.properties();
        assert_eq!((properties.architecture.clone(), properties.wave), (Architecture::Cuda(9, 0), 32));
        assert_eq!(Ok(properties), assay_cuda::probe(0).as_ref());
        assert!(properties.driver.starts_with("CUDA 13.0") && properties.compiler == "NVRTC 13.0", "{properties:?}");
        let (before, total) = device.memory_info().unwrap();
        assert_eq!(total, properties.memory);
        let a = floats(&device, &[1.0, 2.0, 3.0]);
        assert_eq!((a.0 % 256, before - device.memory_info().unwrap().0), (0, 12));
        let b = device.allocate(12).unwrap();
        device.copy_on_device(b, a, 12).unwrap();
        device.zero_memory(Address(a.0 + 4), 4).unwrap();
        assert_eq!(read(&device, a, 3).unwrap(), [1.0, 0.0, 3.0]);
        assert_eq!(read(&device, b, 3).unwrap(), [1.0, 2.0, 3.0]);
        device.free(a).unwrap();
        device.free(b).unwrap();
        assert!(device.free(b).is_err());
        assert_eq!(device.memory_info().unwrap(), (before, total));
        assert!(Cuda::open(1, None).unwrap_err().contains("there is no CUDA device 1"));
    };
    emulated("driver::facts_memory_and_copies", &[], body, clean);
}

#[test]
fn kernels_are_compiled_with_headers_and_options_and_launched() {
    let body = || {
        let device = open();
        let functions = add(&device);
        let (a, b) = (floats(&device, &[1.0; 1000]), floats(&device, &[10.0; 1000]));
        let y = device.allocate(4000).unwrap();
        let arguments = [pointer(y), pointer(a), pointer(b), Argument::F32(0.5), Argument::U32(1000)];
        device.launch_kernel(functions[0], line(4, 256, 0), &arguments).unwrap();
        assert_eq!(read(&device, y, 1000).unwrap(), vec![7.0; 1000]);
        let total = device.allocate(8).unwrap();
        device.zero_memory(total, 8).unwrap();
        device.launch_kernel(functions[1], line(3, 100, 0), &[pointer(total), Argument::U64(1 << 33)]).unwrap();
        let mut bytes = [0; 8];
        device.copy_to_host(total, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 300 << 33);
    };
    emulated("driver::kernels_are_compiled_with_headers_and_options_and_launched", &[], body, clean);
}

#[test]
fn a_refused_source_gives_the_compilers_log() {
    let body = || {
        let device = open();
        match device.compile_kernels("extern \"C\" __global__ void k() { wrong }", &[], &[], &["k"]) {
            Err(DriverError::Compile { log }) => assert!(log.contains("wrong") && log.contains("kernels.cu"), "{log}"),
            other => panic!("{other:?}"),
        }
        let none = device.compile_kernels("extern \"C\" __global__ void k() {}", &[], &[], &["j"]);
        assert!(matches!(none, Err(DriverError::Compile { log }) if log.contains("no kernel `j`")));
        let option = device.compile_kernels("extern \"C\" __global__ void k() {}", &[], &["--fast"], &["k"]);
        assert!(matches!(option, Err(DriverError::Compile { log }) if log.contains("--fast")));
    };
    emulated("driver::a_refused_source_gives_the_compilers_log", &[], body, clean);
}

#[test]
fn images_are_kept_in_a_folder() {
    let body = || {
        let folder = std::env::temp_dir().join(format!("assay-cuda-kept-{}", std::process::id()));
        let files = || std::fs::read_dir(&folder).map(|files| files.count()).unwrap_or(0);
        for _ in 0..2 {
            let device = Cuda::open(0, Some(folder.clone())).unwrap();
            add(&device);
            assert_eq!(files(), 1);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    };
    emulated("driver::images_are_kept_in_a_folder", &[], body, clean);
}

#[test]
fn products_end_with_gelu() {
    emulated("driver::products_end_with_gelu", &[], || products_with_gelu(&open()), clean);
}

#[test]
fn products_that_the_library_does_not_do_are_refused() {
    let body = || products_that_are_refused(&open());
    emulated("driver::products_that_the_library_does_not_do_are_refused", &[], body, clean);
}

#[test]
fn a_captured_sequence_is_replayed() {
    let body = || {
        let device = open();
        let functions = add(&device);
        let (a, b) = (floats(&device, &[1.0; 4]), floats(&device, &[0.0; 4]));
        let arguments = [pointer(b), pointer(a), pointer(b), Argument::F32(1.0), Argument::U32(4)];
        device.begin_capture().unwrap();
        device.launch_kernel(functions[0], line(1, 4, 0), &arguments).unwrap();
        let graph = device.end_capture().unwrap();
        assert_eq!(read(&device, b, 4).unwrap(), [0.0; 4]);
        for _ in 0..3 {
            device.launch_graph(graph).unwrap();
        }
        assert_eq!(read(&device, b, 4).unwrap(), [6.0; 4]);
        let took = device.measure_time(&mut || device.launch_graph(graph)).unwrap();
        assert!(took >= 0.0);
    };
    emulated("driver::a_captured_sequence_is_replayed", &[], body, clean);
}

#[test]
fn a_capture_allows_no_allocation() {
    let body = || {
        let device = open();
        device.begin_capture().unwrap();
        assert!(matches!(device.allocate(4), Err(DriverError::Call { .. })));
        assert!(device.end_capture().is_err());
        // The device still works.
        let a = floats(&device, &[1.0]);
        assert_eq!(read(&device, a, 1).unwrap(), [1.0]);
    };
    emulated("driver::a_capture_allows_no_allocation", &[], body, says(&["allocation", "while a stream captures"]));
}

#[test]
fn products_are_row_major() {
    let body = || products_of_all_kinds(&open());
    emulated("driver::products_are_row_major", &[], body, clean);
}

#[test]
fn a_product_beyond_its_operands_is_found() {
    let body = || {
        let device = open();
        let side = floats(&device, &[1.0; 6]);
        let operand = Operand { address: side, element: Element::F32, stride: 3, batch_stride: 0, transposed: false };
        let product = Product {
            m: 3,
            n: 3,
            k: 3,
            batch: 1,
            a: operand,
            b: operand,
            c: operand,
            base: None,
            epilogue: Epilogue::None,
        };
        let failed = device.launch_product(&product).and_then(|()| device.synchronize());
        assert!(failed.is_err());
    };
    emulated("driver::a_product_beyond_its_operands_is_found", &[], body, says(&["product's", "24 bytes"]));
}

#[test]
fn calls_come_from_any_thread() {
    let body = || {
        let device = open();
        let source = r#"extern "C" __global__ void k(float* y) { y[threadIdx.x] += 1.0f; }"#;
        let function = kernel(&device, source, "k");
        let y = floats(&device, &[0.0; 32]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| device.launch_kernel(function, line(1, 32, 0), &[pointer(y)]).unwrap());
            }
        });
        assert_eq!(read(&device, y, 32).unwrap(), [4.0; 32]);
    };
    emulated("driver::calls_come_from_any_thread", &[], body, clean);
}
