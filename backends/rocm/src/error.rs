//! HIP's error codes, in the classes that a run tells apart.

use std::ffi::c_int;

use assay_gpu::DriverError;

/// The codes of `hipError_t` that have a class or are met most, with their names.
const NAMES: [(c_int, &str); 22] = [
    (1, "hipErrorInvalidValue"),
    (2, "hipErrorOutOfMemory"),
    (3, "hipErrorNotInitialized"),
    (4, "hipErrorDeinitialized"),
    (100, "hipErrorNoDevice"),
    (101, "hipErrorInvalidDevice"),
    (200, "hipErrorInvalidImage"),
    (209, "hipErrorNoBinaryForGpu"),
    (214, "hipErrorECCNotCorrectable"),
    (400, "hipErrorInvalidHandle"),
    (500, "hipErrorNotFound"),
    (600, "hipErrorNotReady"),
    (700, "hipErrorIllegalAddress"),
    (701, "hipErrorLaunchOutOfResources"),
    (702, "hipErrorLaunchTimeOut"),
    (709, "hipErrorContextIsDestroyed"),
    (710, "hipErrorAssert"),
    (716, "hipErrorMisalignedAddress"),
    (719, "hipErrorLaunchFailure"),
    (900, "hipErrorStreamCaptureUnsupported"),
    (901, "hipErrorStreamCaptureInvalidated"),
    (999, "hipErrorUnknown"),
];

/// "named symbol not found"
pub(crate) const NOT_FOUND: c_int = 500;

/// A code's name.
pub(crate) fn error_text(code: c_int) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == code);
    known.map_or_else(|| format!("HIP error {code}"), |(_, name)| (*name).to_owned())
}

/// The result of a call, by its name. Out of memory is a matter of who knows the sizes.
pub(crate) fn check_status(call: &'static str, code: c_int) -> Result<(), DriverError> {
    let said = || format!("{call}: {}", error_text(code));
    match code {
        0 => Ok(()),
        700 | 702 | 710 | 716 | 719 => Err(DriverError::Fault(said())),
        4 | 100 | 214 | 709 => Err(DriverError::Lost(said())),
        2 => Err(DriverError::OutOfMemory { asked: 0, free: 0, total: 0 }),
        _ => Err(DriverError::Call { call, reason: error_text(code) }),
    }
}

/// The result of a call of rocBLAS.
pub(crate) fn check_product(call: &'static str, code: c_int) -> Result<(), DriverError> {
    const NAMES: [&str; 12] = [
        "success",
        "invalid_handle",
        "not_implemented",
        "invalid_pointer",
        "invalid_size",
        "memory_error",
        "internal_error",
        "perf_degraded",
        "size_query_mismatch",
        "size_increased",
        "size_unchanged",
        "invalid_value",
    ];
    match usize::try_from(code).ok().and_then(|code| NAMES.get(code)) {
        Some(&"success") => Ok(()),
        Some(name) => Err(DriverError::Call { call, reason: format!("rocblas_status_{name}") }),
        None => Err(DriverError::Call { call, reason: format!("rocBLAS error {code}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_apart() {
        assert_eq!(check_status("a", 0), Ok(()));
        assert_eq!(check_status("a", 700), Err(DriverError::Fault("a: hipErrorIllegalAddress".into())));
        assert_eq!(check_status("a", 100), Err(DriverError::Lost("a: hipErrorNoDevice".into())));
        assert_eq!(check_status("a", 12345), Err(DriverError::Call { call: "a", reason: "HIP error 12345".into() }));
        let refused = check_product("b", 4).unwrap_err().to_string();
        assert_eq!(refused, "b failed: rocblas_status_invalid_size");
    }
}
