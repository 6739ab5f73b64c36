//! Updates of many parameters in few launches, with the same bits as one parameter at a time.

use std::sync::Arc;

use assay_cuda::Cuda;
use assay_gpu::Driver;
use assay_gpu_emulator::{Emulated, emulated};
use assay_rocm::Rocm;
use assay_tensor::{AdamW, DType, Device, Tensor, Update, adamw, adamw_all, clip};

use crate::counting::{Counting, Counts};

/// Lengths around the sizes processed by a thread, a block and a launch, among many short ones.
fn lengths() -> Vec<usize> {
    let mut lengths = vec![0, 1, 3, 4, 5, 4095, 4096, 4097, 0, 16_383, 16_384, 16_385, 33_000];
    lengths.extend((0..130).map(|i| 1 + i % 7));
    lengths
}

fn numbers(device: &Device, length: usize, seed: usize) -> Tensor {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    Tensor::from_f32(device, (0..length).map(value).collect(), [length]).unwrap()
}

/// A parameter, its gradient, its moments, and whether it decays.
struct Member {
    tensors: [Tensor; 4],
    decays: bool,
}

impl Member {
    fn update(&mut self) -> Update<'_, Tensor> {
        let [param, grad, m, v] = &mut self.tensors;
        Update { param, grad, m, v, decays: self.decays }
    }
}

fn members(device: &Device) -> Vec<Member> {
    let member = |(seed, length): (usize, usize)| {
        let zeros = || Tensor::zeros(device, [length], DType::F32).unwrap();
        let tensors = [numbers(device, length, 2 * seed), numbers(device, length, 2 * seed + 1), zeros(), zeros()];
        Member { tensors, decays: seed % 3 == 0 }
    };
    lengths().into_iter().enumerate().map(member).collect()
}

fn bits(members: &[Member]) -> Vec<u32> {
    let all = members.iter().flat_map(|member| &member.tensors);
    all.flat_map(|tensor| tensor.to_f32_vec().unwrap()).map(f32::to_bits).collect()
}

fn few_launches(driver: impl Driver) {
    let counts = Arc::new(Counts::default());
    let device = assay_gpu::device(Arc::new(Counting(driver, counts.clone())));
    let (mut together, mut apart) = (members(&device), members(&device));
    // One of the parameters and one of the moments have another reference.
    let held = [together[7].tensors[0].clone(), together[9].tensors[3].clone()];
    let before: Vec<Vec<f32>> = held.iter().map(|tensor| tensor.to_f32_vec().unwrap()).collect();
    for step in 1..3 {
        let args = AdamW { step, lr: 0.1, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.1, grad_scale: 1.0 };
        let factors = Tensor::from_f32(&device, args.factors().to_vec(), [4]).unwrap();
        let [_, start, _] = counts.now();
        let norm = clip(&together.iter().map(|member| &member.tensors[1]).collect::<Vec<_>>(), Some(0.5)).unwrap();
        let updates = together.iter_mut().map(Member::update).collect();
        adamw_all(updates, args, &factors, &norm).unwrap();
        let [_, end, _] = counts.now();
        // 141 parameters are not empty: three launches for the squares, one for the norm, and three for the updates.
        assert_eq!(end - start, 7);
        let norm = norm.to_f64_vec().unwrap();
        let squares = |member: &Member| member.tensors[1].to_f64_vec().unwrap().iter().map(|x| x * x).sum::<f64>();
        let expected = apart.iter().map(squares).sum::<f64>().sqrt();
        assert!((norm[0] / expected - 1.0).abs() < 1e-6, "{} and {expected}", norm[0]);
        for Member { tensors: [param, grad, m, v], decays } in &mut apart {
            let weight_decay = if *decays { args.weight_decay } else { 0.0 };
            adamw(param, grad, m, v, AdamW { weight_decay, grad_scale: norm[1], ..args }).unwrap();
        }
        assert!(bits(&together) == bits(&apart), "step {step}");
    }
    for (tensor, before) in held.iter().zip(before) {
        assert_eq!(tensor.to_f32_vec().unwrap(), before, "what another handle holds");
    }
}

fn holds(name: &str, seed: &str, body: impl FnOnce()) {
    let variables = [("ASSAY_GPU_EMULATOR_SEED", seed), ("ASSAY_GPU_EMULATOR_WAVE", "64")];
    emulated(&format!("optimizer::{name}"), &variables, body, |found: &Emulated| assert_eq!(found.problems, [""; 0]));
}

#[test]
fn many_parameters_are_few_launches_on_cuda() {
    holds("many_parameters_are_few_launches_on_cuda", "3", || few_launches(Cuda::open(0, None).unwrap()));
}

#[test]
fn many_parameters_are_few_launches_on_rocm() {
    holds("many_parameters_are_few_launches_on_rocm", "0", || few_launches(Rocm::open(0, None).unwrap()));
}
