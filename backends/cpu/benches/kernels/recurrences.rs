//! The diagonal scan and its gradient.

use assay_tensor::{Scan, ScanBackward};
use divan::Bencher;

use crate::measured::{Work, bench, kernels, numbers};

/// Sequences, tokens, states.
const SHAPES: [[usize; 3]; 5] = [[8, 256, 64], [8, 256, 128], [8, 256, 256], [8, 64, 64], [1, 4096, 256]];

/// Bytes a state and step of the forward pass: beta in, both parts of c out.
const FORWARD: usize = 12;
/// Of the backward pass: the gradients of both parts of c and both parts of c itself in, both of beta's out.
const BACKWARD: usize = 24;

#[divan::bench(args = SHAPES)]
fn scan(bencher: Bencher<'_, '_>, [b, t, k]: [usize; 3]) {
    let (decay_re, decay_im, x, carry) = (numbers(k), numbers(k), numbers([b, t, k]), numbers([b, k]));
    let scan = Scan {
        decay_re: &decay_re,
        decay_im: &decay_im,
        input_re: &x,
        input_im: None,
        carry_re: &carry,
        carry_im: &carry,
        segment: Some(64),
    };
    let work = Work::Bytes(FORWARD * b * t * k);
    bench(bencher, format!("scan B {b} T {t} K {k}"), work, || scan.run(kernels()));
}

#[divan::bench(args = SHAPES)]
fn scan_gradient(bencher: Bencher<'_, '_>, [b, t, k]: [usize; 3]) {
    let (decay_re, decay_im, x, carry) = (numbers(k), numbers(k), numbers([b, t, k]), numbers([b, k]));
    let scan = Scan {
        decay_re: &decay_re,
        decay_im: &decay_im,
        input_re: &x,
        input_im: None,
        carry_re: &carry,
        carry_im: &carry,
        segment: Some(64),
    };
    let (re, im) = scan.run(kernels()).expect("the shapes fit");
    let work = Work::Bytes(BACKWARD * b * t * k);
    bench(bencher, format!("scan, gradient B {b} T {t} K {k}"), work, || {
        ScanBackward { scan, states: (&re, &im), grad: (Some(&x), Some(&x)) }.run(kernels())
    });
}
