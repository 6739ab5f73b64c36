//! One loop, compiled for each instruction set, chosen when it runs.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use assay_tensor::TensorError;

/// Declares functions whose bodies are compiled three times: for AVX-512, for AVX2 with FMA, and for the baseline. The
/// best that the machine has is taken at run time. A function may have one type parameter, for the operation that it
/// applies; whatever such an operation calls must be `#[inline(always)]`, or it would stay at the baseline.
///
/// The bodies fix the order of every sum themselves (the compiler may not change it), and use `mul_add`, which rounds
/// once everywhere; so the choice of instruction set does not change a bit of a result.
macro_rules! simd {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident$(<$op:ident: $bound:path>)?($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name$(<$op: $bound>)?($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            fn portable$(<$op: $bound>)?($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512$(<$op: $bound>)?($($arg: $type),*) $(-> $result)? { portable($($arg),*) }

                #[target_feature(enable = "avx2,fma")]
                fn avx2$(<$op: $bound>)?($($arg: $type),*) $(-> $result)? { portable($($arg),*) }

                match $crate::simd::level() {
                    // SAFETY: the machine has these instruction sets; `level` has asked it.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            portable($($arg),*)
        }
    )*};
}
pub(crate) use simd;

/// The instruction sets that loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// What the target always has.
    Baseline,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The variable that names the most that may be used: `avx512`, `avx2` or `baseline`. `tests/sanitize` runs every kernel on each.
#[cfg(target_arch = "x86_64")]
const MOST: &str = "ASSAY_CPU_LEVEL";

/// What [`MOST`] allows: all, where it is not set. Errors where it names nothing that is known.
#[cfg(target_arch = "x86_64")]
pub(crate) fn allowed() -> Result<Level, TensorError> {
    match std::env::var_os(MOST) {
        None => Ok(Level::Avx512),
        Some(most) => match most.to_str() {
            Some("avx512") => Ok(Level::Avx512),
            Some("avx2") => Ok(Level::Avx2),
            Some("baseline") => Ok(Level::Baseline),
            _ => Err(TensorError::new("device", format!("{MOST} is `{}`", most.display()))
                .hint("set it to `avx512`, `avx2` or `baseline`, or unset it")),
        },
    }
}

/// What the kernels may use: all that there is.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn allowed() -> Result<Level, TensorError> {
    Ok(Level::Baseline)
}

/// The best that this machine has and [`MOST`] allows: asked once, as loops of a few numbers ask for it too.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (allowed(), avx2, avx512) {
            (Ok(Level::Avx512) | Err(_), true, true) => Level::Avx512,
            (Ok(Level::Avx512 | Level::Avx2) | Err(_), true, _) => Level::Avx2,
            _ => Level::Baseline,
        }
    })
}

/// The best that this machine has.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn level() -> Level {
    Level::Baseline
}

/// The processor's name, as it gives it, and its architecture where it gives none.
pub(crate) fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
            let leaves = (0x8000_0002..=0x8000_0004).map(__cpuid);
            let bytes: Vec<u8> = leaves.flat_map(|l| [l.eax, l.ebx, l.ecx, l.edx]).flat_map(u32::to_le_bytes).collect();
            let name = String::from_utf8_lossy(&bytes).replace('\0', "");
            if !name.trim().is_empty() {
                return name.split_whitespace().collect::<Vec<_>>().join(" ");
            }
        }
    }
    std::env::consts::ARCH.to_owned()
}

/// The names of what is used, for people.
pub(crate) fn features() -> Vec<String> {
    let mut names = Vec::new();
    match level() {
        Level::Baseline => {}
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => names.extend(["avx2".to_owned(), "fma".to_owned()]),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => names.extend(["avx512".to_owned(), "fma".to_owned()]),
    }
    if crate::int8::has_vnni() {
        names.push("avx512_vnni".to_owned());
    }
    names
}

/// Elements of a line of the cache.
pub(crate) const LINE: usize = 16;

/// Fetches the line of the cache that a place is in: a hint, which may lead anywhere.
#[inline(always)]
pub(crate) fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is no access, and every such machine has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The number of partial sums of a row reduction: a vector of the widest instruction set.
pub(crate) const LANES: usize = 16;

/// The sum of partial results in a fixed order: halves are added until one is left.
#[inline(always)]
pub(crate) fn fold(lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    // Each half an array of its own: so they stay in registers, as vectors.
    let (mut eight, mut four) = ([0.0; 8], [0.0; 4]);
    for i in 0..8 {
        eight[i] = f(lanes[i], lanes[i + 8]);
    }
    for i in 0..4 {
        four[i] = f(eight[i], eight[i + 4]);
    }
    f(f(four[0], four[2]), f(four[1], four[3]))
}

/// Vectors of partial results that a reduction keeps, so that one need not wait for the last.
const SETS: usize = 4;
/// Elements that a reduction takes at a time.
const WIDE: usize = SETS * LANES;

/// A vector of partial results with `f` of the elements at each index of one vector of a block.
#[inline(always)]
fn joined<const N: usize>(
    lanes: [f32; LANES],
    rows: &[&[f32; WIDE]; N],
    set: usize,
    f: &impl Fn([f32; N]) -> f32,
    join: &impl Fn(f32, f32) -> f32,
) -> [f32; LANES] {
    let mut next = lanes;
    for lane in 0..LANES {
        let mut at = [0.0; N];
        for row in 0..N {
            at[row] = rows[row][set * LANES + lane];
        }
        next[lane] = join(lanes[lane], f(at));
    }
    next
}

/// A reduction of `f` of the elements at each index of N rows of one length: partial result i mod 64 takes element i,
/// then the partial results are joined, halves at a time.
#[inline(always)]
pub(crate) fn reduce<const N: usize>(
    rows: [&[f32]; N],
    start: f32,
    f: impl Fn([f32; N]) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let n = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let whole = n / WIDE * WIDE;
    // Each vector an array of its own, made anew from the last: so they stay in registers.
    let [mut a, mut b, mut c, mut d] = [[start; LANES]; SETS];
    for first in (0..whole).step_by(WIDE) {
        // Blocks of known length, so that no index is checked inside the loop.
        let mut blocks = [&[0.0; WIDE]; N];
        for row in 0..N {
            blocks[row] = rows[row][first..].first_chunk().unwrap_or(&[0.0; WIDE]);
        }
        a = joined(a, &blocks, 0, &f, &join);
        b = joined(b, &blocks, 1, &f, &join);
        c = joined(c, &blocks, 2, &f, &join);
        d = joined(d, &blocks, 3, &f, &join);
    }
    let rest = n - whole;
    if rest > 0 {
        // What is left is filled up to a block, of which the first elements count: an index into the lanes that is not known
        // would keep them in memory.
        let mut blocks = [[0.0; WIDE]; N];
        for row in 0..N {
            blocks[row][..rest].copy_from_slice(&rows[row][whole..n]);
        }
        let blocks = blocks.each_ref();
        for (set, lanes) in [&mut a, &mut b, &mut c, &mut d].into_iter().enumerate() {
            let next = joined(*lanes, &blocks, set, &f, &join);
            for lane in 0..LANES {
                lanes[lane] = if set * LANES + lane < rest { next[lane] } else { lanes[lane] };
            }
        }
    }
    for lane in 0..LANES {
        a[lane] = join(join(a[lane], c[lane]), join(b[lane], d[lane]));
    }
    fold(a, join)
}

/// The sum of `f` of the elements at each index of the rows, see [`reduce`].
#[inline(always)]
pub(crate) fn sum<const N: usize>(rows: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    reduce(rows, 0.0, f, |a, b| a + b)
}
