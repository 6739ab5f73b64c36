//! Kernels of a job that another thread helps with.

use std::sync::Mutex;

use assay_tensor::{
    AttentionKind, AttentionOptions, DType, FeedForward, FeedForwardSums, HostData, Kernels, Result, Shape,
};

use crate::crew;
use crate::kernels::Cpu;
use crate::parallel::Threads;
use crate::storage::{Allocator, f32s};

/// Attention, a feed-forward layer and layer norm, forward and back, and a product: the bits of all results.
fn results(cpu: &Cpu) -> Result<Vec<Vec<u32>>> {
    let numbers = |dims: &[usize], seed: usize| {
        let shape = Shape::from(dims);
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
        cpu.upload(HostData::F32((0..shape.numel()).map(number).collect()), &shape)
    };
    let (x, grad) = (numbers(&[1, 400, 96], 1)?, numbers(&[1, 400, 96], 2)?);
    let (up, down) = (numbers(&[300, 96], 3)?, numbers(&[96, 300], 4)?);
    let (u, d, gain) = (numbers(&[300], 5)?, numbers(&[96], 6)?, numbers(&[96], 7)?);
    let mut found = Vec::new();
    let (z, y) = cpu.feed_forward(Some(&x), &x, (&up, &u), (&down, &d), None)?;
    for kept in [DType::F32, DType::Bf16] {
        let argument = cpu.cast(&z, kept)?;
        let call = FeedForward { x: &x, up: &up, argument: &argument, down: &down, grad: &grad };
        let back = cpu.feed_forward_backward(call, FeedForwardSums::default())?;
        found.extend([back.x, back.up, back.up_bias, back.down]);
    }
    let normal = cpu.layer_norm(&x, &gain, &d, 1e-5)?;
    let back = cpu.layer_norm_backward(&x, &gain, &normal.mean, &normal.rstd, &grad)?;
    found.extend([z, y, normal.y, back.x, back.gain, back.bias]);
    let [q, k, v] = [8, 9, 10].map(|seed| numbers(&[1, 4, 300, 40], seed));
    let (q, k, v) = (q?, k?, v?);
    for kind in [AttentionKind::Full, AttentionKind::Flash] {
        let options = AttentionOptions { causal: true, scale: 0.2, kind };
        let (out, lse) = cpu.attention(&q, &k, &v, options)?;
        let back = cpu.attention_backward(&q, &k, &v, &out, &lse, &q, options)?;
        found.extend([out, lse, back.q, back.k, back.v]);
    }
    found.push(cpu.matmul(&numbers(&[300, 400], 11)?, &numbers(&[400, 200], 12)?, false, false)?);
    found.iter().map(|x| Ok(f32s("test", x)?.iter().map(|x| x.to_bits()).collect())).collect()
}

#[test]
fn help_changes_no_bit() {
    let cpu = |threads: usize| Cpu { threads: Threads::new(threads).unwrap(), memory: Allocator::default() };
    let alone = results(&cpu(1)).unwrap();
    for threads in [2, 4] {
        let (cpu, helped) = (cpu(threads), Mutex::new(Vec::new()));
        for _ in 0..3 {
            // All jobs but one end at once, and that one waits until somebody is there to help.
            cpu.concurrently(threads, &|job| {
                if job == 0 {
                    while !crew::has_help() {
                        std::thread::yield_now();
                    }
                    helped.lock().unwrap().push(results(&cpu).unwrap());
                }
            });
        }
        assert!(helped.into_inner().unwrap().iter().all(|helped| *helped == alone), "{threads} threads");
    }
}
