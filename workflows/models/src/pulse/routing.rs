//! The fused operation `route_token`: one token is routed to the slots, reads them and is written to them.
//!
//! With the token's query q and value v, and for each slot s its key k_s and what is read of it, r_s:
//!
//! ```text
//! p = softmax over the kept slots of q . k_s / sqrt(P), 0 for the others
//! read = sum_s p_s r_s      sum_s = sum_s + p_s v      mass_s = mass_s + p_s
//! ```
//!
//! | | |
//! |---|---|
//! | inputs | q and v side by side [B, 1, 2 P]; k and r side by side [B, S, 2 P]; if tokens were written before: sum [B, S, P], mass [B, S, 1] |
//! | settings | `top_k`: how many slots are kept, those with the highest scores, of equal ones the first; all without it |
//! | values | p [B, 1, S], read [B, 1, P], sum [B, S, P], mass [B, S, 1] |
//!
//! It is for inference, where so little is computed for one token that starting an operation takes longer.

use assay_tensor::{
    Arguments, Array, Bf16Operands, Binary, Example, ExampleInput, ExampleSize, FusedOp, HIDDEN, Kernels, Reduce,
    Result, SOFTMAX, Shape, TOP_K_MASK, Tensor, TensorError, Unary, check,
};

/// See the module.
pub static ROUTE_TOKEN: FusedOp =
    FusedOp { name: "route_token", compose, gradient: None, bf16: Bf16Operands::Converted, examples };

/// What came of routing one token.
#[derive(Debug, Clone)]
pub(super) struct RoutedToken {
    /// p, [B, 1, S].
    pub(super) weights: Tensor,
    /// [B, 1, P]
    pub(super) read: Tensor,
    /// With this token, [B, S, P].
    pub(super) sum: Tensor,
    /// With this token, [B, S, 1].
    pub(super) mass: Tensor,
}

/// Routes the token of the query and value `projected` to the slots of `sides`, to which `written` (sum and mass) was written
/// before.
///
/// # Errors
/// If types or shapes do not fit, an operand is tracked, or `top_k` is not one of 1 to S.
pub(super) fn route_token(
    projected: &Tensor,
    sides: &Tensor,
    written: Option<(&Tensor, &Tensor)>,
    top_k: Option<usize>,
) -> Result<RoutedToken> {
    let name = ROUTE_TOKEN.name;
    check::element_type(name, projected, projected.dtype().is_float(), "f32 or f64")?;
    let [batch, slots, both] = check::expected_rank(name, "slots", sides, "[B, S, 2 P]")?;
    if slots == 0 || both == 0 || both % 2 != 0 {
        return Err(TensorError::new(name, "slots of two sides are needed").shapes([sides.shape()]));
    }
    check::expected_shape(name, "query and value", projected, &Shape::from([batch, 1, both]))?;
    let mut inputs = vec![projected, sides];
    if let Some((sum, mass)) = written {
        check::expected_shape(name, "sum", sum, &Shape::from([batch, slots, both / 2]))?;
        check::expected_shape(name, "mass", mass, &Shape::from([batch, slots, 1]))?;
        inputs.extend([sum, mass]);
    }
    if let Some(kept) = top_k.filter(|k| !(1..=slots).contains(k)) {
        let problem = format!("{kept} of {slots} slots cannot be kept");
        return Err(TensorError::new(name, problem).shapes([sides.shape()]));
    }
    let setting = top_k.map(|k| ("top_k", k as f64));
    let [weights, read, sum, mass] = Tensor::fused_values(&ROUTE_TOKEN, &inputs, setting.as_slice())?;
    Ok(RoutedToken { weights, read, sum, mass })
}

/// The definition.
fn compose(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (projected, sides) = (call.input(0)?, call.input(1)?);
    let width = projected.shape.last() / 2;
    let halves = |x: &Array| Ok((k.slice(x, 2, 0, width)?, k.slice(x, 2, width, width)?));
    let ((query, value), (keys, reads)) = (halves(projected)?, halves(sides)?);
    let scale = |x: &Array, by: f64| k.unary(Unary::Scale(by), x);
    let add = |a: &Array, b: &Array| k.binary(Binary::Add, a, b);
    let mut scores = scale(&k.matmul(&query, &keys, false, true)?, 1.0 / (width as f64).sqrt())?;
    if let Some(kept) = call.setting("top_k") {
        let [mask] = TOP_K_MASK.values(k, Arguments::new(&[&scores], &[("k", kept)]))?;
        let hidden = scale(&k.unary(Unary::Offset(-1.0), &mask)?, HIDDEN)?;
        scores = add(&scores, &hidden)?;
    }
    let [weights] = SOFTMAX.values(k, Arguments::new(&[&scores], &[]))?;
    let read = k.matmul(&weights, &reads, false, false)?;
    let mut sum = k.matmul(&weights, &value, true, false)?;
    let mut mass = k.reduce(Reduce::Sum, &weights, &[1])?.viewed([sides.dims()[0], sides.dims()[1], 1]);
    if let [_, _, sum_before, mass_before] = call.inputs {
        sum = add(sum_before, &sum)?;
        mass = add(mass_before, &mass)?;
    }
    Ok(vec![weights, read, sum, mass])
}

/// B sequences, S slots and P channels.
fn example([b, s, p]: [usize; 3], top_k: Option<usize>, written: bool) -> Example {
    let mut inputs = vec![ExampleInput::floats([b, 1, 2 * p]), ExampleInput::floats([b, s, 2 * p])];
    if written {
        inputs.extend([ExampleInput::floats([b, s, p]), ExampleInput::between(0.0, 3.0, [b, s, 1])]);
    }
    Example { inputs, settings: top_k.map(|k| ("top_k", k as f64)).into_iter().collect() }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    match size {
        ExampleSize::Small => {
            let sizes = [
                ([1, 1, 1], None),
                ([2, 5, 3], None),
                ([2, 5, 34], Some(2)),
                ([1, 16, 70], Some(16)),
                ([0, 2, 2], None),
            ];
            sizes.into_iter().flat_map(|(sizes, k)| [false, true].map(|written| example(sizes, k, written))).collect()
        }
        ExampleSize::Medium => vec![example([3, 33, 130], Some(7), true)],
        ExampleSize::Large => vec![example([40, 16, 128], Some(3), true)],
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::DType;

    use super::*;

    #[test]
    fn bad_operands_are_refused() {
        let device = assay_reference::device();
        let floats = |shape: &[usize]| Tensor::full(&device, shape, DType::F32, 0.5).unwrap();
        let refused = |projected: &[usize], sides: &[usize], top_k: Option<usize>| {
            route_token(&floats(projected), &floats(sides), None, top_k).unwrap_err().to_string()
        };
        for (projected, sides, top_k, words) in [
            ([2, 1, 5], [2, 3, 5], None, "slots of two sides"),
            ([2, 1, 4], [2, 0, 4], None, "slots of two sides"),
            ([2, 1, 6], [2, 3, 4], None, "the query and value should have the second shape"),
            ([2, 1, 4], [2, 3, 4], Some(4), "4 of 3 slots cannot be kept"),
            ([2, 1, 4], [2, 3, 4], Some(0), "0 of 3 slots cannot be kept"),
        ] {
            let error = refused(&projected, &sides, top_k);
            assert!(error.starts_with("route_token: ") && error.contains(words), "{error}");
        }
        let tracked = route_token(&floats(&[2, 1, 4]).variable(), &floats(&[2, 3, 4]), None, None).unwrap_err();
        assert!(tracked.to_string().contains("no gradient"), "{tracked}");
    }
}
