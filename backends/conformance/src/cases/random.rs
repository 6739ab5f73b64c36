//! Cases of random operations on random shapes: odd extents, one beyond a vector or a tile, and none.

use assay_tensor::{AttentionKind, Binary, Reduce, Tensor, Unary};

use super::{Case, between, decoding, floats, fused, primitives};
use crate::operands::Numbers;

/// Extents around those at which kernels cut their work: vectors of 16, strips of 32, tiles of 64, pieces of 128.
const EXTENTS: [usize; 28] =
    [0, 1, 1, 2, 3, 3, 5, 7, 8, 13, 14, 15, 16, 17, 29, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 128, 131];

/// The elements, or multiply-adds, of a case: the reference backend computes with plain loops.
const MOST: usize = 400_000;

/// Draws what a case is made of.
struct Draw(Numbers);

impl Draw {
    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0.ids(limit as u32, 1)[0] as usize
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }

    /// An extent; seldom none.
    fn extent(&mut self) -> usize {
        EXTENTS[self.below(EXTENTS.len())]
    }

    /// An extent of 1 at least.
    fn some(&mut self) -> usize {
        self.extent().max(1)
    }

    /// `N` extents whose product is [`MOST`] at most, each 1 at least where `some`.
    fn extents<const N: usize>(&mut self, some: bool) -> [usize; N] {
        loop {
            let extents = std::array::from_fn(|_| if some { self.some() } else { self.extent() });
            if extents.iter().map(|&extent| extent.max(1)).product::<usize>() <= MOST {
                return extents;
            }
        }
    }

    /// A shape of up to `most` axes.
    fn shape(&mut self, most: usize) -> Vec<usize> {
        let rank = self.below(most + 1);
        let all: [usize; 4] = self.extents(false);
        all[..rank].to_vec()
    }

    /// A shape that broadcasts with `shape`: with axes left out at the front, and some of extent 1.
    fn broadcast(&mut self, shape: &[usize]) -> Vec<usize> {
        let missing = self.below(shape.len() + 1);
        shape[missing..].iter().map(|&extent| if self.below(3) == 0 { 1 } else { extent }).collect()
    }
}

/// The case of a seed.
pub(crate) fn random(seed: u64) -> Case {
    let mut draw = Draw(Numbers::new(seed));
    match draw.below(12) {
        0 => unary(&mut draw),
        1 => binary(&mut draw),
        2 => reduction(&mut draw),
        3 | 4 => product(&mut draw),
        5 => layer(&mut draw),
        6 => movement(&mut draw),
        7 => rows(&mut draw),
        8 => attention(&mut draw),
        9 => scan(&mut draw),
        10 => int8(&mut draw),
        _ => decoding(&mut draw),
    }
}

fn unary(draw: &mut Draw) -> Case {
    let op = Unary::ALL[draw.below(Unary::ALL.len())];
    primitives::unary(op, draw.shape(4))
}

fn binary(draw: &mut Draw) -> Case {
    let op = Binary::ALL[draw.below(Binary::ALL.len())];
    let wide = draw.shape(4);
    let narrow = draw.broadcast(&wide);
    // The narrow one may be on the left.
    if draw.flip() { primitives::binary(op, &wide, &narrow) } else { primitives::binary(op, &narrow, &wide) }
}

fn reduction(draw: &mut Draw) -> Case {
    let op = Reduce::ALL[draw.below(Reduce::ALL.len())];
    let mut shape = draw.shape(4);
    if op != Reduce::Sum {
        shape.iter_mut().for_each(|extent| *extent = (*extent).max(1));
    }
    let axes: Vec<usize> = (0..shape.len()).filter(|_| draw.flip()).collect();
    let keep = draw.flip();
    Case::one(format!("{} over {axes:?}", op.name()), [floats(shape)], move |x| x[0].reduce(op, &axes, keep))
}

fn product(draw: &mut Draw) -> Case {
    let ([m, k, n], trans_a, trans_b) = (draw.extents(false), draw.flip(), draw.flip());
    let a = if trans_a { vec![k, m] } else { vec![m, k] };
    let b = if trans_b { vec![n, k] } else { vec![k, n] };
    let (a, b) = match draw.below(4) {
        0 => ([vec![3, 1], a].concat(), [vec![2], b].concat()),
        1 => ([vec![2], a].concat(), b),
        _ => (a, b),
    };
    let name = format!("matmul ({trans_a}, {trans_b})");
    Case::one(name, [floats(a), floats(b)], move |x| x[0].matmul_with(&x[1], trans_a, trans_b))
}

fn layer(draw: &mut Draw) -> Case {
    let [rows, k, n]: [usize; 3] = draw.extents(true);
    let x = if draw.flip() { vec![1, rows, k] } else { vec![rows, k] };
    let y = [&x[..x.len() - 1], &[n]].concat();
    match draw.below(6) {
        0 => Case::one("linear", [floats(x), floats([n, k]), floats(n)], |x| x[0].linear(&x[1], Some(&x[2]))),
        1 => Case::one("linear", [floats(x), floats([n, k])], |x| x[0].linear(&x[1], None)),
        2 => Case::one("linear_onto", [floats(y), floats(x), floats([n, k]), floats(n)], |x| {
            x[1].linear_onto(&x[0], &x[2], Some(&x[3]))
        }),
        3 => {
            let hidden = draw.some();
            let layers = [floats(x), floats([hidden, k]), floats(hidden), floats([n, hidden]), floats(n), floats(y)];
            Case::one("feed_forward", layers, |x| x[0].feed_forward((&x[1], &x[2]), (&x[3], &x[4]), Some(&x[5]), None))
        }
        4 => fused::layer_norm(&x),
        _ => Case::one("add_scaled", [floats(y.clone()), floats(y), floats(n)], |x| x[0].add_scaled(&x[1], &x[2])),
    }
}

fn movement(draw: &mut Draw) -> Case {
    let shape: [usize; 3] = draw.extents(false);
    let axis = draw.below(3);
    match draw.below(5) {
        0 => {
            let mut axes = [0, 1, 2];
            axes.swap(axis, draw.below(3));
            Case::one(format!("permute {axes:?}"), [floats(shape)], move |x| x[0].permute(&axes))
        }
        1 => {
            let start = draw.below(shape[axis] + 1);
            let length = draw.below(shape[axis] - start + 1);
            let name = format!("slice of axis {axis}, {length} from {start}");
            Case::one(name, [floats(shape)], move |x| x[0].slice(axis, start, length))
        }
        2 => {
            let mut longer = shape;
            longer[axis] = draw.extent();
            let parts = [floats(shape), floats(longer), floats(shape)];
            Case::one(format!("concat of axis {axis}"), parts, move |x| Tensor::concat(&[&x[0], &x[1], &x[2]], axis))
        }
        3 => {
            let narrow = draw.broadcast(&shape);
            Case::one("broadcast", [floats(narrow)], move |x| x[0].broadcast_to(shape))
        }
        _ => Case::one("dropout", [floats(shape)], |x| x[0].dropout(0.4, 0x1234_5678_9abc_def0)),
    }
}

fn rows(draw: &mut Draw) -> Case {
    let [v, d] = draw.extents(true);
    match draw.below(6) {
        0 => primitives::rows_by(v, d, vec![draw.extent(), 2]),
        1 => fused::cross_entropy(v, d, if draw.flip() { 0.1 } else { 0.0 }),
        2 => Case::one("softmax", [between(-5.0, 5.0, [v, d])], |x| x[0].softmax()),
        3 => Case::one("log_softmax", [between(-5.0, 5.0, [v, d])], |x| x[0].log_softmax()),
        4 => {
            let k = draw.below(d) + 1;
            Case::one(format!("top_k_mask ({k})"), [floats([v, d])], move |x| x[0].top_k_mask(k)).constant()
        }
        _ => fused::layer_norm(&[v, d]),
    }
}

fn attention(draw: &mut Draw) -> Case {
    loop {
        let [tq, tk, width] = draw.extents(true);
        let (batch, heads) = (draw.below(2) + 1, draw.below(3) + 1);
        let causal = draw.flip();
        let kind = if draw.flip() { AttentionKind::Full } else { AttentionKind::Flash };
        // Every query sees a key.
        if (!causal || tq <= tk) && batch * heads * tq * tk * width <= MOST {
            return fused::attention([batch, heads, tq, tk, width], causal, kind);
        }
    }
}

fn scan(draw: &mut Draw) -> Case {
    let [b, t, k] = draw.extents(false);
    let complex = draw.flip();
    match draw.below(3) {
        0 => fused::scan([b, t, k], complex),
        1 => fused::selective_scan([b, t, k], complex, None),
        _ => fused::selective_scan([b, t, k], complex, Some(draw.some())),
    }
}

fn int8(draw: &mut Draw) -> Case {
    let [rows, n, k] = draw.extents(true);
    match draw.below(3) {
        0 => fused::int8(rows, n, k),
        1 => fused::int8_layer([rows, n, k], draw.flip()),
        _ => fused::int8_layers([rows, n, k]),
    }
}

fn decoding(draw: &mut Draw) -> Case {
    let [t, half] = draw.extents(true);
    let (batch, heads, first) = (draw.below(3) + 1, draw.below(3) + 1, draw.below(4));
    let first = draw.flip().then_some(first);
    match draw.below(3) {
        0 => decoding::heads([batch, t, heads, 2 * half], first),
        1 => decoding::attend([batch, heads, t, 2 * half], first),
        _ => {
            let top_k = draw.flip().then(|| draw.below(t) + 1);
            decoding::route([batch, t, half], top_k, draw.flip())
        }
    }
}
