//! Attention heads: splitting and joining them, with the rotary position embedding.

use assay_tensor::{Arguments, Array, Result, Rotary};

use crate::store::{store_values, values_of};

/// The cosines and sines of a rotation.
struct RotaryTables {
    cos: Vec<f64>,
    sin: Vec<f64>,
    first: usize,
}

impl RotaryTables {
    fn new(rotary: Rotary<'_, Array>) -> Result<RotaryTables> {
        Ok(RotaryTables { cos: values_of(rotary.cos)?, sin: values_of(rotary.sin)?, first: rotary.first })
    }

    /// Turns the vector of a head at place `t`, or turns it back.
    fn rotate_head(&self, x: &mut [f64], t: usize, back: bool) {
        let half = x.len() / 2;
        for i in 0..half {
            let (c, s) = (self.cos[(self.first + t) * half + i], self.sin[(self.first + t) * half + i]);
            let s = if back { -s } else { s };
            (x[i], x[i + half]) = (x[i] * c - x[i + half] * s, x[i + half] * c + x[i] * s);
        }
    }
}

/// The operation `heads`.
pub(crate) fn split_heads(call: Arguments<'_>) -> Result<Vec<Array>> {
    let (x, heads, rotary) = (call.input(0)?, call.required("heads")? as usize, Rotary::of_call(call, 1)?);
    let (b, t, width) = (x.dims()[0], x.dims()[1], x.shape.last() / (3 * heads));
    let (v, tables) = (values_of(x)?, rotary.map(RotaryTables::new).transpose()?);
    let part = |part: usize| {
        let mut y = Vec::with_capacity(b * heads * t * width);
        for row in 0..b * heads * t {
            let (sequence, head, place) = (row / t / heads, row / t % heads, row % t);
            let from = (((sequence * t + place) * 3 + part) * heads + head) * width;
            let mut vector = v[from..from + width].to_vec();
            if let Some(tables) = tables.as_ref().filter(|_| part < 2) {
                tables.rotate_head(&mut vector, place, false);
            }
            y.extend(vector);
        }
        store_values(&y, [b, heads, t, width], x.dtype)
    };
    Ok(vec![part(0), part(1), part(2)])
}

/// The operation `heads_backward`.
pub(crate) fn join_heads(call: Arguments<'_>) -> Result<Vec<Array>> {
    let (grads, rotary) = ([call.input(0)?, call.input(1)?, call.input(2)?], Rotary::of_call(call, 3)?);
    let [b, heads, t, width] = [0, 1, 2, 3].map(|axis| grads[0].dims()[axis]);
    let tables = rotary.map(RotaryTables::new).transpose()?;
    let mut dx = vec![0.0; b * t * 3 * heads * width];
    for (part, grad) in grads.into_iter().enumerate() {
        for (row, vector) in values_of(grad)?.chunks_mut(width.max(1)).enumerate() {
            let (sequence, head, place) = (row / t / heads, row / t % heads, row % t);
            if let Some(tables) = tables.as_ref().filter(|_| part < 2) {
                tables.rotate_head(vector, place, true);
            }
            let to = (((sequence * t + place) * 3 + part) * heads + head) * width;
            dx[to..to + width].copy_from_slice(vector);
        }
    }
    Ok(vec![store_values(&dx, [b, t, 3 * heads * width], grads[0].dtype)])
}
