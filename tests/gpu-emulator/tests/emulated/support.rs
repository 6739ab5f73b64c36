//! A device, and kernels for tests.

use assay_cuda::Cuda;
use assay_gpu::{Address, Argument, Driver, DriverError, Function, Launch};
use assay_gpu_emulator::Emulated;

/// An opened device without a folder of images.
#[track_caller]
pub fn open() -> Cuda {
    Cuda::open(0, None).unwrap()
}

/// The only kernel of a source.
#[track_caller]
pub fn kernel(device: &dyn Driver, source: &str, name: &str) -> Function {
    device.compile_kernels(source, &[], &[], &[name]).unwrap_or_else(|error| panic!("{error}"))[0]
}

/// Copies floats to the device.
#[track_caller]
pub fn floats(device: &dyn Driver, values: &[f32]) -> Address {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let address = device.allocate(bytes.len()).unwrap();
    device.copy_to_device(address, &bytes).unwrap();
    address
}

/// Reads floats from the device.
pub fn read(device: &dyn Driver, from: Address, count: usize) -> Result<Vec<f32>, DriverError> {
    let mut bytes = vec![0; count * 4];
    device.copy_to_host(from, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
}

/// A row of blocks.
pub fn line(blocks: u32, threads: u32, shared: u32) -> Launch {
    Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared }
}

pub fn pointer(address: Address) -> Argument {
    Argument::Pointer(Some(address))
}

/// No problem was found.
pub fn clean(emulated: &Emulated) {
    assert_eq!(emulated.problems, [""; 0]);
}

/// The first problem contains these words.
pub fn says(words: &'static [&'static str]) -> impl FnOnce(&Emulated) {
    move |emulated| {
        let problem = emulated.problems.first().unwrap_or_else(|| panic!("no problem was found: {emulated:?}"));
        for word in words {
            assert!(problem.contains(word), "`{problem}` does not say `{word}`");
        }
    }
}
