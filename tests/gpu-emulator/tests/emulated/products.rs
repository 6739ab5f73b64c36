//! Products of every kind against loops, on any driver.

use assay_gpu::{Address, Driver, Element, Epilogue, Operand, Product};

use crate::support::{floats, read};

/// Values that are exact in bf16.
fn small(count: usize, step: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * step) % 7) as f32 - 3.0).collect()
}

fn upload(device: &dyn Driver, values: &[f32], element: Element) -> Address {
    match element {
        Element::F32 => floats(device, values),
        Element::Bf16 => {
            let bytes: Vec<u8> = values.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect();
            let address = device.allocate(bytes.len()).unwrap();
            device.copy_in(address, &bytes).unwrap();
            address
        }
    }
}

/// Checks a batch of two products [3, 4] = [3, 5] [5, 4] against loops.
fn multiply(device: &dyn Driver, element: Element, transposed: [bool; 2], beta: f32, bias: bool) {
    let (m, n, k, batch) = (3, 4, 5, 2);
    let (a, b, c) = (small(batch * m * k, 3), small(k * n, 5), small(batch * m * n, 2));
    let operand = |values: &[f32], element, stride, batch_stride, transposed| Operand {
        address: upload(device, values, element),
        element,
        stride,
        batch_stride,
        transposed,
    };
    let [ta, tb] = transposed;
    let product = Product {
        m,
        n,
        k,
        batch,
        a: operand(&a, element, if ta { m } else { k }, m * k, ta),
        // One right side for both.
        b: operand(&b, element, if tb { k } else { n }, 0, tb),
        c: operand(&c, Element::F32, n, m * n, false),
        beta,
        epilogue: if bias { Epilogue::Bias(floats(device, &[1.0, 2.0, 3.0, 4.0])) } else { Epilogue::None },
    };
    device.product(&product).unwrap_or_else(|error| panic!("{error}"));
    let found = read(device, product.c.address, batch * m * n).unwrap();
    for (at, found) in found.iter().enumerate() {
        let (p, i, j) = (at / (m * n), at / n % m, at % n);
        let left = |l: usize| a[p * m * k + if ta { l * m + i } else { i * k + l }];
        let right = |l: usize| b[if tb { j * k + l } else { l * n + j }];
        let sum: f32 = (0..k).map(|l| left(l) * right(l)).sum();
        let expected = sum + beta * c[at] + if bias { (j + 1) as f32 } else { 0.0 };
        assert_eq!(*found, expected, "{element:?} {transposed:?} {beta} {bias} at {at}");
    }
}

/// Both types, both sides transposed or not, added to what was there, and with a bias.
#[track_caller]
pub fn products_of_all_kinds(device: &dyn Driver) {
    for element in [Element::F32, Element::Bf16] {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            multiply(device, element, transposed, 0.0, false);
        }
        multiply(device, element, [false, true], 1.0, false);
        multiply(device, element, [false, true], 0.0, true);
    }
}
