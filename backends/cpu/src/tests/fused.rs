//! Normalisation, losses, attention, the scan, int8 layers and AdamW.

use assay_tensor::{
    AdamW, Arguments, Array, Attention, AttentionBackward, AttentionKind, AttentionOptions, CROSS_ENTROPY,
    CROSS_ENTROPY_BACKWARD, FusedOp, LAYER_NORM, LAYER_NORM_BACKWARD, LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD, SOFTMAX,
    SOFTMAX_BACKWARD, Scan, ScanBackward,
};

use super::check_operation;

#[test]
fn softmax_and_its_gradients() {
    for shape in [[1, 1], [5, 3], [9, 16], [33, 70], [0, 4], [3, 200]] {
        check_operation("softmax", 3e-6, |k, o| {
            let (x, g) = (o.numbers_between(-9.0, 9.0, shape), o.random_floats(shape));
            let run = |op: &FusedOp, inputs: &[&Array]| op.run(k, Arguments::new(inputs, &[]));
            let (y, l) = (run(&SOFTMAX, &[&x])?, run(&LOG_SOFTMAX, &[&x])?);
            let (dx, dl) = (run(&SOFTMAX_BACKWARD, &[&y[0], &g])?, run(&LOG_SOFTMAX_BACKWARD, &[&l[0], &g])?);
            Ok([y, l, dx, dl].concat())
        });
    }
    check_operation("softmax of large numbers", 3e-6, |k, o| {
        SOFTMAX.run(k, Arguments::new(&[&o.numbers_between(9e4, 9.1e4, [3, 20])], &[]))
    });
}

#[test]
fn layer_norm_and_its_gradients() {
    for shape in [vec![1, 1], vec![4, 7], vec![2, 5, 48], vec![200, 33], vec![0, 5]] {
        check_operation("layer_norm", 2e-5, |k, o| {
            let d = shape[shape.len() - 1];
            let (x, g) = (o.random_floats(shape.clone()), o.random_floats(shape.clone()));
            let (gain, bias) = (o.random_floats(d), o.random_floats(d));
            let n = LAYER_NORM.run(k, Arguments::new(&[&x, &gain, &bias], &[("eps", 1e-2)]))?;
            let d = LAYER_NORM_BACKWARD.run(k, Arguments::new(&[&x, &gain, &n[1], &n[2], &g], &[]))?;
            Ok([n, d].concat())
        });
    }
}

#[test]
fn cross_entropy_and_its_gradient() {
    for (n, v, smoothing) in [(1, 1, 0.0), (7, 5, 0.0), (7, 33, 0.1), (40, 300, 1.0), (0, 3, 0.2)] {
        check_operation("cross_entropy", 5e-6, |k, o| {
            let (x, targets, g) = (o.numbers_between(-5.0, 5.0, [n, v]), o.random_ids(v, n), o.random_floats(n));
            let settings = [("smoothing", smoothing)];
            let y = CROSS_ENTROPY.run(k, Arguments::new(&[&x, &targets], &settings))?;
            let dx = CROSS_ENTROPY_BACKWARD.run(k, Arguments::new(&[&x, &targets, &y[1], &g], &settings))?;
            Ok([y, dx].concat())
        });
    }
}

#[test]
fn attention_and_its_gradients() {
    // Of the large, the third has three blocks of keys and heads of two strips of columns, the fourth few keys in its last block.
    let small = [(1, 1, 1, 1, 1), (2, 3, 5, 5, 8), (1, 1, 0, 4, 3), (1, 2, 3, 4, 0)];
    let large = [(1, 2, 70, 130, 16), (2, 1, 150, 150, 9), (1, 1, 90, 600, 40), (1, 1, 70, 268, 8), (1, 1, 3, 300, 5)];
    let sizes = small.into_iter().chain(large);
    for (b, h, tq, tk, d) in sizes {
        for kind in [AttentionKind::Full, AttentionKind::Flash] {
            for causal in [false, true] {
                let options = AttentionOptions { causal, scale: 0.7, kind };
                check_operation("attention", 5e-5, |kernels, o| {
                    let (q, g) = (o.random_floats([b, h, tq, d]), o.random_floats([b, h, tq, d]));
                    let (k, v) = (o.random_floats([b, h, tk, d]), o.random_floats([b, h, tk, d]));
                    let of = Attention { q: &q, k: &k, v: &v, options };
                    let (out, lse) = of.run(kernels)?;
                    let [dq, dk, dv] = AttentionBackward { of, out: &out, lse: &lse, grad: &g }.run(kernels)?;
                    Ok(vec![out, lse, dq, dk, dv])
                });
            }
        }
    }
}

#[test]
fn scan_and_its_gradients() {
    let sizes = [(1, 1, 1), (2, 9, 17), (3, 20, 64), (1, 12, 300), (2, 0, 5), (0, 3, 4)];
    for (b, t, k) in sizes {
        for segment in [None, Some(1), Some(4), Some(10), Some(usize::MAX)] {
            for (complex, parts) in [(true, (true, true)), (false, (true, false)), (false, (false, true))] {
                check_operation("diagonal_scan", 2e-5, |kernels, o| {
                    let (decay_re, decay_im) = (o.numbers_between(-0.7, 0.7, k), o.numbers_between(-0.7, 0.7, k));
                    let (input_re, input_im) = (o.random_floats([b, t, k]), o.random_floats([b, t, k]));
                    let (carry_re, carry_im) = (o.random_floats([b, k]), o.random_floats([b, k]));
                    let (grad_re, grad_im) = (o.random_floats([b, t, k]), o.random_floats([b, t, k]));
                    let scan = Scan {
                        decay_re: &decay_re,
                        decay_im: &decay_im,
                        input_re: &input_re,
                        input_im: complex.then_some(&input_im),
                        carry_re: &carry_re,
                        carry_im: &carry_im,
                        segment,
                    };
                    let (re, im) = scan.run(kernels)?;
                    let grad = (parts.0.then_some(&grad_re), parts.1.then_some(&grad_im));
                    let d = ScanBackward { scan, states: (&re, &im), grad }.run(kernels)?;
                    let mut found = vec![re, im, d.decay.0, d.decay.1, d.input.0, d.carry.0, d.carry.1];
                    // Where the input is real, its imaginary part has no gradient to speak of.
                    found.extend(complex.then_some(d.input.1));
                    Ok(found)
                });
            }
        }
    }
}

#[test]
fn int8_layers() {
    for (rows, n, k) in [(1, 1, 1), (3, 5, 7), (4, 70, 64), (9, 130, 200), (0, 3, 4), (2, 0, 4), (2, 3, 0)] {
        check_operation("linear_int8", 2e-6, |kernels, o| {
            let (x, q, scale) = (o.random_floats([rows, k]), o.random_bytes([n, k]), o.numbers_between(0.0, 0.01, n));
            // The oracle is told to compute in f32 as well: the quantization is defined in it.
            let (x, scale) =
                (kernels.cast(&x, assay_tensor::DType::F32)?, kernels.cast(&scale, assay_tensor::DType::F32)?);
            Ok(vec![kernels.linear_int8(&x, &q, &scale)?])
        });
    }
}

#[test]
fn adamw_updates_in_place_and_leaves_others_alone() {
    for shape in [[1, 1], [7, 33], [0, 3]] {
        check_operation("adamw", 2e-6, |k, o| {
            let (mut param, grad) = (o.random_floats(shape), o.random_floats(shape));
            let (mut m, mut v) = (o.random_floats(shape), o.numbers_between(0.0, 1.0, shape));
            let before = param.clone();
            for step in 1..4 {
                let args = AdamW { step, lr: 0.1, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.05, grad_scale: 0.5 };
                k.adamw(&mut param, &grad, &mut m, &mut v, args)?;
            }
            Ok(vec![before, param, m, v])
        });
    }
}
