//! Instruction sets: loops that are compiled for each, and the choice at run time.

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

/// The instruction sets that loops are compiled for, the higher ones last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

impl Level {
    const ALL: &[Level] = &[
        Level::Baseline,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512,
    ];

    fn name(self) -> &'static str {
        match self {
            Level::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }
}

/// The environment variable that names the instruction set to use instead of the highest one: `avx512`, `avx2` or `baseline`.
const VARIABLE: &str = "ASSAY_ISA";

/// The highest level that this machine has.
fn highest_level() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => return Level::Avx512,
            (true, false) => return Level::Avx2,
            _ => {}
        }
    }
    Level::Baseline
}

/// The names of the levels that this machine has, the highest last: the values that `ASSAY_ISA` may have.
pub fn supported_levels() -> Vec<&'static str> {
    levels_up_to(highest_level()).map(Level::name).collect()
}

fn levels_up_to(highest: Level) -> impl Iterator<Item = Level> {
    Level::ALL.iter().copied().filter(move |level| *level <= highest)
}

/// The level that [`VARIABLE`] names, the highest one if it is not set.
///
/// # Errors
/// If it names an unknown level, or one that this machine does not have.
pub(crate) fn chosen_level() -> Result<Level, TensorError> {
    let name = std::env::var_os(VARIABLE).map(|name| name.to_string_lossy().into_owned());
    choose_level(name.as_deref(), highest_level())
}

fn choose_level(name: Option<&str>, highest: Level) -> Result<Level, TensorError> {
    let Some(name) = name else { return Ok(highest) };
    if let Some(level) = levels_up_to(highest).find(|level| level.name() == name) {
        return Ok(level);
    }
    let problem = match ["avx512", "avx2"].contains(&name) {
        true => "an instruction set that this processor does not have",
        false => "not an instruction set",
    };
    let known: Vec<String> = levels_up_to(highest).map(|level| format!("`{}`", level.name())).collect();
    Err(TensorError::new("device", format!("{VARIABLE} is `{name}`, {problem}"))
        .hint(format!("unset it, or set it to {}", known.join(" or "))))
}

/// [`chosen_level`], determined once, as loops of a few numbers ask for it too. A device is refused if the choice is an error.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| chosen_level().unwrap_or_else(|_| highest_level()))
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
    match byte_instructions() {
        #[cfg(target_arch = "x86_64")]
        Some(ByteInstructions::Avx512Vnni) => names.push("avx512_vnni".to_owned()),
        #[cfg(target_arch = "x86_64")]
        Some(ByteInstructions::AvxVnni) => names.push("avx_vnni".to_owned()),
        _ => {}
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

/// The instructions that multiply bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteInstructions {
    /// `vpdpbusd` on vectors of 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// `vpdpbusd` on vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// `vpmaddwd`, of 16 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

/// What multiplies bytes here; none at the baseline.
#[cfg(target_arch = "x86_64")]
pub(crate) fn byte_instructions() -> Option<ByteInstructions> {
    match level() {
        Level::Avx512 if is_x86_feature_detected!("avx512vnni") => Some(ByteInstructions::Avx512Vnni),
        Level::Baseline => None,
        _ if is_x86_feature_detected!("avxvnni") => Some(ByteInstructions::AvxVnni),
        _ => Some(ByteInstructions::Avx2),
    }
}

/// What multiplies bytes here: loops for every machine.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn byte_instructions() -> Option<ByteInstructions> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_levels_can_be_chosen_and_others_are_refused() {
        assert_eq!(choose_level(None, Level::Baseline), Ok(Level::Baseline));
        assert_eq!(choose_level(Some("baseline"), *Level::ALL.last().unwrap()), Ok(Level::Baseline));
        for (name, words) in [
            ("avx2", "ASSAY_ISA is `avx2`, an instruction set that this processor does not have"),
            ("avx512", "ASSAY_ISA is `avx512`, an instruction set that this processor does not have"),
            ("sse", "ASSAY_ISA is `sse`, not an instruction set"),
            ("", "ASSAY_ISA is ``, not an instruction set"),
        ] {
            let error = choose_level(Some(name), Level::Baseline).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("unset it, or set it to `baseline`"), "{error}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_level_up_to_the_highest_can_be_chosen() {
        assert_eq!(choose_level(Some("avx2"), Level::Avx512), Ok(Level::Avx2));
        assert_eq!(choose_level(Some("avx512"), Level::Avx512), Ok(Level::Avx512));
        assert!(choose_level(Some("avx512"), Level::Avx2).unwrap_err().to_string().contains("`baseline` or `avx2`"));
    }
}
