//! Memory is reused, and a failing device is recognised by the class of the error.

use std::sync::Arc;

use assay_cuda::Cuda;
use assay_gpu_emulator::{Emulated, emulated};
use assay_tensor::{
    AdamW, Attention, AttentionBackward, AttentionKind, AttentionOptions, Class, DType, Device, Result, Tensor,
    TensorError, adamw,
};

use crate::counting::{Counting, Counts};

const FAIL: &str = "ASSAY_GPU_EMULATOR_FAIL";

fn cuda() -> Device {
    assay_gpu::device(Arc::new(Cuda::open(0, None).unwrap()))
}

fn clean(found: &Emulated) {
    assert_eq!(found.problems, [""; 0]);
}

/// A small model: an embedding, a normalised layer and a loss.
struct Training {
    parameters: [Tensor; 4],
    moments: [[Tensor; 2]; 4],
}

impl Training {
    fn new(device: &Device) -> Result<Training> {
        let shapes: [&[usize]; 4] = [&[50, 16], &[50, 16], &[16], &[16]];
        let of = |i: usize| Ok(Tensor::full(device, shapes[i], DType::F32, 0.1 + i as f64)?.variable());
        let zeros = |i: usize| Tensor::zeros(device, shapes[i], DType::F32);
        let both = |i| Ok::<_, TensorError>([zeros(i)?, zeros(i)?]);
        Ok(Training { parameters: [of(0)?, of(1)?, of(2)?, of(3)?], moments: [both(0)?, both(1)?, both(2)?, both(3)?] })
    }

    /// One step on tokens from the host; the loss stays on the device.
    fn step(&mut self, step: u64) -> Result<Tensor> {
        let [table, weight, gain, bias] = &self.parameters;
        let ids: Vec<u32> = (0..40).map(|i| (i * 7 + step as u32) % 50).collect();
        let tokens = Tensor::from_u32(table.device(), ids, 40)?;
        let x = table.rows(&tokens)?.layer_norm(gain, bias, 1e-5)?.gelu()?;
        let loss = x.linear(weight, None)?.cross_entropy(&tokens, 0.1)?.mean(&[0], false)?;
        let gradients = loss.backward()?;
        let args = AdamW { step, lr: 0.01, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.1, grad_scale: 1.0 };
        for (parameter, [m, v]) in self.parameters.iter_mut().zip(&mut self.moments) {
            let gradient = gradients.get(parameter).cloned();
            let gradient = gradient.ok_or_else(|| TensorError::new("step", "a parameter has no gradient"))?;
            adamw(parameter, &gradient, m, v, args)?;
        }
        Ok(loss.detach())
    }
}

#[test]
fn a_step_that_is_repeated_allocates_nothing_and_waits_for_nothing() {
    let body = || {
        let counts = Arc::new(Counts::default());
        let device = assay_gpu::device(Arc::new(Counting(Cuda::open(0, None).unwrap(), counts.clone())));
        let mut training = Training::new(&device).unwrap();
        let first = training.step(1).unwrap().item().unwrap();
        let mut losses = vec![training.step(2).unwrap()];
        let [allocations, launches, waits] = counts.now();
        losses.extend((3..8).map(|step| training.step(step).unwrap()));
        let [more_allocations, more_launches, more_waits] = counts.now();
        // The losses are kept, a few bytes each.
        assert!(more_allocations - allocations <= 5, "{}", more_allocations - allocations);
        assert!(more_launches - launches >= 5 * 10, "{}", more_launches - launches);
        assert_eq!(more_waits, waits);
        let last = losses.last().unwrap().item().unwrap();
        assert!(last.is_finite() && last != first, "{first} to {last}");
    };
    emulated("memory::a_step_that_is_repeated_allocates_nothing_and_waits_for_nothing", &[], body, clean);
}

/// The forward pass is one kernel; the backward pass has one that rounds the gradient of the result and sums over rows, one by
/// keys and one by queries.
#[test]
fn attention_of_bf16_widens_nothing() {
    let body = || {
        let counts = Arc::new(Counts::default());
        let device = assay_gpu::device(Arc::new(Counting(Cuda::open(0, None).unwrap(), counts.clone())));
        let make = |dtype| Tensor::full(&device, [1, 2, 20, 8], dtype, 0.5).unwrap().array().clone();
        let ([q, k, v], grad) = ([0; 3].map(|_| make(DType::Bf16)), make(DType::F32));
        let options = AttentionOptions { causal: true, scale: 0.3, kind: AttentionKind::Flash };
        let [_, before, _] = counts.now();
        let of = Attention { q: &q, k: &k, v: &v, options };
        let (out, lse) = of.run(device.kernels()).unwrap();
        let [_, forward, _] = counts.now();
        AttentionBackward { of, out: &out, lse: &lse, grad: &grad }.run(device.kernels()).unwrap();
        let [_, backward, _] = counts.now();
        assert_eq!([forward - before, backward - forward], [1, 3]);
    };
    emulated("memory::attention_of_bf16_widens_nothing", &[], body, clean);
}

#[test]
fn memory_that_is_kept_is_given_back_before_there_is_no_room() {
    let body = || {
        let device = cuda();
        let zeros = |mib: usize| Tensor::zeros(&device, [mib, 1 << 18], DType::F32);
        for mib in [100, 150, 200] {
            drop(zeros(mib).unwrap());
        }
        let held = zeros(300).unwrap();
        let error = zeros(200).unwrap_err();
        assert_eq!(error.class(), Class::OutOfMemory);
        let text = error.to_string();
        assert!(text.contains("200.0 MiB were requested, 180.0 of 512.0 MiB are free"), "{text}");
        assert!(text.contains("this run itself uses 300.0 MiB"), "{text}");
        drop(held);
        assert_eq!(zeros(200).unwrap().sum_all().unwrap().item().unwrap(), 0.0);
    };
    let variables = [("ASSAY_GPU_EMULATOR_MEMORY", "536870912")];
    emulated("memory::memory_that_is_kept_is_given_back_before_there_is_no_room", &variables, body, clean);
}

/// The class of the error that a training ends with.
fn ends_in() -> Class {
    let device = cuda();
    let train = || -> Result<()> {
        let mut training = Training::new(&device)?;
        (1..20).try_for_each(|step| training.step(step)?.item().map(drop))
    };
    train().unwrap_err().class()
}

#[test]
fn a_fault_has_its_class() {
    emulated("memory::a_fault_has_its_class", &[(FAIL, "fault:50")], || assert_eq!(ends_in(), Class::Fault), |_| ());
}

#[test]
fn a_loss_has_its_class() {
    emulated("memory::a_loss_has_its_class", &[(FAIL, "lost:50")], || assert_eq!(ends_in(), Class::Lost), |_| ());
}

#[test]
fn a_refused_allocation_has_its_class() {
    let body = || assert_eq!(ends_in(), Class::OutOfMemory);
    // A second refused allocation: cached memory was released in between.
    emulated("memory::a_refused_allocation_has_its_class", &[(FAIL, "bytes:33580000")], body, clean);
}
