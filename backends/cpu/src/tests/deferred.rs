//! Gradients of a weight that is used with few rows many times: they are deferred and batched.

use assay_tensor::{DType, Device, Gradients, HostData, Tensor};

use super::Operands;

/// The gradients of a weight and of a bias that meet so many rows, one run after the other, added to those of a run before;
/// and of a weight that is used transposed.
fn gradients(device: &Device, float: DType, runs: &[usize]) -> Vec<HostData> {
    let mut operands = Operands { kernels: device.kernels(), float, state: 7 };
    let mut tensor = |shape: &[usize]| {
        let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| operands.next_number()).collect();
        match float {
            DType::F64 => Tensor::from_f64(device, numbers, shape).unwrap(),
            _ => Tensor::from_f32(device, numbers.into_iter().map(|x| x as f32).collect(), shape).unwrap(),
        }
    };
    let [weight, turned] = [tensor(&[20, 24]).variable(), tensor(&[20, 24]).variable()];
    let bias = tensor(&[20]).variable();
    let mut sums = Gradients::default();
    for _ in 0..2 {
        let back = turned.transpose(0, 1).unwrap();
        let losses = runs.iter().map(|rows| {
            let y = tensor(&[*rows, 24]).linear(&weight, Some(&bias)).unwrap();
            // A use of its own, which is not deferred.
            let other = weight.square().unwrap().mean_all().unwrap();
            y.linear(&back, None).unwrap().square().unwrap().mean_all().unwrap().add(&other).unwrap()
        });
        let loss = losses.reduce(|a, b| a.add(&b).unwrap()).unwrap();
        sums = loss.backward_onto(sums).unwrap();
    }
    [&weight, &bias, &turned].map(|x| device.kernels().download(sums.get(x).unwrap().array()).unwrap()).to_vec()
}

#[test]
fn gradients_of_few_rows_are_added_up_right() {
    // Fewer than are done at once, as many, and more; and one run that is not deferred.
    for runs in [vec![3], vec![32; 8], vec![40; 15], vec![40, 300, 40, 7]] {
        let expected = gradients(&assay_reference::device(), DType::F64, &runs);
        let found = gradients(&crate::device(1).unwrap(), DType::F32, &runs);
        for (found, expected) in found.iter().zip(&expected) {
            for (a, b) in found.to_f64().into_iter().zip(expected.to_f64()) {
                assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{runs:?}: {a}, not {b}");
            }
        }
        let again = gradients(&crate::device(2).unwrap(), DType::F32, &runs);
        let bits = |all: &[HostData]| all.iter().flat_map(HostData::to_f64).map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&again), "{runs:?} on two threads");
    }
}
