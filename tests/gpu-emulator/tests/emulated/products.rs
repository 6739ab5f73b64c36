//! Products of every kind compared with loops, on any driver.

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
            device.copy_to_device(address, &bytes).unwrap();
            address
        }
    }
}

/// The value to which a product is added.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Base {
    Nothing,
    Result,
    Other,
}

/// Compares a batch of two products [3, 4] = [3, 5] [5, 4] with loops. All numbers are small integers, which bf16 represents exactly.
fn multiply(device: &dyn Driver, (element, result): (Element, Element), transposed: [bool; 2], base: Base, bias: bool) {
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
    let (target, other) = (operand(&c, result, n, m * n, false), operand(&c, result, n, m * n, false));
    let bias_at = upload(device, &[1.0, 2.0, 3.0, 4.0], result);
    let product = Product {
        m,
        n,
        k,
        batch,
        a: operand(&a, element, if ta { m } else { k }, m * k, ta),
        // One right operand for both.
        b: operand(&b, element, if tb { k } else { n }, 0, tb),
        c: target,
        base: match base {
            Base::Nothing => None,
            Base::Result => Some(target.address),
            Base::Other => Some(other.address),
        },
        epilogue: if bias { Epilogue::Bias(bias_at) } else { Epilogue::None },
    };
    device.launch_product(&product).unwrap_or_else(|error| panic!("{error}"));
    let found = match result {
        Element::F32 => read(device, target.address, batch * m * n).unwrap(),
        Element::Bf16 => halves(device, target.address, batch * m * n),
    };
    for (at, found) in found.iter().enumerate() {
        let (p, i, j) = (at / (m * n), at / n % m, at % n);
        let left = |l: usize| a[p * m * k + if ta { l * m + i } else { i * k + l }];
        let right = |l: usize| b[if tb { j * k + l } else { l * n + j }];
        let sum: f32 = (0..k).map(|l| left(l) * right(l)).sum();
        let added = if base == Base::Nothing { 0.0 } else { c[at] };
        let expected = sum + added + if bias { (j + 1) as f32 } else { 0.0 };
        assert_eq!(*found, expected, "{element:?} {result:?} {transposed:?} {base:?} {bias} at {at}");
    }
}

/// Both types, both operands transposed or not, with accumulation, and with a bias.
#[track_caller]
pub fn products_of_all_kinds(device: &dyn Driver) {
    use Element::{Bf16, F32};
    for elements in [(F32, F32), (Bf16, F32), (Bf16, Bf16)] {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            multiply(device, elements, transposed, Base::Nothing, false);
        }
        multiply(device, elements, [false, true], Base::Result, false);
        multiply(device, elements, [false, true], Base::Other, true);
        multiply(device, elements, [false, true], Base::Nothing, true);
    }
}

/// bf16 numbers of the device, as f32.
fn halves(device: &dyn Driver, address: Address, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 2 * count];
    device.copy_to_host(address, &mut bytes).unwrap();
    bytes.chunks_exact(2).map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)).collect()
}

/// GELU in its tanh form, and its slope.
fn gelu(x: f64) -> (f64, f64) {
    let factor = (2.0 / std::f64::consts::PI).sqrt();
    let t = (factor * (x + 0.044_715 * x.powi(3))).tanh();
    let slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * factor * (1.0 + 3.0 * 0.044_715 * x * x);
    (0.5 * x * (1.0 + t), slope)
}

/// [3, 8] = [3, 5] [8, 5]^T in small numbers, with an epilogue.
fn rows_of_eight(device: &dyn Driver, element: Element, epilogue: Epilogue) -> Product {
    let operand = |values: &[f32], element, stride, transposed| Operand {
        address: upload(device, values, element),
        element,
        stride,
        batch_stride: 0,
        transposed,
    };
    let [a, b] = [small(15, 3), small(40, 5)].map(|values| values.iter().map(|x| x / 4.0).collect::<Vec<_>>());
    Product {
        m: 3,
        n: 8,
        k: 5,
        batch: 1,
        a: operand(&a, element, 5, false),
        b: operand(&b, element, 5, true),
        c: operand(&[0.0; 24], Element::F32, 8, false),
        base: None,
        epilogue,
    }
}

fn near(found: &[f32], expected: impl Iterator<Item = f64>) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} at {at}, not {expected}");
    }
}

/// GELU after a product and a bias, and its gradient after a product; also in a graph.
#[track_caller]
pub fn products_with_gelu(device: &dyn Driver) {
    for element in [Element::F32, Element::Bf16] {
        let plain = rows_of_eight(device, element, Epilogue::None);
        device.launch_product(&plain).unwrap();
        let sums: Vec<f64> = read(device, plain.c.address, 24).unwrap().into_iter().map(f64::from).collect();
        let bias = floats(device, &[0.5; 8]);
        let argument = floats(device, &[7.0; 24]);
        let value = rows_of_eight(device, element, Epilogue::Gelu { bias, argument });
        assert_eq!(device.supports_product(&value), Ok(true));
        device.launch_product(&value).unwrap();
        near(&read(device, argument, 24).unwrap(), sums.iter().map(|sum| sum + 0.5));
        near(&read(device, value.c.address, 24).unwrap(), sums.iter().map(|sum| gelu(sum + 0.5).0));
        let gradient = rows_of_eight(device, element, Epilogue::GeluGradient { argument });
        assert_eq!(device.supports_product(&gradient), Ok(true));
        device.begin_capture().unwrap();
        device.launch_product(&gradient).unwrap();
        let graph = device.end_capture().unwrap();
        assert_eq!(read(device, gradient.c.address, 24).unwrap(), [0.0; 24]);
        device.launch_graph(graph).unwrap();
        near(&read(device, gradient.c.address, 24).unwrap(), sums.iter().map(|sum| sum * gelu(sum + 0.5).1));
    }
}

/// Unsupported products are not offered, and refused if they are requested anyway.
#[track_caller]
pub fn products_that_are_refused(device: &dyn Driver) {
    let (bias, argument) = (floats(device, &[0.0; 8]), floats(device, &[0.0; 48]));
    let good = rows_of_eight(device, Element::F32, Epilogue::Gelu { bias, argument });
    let unaligned = Epilogue::GeluGradient { argument: Address(argument.0 + 4) };
    for bad in [Product { n: 4, ..good }, Product { epilogue: unaligned, ..good }, Product { batch: 2, ..good }] {
        assert_eq!(device.supports_product(&bad), Ok(false), "{bad:?}");
        assert!(device.launch_product(&bad).is_err_and(|error| error.to_string().contains("no algorithm")), "{bad:?}");
    }
    for epilogue in [Epilogue::Gelu { bias: Address(0), argument }, Epilogue::GeluGradient { argument: Address(0) }] {
        let error = device.launch_product(&Product { epilogue, ..good }).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|error| error.contains("INVALID_VALUE")), "{error:?}");
    }
    device.launch_product(&good).unwrap();
}
