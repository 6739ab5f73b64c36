//! One update of AdamW.

use assay_tensor::AdamW;
use tch::{TchError, Tensor};

use crate::store::{number, plus, times};

/// Changes the three in place, by the equations of [`AdamW`].
pub(crate) fn adamw([param, m, v]: [&mut Tensor; 3], grad: &Tensor, args: AdamW) -> Result<(), TchError> {
    let (beta1, beta2) = args.betas;
    let correct = |beta: f64| 1.0 / (1.0 - beta.powf(args.step as f64));
    let g = times(grad, args.grad_scale)?;
    let (keep1, keep2) = (number(m, beta1)?, number(v, beta2)?);
    let _ = m.f_mul_(&keep1)?.f_add_(&times(&g, 1.0 - beta1)?)?;
    let _ = v.f_mul_(&keep2)?.f_add_(&times(&g.f_mul(&g)?, 1.0 - beta2)?)?;
    let root = plus(&times(v, correct(beta2))?.f_sqrt()?, args.eps)?;
    let change = times(m, correct(beta1) * args.lr)?.f_div(&root)?;
    let decay = number(param, 1.0 - args.lr * args.weight_decay)?;
    let _ = param.f_mul_(&decay)?.f_sub_(&change)?;
    Ok(())
}
