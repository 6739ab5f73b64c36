//! Products: dense, int8, and attention.

use assay_tensor::{Attention, AttentionBackward, AttentionKind, AttentionOptions, DType, Linear, Shape};
use divan::Bencher;

use crate::measured::{Work, bench, kernels, numbers};

/// Rows, columns and depth, as the models of the throughput workflow have them.
const SHAPES: [[usize; 3]; 11] = [
    [2048, 64, 128],
    [2048, 128, 128],
    [2048, 512, 128],
    [2048, 128, 256],
    [2048, 256, 256],
    [2048, 1024, 256],
    [2048, 256, 1024],
    [2048, 256, 384],
    [2048, 1536, 384],
    [2048, 384, 1536],
    [2048, 8192, 384],
];

fn named(what: &str, [m, n, depth]: [usize; 3]) -> String {
    format!("{what} {m} x {n} x {depth}")
}

#[divan::bench(args = SHAPES)]
fn linear(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    let [m, n, depth] = shape;
    let (x, w, b) = (numbers([m, depth]), numbers([n, depth]), numbers(n));
    let work = Work::Operations(2 * m * n * depth);
    bench(bencher, named("linear", shape), work, || {
        Linear { x: &x, weight: &w, bias: Some(&b), base: None }.run(kernels())
    });
}

/// The gradient of a linear layer's input.
#[divan::bench(args = SHAPES)]
fn linear_input_gradient(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    let [m, n, depth] = shape;
    let (g, w) = (numbers([m, n]), numbers([n, depth]));
    let work = Work::Operations(2 * m * n * depth);
    bench(bencher, named("linear, dX = G W", shape), work, || kernels().matmul(&g, &w, false, false));
}

/// The gradient of a linear layer's weights.
#[divan::bench(args = SHAPES)]
fn linear_weight_gradient(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    let [m, n, depth] = shape;
    let (g, x) = (numbers([m, n]), numbers([m, depth]));
    let work = Work::Operations(2 * m * n * depth);
    bench(bencher, named("linear, dW = G^T X", shape), work, || kernels().matmul(&g, &x, true, false));
}

/// One row, as decoding has it: the weights pass once, and that is all the time there is.
#[divan::bench(args = [[1, 1024, 256], [1, 1536, 384], [1, 8192, 384]])]
fn linear_of_one_row(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    let [m, n, depth] = shape;
    let (x, w) = (numbers([m, depth]), numbers([n, depth]));
    bench(bencher, named("linear, one row", shape), Work::Bytes(4 * n * depth), || {
        Linear { x: &x, weight: &w, bias: None, base: None }.run(kernels())
    });
}

#[divan::bench(args = [[1, 1024, 256], [1, 8192, 384], [2048, 1024, 256], [2048, 8192, 384]])]
fn linear_int8(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    let [m, n, depth] = shape;
    let (x, scale) = (numbers([m, depth]), numbers(n));
    let q = kernels().full(&Shape::from([n, depth]), DType::I8, 3.0).expect("enough memory");
    let work = if m == 1 { Work::Bytes(n * depth) } else { Work::Operations(2 * m * n * depth) };
    bench(bencher, named("linear, int8", shape), work, || kernels().linear_int8(&x, &q, &scale));
}

/// Sequences times heads, tokens, width of a head.
const ATTENTIONS: [[usize; 3]; 3] = [[32, 256, 32], [32, 256, 64], [48, 256, 64]];

fn options(width: usize, kind: AttentionKind) -> AttentionOptions {
    AttentionOptions { causal: true, scale: 1.0 / (width as f64).sqrt(), kind }
}

/// Causal: half of all pairs.
fn pairs(heads: usize, length: usize) -> usize {
    heads * length * (length + 1) / 2
}

#[divan::bench(args = ATTENTIONS)]
fn attention(bencher: Bencher<'_, '_>, [heads, length, width]: [usize; 3]) {
    let x = numbers([1, heads, length, width]);
    let (options, work) = (options(width, AttentionKind::Flash), Work::Operations(4 * pairs(heads, length) * width));
    let name = format!("attention, heads {heads} T {length} P {width}");
    bench(bencher, name, work, || Attention { q: &x, k: &x, v: &x, options }.run(kernels()));
}

#[divan::bench(args = ATTENTIONS)]
fn attention_gradient(bencher: Bencher<'_, '_>, [heads, length, width]: [usize; 3]) {
    let x = numbers([1, heads, length, width]);
    let options = options(width, AttentionKind::Flash);
    let of = Attention { q: &x, k: &x, v: &x, options };
    let (out, lse) = of.run(kernels()).expect("the shapes fit");
    // Five products: the scores again, and one for each of dP, dQ, dK and dV.
    let work = Work::Operations(10 * pairs(heads, length) * width);
    let name = format!("attention, gradient, heads {heads} T {length} P {width}");
    bench(bencher, name, work, || AttentionBackward { of, out: &out, lse: &lse, grad: &x }.run(kernels()));
}
