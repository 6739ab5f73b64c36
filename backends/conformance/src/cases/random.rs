//! Cases of random operations on random shapes: odd extents, one beyond a vector or a tile, and none.

use assay_tensor::{AttentionKind, Binary, Reduce, Tensor, Unary};

use super::{Case, between, floats, fused, heads, primitives};
use crate::operands::Numbers;

/// Extents around those at which kernels cut their work: vectors of 16, strips of 32, tiles of 64, chunks of 128.
const EXTENTS: [usize; 28] =
    [0, 1, 1, 2, 3, 3, 5, 7, 8, 13, 14, 15, 16, 17, 29, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 128, 131];

/// The elements, or multiply-adds, of a case: the reference backend computes with plain loops.
const MOST: usize = 400_000;

/// Draws what a case is made of.
struct CaseGenerator(Numbers);

impl CaseGenerator {
    /// A number below `limit`, which is not 0.
    fn number_below(&mut self, limit: usize) -> usize {
        self.0.random_ids(limit as u32, 1)[0] as usize
    }

    fn coin_flip(&mut self) -> bool {
        self.number_below(2) == 1
    }

    /// An extent; rarely 0.
    fn any_extent(&mut self) -> usize {
        EXTENTS[self.number_below(EXTENTS.len())]
    }

    /// An extent of 1 at least.
    fn positive_extent(&mut self) -> usize {
        self.any_extent().max(1)
    }

    /// `N` extents whose product is [`MOST`] at most, each 1 at least where `some`.
    fn bounded_extents<const N: usize>(&mut self, some: bool) -> [usize; N] {
        loop {
            let extents = std::array::from_fn(|_| if some { self.positive_extent() } else { self.any_extent() });
            if extents.iter().map(|&extent| extent.max(1)).product::<usize>() <= MOST {
                return extents;
            }
        }
    }

    /// A shape of up to `most` axes.
    fn any_shape(&mut self, most: usize) -> Vec<usize> {
        let rank = self.number_below(most + 1);
        let all: [usize; 4] = self.bounded_extents(false);
        all[..rank].to_vec()
    }

    /// A shape that broadcasts with `shape`: with axes left out at the front, and some of extent 1.
    fn broadcastable_shape(&mut self, shape: &[usize]) -> Vec<usize> {
        let missing = self.number_below(shape.len() + 1);
        shape[missing..].iter().map(|&extent| if self.number_below(3) == 0 { 1 } else { extent }).collect()
    }
}

/// The case of a seed.
pub(crate) fn random_case(seed: u64) -> Case {
    let mut draw = CaseGenerator(Numbers::new(seed));
    match draw.number_below(12) {
        0 => unary_case(&mut draw),
        1 => binary_case(&mut draw),
        2 => reduction_case(&mut draw),
        3 | 4 => matmul_case(&mut draw),
        5 => layer_case(&mut draw),
        6 => movement_case(&mut draw),
        7 => rows_case(&mut draw),
        8 => attention_case(&mut draw),
        9 => scan_case(&mut draw),
        10 => int8_case(&mut draw),
        _ => heads_case(&mut draw),
    }
}

fn unary_case(draw: &mut CaseGenerator) -> Case {
    let op = Unary::ALL[draw.number_below(Unary::ALL.len())];
    primitives::unary(op, draw.any_shape(4))
}

fn binary_case(draw: &mut CaseGenerator) -> Case {
    let op = Binary::ALL[draw.number_below(Binary::ALL.len())];
    let wide = draw.any_shape(4);
    let narrow = draw.broadcastable_shape(&wide);
    // The narrow one may be on the left.
    if draw.coin_flip() { primitives::binary(op, &wide, &narrow) } else { primitives::binary(op, &narrow, &wide) }
}

fn reduction_case(draw: &mut CaseGenerator) -> Case {
    let op = Reduce::ALL[draw.number_below(Reduce::ALL.len())];
    let mut shape = draw.any_shape(4);
    if op != Reduce::Sum {
        shape.iter_mut().for_each(|extent| *extent = (*extent).max(1));
    }
    let axes: Vec<usize> = (0..shape.len()).filter(|_| draw.coin_flip()).collect();
    let keep = draw.coin_flip();
    Case::single(format!("{} over {axes:?}", op.name()), [floats(shape)], move |x| x[0].reduce(op, &axes, keep))
}

fn matmul_case(draw: &mut CaseGenerator) -> Case {
    let ([m, k, n], trans_a, trans_b) = (draw.bounded_extents(false), draw.coin_flip(), draw.coin_flip());
    let a = if trans_a { vec![k, m] } else { vec![m, k] };
    let b = if trans_b { vec![n, k] } else { vec![k, n] };
    let (a, b) = match draw.number_below(4) {
        0 => ([vec![3, 1], a].concat(), [vec![2], b].concat()),
        1 => ([vec![2], a].concat(), b),
        _ => (a, b),
    };
    let name = format!("matmul ({trans_a}, {trans_b})");
    Case::single(name, [floats(a), floats(b)], move |x| x[0].matmul_with(&x[1], trans_a, trans_b))
}

fn layer_case(draw: &mut CaseGenerator) -> Case {
    let [rows, k, n]: [usize; 3] = draw.bounded_extents(true);
    let x = if draw.coin_flip() { vec![1, rows, k] } else { vec![rows, k] };
    let y = [&x[..x.len() - 1], &[n]].concat();
    match draw.number_below(6) {
        0 => Case::single("linear", [floats(x), floats([n, k]), floats(n)], |x| x[0].linear(&x[1], Some(&x[2]))),
        1 => Case::single("linear", [floats(x), floats([n, k])], |x| x[0].linear(&x[1], None)),
        2 => Case::single("linear_onto", [floats(y), floats(x), floats([n, k]), floats(n)], |x| {
            x[1].linear_onto(&x[0], &x[2], Some(&x[3]))
        }),
        3 => {
            let hidden = draw.positive_extent();
            let layers = [floats(x), floats([hidden, k]), floats(hidden), floats([n, hidden]), floats(n), floats(y)];
            Case::single("feed_forward", layers, |x| {
                x[0].feed_forward((&x[1], &x[2]), (&x[3], &x[4]), Some(&x[5]), None)
            })
        }
        4 => fused::layer_norm(&x),
        _ => Case::single("add_scaled", [floats(y.clone()), floats(y), floats(n)], |x| x[0].add_scaled(&x[1], &x[2])),
    }
}

fn movement_case(draw: &mut CaseGenerator) -> Case {
    let shape: [usize; 3] = draw.bounded_extents(false);
    let axis = draw.number_below(3);
    match draw.number_below(5) {
        0 => {
            let mut axes = [0, 1, 2];
            axes.swap(axis, draw.number_below(3));
            Case::single(format!("permute {axes:?}"), [floats(shape)], move |x| x[0].permute(&axes))
        }
        1 => {
            let start = draw.number_below(shape[axis] + 1);
            let length = draw.number_below(shape[axis] - start + 1);
            let name = format!("slice of axis {axis}, {length} from {start}");
            Case::single(name, [floats(shape)], move |x| x[0].slice(axis, start, length))
        }
        2 => {
            let mut longer = shape;
            longer[axis] = draw.any_extent();
            let parts = [floats(shape), floats(longer), floats(shape)];
            Case::single(format!("concat of axis {axis}"), parts, move |x| Tensor::concat(&[&x[0], &x[1], &x[2]], axis))
        }
        3 => {
            let narrow = draw.broadcastable_shape(&shape);
            Case::single("broadcast", [floats(narrow)], move |x| x[0].broadcast_to(shape))
        }
        _ => Case::single("dropout", [floats(shape)], |x| x[0].dropout(0.4, 0x1234_5678_9abc_def0)),
    }
}

fn rows_case(draw: &mut CaseGenerator) -> Case {
    let [v, d] = draw.bounded_extents(true);
    match draw.number_below(6) {
        0 => primitives::rows_by(v, d, vec![draw.any_extent(), 2]),
        1 => fused::cross_entropy(v, d, if draw.coin_flip() { 0.1 } else { 0.0 }),
        2 => Case::single("softmax", [between(-5.0, 5.0, [v, d])], |x| x[0].softmax()),
        3 => Case::single("log_softmax", [between(-5.0, 5.0, [v, d])], |x| x[0].log_softmax()),
        4 => {
            let k = draw.number_below(d) + 1;
            Case::single(format!("top_k_mask ({k})"), [floats([v, d])], move |x| x[0].top_k_mask(k)).constant()
        }
        _ => fused::layer_norm(&[v, d]),
    }
}

fn attention_case(draw: &mut CaseGenerator) -> Case {
    loop {
        let [tq, tk, width] = draw.bounded_extents(true);
        let (batch, heads) = (draw.number_below(2) + 1, draw.number_below(3) + 1);
        let causal = draw.coin_flip();
        let kind = if draw.coin_flip() { AttentionKind::Full } else { AttentionKind::Flash };
        // Every query sees a key.
        if (!causal || tq <= tk) && batch * heads * tq * tk * width <= MOST {
            return fused::attention([batch, heads, tq, tk, width], causal, kind);
        }
    }
}

fn scan_case(draw: &mut CaseGenerator) -> Case {
    let [b, t, k] = draw.bounded_extents(false);
    let complex = draw.coin_flip();
    match draw.number_below(3) {
        0 => fused::scan([b, t, k], complex),
        1 => fused::selective_scan([b, t, k], complex, None),
        _ => fused::selective_scan([b, t, k], complex, Some(draw.positive_extent())),
    }
}

fn int8_case(draw: &mut CaseGenerator) -> Case {
    let [rows, n, k] = draw.bounded_extents(true);
    match draw.number_below(3) {
        0 => fused::int8(rows, n, k),
        1 => fused::int8_layer([rows, n, k], draw.coin_flip()),
        _ => fused::int8_layers([rows, n, k]),
    }
}

fn heads_case(draw: &mut CaseGenerator) -> Case {
    let [t, half] = draw.bounded_extents(true);
    let (batch, heads, first) = (draw.number_below(3) + 1, draw.number_below(3) + 1, draw.number_below(4));
    heads::heads([batch, t, heads, 2 * half], draw.coin_flip().then_some(first))
}
