//! Our side of the comparison with PyTorch on a GPU (`peers.py`): a process that works on request.
//!
//! The first line of standard input describes the work, in JSON; every further line is a request, and each is answered with
//! one line, as in the comparison on the processor (`tests/peers`). Times are wall-clock times from an idle device until it
//! is idle again.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use assay_gpu::Driver;
use assay_models::checkpoint;
use assay_steps::Training;
use assay_tensor::{AttentionKind, AttentionOptions, DType, Device, Scan, Tensor, diagonal_scan};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Failure;
use crate::measure::tensor;

/// The work.
#[derive(Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
enum Setup {
    /// TEN's recurrence, forward and backward, beta in R^{B x T x K}; truncated at the ends of chunks, if given.
    Recurrence { batch: usize, length: usize, states: usize, chunk: Option<usize> },
    /// Causal attention over H heads of width d, with operands of a type (`f32` or `bf16`); only forward, or with its gradient.
    Attention { batch: usize, heads: usize, length: usize, width: usize, precision: DType, backward: bool },
    /// Training steps.
    Training { setup: Box<assay_steps::Setup> },
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    /// Write the checkpoint, and return the tokens; only for a training.
    Export { path: String },
    /// Return the loss and the norm of its gradient.
    Check,
    /// Execute `count` steps, and return their duration.
    Steps { count: usize },
}

/// Work on the device.
enum Work {
    /// A function of some leaves and the loss sum(value * weight): the work is the function, or the loss with its gradient.
    Loss {
        leaves: Vec<Tensor>,
        value: Box<Compute>,
        weight: Tensor,
        backward: bool,
    },
    Training(Box<Training>),
}

type Compute = dyn Fn(&[Tensor]) -> assay_tensor::Result<Tensor>;

/// Answers requests until the input ends.
///
/// # Errors
/// If the device fails, or a line is invalid.
pub fn serve(driver: &dyn Driver, device: &Device) -> Result<(), Failure> {
    let mut lines = std::io::stdin().lock().lines();
    let setup = serde_json::from_str(&lines.next().ok_or("no setup on standard input")??)?;
    let mut work = Work::new(device, setup)?;
    for line in lines {
        let answer = match serde_json::from_str(&line?)? {
            Request::Export { path } => work.export(Path::new(&path))?,
            Request::Check => work.check()?,
            Request::Steps { count } => {
                driver.synchronize()?;
                let began = Instant::now();
                (0..count).try_for_each(|_| work.step())?;
                driver.synchronize()?;
                json!({"seconds": began.elapsed().as_secs_f64()})
            }
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Work {
    fn new(device: &Device, setup: Setup) -> Result<Work, Failure> {
        Ok(match setup {
            Setup::Recurrence { batch, length, states, chunk } => recurrence(device, [batch, length, states], chunk)?,
            Setup::Attention { batch, heads, length, width, precision, backward } => {
                attention(device, [batch, heads, length, width], precision, backward)?
            }
            Setup::Training { setup } => Work::Training(Box::new(Training::new(device, &setup)?)),
        })
    }

    fn export(&self, path: &Path) -> Result<Value, Failure> {
        let Work::Training(training) = self else { return Err("only a training has a checkpoint".into()) };
        checkpoint::save(&training.model()?, path)?;
        Ok(json!({"tokens": training.sequences()}))
    }

    fn check(&self) -> Result<Value, Failure> {
        let (loss, gradient_norm) = match self {
            Work::Training(training) => training.gradient_norm()?,
            Work::Loss { leaves, value, weight, .. } => {
                let loss = value(leaves)?.mul(weight)?.sum_all()?;
                let gradients = loss.backward()?;
                let mut squares = 0.0;
                for leaf in leaves {
                    let gradient = gradients.get(leaf).ok_or("a variable has no gradient")?;
                    squares += gradient.to_f64_vec()?.iter().map(|value| value * value).sum::<f64>();
                }
                (loss.item()?, squares.sqrt())
            }
        };
        Ok(json!({"loss": loss, "gradient_norm": gradient_norm}))
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self {
            Work::Training(training) => drop(training.step()?),
            Work::Loss { leaves, value, backward: false, .. } => drop(value(leaves)?),
            Work::Loss { leaves, value, weight, .. } => drop(value(leaves)?.mul(weight)?.sum_all()?.backward()?),
        }
        Ok(())
    }
}

/// Re c + Im c of beta, nu and phase.
fn recurrence(device: &Device, dims: [usize; 3], chunk: Option<usize>) -> Result<Work, Failure> {
    let [batch, length, states] = dims;
    let scale = ((batch * length * states) as f32).sqrt().recip();
    let weight = tensor(device, &[batch, length, states], scale)?;
    let carry = tensor(device, &[batch, states], 0.0)?;
    let variable = |dims: &[usize]| tensor(device, dims, 1.0).map(|tensor| tensor.variable());
    let leaves = vec![variable(&dims)?, variable(&[states])?, variable(&[states])?];
    let value = move |leaves: &[Tensor]| {
        let [beta, nu, phase] = leaves else { unreachable!("there are three") };
        // Magnitudes from exp(-e^-1) to exp(-e^-3), as in trained models.
        let magnitude = nu.offset(-2.0)?.exp()?.neg()?.exp()?;
        let (re, im) = diagonal_scan(Scan {
            decay_re: &magnitude.mul(&phase.cos()?)?,
            decay_im: &magnitude.mul(&phase.sin()?)?,
            input_re: beta,
            input_im: None,
            carry_re: &carry,
            carry_im: &carry,
            segment: chunk,
        })?;
        re.add(&im)
    };
    Ok(Work::Loss { leaves, value: Box::new(value), weight, backward: true })
}

/// Attention with queries, keys and values of this type.
fn attention(device: &Device, dims: [usize; 4], precision: DType, backward: bool) -> Result<Work, Failure> {
    let weight = tensor(device, &dims, (dims.iter().product::<usize>() as f32).sqrt().recip())?;
    let leaf = |scale| Ok::<_, Failure>(tensor(device, &dims, scale)?.cast(precision)?.variable());
    let leaves = vec![leaf(0.5)?, leaf(0.6)?, leaf(0.7)?];
    let options = AttentionOptions { causal: true, scale: (dims[3] as f64).sqrt().recip(), kind: AttentionKind::Flash };
    let value = move |leaves: &[Tensor]| {
        let [q, k, v] = leaves else { unreachable!("there are three") };
        q.attention(k, v, options)
    };
    Ok(Work::Loss { leaves, value: Box::new(value), weight, backward })
}
