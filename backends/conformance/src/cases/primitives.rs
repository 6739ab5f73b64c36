//! Cases of elementwise operations, reductions, products and movement.

use assay_tensor::{Binary, DType, Reduce, Tensor, Unary};

use super::{Case, between, floats};
use crate::operands::Numbers;

pub(super) fn small() -> Vec<Case> {
    let mut cases = elementwise();
    cases.extend(reductions());
    cases.extend(products());
    cases.extend(movement());
    cases.extend(rows());
    cases
}

fn elementwise() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in Unary::ALL {
        for shape in [vec![], vec![1], vec![3, 7], vec![0, 2], vec![2, 33]] {
            cases.push(unary(op, shape));
        }
    }
    let pairs: [(&[usize], &[usize]); 9] = [
        (&[], &[]),
        (&[4, 5], &[4, 5]),
        (&[4, 5], &[5]),
        (&[4, 1], &[1, 5]),
        (&[2, 1, 3], &[4, 1]),
        (&[3], &[2, 17, 3]),
        (&[2, 3, 1, 2], &[3, 4, 1]),
        (&[], &[19]),
        (&[0, 3], &[1]),
    ];
    for op in Binary::ALL {
        for (a, b) in pairs {
            cases.push(binary(op, a, b));
        }
    }
    cases
}

pub(super) fn unary(op: Unary, shape: Vec<usize>) -> Case {
    let operand = match op {
        // Where these are steep or undefined, rounding is all that a comparison would see.
        Unary::Ln | Unary::Sqrt | Unary::Reciprocal => between(0.3, 3.0, shape),
        _ => between(-3.0, 3.0, shape),
    };
    Case::single(op.name(), [operand], move |x| x[0].unary(op))
}

pub(super) fn binary(op: Binary, a: &[usize], b: &[usize]) -> Case {
    let second = if op == Binary::Div { between(0.5, 2.0, b) } else { floats(b) };
    let case = Case::single(op.name(), [floats(a), second], move |x| x[0].binary(op, &x[1]));
    if matches!(op, Binary::Equal | Binary::Greater) { case.constant() } else { case }
}

fn reductions() -> Vec<Case> {
    let sizes: [(&[usize], &[usize]); 9] = [
        (&[5], &[0]),
        (&[2, 3, 4], &[0]),
        (&[2, 3, 4], &[1]),
        (&[2, 3, 4], &[2]),
        (&[2, 3, 4], &[0, 2]),
        (&[2, 3, 4], &[0, 1, 2]),
        (&[3, 37], &[1]),
        (&[37, 3], &[0]),
        (&[2, 2], &[]),
    ];
    let mut cases = Vec::new();
    for op in Reduce::ALL {
        for (shape, axes) in sizes {
            for keep in [false, true] {
                cases.push(Case::single(op.name(), [floats(shape)], move |x| x[0].reduce(op, axes, keep)));
            }
        }
    }
    cases.push(Case::single("sum over nothing", [floats([3, 0])], |x| x[0].sum(&[1], false)));
    cases
}

fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for (m, k, n) in [(1, 1, 1), (3, 4, 5), (1, 7, 2), (9, 17, 1), (2, 0, 3), (0, 2, 2), (5, 2, 33)] {
        for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if trans_a { [k, m] } else { [m, k] };
            let b = if trans_b { [n, k] } else { [k, n] };
            let name = format!("matmul ({trans_a}, {trans_b})");
            cases.push(Case::single(name, [floats(a), floats(b)], move |x| x[0].matmul_with(&x[1], trans_a, trans_b)));
        }
    }
    let batches: [(&[usize], &[usize]); 5] = [
        (&[2, 3, 4], &[2, 4, 5]),
        (&[2, 3, 4], &[4, 5]),
        (&[3, 4], &[2, 4, 5]),
        (&[2, 1, 3, 4], &[1, 3, 4, 2]),
        (&[0, 3, 4], &[0, 4, 2]),
    ];
    for (a, b) in batches {
        cases.push(Case::single("batched matmul", [floats(a), floats(b)], |x| x[0].matmul(&x[1])));
    }
    for (shape, n) in [(vec![4, 3], 5), (vec![2, 3, 7], 2), (vec![0, 3], 4), (vec![6], 2)] {
        let k = shape[shape.len() - 1];
        let operands = [floats(shape.clone()), floats([n, k]), floats(n)];
        cases.push(Case::single("linear", operands, |x| x[0].linear(&x[1], Some(&x[2]))));
        cases.push(Case::single("linear", [floats(shape.clone()), floats([n, k])], |x| x[0].linear(&x[1], None)));
        let mut out = shape.clone();
        out[shape.len() - 1] = n;
        let operands = [floats(out.clone()), floats(shape.clone()), floats([n, k]), floats(n)];
        cases.push(Case::single("linear_onto", operands, |x| x[1].linear_onto(&x[0], &x[2], Some(&x[3]))));
        let operands = [floats(out.clone()), floats(shape.clone()), floats([n, k])];
        cases.push(Case::single("linear_onto", operands, |x| x[1].linear_onto(&x[0], &x[2], None)));
        // The first weight is [4, K], so that one is wider and one narrower than the layer.
        let layers = [floats(shape), floats([4, k]), floats(4), floats([n, 4]), floats(n), floats(out.clone())];
        cases.push(Case::single("feed_forward", layers.clone(), |x| {
            x[0].feed_forward((&x[1], &x[2]), (&x[3], &x[4]), Some(&x[5]), None)
        }));
        cases.push(Case::single("feed_forward", &layers[..5], |x| {
            x[0].feed_forward((&x[1], &x[2]), (&x[3], &x[4]), None, None)
        }));
        let operands = [floats(out.clone()), floats(out), floats(n)];
        cases.push(Case::single("add_scaled", operands, |x| x[0].add_scaled(&x[1], &x[2])));
    }
    // A library may do GELU itself where rows are multiples of 8.
    let layers = [floats([2, 3, 5]), floats([8, 5]), floats(8), floats([3, 8]), floats(3)];
    cases.push(Case::single("feed_forward", layers, |x| x[0].feed_forward((&x[1], &x[2]), (&x[3], &x[4]), None, None)));
    cases
}

fn movement() -> Vec<Case> {
    let mut cases = vec![
        Case::single("reshape", [floats([2, 6])], |x| x[0].reshape([3, 4])),
        Case::single("broadcast", [floats([3, 1])], |x| x[0].broadcast_to([2, 3, 4])),
        Case::single("broadcast", [floats([])], |x| x[0].broadcast_to([5])),
        Case::single("transpose", [floats([2, 3, 4])], |x| x[0].transpose(0, 2)),
        Case::single("slice", [floats([2, 5, 3])], |x| x[0].slice(1, 1, 3)),
        Case::single("slice", [floats([5])], |x| x[0].slice(0, 5, 0)),
        Case::single("slice of all", [floats([5, 2])], |x| x[0].slice(0, 0, 5)),
        Case::new("split", [floats([2, 5, 3])], |x| x[0].split(1, &[2, 0, 3])),
        Case::single("split with a chunk unused", [floats([5])], |x| Ok(x[0].split(0, &[2, 3])?.swap_remove(1))),
        Case::single("concat", [floats([2, 1, 3]), floats([2, 4, 3]), floats([2, 0, 3])], |x| {
            Tensor::concat(&[&x[0], &x[1], &x[2]], 1)
        }),
        Case::single("concat of one twice", [floats([3])], |x| Tensor::concat(&[&x[0], &x[0]], 0)),
        // A value is used several times, so that its gradients are added up.
        Case::single("reuse", [floats([4])], |x| x[0].mul(&x[0])?.add(&x[0])?.mul(&x[0].tanh()?)),
    ];
    for axes in [[0, 1, 2], [1, 0, 2], [2, 0, 1], [2, 1, 0]] {
        cases.push(Case::single(format!("permute {axes:?}"), [floats([2, 3, 5])], move |x| x[0].permute(&axes)));
    }
    let mut cast = Case::single("cast", [floats([9])], |x| x[0].cast(DType::F32)?.cast(x[0].dtype()));
    // The rounding to f32 is a staircase; the step has to be wide to see the slope, and the slope is all there is.
    (cast.step, cast.slack) = (0.1, 100.0);
    cases.push(cast);
    let integers = [between(-200.0, 300.0, [40])];
    let int = |x: &[Tensor]| Ok(vec![x[0].cast(DType::I8)?, x[0].cast(DType::U32)?]);
    cases.push(Case::new("cast to integers", integers, int).constant());
    cases
}

fn rows() -> Vec<Case> {
    let mut cases = Vec::new();
    for (v, d, ids) in [(1, 1, vec![1]), (5, 3, vec![7]), (9, 17, vec![2, 3, 4]), (4, 2, vec![0]), (3, 2, vec![])] {
        cases.push(rows_by(v, d, ids));
    }
    cases
}

/// Rows of a table [V, D] by ids of a given shape.
pub(super) fn rows_by(v: usize, d: usize, ids: Vec<usize>) -> Case {
    Case::single(format!("rows by {ids:?}"), [floats([v, d])], move |x| look_up(&x[0], &ids))
}

/// Rows of a table by ids of a given shape, among which some repeat.
fn look_up(table: &Tensor, shape: &[usize]) -> assay_tensor::Result<Tensor> {
    let count = shape.iter().product();
    let ids = Numbers::new(77).random_ids(table.dims()[0] as u32, count);
    table.rows(&Tensor::from_u32(table.device(), ids, shape)?)
}

pub(super) fn medium() -> Vec<Case> {
    let mut cases = vec![
        Case::single("sum of a long row", [floats([1, 20_001])], |x| x[0].sum(&[1], false)),
        Case::single("sum of long columns", [floats([1500, 3])], |x| x[0].sum(&[0], false)),
        Case::single("max of long columns", [floats([2, 700, 5])], |x| x[0].max(&[1], false)),
        Case::single("rows by many ids", [floats([40, 7])], |x| look_up(&x[0], &[1500])),
        Case::single("slice of wide rows", [floats([3, 9, 8])], |x| x[0].slice(1, 4, 4)),
        // More axes than a kernel walks by itself: none of them can be merged with its neighbour.
        Case::single("permute of eight axes", [floats([2; 8])], |x| x[0].permute(&[7, 6, 5, 4, 3, 2, 1, 0])),
        Case::single("permute of words", [floats([2, 3, 8])], |x| x[0].permute(&[1, 0, 2])),
    ];
    for (a, b) in [(vec![2, 1, 2, 1, 2, 1, 2, 1], vec![1, 3, 1, 2, 1, 3, 1, 2]), (vec![3, 700], vec![3, 1])] {
        cases.push(Case::single("mul", [floats(a), floats(b)], |x| x[0].mul(&x[1])));
    }
    cases.push(Case::single("broadcast products", [floats([2, 1, 3, 2, 4]), floats([3, 1, 4, 2])], |x| {
        x[0].matmul(&x[1])
    }));
    cases
}

pub(super) fn large() -> Vec<Case> {
    let mut cases = vec![
        Case::single("gelu", [floats([300, 1000])], |x| x[0].gelu()),
        Case::single("add", [floats([500, 1001]), floats([1001])], |x| x[0].add(&x[1])),
        Case::single("mul", [floats([700, 600]), floats([700, 1])], |x| x[0].mul(&x[1])),
        Case::single("sum over rows", [floats([1000, 333])], |x| x[0].sum(&[0], false)),
        Case::single("sum over columns", [floats([333, 1000])], |x| x[0].sum(&[1], false)),
        Case::single("sum of all", [floats([1000, 333])], |x| x[0].sum_all()),
        Case::single("max", [floats([40, 300, 30])], |x| x[0].max(&[1], false)),
        Case::single("permute", [floats([8, 100, 4, 64])], |x| x[0].permute(&[0, 2, 1, 3])),
        Case::single("rows", [floats([200, 129])], |x| look_up(&x[0], &[20, 150])),
        Case::single("linear", [floats([4, 300, 200]), floats([131, 200]), floats(131)], |x| {
            x[0].linear(&x[1], Some(&x[2]))
        }),
        Case::single("add_scaled", [floats([900, 130]), floats([900, 130]), floats(130)], |x| {
            x[0].add_scaled(&x[1], &x[2])
        }),
        Case::single(
            "feed_forward",
            [floats([2, 300, 70]), floats([550, 70]), floats(550), floats([70, 550]), floats(70), floats([2, 300, 70])],
            |x| x[0].feed_forward((&x[1], &x[2]), (&x[3], &x[4]), Some(&x[5]), None),
        ),
        // A weight that is used twice is packed only once, and a sum of gradients is continued.
        Case::single("linear twice", [floats([4, 300, 128]), floats([128, 128])], |x| {
            x[0].linear(&x[1], None)?.linear(&x[1], None)
        }),
    ];
    // Thin, deep, ragged: other kernels and other cuts inside the matrix product.
    for (m, k, n) in [(513, 129, 257), (2048, 64, 48), (70, 3000, 65), (1, 2000, 700), (1500, 900, 1), (130, 1030, 31)]
    {
        for (trans_a, trans_b) in [(false, false), (false, true), (true, false)] {
            let a = if trans_a { [k, m] } else { [m, k] };
            let b = if trans_b { [n, k] } else { [k, n] };
            let name = format!("matmul ({trans_a}, {trans_b})");
            let product =
                Case::single(name, [floats(a), floats(b)], move |x| x[0].matmul_with(&x[1], trans_a, trans_b));
            cases.push(product);
        }
    }
    cases.push(Case::single("batched matmul", [floats([24, 65, 70]), floats([24, 70, 33])], |x| x[0].matmul(&x[1])));
    cases
}
