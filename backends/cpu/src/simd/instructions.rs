//! Instruction sets: loops that are compiled for each, and the choice at run time.

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

                match $crate::simd::instructions::level() {
                    // SAFETY: the machine has these instruction sets; `level` has asked it.
                    $crate::simd::instructions::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::instructions::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::instructions::Level::Baseline => {}
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

/// The environment variable that names the highest instruction set to use: `avx512`, `avx2` or `baseline`. `tests/sanitize` runs
/// every kernel on each.
#[cfg(target_arch = "x86_64")]
const VARIABLE: &str = "ASSAY_ISA";

/// The highest level that [`VARIABLE`] allows; the highest of all where it is not set. Errors on an unknown name.
#[cfg(target_arch = "x86_64")]
pub(crate) fn allowed_level() -> Result<Level, TensorError> {
    match std::env::var_os(VARIABLE) {
        None => Ok(Level::Avx512),
        Some(name) => match name.to_str() {
            Some("avx512") => Ok(Level::Avx512),
            Some("avx2") => Ok(Level::Avx2),
            Some("baseline") => Ok(Level::Baseline),
            _ => Err(TensorError::new("device", format!("{VARIABLE} is `{}`", name.display()))
                .hint("set it to `avx512`, `avx2` or `baseline`, or unset it")),
        },
    }
}

/// What the kernels may use: all that there is.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn allowed_level() -> Result<Level, TensorError> {
    Ok(Level::Baseline)
}

/// The best that this machine has and [`VARIABLE`] allows: asked once, as loops of a few numbers ask for it too.
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
        match (allowed_level(), avx2, avx512) {
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
pub(crate) fn processor_name() -> String {
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
pub(crate) fn feature_names() -> Vec<String> {
    let mut names = Vec::new();
    match level() {
        Level::Baseline => {}
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => names.extend(["avx2".to_owned(), "fma".to_owned()]),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => names.extend(["avx512".to_owned(), "fma".to_owned()]),
    }
    if has_vnni() {
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

/// Whether the machine multiplies bytes.
pub(crate) fn has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}
