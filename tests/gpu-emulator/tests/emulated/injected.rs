//! Injected failures, and how the driver distinguishes them.

use assay_cuda::Cuda;
use assay_gpu::{Driver, DriverError};
use assay_gpu_emulator::emulated;

use crate::support::{clean, floats, kernel, line, open, pointer, read};

const FAIL: &str = "ASSAY_GPU_EMULATOR_FAIL";

/// Launches a valid kernel until something fails.
fn launches() -> Option<DriverError> {
    let device = open();
    let function = kernel(&device, r#"extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }"#, "k");
    let y = device.allocate(128).unwrap();
    (0..10).find_map(|_| {
        device.launch_kernel(function, line(1, 32, 0), &[pointer(y)]).and_then(|()| device.synchronize()).err()
    })
}

#[test]
fn an_allocation_fails_with_its_sizes() {
    let body = || {
        let device = open();
        // The first allocation is the workspace of products.
        device.allocate(1 << 20).unwrap();
        match device.allocate(3 << 20) {
            Err(error @ DriverError::OutOfMemory { asked, free, total }) => {
                assert_eq!((asked, total), (3 << 20, 1 << 30));
                assert_eq!(free, (1 << 30) - (33 << 20));
                assert!(error.to_string().contains("3.0 MiB were requested, 991.0 of 1024.0 MiB are free"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        device.allocate(1 << 20).unwrap();
    };
    let variables = [(FAIL, "allocation:3"), ("ASSAY_GPU_EMULATOR_MEMORY", "1073741824")];
    emulated("injected::an_allocation_fails_with_its_sizes", &variables, body, clean);
}

#[test]
fn memory_ends() {
    let body = || {
        let device = open();
        assert!(matches!(device.allocate(2 << 30), Err(DriverError::OutOfMemory { .. })));
        device.allocate(1 << 20).unwrap();
    };
    emulated("injected::memory_ends", &[("ASSAY_GPU_EMULATOR_MEMORY", "1073741824")], body, clean);
}

#[test]
fn memory_may_end_sooner() {
    let body = || assert!(matches!(open().allocate(64 << 20), Err(DriverError::OutOfMemory { .. })));
    emulated("injected::memory_may_end_sooner", &[(FAIL, "bytes:50000000")], body, clean);
}

#[test]
fn a_lost_device_is_no_fault() {
    let body = || assert!(matches!(launches(), Some(DriverError::Lost(_))));
    emulated("injected::a_lost_device_is_no_fault", &[(FAIL, "lost:3")], body, clean);
}

#[test]
fn a_fault_is_no_loss() {
    let body = || assert!(matches!(launches(), Some(DriverError::Fault(text)) if text.contains("ILLEGAL_ADDRESS")));
    emulated("injected::a_fault_is_no_loss", &[(FAIL, "fault:3")], body, clean);
}

/// Two devices in one process: the loss of one does not affect the other, and they do not share memory or kernels.
#[test]
fn a_lost_device_takes_no_other_with_it() {
    let body = || {
        let devices = [Cuda::open(0, None).unwrap(), Cuda::open(1, None).unwrap()];
        assert!(assay_cuda::count() == Ok(2) && Cuda::open(2, None).unwrap_err().contains("the driver finds 2"));
        let source = r#"extern "C" __global__ void k(float* y) { y[threadIdx.x] = threadIdx.x; }"#;
        let results = devices.each_ref().map(|device| {
            let (function, y) = (kernel(device, source, "k"), device.allocate(128)?);
            device.launch_kernel(function, line(1, 32, 0), &[pointer(y)])?;
            device.synchronize()?;
            read(device, y, 32)
        });
        assert_eq!(results[0].as_ref().map(|values| values[31]), Ok(31.0));
        assert!(matches!(&results[1], Err(DriverError::Lost(_))), "{results:?}");
        let y = floats(&devices[0], &[1.0, 2.0]);
        assert_eq!(read(&devices[0], y, 2), Ok(vec![1.0, 2.0]));
    };
    let variables = [(FAIL, "lost:1@1"), ("ASSAY_GPU_EMULATOR_DEVICES", "2")];
    emulated("injected::a_lost_device_takes_no_other_with_it", &variables, body, clean);
}
