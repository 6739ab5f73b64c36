//! What passes memory once or twice: activations, norms, losses, the update.

use assay_tensor::{
    AdamW, Arguments, Array, Binary, CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD, HostData, LAYER_NORM, LAYER_NORM_BACKWARD,
    Reduce, SOFTMAX, Shape, Unary,
};
use divan::Bencher;

use crate::measured::{Work, bench, kernels, numbers};

/// Rows and columns of most arrays here: 16 MiB in f32, beyond the caches of a core.
const SHAPE: [usize; 2] = [2048, 2048];
/// Rows as those of a small model, in the caches.
const NEAR: [usize; 2] = [128, 128];

fn passes(count: usize) -> Work {
    passes_over(SHAPE, count)
}

fn passes_over(shape: [usize; 2], count: usize) -> Work {
    Work::Bytes(4 * count * shape[0] * shape[1])
}

#[divan::bench(args = ["exp", "tanh", "sigmoid", "gelu", "silu"])]
fn activation(bencher: Bencher<'_, '_>, name: &str) {
    let all = [Unary::Exp, Unary::Tanh, Unary::Sigmoid, Unary::Gelu, Unary::Silu];
    let op = all.into_iter().find(|op| op.name() == name).expect("an activation of this name");
    let x = numbers(SHAPE);
    bench(bencher, name.to_owned(), passes(2), || kernels().unary(op, &x));
}

#[divan::bench]
fn gelu_gradient(bencher: Bencher<'_, '_>) {
    let (x, g) = (numbers(SHAPE), numbers(SHAPE));
    bench(bencher, "gelu, gradient".into(), passes(3), || kernels().unary_backward(Unary::Gelu, &x, &g));
}

#[divan::bench]
fn add(bencher: Bencher<'_, '_>) {
    let (x, y) = (numbers(SHAPE), numbers(SHAPE));
    bench(bencher, "add".into(), passes(3), || kernels().binary(Binary::Add, &x, &y));
}

#[divan::bench(args = [SHAPE, NEAR])]
fn multiply_by_a_row(bencher: Bencher<'_, '_>, shape: [usize; 2]) {
    let (x, row) = (numbers(shape), numbers(shape[1]));
    let name = format!("multiply {shape:?} by a row");
    bench(bencher, name, passes_over(shape, 2), || kernels().binary(Binary::Mul, &x, &row));
}

#[divan::bench]
fn sum_over_rows(bencher: Bencher<'_, '_>) {
    let x = numbers(SHAPE);
    bench(bencher, "sum over rows".into(), passes(1), || kernels().reduce(Reduce::Sum, &x, &[0]));
}

#[divan::bench]
fn softmax(bencher: Bencher<'_, '_>) {
    let x = numbers(SHAPE);
    bench(bencher, "softmax".into(), passes(2), || SOFTMAX.run(kernels(), Arguments::new(&[&x], &[])));
}

#[divan::bench(args = [SHAPE, NEAR])]
fn layer_norm(bencher: Bencher<'_, '_>, shape: [usize; 2]) {
    let (x, row) = (numbers(shape), numbers(shape[1]));
    let name = format!("layer norm of {shape:?}");
    bench(bencher, name, passes_over(shape, 2), || LAYER_NORM.run(kernels(), norm_of(&[&x, &row, &row])));
}

#[divan::bench(args = [SHAPE, NEAR])]
fn layer_norm_gradient(bencher: Bencher<'_, '_>, shape: [usize; 2]) {
    let (x, g, row) = (numbers(shape), numbers(shape), numbers(shape[1]));
    let norm = LAYER_NORM.run(kernels(), norm_of(&[&x, &row, &row])).expect("the shapes fit");
    let name = format!("layer norm of {shape:?}, gradient");
    let inputs = [&x, &row, &norm[1], &norm[2], &g];
    bench(bencher, name, passes_over(shape, 3), || LAYER_NORM_BACKWARD.run(kernels(), Arguments::new(&inputs, &[])));
}

fn norm_of<'a>(inputs: &'a [&'a Array]) -> Arguments<'a> {
    Arguments::new(inputs, &[("eps", 1e-5)])
}

fn targets() -> Array {
    let ids = (0..SHAPE[0] as u32).map(|row| row * 7 % SHAPE[1] as u32).collect();
    kernels().upload(HostData::U32(ids), &Shape::from(SHAPE[0])).expect("enough memory")
}

#[divan::bench]
fn cross_entropy(bencher: Bencher<'_, '_>) {
    let (x, targets) = (numbers(SHAPE), targets());
    bench(bencher, "cross entropy".into(), passes(1), || {
        CROSS_ENTROPY.run(kernels(), Arguments::new(&[&x, &targets], &[("smoothing", 0.0)]))
    });
}

#[divan::bench]
fn cross_entropy_gradient(bencher: Bencher<'_, '_>) {
    let (x, targets) = (numbers(SHAPE), targets());
    let (inputs, settings) = ([&x, &targets], [("smoothing", 0.0)]);
    let lse =
        CROSS_ENTROPY.run(kernels(), Arguments::new(&inputs, &settings)).expect("the targets are classes").remove(1);
    bench(bencher, "cross entropy, gradient".into(), passes(2), || {
        CROSS_ENTROPY_BACKWARD.run(kernels(), Arguments::new(&[&x, &targets, &lse, &lse], &[("smoothing", 0.0)]))
    });
}

/// 28 bytes a parameter: the gradient is read; the parameter and both moments are read and written.
#[divan::bench]
fn adamw(bencher: Bencher<'_, '_>) {
    let (mut p, mut m, g) = (numbers(SHAPE), numbers(SHAPE), numbers(SHAPE));
    let mut v = kernels().unary(Unary::Square, &numbers(SHAPE)).expect("enough memory");
    let args = AdamW { step: 3, lr: 1e-3, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.01, grad_scale: 1.0 };
    bench(bencher, "adamw".into(), passes(7), || kernels().adamw(&mut p, &g, &mut m, &mut v, args));
}
