//! The backend's [`Kernels`]: each method hands its operands' tensors to the module of its kind.

use assay_tensor::{
    AdamW, Arguments, Array, Attention, AttentionBackward, Binary, CROSS_ENTROPY_BACKWARD, DType, DeviceInfo, HostData,
    Kernels, Linear, Reduce, Result, Scan, ScanBackward, ScanGradient, Shape, TensorError, Unary, cross_entropy_hits,
    find_kernel,
};
use tch::{Device, TchError, Tensor};

use crate::place::Place;
use crate::scan::{Operands, Pair};
use crate::store::{self, Made, array, check_ids, failed, kind, owned, sizes, tensor, tensor_mut};
use crate::{attention, elementwise, loss, norm, optimizer};

/// libtorch at a place.
#[derive(Debug)]
pub(crate) struct Torch {
    pub(crate) place: Place,
    pub(crate) threads: usize,
}

impl Torch {
    fn device(&self) -> Device {
        match self.place {
            Place::Cpu => Device::Cpu,
            Place::Cuda(index) => Device::Cuda(index),
        }
    }
}

/// The answer of libtorch, with its error as ours.
fn checked<T>(operation: &'static str, made: std::result::Result<T, TchError>) -> Result<T> {
    made.map_err(|error| failed(operation, &error))
}

/// Two parts as arrays.
fn both(operation: &'static str, dtype: DType, (re, im): Pair) -> Result<(Array, Array)> {
    Ok((array(operation, dtype, Ok(re))?, array(operation, dtype, Ok(im))?))
}

/// From the name of a fused operation to its kernel. All others run by their definition.
static FUSED_KERNELS: [(&str, FusedKernel); 13] = [
    ("attention", attend),
    ("attention_backward", attend_backward),
    ("cross_entropy", cross_entropy),
    ("cross_entropy_backward", cross_entropy_backward),
    ("diagonal_scan", scan_states),
    ("diagonal_scan_backward", scan_backward),
    ("layer_norm", layer_norm),
    ("layer_norm_backward", layer_norm_backward),
    ("linear", linear),
    ("log_softmax", |_, call| by_rows(call, |[x, _]| x.f_log_softmax(-1, x.kind()))),
    ("log_softmax_backward", |_, call| {
        by_rows(call, |[y, g]| Tensor::f_internal_log_softmax_backward_data(g, y, -1, g.kind()))
    }),
    ("softmax", |_, call| by_rows(call, |[x, _]| x.f_softmax(-1, x.kind()))),
    ("softmax_backward", |_, call| {
        by_rows(call, |[y, g]| Tensor::f_internal_softmax_backward_data(g, y, -1, g.kind()))
    }),
];

/// A kernel of a fused operation.
type FusedKernel = fn(&Torch, Arguments<'_>) -> Result<Vec<Array>>;

/// An operation of one or two operands of one shape with a value of that shape.
fn by_rows(call: Arguments<'_>, apply: fn([&Tensor; 2]) -> Made) -> Result<Vec<Array>> {
    let (name, first, last) = ("softmax", call.input(0)?, call.input(call.inputs.len().saturating_sub(1))?);
    let made = apply([&tensor(name, first)?, &tensor(name, last)?]);
    Ok(vec![array(name, first.dtype, made)?])
}

/// The operation `attention`.
fn attend(_: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (Attention { q, k, v, options }, name) = (Attention::of_call(call)?, "attention");
    let made = attention::attention(&tensor(name, q)?, &tensor(name, k)?, &tensor(name, v)?, options);
    let (out, lse) = both(name, q.dtype, checked(name, made)?)?;
    Ok(vec![out, lse])
}

/// The operation `attention_backward`.
fn attend_backward(_: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (AttentionBackward { of, out, lse, grad }, name) = (AttentionBackward::of_call(call)?, "attention");
    let of_array = |x: &Array| tensor(name, x);
    let (q, k, v) = (of_array(of.q)?, of_array(of.k)?, of_array(of.v)?);
    let (out, lse, g) = (of_array(out)?, of_array(lse)?, of_array(grad)?);
    let made = attention::attention_backward([&q, &k, &v, &out, &lse, &g], of.options);
    let (dq, dk, dv) = checked(name, made)?;
    [dq, dk, dv].into_iter().map(|made| array(name, grad.dtype, Ok(made))).collect()
}

/// The operation `cross_entropy`.
fn cross_entropy(torch: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([logits, targets], name) = (call.operands()?, "cross_entropy");
    let list = tensor(name, targets)?;
    check_ids(name, &list, logits.shape.last(), &logits.shape)?;
    let made = loss::cross_entropy(&tensor(name, logits)?, &list, call.required("smoothing")?);
    let (losses, lse) = both(name, logits.dtype, checked(name, made)?)?;
    let mut values = vec![losses, lse];
    if call.is_set("hits") {
        values.push(cross_entropy_hits(torch, logits, targets)?);
    }
    Ok(values)
}

/// The operation `cross_entropy_backward`.
fn cross_entropy_backward(torch: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([logits, targets, lse, grad], name) = (call.operands()?, "cross_entropy");
    if call.is_set("bf16") {
        return (CROSS_ENTROPY_BACKWARD.compose)(torch, call);
    }
    let (x, list, lse, g) = (tensor(name, logits)?, tensor(name, targets)?, tensor(name, lse)?, tensor(name, grad)?);
    check_ids(name, &list, logits.shape.last(), &logits.shape)?;
    let made = loss::cross_entropy_backward(&x, &list, &lse, &g, call.required("smoothing")?);
    Ok(vec![array(name, logits.dtype, made)?])
}

/// The operation `layer_norm`.
fn layer_norm(_: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([x, gain, bias], name) = (call.operands()?, "layer_norm");
    let eps = call.required("eps")?;
    let made = norm::layer_norm(&tensor(name, x)?, &tensor(name, gain)?, &tensor(name, bias)?, eps);
    let (y, mean, rstd) = checked(name, made)?;
    [y, mean, rstd].into_iter().map(|made| array(name, x.dtype, Ok(made))).collect()
}

/// The operation `layer_norm_backward`.
fn layer_norm_backward(_: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([x, gain, mean, rstd, grad], name) = (call.operands()?, "layer_norm");
    let (mean, rstd, g) = (tensor(name, mean)?, tensor(name, rstd)?, tensor(name, grad)?);
    let made = norm::layer_norm_backward(&tensor(name, x)?, &tensor(name, gain)?, &mean, &rstd, &g);
    let (dx, dgain, dbias) = checked(name, made)?;
    [dx, dgain, dbias].into_iter().map(|made| array(name, x.dtype, Ok(made))).collect()
}

/// The operation `linear`.
fn linear(torch: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (Linear { x, weight, bias, base }, name) = (Linear::of_call(call)?, "linear");
    let wide = |x: &Array| tensor(name, &torch.cast(x, x.dtype.wide())?);
    let bias = bias.map(|bias| tensor(name, bias)).transpose()?;
    let y = array(name, x.dtype.wide(), wide(x)?.f_linear(&wide(weight)?, bias.as_ref()))?;
    Ok(vec![match base {
        Some(base) => torch.accumulate(y, base)?,
        None => y,
    }])
}

/// The operation `diagonal_scan`.
fn scan_states(_: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (name, scan) = ("diagonal_scan", Scan::of_call(call)?);
    let (re, im) = both(name, scan.input_re.dtype, checked(name, operands(scan)?.forward())?)?;
    Ok(vec![re, im])
}

/// The operation `diagonal_scan_backward`.
fn scan_backward(_: &Torch, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ScanBackward { scan, states, grad } = ScanBackward::of_call(call)?;
    let (name, dtype) = ("diagonal_scan", scan.input_re.dtype);
    let some = |x: Option<&Array>| x.map(|x| tensor(name, x)).transpose();
    let states = (tensor(name, states.0)?, tensor(name, states.1)?);
    let found = checked(name, operands(scan)?.backward(states, (some(grad.0)?, some(grad.1)?)))?;
    let gradient = ScanGradient {
        decay: both(name, dtype, found.decay)?,
        input: both(name, dtype, found.input)?,
        carry: both(name, dtype, found.carry)?,
    };
    Ok(gradient.into_values())
}

/// The operands of a scan.
fn operands(scan: Scan<'_, Array>) -> Result<Operands> {
    let of = |x: &Array| tensor("diagonal_scan", x);
    let (decay_re, decay_im) = (of(scan.decay_re)?, of(scan.decay_im)?);
    let (carry_re, carry_im) = (of(scan.carry_re)?, of(scan.carry_im)?);
    let (input_re, input_im) = (of(scan.input_re)?, scan.input_im.map(of).transpose()?);
    let scan = Scan {
        decay_re: &decay_re,
        decay_im: &decay_im,
        input_re: &input_re,
        input_im: input_im.as_ref(),
        carry_re: &carry_re,
        carry_im: &carry_im,
        segment: scan.segment,
    };
    checked("diagonal_scan", Operands::new(scan))
}

impl Kernels for Torch {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "torch".into(),
            description: format!("libtorch on {}", self.place.name()),
            threads: self.threads,
            dtypes: DType::ALL.to_vec(),
            features: vec![self.place.name()],
        }
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        if data.len() != shape.check_size("upload")? {
            return Err(TensorError::new("upload", format!("there are {} elements", data.len())).shapes([shape]));
        }
        array("upload", data.dtype(), store::upload(&data, shape, self.device()))
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        checked("download", store::download(&tensor("download", x)?, x.dtype))
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        shape.check_size("full")?;
        let (dims, options) = (sizes(shape.dims()), (kind(dtype), self.device()));
        // In the type's own values, as the host rounds them.
        let one = store::upload(&HostData::from_f64(&[value], dtype), &Shape::scalar(), self.device());
        let made = one.and_then(|one| {
            let mut all = Tensor::f_empty(dims.as_slice(), options)?;
            all.f_copy_(&one)?;
            Ok(all)
        });
        array("full", dtype, made)
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        array("cast", dtype, store::convert(&tensor("cast", x)?, dtype))
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        array(op.name(), x.dtype, elementwise::unary(op, &tensor(op.name(), x)?))
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        array(op.name(), a.dtype, elementwise::binary(op, &tensor(op.name(), a)?, &tensor(op.name(), b)?))
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        // libtorch takes no axes for all of them.
        if axes.is_empty() {
            return Ok(x.clone());
        }
        array(op.name(), x.dtype, elementwise::reduce(op, &tensor(op.name(), x)?, &sizes(axes)))
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        let name = "matmul";
        let side = |x: &Array, transposed: bool| {
            let x = tensor(name, x)?;
            checked(name, if transposed { x.f_transpose(-2, -1) } else { Ok(x) })
        };
        array(name, a.dtype, side(a, trans_a)?.f_matmul(&side(b, trans_b)?))
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        let view = tensor("permute", x)?.f_permute(sizes(axes).as_slice());
        array("permute", x.dtype, view.and_then(|view| owned(&view)))
    }

    fn fused(&self, name: &str, call: Arguments<'_>) -> Option<Result<Vec<Array>>> {
        find_kernel(&FUSED_KERNELS, name).map(|kernel| kernel(self, call))
    }

    fn broadcast(&self, x: &Array, shape: &Shape) -> Result<Array> {
        if &x.shape == shape {
            return Ok(x.clone());
        }
        let view = tensor("broadcast", x)?.f_expand(sizes(shape.dims()).as_slice(), false);
        array("broadcast", x.dtype, view.and_then(|view| owned(&view)))
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        let view = tensor("slice", x)?.f_narrow(axis as i64, start as i64, length as i64);
        array("slice", x.dtype, view.and_then(|view| owned(&view)))
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        let Some(first) = xs.first() else {
            return Err(TensorError::new("concat", "there is nothing to join"));
        };
        let parts = xs.iter().map(|x| tensor("concat", x)).collect::<Result<Vec<_>>>()?;
        array("concat", first.dtype, Tensor::f_cat(&parts, axis as i64))
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        let name = "rows";
        let list = tensor(name, ids)?;
        check_ids(name, &list, table.dims()[0], &table.shape)?;
        let mut dims = sizes(ids.dims());
        dims.push(table.shape.last() as i64);
        let list = checked(name, list.f_reshape([-1i64]))?;
        let rows = tensor(name, table)?.f_index_select(0, &list);
        array(name, table.dtype, rows.and_then(|rows| rows.f_view(dims.as_slice())))
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        let name = "scatter_add_rows";
        let list = tensor(name, ids)?;
        check_ids(name, &list, rows, &x.shape)?;
        let width = x.shape.last() as i64;
        let values = tensor(name, &x.viewed([ids.numel(), x.shape.last()]))?;
        let list = checked(name, list.f_reshape([-1i64]))?;
        let zeros = checked(name, Tensor::f_zeros([rows as i64, width], (kind(x.dtype), self.device())))?;
        // On a CUDA device the first would add in any order; the second sorts.
        let sums = match self.place {
            Place::Cpu => zeros.f_index_add(0, &list, &values),
            Place::Cuda(_) => zeros.f_index_put(&[Some(&list)], &values, true),
        };
        array(name, x.dtype, sums)
    }

    fn accumulate(&self, mut sum: Array, x: &Array) -> Result<Array> {
        if sum.shape == x.shape {
            let x = tensor("accumulate", x)?;
            if let Some(total) = tensor_mut(&mut sum) {
                let added = total.f_view(x.size().as_slice()).and_then(|mut total| total.f_add_(&x));
                drop(checked("accumulate", added)?);
                return Ok(sum);
            }
        }
        self.binary(Binary::Add, &sum, x)
    }

    fn unary_backward(&self, op: Unary, saved: &Array, grad: &Array) -> Result<Array> {
        let (s, g) = (tensor(op.name(), saved)?, tensor(op.name(), grad)?);
        array(op.name(), grad.dtype, elementwise::unary_backward(op, &s, &g))
    }

    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        let name = "adamw";
        let g = tensor(name, grad)?;
        for state in [&mut *param, &mut *m, &mut *v] {
            // What others hold on to is copied first, so that they keep what they had.
            if tensor_mut(state).is_none() {
                *state = array(name, state.dtype, owned(&tensor(name, state)?))?;
            }
        }
        if let (Some(param), Some(m), Some(v)) = (tensor_mut(param), tensor_mut(m), tensor_mut(v)) {
            checked(name, optimizer::adamw([param, m, v], &g, args))?;
        }
        Ok(())
    }
}
