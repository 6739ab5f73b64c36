//! Updates of parameters by their gradients.

use crate::args::{AdamW, Update};
use crate::check;
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// One AdamW update of `param` and its moments `m` and `v`, all of one shape, with the settings of [`AdamW`].
///
/// A parameter that is a leaf stays the same leaf. The update happens in the tensors' own memory unless something else
/// holds on to it (a clone, or a loss whose tape has not been dropped); then the others keep what they had.
pub fn adamw(param: &mut Tensor, grad: &Tensor, m: &mut Tensor, v: &mut Tensor, args: AdamW) -> Result<()> {
    check_update(param, grad, m, v, args)?;
    let device = param.device().clone();
    device.kernels().adamw(param.array_mut(), grad.array(), m.array_mut(), v.array_mut(), args)
}

/// [`adamw`] of several parameters of one device. `clip` is what [`clip`] gave for their gradients, and takes the place of
/// `args.grad_scale`; `factors` (f32, \[4\]) is [`AdamW::factors`] of `args` on the device.
pub fn adamw_all(updates: Vec<Update<'_, Tensor>>, args: AdamW, factors: &Tensor, clip: &Tensor) -> Result<()> {
    let name = "adamw";
    check::expected_shape(name, "factors", factors, &Shape::from(4))?;
    check::element_type(name, factors, factors.dtype() == DType::F32, "factors of type f32")?;
    check::expected_shape(name, "clip", clip, &Shape::from(2))?;
    let mut arrays = Vec::with_capacity(updates.len());
    for Update { param, grad, m, v, decays } in updates {
        check_update(param, grad, m, v, args)?;
        check::float_types(name, &[param, clip])?;
        let (param, m, v) = (param.array_mut(), m.array_mut(), v.array_mut());
        arrays.push(Update { param, grad: grad.array(), m, v, decays });
    }
    clip.device().kernels().adamw_all(arrays, args, factors.array(), clip.array())
}

/// The Euclidean norm of all `gradients` together, and the factor that brings it down to `limit`, which is 1 where it is not
/// above that: \[2\]. The sum is in f64 and its order fixed. Errors if there is none.
pub fn clip(gradients: &[&Tensor], limit: Option<f64>) -> Result<Tensor> {
    let name = "clip";
    let Some(first) = gradients.first() else { return Err(TensorError::new(name, "there is no gradient")) };
    check::float_types(name, gradients)?;
    let arrays: Vec<_> = gradients.iter().map(|gradient| gradient.array()).collect();
    Ok(Tensor::from_array(first.device(), first.device().kernels().clip(&arrays, limit)?))
}

fn check_update(param: &Tensor, grad: &Tensor, m: &Tensor, v: &Tensor, args: AdamW) -> Result<()> {
    let name = "adamw";
    check::float_types(name, &[param, grad, m, v])?;
    for tensor in [param, grad, m, v] {
        // A step is most often smaller than what bf16 can tell apart.
        check::element_type(name, tensor, tensor.dtype() != DType::Bf16, "values of type f32")?;
    }
    for (what, tensor) in [("gradient", grad), ("first moment", m), ("second moment", v)] {
        check::expected_shape(name, what, tensor, param.shape())?;
    }
    if args.step == 0 {
        return Err(TensorError::new(name, "steps count from 1"));
    }
    Ok(())
}
