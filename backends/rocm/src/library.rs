//! The three libraries and their functions. Signatures are those of ROCm 6's headers (`hip_runtime_api.h`, `hiprtc.h`,
//! `rocblas.h`), with the enumerations as the integers that they are.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// A handle of the runtime.
pub(crate) type Handle = *mut c_void;
/// An address on the device.
pub(crate) type At = *mut c_void;
/// A place that a handle is written to.
pub(crate) type Out<T> = *mut T;

/// Declares a table of functions, and how it is found in a library.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident: $($name:ident($($argument:ty),*);)*) => {
        $(#[$about])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            _library: Library,
        }

        impl $table {
            /// Every function, or the name of the first that is not there.
            fn find(library: Library) -> Result<$table, &'static str> {
                // SAFETY: the signatures are those of the library's headers, and the table keeps the library.
                unsafe {
                    Ok($table {
                        $($name: *library
                            .get::<unsafe extern "C" fn($($argument),*) -> c_int>(stringify!($name).as_bytes())
                            .map_err(|_| stringify!($name))?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    /// libamdhip64.
    Hip:
    hipInit(c_uint);
    hipDriverGetVersion(Out<c_int>);
    hipGetDeviceCount(Out<c_int>);
    hipSetDevice(c_int);
    hipGetDevicePropertiesR0600(*mut c_void, c_int);
    hipMemGetInfo(Out<usize>, Out<usize>);
    hipMalloc(Out<At>, usize);
    hipFree(At);
    hipHostMalloc(Out<At>, usize, c_uint);
    hipHostFree(At);
    hipMemcpyHtoDAsync(At, *const c_void, usize, Handle);
    hipMemcpyDtoHAsync(*mut c_void, At, usize, Handle);
    hipMemcpyDtoDAsync(At, At, usize, Handle);
    hipMemsetD8Async(At, u8, usize, Handle);
    hipModuleLoadData(Out<Handle>, *const c_void);
    hipModuleUnload(Handle);
    hipModuleGetFunction(Out<Handle>, Handle, *const c_char);
    hipModuleLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    hipStreamCreateWithFlags(Out<Handle>, c_uint);
    hipStreamDestroy(Handle);
    hipStreamSynchronize(Handle);
    hipStreamBeginCapture(Handle, c_int);
    hipStreamEndCapture(Handle, Out<Handle>);
    hipGraphInstantiateWithFlags(Out<Handle>, Handle, u64);
    hipGraphLaunch(Handle, Handle);
    hipGraphExecDestroy(Handle);
    hipGraphDestroy(Handle);
    hipEventCreate(Out<Handle>);
    hipEventDestroy(Handle);
    hipEventRecord(Handle, Handle);
    hipEventSynchronize(Handle);
    hipEventElapsedTime(Out<f32>, Handle, Handle);
}

functions! {
    /// libhiprtc.
    Compiler:
    hiprtcVersion(Out<c_int>, Out<c_int>);
    hiprtcCreateProgram(
        Out<Handle>, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    hiprtcDestroyProgram(Out<Handle>);
    hiprtcCompileProgram(Handle, c_int, *const *const c_char);
    hiprtcGetCodeSize(Handle, Out<usize>);
    hiprtcGetCode(Handle, *mut c_char);
    hiprtcGetProgramLogSize(Handle, Out<usize>);
    hiprtcGetProgramLog(Handle, *mut c_char);
}

functions! {
    /// librocblas.
    Blas:
    rocblas_create_handle(Out<Handle>);
    rocblas_destroy_handle(Handle);
    rocblas_set_stream(Handle, Handle);
    rocblas_set_atomics_mode(Handle, c_int);
    rocblas_set_workspace(Handle, At, usize);
    rocblas_gemm_strided_batched_ex(
        Handle, c_int, c_int, c_int, c_int, c_int,
        *const c_void, At, c_int, c_int, i64, At, c_int, c_int, i64,
        *const c_void, At, c_int, c_int, i64, At, c_int, c_int, i64,
        c_int, c_int, c_int, i32, u32
    );
}

/// All three.
pub(crate) struct Libraries {
    pub(crate) hip: Hip,
    pub(crate) compiler: Compiler,
    pub(crate) blas: Blas,
}

/// The libraries, loaded at the first call. The error is a lower-case fragment that says what is not there.
pub(crate) fn load_libraries() -> Result<&'static Libraries, String> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let loaded = LIBRARIES.get_or_init(|| {
        let none = "there is no AMD driver: libamdhip64.so of ROCm 6.0 or later was not found";
        let hip = open("libamdhip64", &["7", "6"]).ok_or_else(|| none.to_owned())?;
        let compiler = open("libhiprtc", &["7", "6"]).ok_or_else(|| missing_library("libhiprtc"))?;
        let blas = open("librocblas", &["5", "4"]).ok_or_else(|| missing_library("librocblas"))?;
        Ok(Libraries {
            hip: Hip::find(hip).map_err(|name| missing_symbol("libamdhip64", name))?,
            compiler: Compiler::find(compiler).map_err(|name| missing_symbol("libhiprtc", name))?,
            blas: Blas::find(blas).map_err(|name| missing_symbol("librocblas", name))?,
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// A library in the versions that will do, where the system looks and where ROCm is installed.
fn open(name: &str, versions: &[&str]) -> Option<Library> {
    let folder = std::env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
    let folder = std::path::Path::new(&folder).join("lib");
    let names =
        std::iter::once(format!("{name}.so")).chain(versions.iter().map(|version| format!("{name}.so.{version}")));
    let names: Vec<String> = names.collect();
    // SAFETY: loading a vendor's library runs its initialisation, which these three are made for.
    let found = names.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    found.or_else(|| names.iter().find_map(|name| unsafe { Library::new(folder.join(name)) }.ok()))
}

fn missing_library(library: &str) -> String {
    format!(
        "{library}.so of ROCm 6.0 or later was not found, in LD_LIBRARY_PATH, in ROCM_PATH or where the system looks"
    )
}

fn missing_symbol(library: &str, name: &str) -> String {
    format!("{library} has no `{name}`: ROCm 6.0 or later is needed")
}
