//! The Assay side of the comparison with PyTorch (`tests/peers/compare.py`): a process that executes training steps on request.
//!
//! The first line of standard input is a [`Setup`] in JSON, every further line a request; each is answered with one line.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use assay_models::checkpoint;
use assay_steps::{Setup, Training, operations_per_token};
use assay_tensor::Device;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    /// Write the checkpoint, and return the tokens.
    Export { path: String },
    /// Return the loss and the norm of its gradient.
    Check,
    /// Execute `count` steps, and return their duration.
    Steps { count: usize },
    /// Measure the machine's peak rate.
    Peak,
}

type Failure = Box<dyn std::error::Error>;

fn answer(training: &mut Training, device: &Device, length: usize, request: Request) -> Result<Value, Failure> {
    Ok(match request {
        Request::Export { path } => {
            checkpoint::save(&training.model()?, Path::new(&path))?;
            json!({"tokens": training.sequences()})
        }
        Request::Check => {
            let (loss, gradient_norm) = training.gradient_norm()?;
            json!({"loss": loss, "gradient_norm": gradient_norm})
        }
        Request::Steps { count } => {
            let (mut loss, began) = (f64::NAN, Instant::now());
            for _ in 0..count {
                loss = training.step()?;
            }
            json!({"seconds": began.elapsed().as_secs_f64(), "loss": loss})
        }
        Request::Peak => {
            let rate = device.kernels().arithmetic_rate();
            json!({"rate": rate, "operations_per_token": operations_per_token(&training.model()?, length)})
        }
    })
}

fn main() -> Result<(), Failure> {
    let mut lines = std::io::stdin().lock().lines();
    let setup: Setup = serde_json::from_str(&lines.next().ok_or("no setup on standard input")??)?;
    let device = assay_cpu::device(setup.threads)?;
    let mut training = Training::new(&device, &setup)?;
    for line in lines {
        let request = serde_json::from_str(&line?)?;
        let answer = answer(&mut training, &device, setup.length, request)?;
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
