//! Cases of the fused operations.

use assay_tensor::{
    AttentionKind, AttentionOptions, Columns, Int8Linear, Norm, Result, ScanArgs, Skip, Tensor, checkpoint,
    diagonal_scan,
};

use super::{Case, Operand, between, floats, heads};
use crate::operands::Numbers;

pub(super) fn small() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.push(checkpoint_case());
    for (rows, n, k) in [(1, 1, 1), (3, 5, 7), (2, 9, 64), (4, 3, 130), (0, 2, 3), (2, 3, 0)] {
        cases.push(int8(rows, n, k));
    }
    for sizes in [[1, 1, 2], [3, 5, 7], [2, 70, 64], [5, 17, 130], [0, 2, 3]] {
        cases.extend([false, true].map(|norm| int8_layer(sizes, norm)));
        cases.push(int8_layers(sizes));
    }
    cases.extend(heads::small());
    cases
}

pub(super) fn medium() -> Vec<Case> {
    vec![int8(70, 67, 45)]
}

pub(super) fn large() -> Vec<Case> {
    vec![int8(700, 130, 257)]
}

pub(super) fn layer_norm(shape: &[usize]) -> Case {
    let width = shape[shape.len() - 1];
    Case::single("layer_norm", [floats(shape), floats(width), floats(width)], |x| x[0].layer_norm(&x[1], &x[2], 1e-2))
}

pub(super) fn cross_entropy(n: usize, v: usize, smoothing: f64) -> Case {
    Case::single(format!("cross_entropy ({smoothing})"), [between(-4.0, 4.0, [n, v])], move |x| {
        let targets = Numbers::new(5).random_ids(v as u32, n);
        x[0].cross_entropy(&Tensor::from_u32(x[0].device(), targets, n)?, smoothing)
    })
}

/// Attention over q [B, H, Tq, D] and k, v [B, H, Tk, D], of extents B, H, Tq, Tk, D.
pub(crate) fn attention([b, h, tq, tk, width]: [usize; 5], causal: bool, kind: AttentionKind) -> Case {
    let options = AttentionOptions { causal, scale: 0.6, kind };
    let operands = [floats([b, h, tq, width]), floats([b, h, tk, width]), floats([b, h, tk, width])];
    let name = format!("{kind:?} attention, causal {causal}");
    Case::single(name, operands, move |x| x[0].attention(&x[1], &x[2], options))
}

/// The decay lies well inside the unit circle, so that long sequences stay comparable.
pub(super) fn scan([b, t, k]: [usize; 3], complex: bool) -> Case {
    let mut operands = vec![between(-0.6, 0.6, k), between(-0.6, 0.6, k), floats([b, k]), floats([b, k])];
    let inputs: [Operand; 2] = [floats([b, t, k]), floats([b, t, k])];
    operands.extend(inputs.into_iter().take(if complex { 2 } else { 1 }));
    Case::new("diagonal_scan", operands, |x| scan_of(x, None))
}

/// A scan whose decay changes over time, as the selective form of TEN has it.
pub(super) fn selective_scan([b, t, k]: [usize; 3], complex: bool, segment: Option<usize>) -> Case {
    let decay = || between(-0.6, 0.6, [b, t, k]);
    let mut operands = vec![decay(), decay(), floats([b, k]), floats([b, k])];
    operands.extend([floats([b, t, k]), floats([b, t, k])].into_iter().take(if complex { 2 } else { 1 }));
    Case::new("diagonal_scan", operands, move |x| scan_of(x, segment))
}

/// Two values, one of them used twice inside, with a third operand that is captured rather than given.
fn checkpoint_case() -> Case {
    Case::new("checkpoint", [floats([3, 4]), floats([4]), floats([3, 4])], |x| {
        let captured = x[2].clone();
        let values = checkpoint(&[&x[0], &x[1]], move |x| {
            let inner = checkpoint(&[&x[0]], |x| Ok(vec![x[0].tanh()?]))?.swap_remove(0);
            let y = inner.mul(&x[1])?.add(&captured.square()?)?;
            Ok(vec![y.exp()?, y.sum(&[0], false)?])
        })?;
        Ok(vec![values[0].add(&x[2])?, values[1].clone()])
    })
}

/// The scan of operands decay, carry, input, each real part first; a sixth operand makes the input complex.
pub(crate) fn scan_of(x: &[Tensor], segment: Option<usize>) -> Result<Vec<Tensor>> {
    let (re, im) = diagonal_scan(ScanArgs {
        decay_re: &x[0],
        decay_im: &x[1],
        carry_re: &x[2],
        carry_im: &x[3],
        input_re: &x[4],
        input_im: x.get(5),
        segment,
    })?;
    Ok(vec![re, im])
}

pub(super) fn int8(rows: usize, n: usize, k: usize) -> Case {
    let case = Case::single("linear_int8", [floats([rows, k]), between(0.0, 0.02, n)], move |x| {
        let q = Tensor::from_i8(x[0].device(), Numbers::new(9).random_bytes(n * k), [n, k])?;
        x[0].linear_int8(&q, &x[1])
    });
    Case { f32_only: true, ..case.constant() }
}

/// One layer of the columns of two inputs, with all that may follow the product.
pub(super) fn int8_layer([rows, n, k]: [usize; 3], norm: bool) -> Case {
    let operands = [floats([rows, k + 2]), floats([rows, k]), between(0.0, 0.02, n), floats(n), floats([rows, n])];
    let case = Case::single("int8_linear", operands, move |x| {
        let q = Tensor::from_i8(x[0].device(), Numbers::new(9).random_bytes(n * 2 * k), [n, 2 * k])?;
        let norm = norm.then_some(Norm { gain: &x[3], bias: &x[2], eps: 1e-5 });
        let skip = Some(Skip { factor: &x[3], of: &x[4], norm });
        let layer =
            Int8Linear { bias: Some(&x[3]), gelu: true, skip, residual: Some(&x[4]), ..Int8Linear::new(&q, &x[2]) };
        Tensor::int8_linear([Columns { of: &x[0], from: 1, width: k }, x[1].columns()], [layer])
    });
    Case { f32_only: true, ..case.constant() }
}

/// A feed-forward network: a norm and two layers.
pub(super) fn int8_layers([rows, n, k]: [usize; 3]) -> Case {
    let operands =
        [floats([rows, k]), floats(k), floats(k), between(0.0, 0.02, n), floats(n), between(0.0, 0.02, k), floats(k)];
    let case = Case::single("int8_linear after a norm", operands, move |x| {
        let bytes = |seed, shape| Tensor::from_i8(x[0].device(), Numbers::new(seed).random_bytes(n * k), shape);
        let (up, down) = (bytes(9, [n, k])?, bytes(10, [k, n])?);
        let norm = Some(Norm { gain: &x[1], bias: &x[2], eps: 1e-5 });
        let up = Int8Linear { norm, bias: Some(&x[4]), gelu: true, ..Int8Linear::new(&up, &x[3]) };
        let down = Int8Linear { bias: Some(&x[6]), residual: Some(&x[0]), ..Int8Linear::new(&down, &x[5]) };
        Tensor::int8_linear([x[0].columns()], [up, down])
    });
    Case { f32_only: true, ..case.constant() }
}
