//! GELU in the products' epilogue: supported by the library, not supported, and not supported for a shape; and a layer
//! whose products are all in bf16.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use assay_cuda::Cuda;
use assay_gpu::Driver;
use assay_gpu_emulator::{Emulated, emulated};
use assay_rocm::Rocm;
use assay_tensor::{DType, Device, HostData, Tensor};

use crate::counting::{Counting, Counts};

fn clean(found: &Emulated) {
    assert_eq!(found.problems, [""; 0]);
}

fn counted(driver: impl Driver) -> (Device, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    (assay_gpu::device(Arc::new(Counting(driver, counts.clone()))), counts)
}

/// The value of a feed-forward layer on `rows` rows with `hidden` elements between its products, and all gradients. Matrices
/// and their operands are rounded to `kept`, if given.
fn layer(device: &Device, rows: usize, hidden: usize, kept: Option<DType>) -> Vec<Vec<f32>> {
    let precise = kept.is_none() && device.info().dtypes.contains(&DType::F64);
    let float = if precise { DType::F64 } else { DType::F32 };
    let (outer, shapes) = (5, [[rows, 5], [hidden, 5], [1, hidden], [5, hidden], [1, 5]]);
    let operands: Vec<Tensor> = shapes
        .iter()
        .enumerate()
        .map(|(seed, [rows, columns])| {
            let value = |i: usize| ((i * 37 + seed * 11) % 29) as f64 / 14.0 - 1.0;
            let values: Vec<f64> = (0..rows * columns).map(value).collect();
            let shape = if *rows == 1 && seed > 1 { vec![*columns] } else { vec![*rows, *columns] };
            let float = kept.filter(|_| seed != 2 && seed != 4).unwrap_or(float);
            Tensor::from_host(device, HostData::from_f64(&values, float), shape).unwrap().variable()
        })
        .collect();
    let [x, up, u, down, d] = &operands[..] else { panic!("five operands") };
    let y = x.feed_forward((up, u), (down, d), None, kept).unwrap();
    assert_eq!(y.dims(), [rows, outer]);
    let gradients = y.mul(&y).unwrap().sum(&[0, 1], false).unwrap().backward().unwrap();
    let all = std::iter::once(&y).chain(operands.iter().map(|operand| gradients.get(operand).unwrap()));
    all.map(|tensor| tensor.to_f64_vec().unwrap().into_iter().map(|x| x as f32).collect()).collect()
}

/// The number of products with GELU or its gradient, and the number of all launches; the results must agree with the oracle.
fn asked(driver: impl Driver, rows: usize, hidden: usize) -> [usize; 2] {
    let (device, counts) = counted(driver);
    let found = layer(&device, rows, hidden, None);
    let [_, launches, _] = counts.now();
    for (found, expected) in
        found.iter().flatten().zip(layer(&assay_reference::device(), rows, hidden, None).iter().flatten())
    {
        assert!((found - expected).abs() <= 2e-5 * expected.abs().max(1.0), "{found}, not {expected}");
    }
    assert_eq!(layer(&device, rows, hidden, None), found, "the same bits twice");
    [counts.gelus.load(Ordering::Relaxed) / 2, launches]
}

#[test]
fn the_library_does_it() {
    let body = || {
        let open = || Cuda::open(0, None).unwrap();
        let ([fused, less], [none, more]) = (asked(open(), 6, 16), asked(open(), 6, 12));
        assert_eq!((fused, none, more - less), (2, 0, 2));
        // One row, whose stride has no meaning; and no rows.
        assert_eq!(asked(open(), 1, 8)[0], 2);
        assert_eq!(asked(open(), 0, 8)[0], 0);
    };
    emulated("gelu::the_library_does_it", &[], body, clean);
}

#[test]
fn where_no_library_does_it_a_kernel_does() {
    let body = || {
        let cuda = asked(Cuda::open(0, None).unwrap(), 6, 16);
        assert_eq!(cuda, asked(Rocm::open(0, None).unwrap(), 6, 16));
        assert_eq!(cuda[0], 0);
    };
    emulated("gelu::where_no_library_does_it_a_kernel_does", &[("ASSAY_GPU_EMULATOR_GELU", "0")], body, clean);
}

#[test]
fn every_product_of_a_bf16_layer_is_of_bf16() {
    fn body(driver: impl Driver) {
        let (device, counts) = counted(driver);
        let found = layer(&device, 6, 16, Some(DType::Bf16));
        // Two in the forward pass and four in the backward pass.
        assert_eq!(counts.narrow.load(Ordering::Relaxed), 6);
        let expected = layer(&assay_reference::device(), 6, 16, Some(DType::Bf16));
        for (found, expected) in found.iter().zip(&expected) {
            let scale = expected.iter().fold(1f32, |largest, x| largest.max(x.abs()));
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-2 * scale, "{found}, not {expected}, where {scale} is most");
            }
        }
    }
    let both = || {
        body(Cuda::open(0, None).unwrap());
        body(Rocm::open(0, None).unwrap());
    };
    emulated("gelu::every_product_of_a_bf16_layer_is_of_bf16", &[], both, clean);
}
