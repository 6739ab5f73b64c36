//! TEN's published layer compared with ours: the projections and the recurrence one time step after the other, each step
//! with separate launches, as in the documents' code before its optimizations.

use assay_gpu::{Driver, DriverError};
use assay_tensor::{Device, Scan, Tensor, diagonal_scan};

use crate::Failure;
use crate::measure::{Sizes, in_turns, tensor, work};
use crate::report::GpuReport;

/// The maximum difference of both forms, relative to the loss: the sums of f32 differ in their order.
const AGREE: f64 = 1e-3;

/// A layer with input x in R^{B x T x D} and the weights of its output:
/// y_t = W_out [Re c_t ; Im c_t], c_t = a c_{t-1} + W_in x_t, loss = sum(y * weight).
struct Layer {
    x: Tensor,
    weight: Tensor,
    input: Tensor,
    output: Tensor,
    decay: [Tensor; 2],
    carry: Tensor,
    chunk: usize,
}

impl Layer {
    fn new(device: &Device, [b, t, d, k]: [usize; 4], chunk: usize) -> Result<Layer, Failure> {
        let variable = |dims: &[usize], scale| tensor(device, dims, scale).map(|tensor| tensor.variable());
        Ok(Layer {
            x: variable(&[b, t, d], 1.0)?,
            weight: tensor(device, &[b, t, d], 1.0 / (b * t * d) as f32)?,
            input: variable(&[k, d], 0.03)?,
            output: variable(&[d, 2 * k], 0.03)?,
            decay: [variable(&[k], 0.7)?, variable(&[k], 0.7)?],
            carry: tensor(device, &[b, k], 0.0)?,
            chunk,
        })
    }

    /// All time steps at once: two products and one scan, whose gradient is cut at the end of each chunk.
    fn ours(&self) -> assay_tensor::Result<Tensor> {
        let beta = self.x.linear(&self.input, None)?;
        let (re, im) = diagonal_scan(Scan {
            decay_re: &self.decay[0],
            decay_im: &self.decay[1],
            input_re: &beta,
            input_im: None,
            carry_re: &self.carry,
            carry_im: &self.carry,
            segment: Some(self.chunk),
        })?;
        Tensor::concat(&[&re, &im], 2)?.linear(&self.output, None)
    }

    /// One time step after the other within the chunks; the state is detached between them.
    fn published(&self) -> assay_tensor::Result<Tensor> {
        let [decay_re, decay_im] = &self.decay;
        let (length, mut outputs) = (self.x.dims()[1], Vec::new());
        let (mut re, mut im) = (self.carry.clone(), self.carry.clone());
        for start in (0..length).step_by(self.chunk) {
            let steps = self.chunk.min(length - start);
            let chunk = self.x.slice(1, start, steps)?;
            (re, im) = (re.detach(), im.detach());
            for step in 0..steps {
                let dims = [self.x.dims()[0], self.x.dims()[2]];
                let beta = chunk.slice(1, step, 1)?.reshape(dims)?.linear(&self.input, None)?;
                let next = re.mul(decay_re)?.sub(&im.mul(decay_im)?)?.add(&beta)?;
                im = re.mul(decay_im)?.add(&im.mul(decay_re)?)?;
                re = next;
                let y = Tensor::concat(&[&re, &im], 1)?.linear(&self.output, None)?;
                outputs.push(y.reshape([dims[0], 1, dims[1]])?);
            }
        }
        Tensor::concat(&outputs.iter().collect::<Vec<_>>(), 1)
    }

    fn loss(&self, y: &Tensor) -> assay_tensor::Result<Tensor> {
        y.mul(&self.weight)?.sum_all()
    }

    /// The loss, and the sum of the squares of its gradients.
    fn check(&self, y: &Tensor) -> Result<[f64; 2], Failure> {
        let loss = self.loss(y)?;
        let gradients = loss.backward()?;
        let mut squares = 0.0;
        for leaf in [&self.x, &self.input, &self.output, &self.decay[0], &self.decay[1]] {
            let gradient = gradients.get(leaf).ok_or("a variable has no gradient")?;
            squares += gradient.to_f64_vec()?.iter().map(|value| value * value).sum::<f64>();
        }
        Ok([loss.item()?, squares])
    }
}

/// Forward and backward of the layer in both forms.
///
/// # Errors
/// If the device fails, or the results of the forms differ.
pub fn all(driver: &dyn Driver, device: &Device, sizes: &Sizes, report: &mut GpuReport) -> Result<(), Failure> {
    let [b, t, d, k] = sizes.layer;
    eprintln!("the published form");
    let layer = Layer::new(device, sizes.layer, sizes.chunk)?;
    let (ours, theirs) = (layer.check(&layer.ours()?)?, layer.check(&layer.published()?)?);
    if ours.iter().zip(theirs).any(|(ours, theirs)| (ours - theirs).abs() > AGREE * ours.abs().max(1e-6)) {
        return Err(format!("the published form has loss and gradient {theirs:?}, ours {ours:?}").into());
    }
    let mut failed = [None, None];
    let [first, second] = &mut failed;
    let tokens = (b * t) as f64;
    let learn = |y: Tensor| layer.loss(&y)?.backward();
    let ours = || -> Result<(), DriverError> { work(first, layer.ours().and_then(learn)) };
    let theirs = || -> Result<(), DriverError> { work(second, layer.published().and_then(learn)) };
    let (rate, published) = in_turns(driver, sizes.pairs, (tokens, ours), (tokens, theirs))?;
    report.rate(
        &format!("TEN's layer as published, forward and backward [{b}, {t}, {d}], K {k}"),
        "tokens/s",
        &published,
    )?;
    report.bounded("  ours", "tokens/s", &rate, ("the published form", &published))?;
    failed.into_iter().flatten().next().map_or(Ok(()), |error| Err(error.into()))
}
