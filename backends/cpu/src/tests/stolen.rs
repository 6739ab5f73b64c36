//! Kernels of a job from which another thread steals parts.

use std::sync::Mutex;

use assay_tensor::{
    Array, AttentionKind, AttentionOptions, DType, Device, FeedForward, FeedForwardSums, HostData, Kernels, Result,
};

use super::{Operands, run_work};
use crate::threads::work_stealing;

/// Attention, a feed-forward layer and layer norm, forward and back, and a product.
fn work(k: &dyn Kernels, o: &mut Operands<'_>) -> Result<Vec<Array>> {
    let (x, grad) = (o.random_floats([1, 400, 96]), o.random_floats([1, 400, 96]));
    let (up, down) = (o.random_floats([300, 96]), o.random_floats([96, 300]));
    let (u, d, gain) = (o.random_floats(300), o.random_floats(96), o.random_floats(96));
    let (z, y) = k.feed_forward(Some(&x), &x, (&up, &u), (&down, &d), None)?;
    let mut results = Vec::new();
    for kept in [DType::F32, DType::Bf16] {
        let argument = k.cast(&z, kept)?;
        let call = FeedForward { x: &x, up: &up, argument: &argument, down: &down, grad: &grad };
        let back = k.feed_forward_backward(call, FeedForwardSums::default())?;
        results.extend([back.x, back.up, back.up_bias, back.down]);
    }
    let normal = k.layer_norm(&x, &gain, &d, 1e-5)?;
    let back = k.layer_norm_backward(&x, &gain, &normal.mean, &normal.rstd, &grad)?;
    results.extend([z, y, normal.y, back.x, back.gain, back.bias]);
    let [q, key, v, g] = [(); 4].map(|()| o.random_floats([1, 4, 300, 40]));
    for kind in [AttentionKind::Full, AttentionKind::Flash] {
        let options = AttentionOptions { causal: true, scale: 0.2, kind };
        let (out, lse) = k.attention(&q, &key, &v, options)?;
        let back = k.attention_backward(&q, &key, &v, &out, &lse, &g, options)?;
        results.extend([out, lse, back.q, back.k, back.v]);
    }
    results.push(k.matmul(&o.random_floats([300, 400]), &o.random_floats([400, 200]), false, false)?);
    Ok(results)
}

#[test]
fn stealing_changes_no_bit() {
    let bits = |device: &Device| -> Vec<Vec<u64>> {
        let bits = |x: &HostData| x.to_f64().into_iter().map(f64::to_bits).collect();
        run_work(device, DType::F32, &work).iter().map(|(_, x)| bits(x)).collect()
    };
    let alone = bits(&crate::device(1).unwrap());
    for threads in [2, 4] {
        let (device, helped) = (crate::device(threads).unwrap(), Mutex::new(Vec::new()));
        for _ in 0..3 {
            // All jobs but one end at once, and that one waits until another thread is idle.
            device.kernels().concurrently(threads, &|job| {
                if job == 0 {
                    while !work_stealing::has_idle_threads() {
                        std::thread::yield_now();
                    }
                    helped.lock().unwrap().push(bits(&device));
                }
            });
        }
        assert!(helped.into_inner().unwrap().iter().all(|helped| *helped == alone), "{threads} threads");
    }
}
