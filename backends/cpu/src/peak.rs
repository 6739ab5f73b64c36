//! Measured peak rates of the machine: arithmetic and copying memory.
//!
//! Rates of kernels are given as a share of these peaks. The clock of a shared machine drifts, so a peak is comparable only if it
//! was measured in the same run, between the samples that it is compared with.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::simd::instructions::{Level, level};
use crate::simd::reduction::LANES;
use crate::threads::split::Threads;

/// How long a sample of arithmetic takes.
const SAMPLE: Duration = Duration::from_millis(4);
/// Vectors of [`LANES`] that are multiplied and added to side by side. An FMA takes four cycles and two begin in each,
/// so that eight are needed; more hide the loop. All of them fit into the registers of AVX-512.
const CHAINS: usize = 24;
/// The same for instruction sets with 16 registers, of which a vector of [`LANES`] takes two.
const FEW_CHAINS: usize = 6;
/// Passes over all chains between two looks at the clock.
const PASSES: usize = 4096;
/// Elements of the arrays that are copied: 64 MiB each, beyond the caches.
const COPIED: usize = 16 << 20;

/// f32 operations a second of threads that multiply and add in registers alone, a multiplication and an addition
/// counting as two: no kernel is faster. It takes a few milliseconds. The threads are the device's own: others would
/// have to share the cores with those that still wait for work.
pub(crate) fn fma_rate(threads: &Threads) -> f64 {
    let rate = Mutex::new(0.0);
    threads.split_items(threads.count(), 1, f64::from(u32::MAX), |range| {
        for _ in range {
            let found = fma_rate_of_this_thread();
            *rate.lock().unwrap_or_else(PoisonError::into_inner) += found;
        }
    });
    rate.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn fma_rate_of_this_thread() -> f64 {
    let (mut operations, start) = (0.0, Instant::now());
    while start.elapsed() < SAMPLE {
        operations += multiply_and_add();
    }
    operations / start.elapsed().as_secs_f64()
}

/// Bytes a second that `threads` threads read and write together while they copy arrays larger than the caches. Needs
/// 128 MiB for that time.
#[must_use]
pub fn copy_rate(threads: usize) -> f64 {
    let share = COPIED / threads.max(1);
    let start = Barrier::new(threads.max(1));
    let one = || {
        let (from, mut to) = (vec![1_f32; share], vec![0_f32; share]);
        // The first copy brings the pages in, and is not counted.
        to.copy_from_slice(black_box(&from));
        start.wait();
        let began = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        (2 * share * size_of::<f32>()) as f64 / began.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(one)).collect();
        // A thread that died copied nothing.
        one() + others.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum::<f64>()
    })
}

/// [`PASSES`] over the chains with the best instructions there are; returns the number of operations.
fn multiply_and_add() -> f64 {
    // Known to nobody but the processor: nothing can be computed beforehand. The values converge to 1.
    let (factor, addend) = (black_box(0.5_f32), black_box(0.5_f32));
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has these instruction sets; `level` has asked it.
        Level::Avx512 => unsafe { rate_avx512(factor, addend) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { rate_avx2(factor, addend) },
        Level::Baseline => time_chains::<FEW_CHAINS>(factor, addend, |acc, x, y| {
            // Where the target has no FMA, `mul_add` would call a function.
            if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { acc.mul_add(x, y) } else { acc * x + y }
        }),
    }
}

/// The chains, with one step given.
#[inline(always)]
fn time_chains<const N: usize>(factor: f32, addend: f32, step: impl Fn(f32, f32, f32) -> f32) -> f64 {
    let mut chains = [[0_f32; LANES]; N];
    for _ in 0..PASSES {
        for chain in &mut chains {
            for lane in chain {
                *lane = step(*lane, factor, addend);
            }
        }
    }
    black_box(&chains);
    (2 * PASSES * N * LANES) as f64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn rate_avx2(factor: f32, addend: f32) -> f64 {
    time_chains::<FEW_CHAINS>(factor, addend, f32::mul_add)
}

/// With intrinsics: the compiler would halve the vectors that it makes of loops.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn rate_avx512(factor: f32, addend: f32) -> f64 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_set1_ps, _mm512_setzero_ps};
    let (factor, addend) = (_mm512_set1_ps(factor), _mm512_set1_ps(addend));
    let mut chains = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..PASSES {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, factor, addend);
        }
    }
    black_box(&chains);
    (2 * PASSES * CHAINS * LANES) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor of this century does a hundred million operations a second, and none does 100 T a thread.
    #[test]
    fn rates_are_those_of_a_processor() {
        for threads in [0, 1, 2] {
            let rate = fma_rate(&Threads::new(threads).unwrap());
            assert!((1e8..1e14).contains(&rate), "{rate} operations a second on {threads} threads");
        }
        assert!(copy_rate(1) > 1e7);
    }
}
