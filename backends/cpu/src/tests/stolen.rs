//! Kernels of a job from which another thread steals parts.

use std::sync::Mutex;

use assay_tensor::{
    Arguments, Array, Attention, AttentionBackward, AttentionKind, AttentionOptions, DType, Device, FeedForward,
    FeedForwardBackward, HostData, Kernels, LAYER_NORM, LAYER_NORM_BACKWARD, Result,
};

use super::{Operands, run_work};
use crate::threads::work_stealing;

/// Attention, a feed-forward layer and layer norm, forward and back, and a product.
fn work(k: &dyn Kernels, o: &mut Operands<'_>) -> Result<Vec<Array>> {
    let (x, grad) = (o.random_floats([1, 400, 96]), o.random_floats([1, 400, 96]));
    let (up, down) = (o.random_floats([300, 96]), o.random_floats([96, 300]));
    let (u, d, gain) = (o.random_floats(300), o.random_floats(96), o.random_floats(96));
    let [y, z] = FeedForward { x: &x, up: (&up, &u), down: (&down, &d), base: Some(&x), bf16: false }.run(k)?;
    let mut results = Vec::new();
    for kept in [DType::F32, DType::Bf16] {
        let argument = k.cast(&z, kept)?;
        let call = FeedForwardBackward { x: &x, up: &up, argument: &argument, down: &down, grad: &grad };
        results.extend(call.run(k, [None, None, None])?);
    }
    let normal = LAYER_NORM.run(k, Arguments::new(&[&x, &gain, &d], &[("eps", 1e-5)]))?;
    let back = LAYER_NORM_BACKWARD.run(k, Arguments::new(&[&x, &gain, &normal[1], &normal[2], &grad], &[]))?;
    results.extend([vec![z, y], normal, back].concat());
    let [q, key, v, g] = [(); 4].map(|()| o.random_floats([1, 4, 300, 40]));
    for kind in [AttentionKind::Full, AttentionKind::Flash] {
        let options = AttentionOptions { causal: true, scale: 0.2, kind };
        let of = Attention { q: &q, k: &key, v: &v, options };
        let (out, lse) = of.run(k)?;
        results.extend(AttentionBackward { of, out: &out, lse: &lse, grad: &g }.run(k)?);
        results.extend([out, lse]);
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
