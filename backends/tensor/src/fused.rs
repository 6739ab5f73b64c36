//! The fused operations as models use them: normalisation, losses, attention, linear layers, AdamW.

use crate::args::AttentionOptions;
use crate::check;
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::kernels::CrossEntropy;
use crate::op::{MaskKey, Op};
use crate::shape::Shape;
use crate::tensor::Tensor;

impl Tensor {
    /// (x - mean) / sqrt(variance + eps) gain + bias over the last axis, of extent D; gain and bias are \[D\].
    pub fn layer_norm(&self, gain: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        self.check_norm(gain, bias)?;
        let (x, g) = (self.array(), gain.array());
        let (wide, wide_gain, wide_bias) = (self.wide_array_ref()?, gain.wide_array_ref()?, bias.wide_array_ref()?);
        let out = self.kernels().layer_norm(&wide, &wide_gain, &wide_bias, eps)?;
        let op = || Op::LayerNorm { x: x.clone(), gain: g.clone(), mean: out.mean, rstd: out.rstd };
        Ok(Tensor::from_operation(out.y, &[self, gain, bias], op))
    }

    /// [`Tensor::layer_norm`] of this rounded to bf16, with a value that is rounded to bf16 too; of its input the tape keeps
    /// what was rounded.
    pub fn layer_norm_bf16(&self, gain: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        self.check_norm(gain, bias)?;
        let g = gain.array();
        let (wide_gain, wide_bias) = (gain.wide_array_ref()?, bias.wide_array_ref()?);
        let (x, out) = self.kernels().layer_norm_bf16(self.array(), &wide_gain, &wide_bias, eps)?;
        let op = || Op::LayerNorm { x, gain: g.clone(), mean: out.mean, rstd: out.rstd };
        Ok(Tensor::from_operation(out.y, &[self, gain, bias], op))
    }

    fn check_norm(&self, gain: &Tensor, bias: &Tensor) -> Result<()> {
        check::float_types("layer_norm", &[self, gain, bias])?;
        self.check_rows("layer_norm")?;
        let width = Shape::from(self.shape().last());
        check::expected_shape("layer_norm", "gain", gain, &width)?;
        check::expected_shape("layer_norm", "bias", bias, &width)
    }

    /// The cross entropy in nats of each row of these logits [N, V] with `targets` (u32, \[N\]): [N]. With
    /// `smoothing` s in [0, 1] the target distribution is 1 - s on the target plus s / V on every class
    /// (Szegedy et al., 2016). Errors on a target beyond V.
    pub fn cross_entropy(&self, targets: &Tensor, smoothing: f64) -> Result<Tensor> {
        let name = "cross_entropy";
        check::float_types(name, &[self])?;
        check::class_labels(name, self, targets)?;
        self.check_rows(name)?;
        let [n, _] = check::expected_rank(name, "logits", self, "[N, V]")?;
        check::expected_shape(name, "targets", targets, &Shape::from(n))?;
        check_smoothing(name, smoothing)?;
        let (logits, targets) = (self.array().clone(), targets.array().clone());
        let (loss, lse) = self.kernels().cross_entropy(&self.wide_array()?, &targets, smoothing)?;
        // The targets are no input on the tape: they have no gradient.
        let op = || Op::CrossEntropy { logits, targets, lse, smoothing };
        Ok(Tensor::from_operation(loss, &[self], op))
    }

    /// [`Tensor::cross_entropy`] of the rows of [`Tensor::linear`] with `targets` (u32, one for each row) in one operation, whose
    /// logits and their gradient no other operation sees: the losses \[N\]; and 1 for each row in which no logit is larger
    /// than the target's, else 0, which is a constant.
    pub fn linear_cross_entropy(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        targets: &Tensor,
        smoothing: f64,
    ) -> Result<(Tensor, Tensor)> {
        let name = "linear_cross_entropy";
        let classes = self.check_layer(name, weight, bias)?;
        check::class_labels(name, self, targets)?;
        let rows = Shape::from(self.shape().rows());
        check::expected_shape(name, "targets", targets, &rows)?;
        check_smoothing(name, smoothing)?;
        let (k, x, w, ids) = (self.kernels(), self.array(), weight.array(), targets.array());
        let wide = bias.map(Tensor::wide_array).transpose()?;
        let logits = k.linear(x, w, wide.as_ref())?.viewed([rows.dims()[0], classes]);
        if classes == 0 {
            return Err(TensorError::new(name, "there is no class").shapes([weight.shape()]));
        }
        let CrossEntropy { losses, lse, hits } = k.cross_entropy_hits(&logits, ids, smoothing)?;
        let inputs: Vec<&Tensor> = [self, weight].into_iter().chain(bias).collect();
        let op = || {
            let (x, weight, targets) = (x.clone(), w.clone(), ids.clone());
            Op::LinearCrossEntropy { x, weight, logits, targets, lse, smoothing }
        };
        Ok((Tensor::from_operation(losses, &inputs, op), Tensor::from_array(self.device(), hits)))
    }

    /// x W^T + bias: x [.., K], weight [N, K], bias \[N\] -> [.., N]. Where x or the weight is bf16 the product is that of
    /// their values, accumulated in f32; on the way back a device that multiplies bf16 may round the gradient to it for its
    /// products with those.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.linear_with_base("linear", weight, bias, None)
    }

    /// base + x W^T + bias for this x, in one operation, as [`Tensor::linear`]: the base is [.., N].
    pub fn linear_onto(&self, base: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.linear_with_base("linear_onto", weight, bias, Some(base))
    }

    fn linear_with_base(
        &self,
        name: &'static str,
        weight: &Tensor,
        bias: Option<&Tensor>,
        base: Option<&Tensor>,
    ) -> Result<Tensor> {
        let n = self.check_layer(name, weight, bias)?;
        let (x, w) = (self.array(), weight.array());
        let wide = bias.map(Tensor::wide_array).transpose()?;
        let y = match base {
            None => self.kernels().linear(x, w, wide.as_ref())?,
            Some(base) => {
                self.check_base(name, base, n)?;
                self.kernels().linear_onto(&base.wide_array()?, x, w, wide.as_ref())?
            }
        };
        let inputs: Vec<&Tensor> = [self, weight].into_iter().chain(bias).chain(base).collect();
        Ok(Tensor::from_operation(y, &inputs, || match base {
            None => Op::Linear { x: x.clone(), weight: w.clone() },
            Some(_) => Op::LinearOnto { x: x.clone(), weight: w.clone() },
        }))
    }

    /// base + GELU(x U^T + u) D^T + d for this x [.., K], in one operation: `up` is U [H, K] and u \[H\], `down` is D [N, H]
    /// and d \[N\], the base, if there is one, [.., N]. Of the H elements of each row the tape keeps the arguments of GELU
    /// only. These, and what D multiplies, are rounded to `kept`, if that is a type.
    pub fn feed_forward(
        &self,
        up: (&Tensor, &Tensor),
        down: (&Tensor, &Tensor),
        base: Option<&Tensor>,
        kept: Option<DType>,
    ) -> Result<Tensor> {
        let name = "feed_forward";
        let hidden = self.check_layer(name, up.0, Some(up.1))?;
        let [n, width] = check::expected_rank(name, "weight", down.0, "[N, H]")?;
        if width != hidden {
            return Err(TensorError::new(name, "the second weight should take what the first gives")
                .shapes([up.0.shape(), down.0.shape()]));
        }
        check::float_types(name, &[self, down.0, down.1])?;
        check::expected_shape(name, "bias", down.1, &Shape::from(n))?;
        let (k, x, w_up, w_down) = (self.kernels(), self.array(), up.0.array(), down.0.array());
        let (bias, last_bias) = (up.1.wide_array()?, down.1.wide_array()?);
        if let Some(base) = base {
            self.check_base(name, base, n)?;
        }
        let base_wide = base.map(Tensor::wide_array).transpose()?;
        let (argument, y) = k.feed_forward(base_wide.as_ref(), x, (w_up, &bias), (w_down, &last_bias), kept)?;
        let inputs: Vec<&Tensor> = [self, up.0, up.1, down.0, down.1].into_iter().chain(base).collect();
        let op = || Op::FeedForward { x: x.clone(), up: w_up.clone(), argument, down: w_down.clone() };
        Ok(Tensor::from_operation(y, &inputs, op))
    }

    /// This plus `b` times `scale`: both [.., D], the scale \[D\].
    pub fn add_scaled(&self, b: &Tensor, scale: &Tensor) -> Result<Tensor> {
        let name = "add_scaled";
        check::float_types(name, &[self, b, scale])?;
        check::expected_shape(name, "second operand", b, self.shape())?;
        check::expected_shape(name, "scale", scale, &Shape::from(self.shape().last()))?;
        let (k, s) = (self.kernels(), scale.wide_array()?);
        let (a, b_read) = match k.capabilities().multiplies_bf16 {
            true => (self.array().clone(), b.array().clone()),
            false => (self.wide_array()?, b.wide_array()?),
        };
        let y = k.add_scaled(&a, &b_read, &s)?;
        Ok(Tensor::from_operation(y, &[self, b, scale], || Op::AddScaled { b: b_read, scale: s }))
    }

    /// A layer with this weight [N, K] and bias takes this as its input: N.
    fn check_layer(&self, name: &'static str, weight: &Tensor, bias: Option<&Tensor>) -> Result<usize> {
        check::float_types(name, &[self, weight])?;
        let [n, k] = check::expected_rank(name, "weight", weight, "[N, K]")?;
        self.check_width(name, k, weight)?;
        if let Some(bias) = bias {
            check::float_types(name, &[self, bias])?;
            check::expected_shape(name, "bias", bias, &Shape::from(n))?;
        }
        Ok(n)
    }

    /// What a layer with N outputs is added to has the shape of its result.
    fn check_base(&self, name: &'static str, base: &Tensor, n: usize) -> Result<()> {
        check::float_types(name, &[self, base])?;
        check::expected_shape(name, "base", base, &self.shape().with(self.shape().rank() - 1, n))
    }

    /// [`Tensor::linear`] with int8 weights: x [.., K] (f32), q [N, K] (i8), scale \[N\] (f32), for W = q scale. Each
    /// row of x is quantized on the way: s = max|x| / 127, xq = round(x / s), y = s scale sum xq q.
    ///
    /// For inference: it has no gradient, and refuses a tracked input.
    pub fn linear_int8(&self, q: &Tensor, scale: &Tensor) -> Result<Tensor> {
        let name = "linear_int8";
        check::same_shape(name, self, scale)?;
        check::element_type(name, self, self.dtype() == DType::F32, "inputs of type f32")?;
        check::element_type(name, q, q.dtype() == DType::I8, "weights of type i8")?;
        if q.device() != self.device() {
            check::same_shape(name, self, q)?;
        }
        let [n, k] = check::expected_rank(name, "weight", q, "[N, K]")?;
        self.check_width(name, k, q)?;
        check::expected_shape(name, "scale", scale, &Shape::from(n))?;
        if self.is_tracked() || scale.is_tracked() {
            return Err(TensorError::new(name, "quantized layers have no gradient").hint("detach() the input"));
        }
        let y = self.kernels().linear_int8(self.array(), q.array(), scale.array())?;
        Ok(Tensor::from_array(self.device(), y))
    }

    /// Attention of these queries [B, H, Tq, Dh] to `k` and `v` [B, H, Tk, Dh]: softmax(scale Q K^T) V, in f32. Where all three
    /// are bf16, a device that multiplies bf16 may round the weights of the softmax to it, and on the way back the gradients
    /// of result and scores; all sums are f32. Errors where a query would see no key: Tk is 0, or it is causal and Tq > Tk.
    pub fn attention(&self, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Result<Tensor> {
        let name = "attention";
        check::float_types(name, &[self, k, v])?;
        let [b, h, tq, dh] = check::expected_rank(name, "queries", self, "[B, H, T, Dh]")?;
        let [_, _, tk, _] = check::expected_rank(name, "keys", k, "[B, H, T, Dh]")?;
        check::expected_shape(name, "keys", k, &Shape::from([b, h, tk, dh]))?;
        check::expected_shape(name, "values", v, k.shape())?;
        if tk == 0 || (options.causal && tq > tk) {
            let problem = format!("some of {tq} queries would see none of {tk} keys");
            return Err(TensorError::new(name, problem).shapes([self.shape(), k.shape()]));
        }
        let (qa, ka, va) = (self.array().clone(), k.array().clone(), v.array().clone());
        let (out, lse) = match [&qa, &ka, &va].iter().all(|x| x.dtype == DType::Bf16) {
            true => self.kernels().attention_bf16(&qa, &ka, &va, options)?,
            false => self.kernels().attention(&self.wide_array()?, &k.wide_array()?, &v.wide_array()?, options)?,
        };
        let op = || Op::Attention { q: qa, k: ka, v: va, out: out.clone(), lse, options };
        Ok(Tensor::from_operation(out.clone(), &[self, k, v], op))
    }

    /// Keeps each element with probability 1 - `p` and divides it by that, and makes the others zero (Srivastava et al.,
    /// 2014). Which are kept is a function of `key` and an element's index, see [`crate::dropout_keeps`]: the same on every
    /// device, at any number of threads, and when the mask is made again for the gradient. Errors unless 0 <= p < 1.
    pub fn dropout(&self, p: f64, key: u64) -> Result<Tensor> {
        if !self.has_dropout(p)? {
            return Ok(self.clone());
        }
        let y = self.kernels().dropout(&self.wide_array()?, p, key)?;
        Ok(Tensor::from_operation(y, &[self], || Op::Dropout { p, key: MaskKey::Known(key) }))
    }

    /// [`Tensor::dropout`] with the key [`crate::mix`](seed ^ place). The seed (u32, \[2\], its low word first) is on the
    /// device, where it must stay the same until the gradient has been computed.
    pub fn dropout_at(&self, p: f64, seed: &Tensor, place: u64) -> Result<Tensor> {
        check::class_labels("dropout", self, seed)?;
        check::expected_shape("dropout", "seed", seed, &Shape::from(2))?;
        if !self.has_dropout(p)? {
            return Ok(self.clone());
        }
        let y = self.kernels().dropout_at(&self.wide_array()?, p, seed.array(), place)?;
        let key = || MaskKey::At { seed: seed.array().clone(), place };
        Ok(Tensor::from_operation(y, &[self], || Op::Dropout { p, key: key() }))
    }

    /// Whether dropout does anything.
    fn has_dropout(&self, p: f64) -> Result<bool> {
        let name = "dropout";
        check::float_types(name, &[self])?;
        if !(0.0..1.0).contains(&p) {
            return Err(TensorError::new(name, format!("a probability of {p} is not in [0, 1)")).shapes([self.shape()]));
        }
        Ok(p > 0.0)
    }

    /// 1 at the `k` largest elements of each row (of the last axis), 0 elsewhere; ties go to the lower index, and NaN
    /// counts as the least. A constant: no gradient flows. Errors unless 1 <= k <= the extent of the row.
    pub fn top_k_mask(&self, k: usize) -> Result<Tensor> {
        let name = "top_k_mask";
        self.check_rows(name)?;
        if k == 0 || k > self.shape().last() {
            let problem = format!("cannot take the {k} largest of {}", self.shape().last());
            return Err(TensorError::new(name, problem).shapes([self.shape()]));
        }
        Ok(Tensor::from_array(self.device(), self.kernels().top_k_mask(&self.wide_array()?, k)?))
    }

    /// Floats with something in each row.
    pub(crate) fn check_rows(&self, operation: &'static str) -> Result<()> {
        check::float_types(operation, &[self])?;
        if self.rank() == 0 || self.shape().last() == 0 {
            return Err(TensorError::new(operation, "needs a last axis that is not empty").shapes([self.shape()]));
        }
        Ok(())
    }

    fn check_width(&self, operation: &'static str, width: usize, weight: &Tensor) -> Result<()> {
        if self.rank() > 0 && self.shape().last() == width {
            return Ok(());
        }
        Err(TensorError::new(operation, format!("the last extent should be {width}"))
            .shapes([self.shape(), weight.shape()])
            .hint("weights are [outputs, inputs]"))
    }
}

fn check_smoothing(operation: &'static str, smoothing: f64) -> Result<()> {
    if (0.0..=1.0).contains(&smoothing) {
        return Ok(());
    }
    Err(TensorError::new(operation, format!("a smoothing of {smoothing} is not in [0, 1]")))
}
