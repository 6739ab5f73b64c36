//! Kernels, compiled by the host's C++ compiler.
//!
//! The source is preprocessed first. In the result, `__global__` and dynamic shared memory are replaced by C++, and an
//! entry for each kernel is added, which receives the arguments of a launch. Loads and stores are instrumented as for a
//! thread sanitizer, whose functions are ours (`device/checks.cpp`). Compiled code is cached under the hash of
//! everything that it depends on.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::settings::settings;
use crate::source::translated;

/// The runtime's files: headers for kernels, and sources that are linked with them.
const RUNTIME: [(&str, &str); 10] = [
    ("engine.hpp", include_str!("../device/engine.hpp")),
    ("vocabulary.hpp", include_str!("../device/vocabulary.hpp")),
    ("numbers.hpp", include_str!("../device/numbers.hpp")),
    ("warps.hpp", include_str!("../device/warps.hpp")),
    ("copies.hpp", include_str!("../device/copies.hpp")),
    ("matrices.hpp", include_str!("../device/matrices.hpp")),
    ("block.hpp", include_str!("../device/block.hpp")),
    ("fibers.hpp", include_str!("../device/fibers.hpp")),
    ("engine.cpp", include_str!("../device/engine.cpp")),
    ("checks.cpp", include_str!("../device/checks.cpp")),
];

/// The compiler must not contract operations into fused ones, so that every host gives the same bits.
const COMMON: [&str; 7] =
    ["-std=c++17", "-O1", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-gnu-unique"];
const CHECKED: [&str; 2] = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"];

/// The vendor whose compiler is emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    fn definitions(self) -> &'static [&'static str] {
        match self {
            Vendor::Nvidia => &[
                "-D__CUDACC__=1",
                "-D__CUDACC_RTC__=1",
                "-D__NVCC__=1",
                "-D__CUDA_ARCH__=900",
                "-D__CUDACC_VER_MAJOR__=13",
                "-D__CUDACC_VER_MINOR__=0",
            ],
            Vendor::Amd => &[
                "-D__HIP__=1",
                "-D__HIPCC__=1",
                "-D__HIPCC_RTC__=1",
                "-D__HIP_PLATFORM_AMD__=1",
                "-D__HIP_DEVICE_COMPILE__=1",
                "-D__AMDGCN__=1",
            ],
        }
    }
}

/// Compiles a source, with headers given by name, into the code of a module; an error is the compiler's message.
pub(crate) fn compile(
    vendor: Vendor,
    source: &str,
    headers: &[(String, String)],
    options: &[String],
) -> Result<Vec<u8>, String> {
    let definitions = definitions(options)?;
    let runtime = runtime()?;
    let key = key(vendor, source, headers, &definitions);
    let kept = settings().cache.join(format!("{key}.so"));
    if let Ok(code) = std::fs::read(&kept) {
        return Ok(code);
    }
    let folder = Scratch::new(&key)?;
    for (name, text) in headers {
        let path = folder.0.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| error.to_string())?;
        }
        std::fs::write(path, text).map_err(|error| error.to_string())?;
    }
    let [written, expanded, ready, object, code] =
        ["kernels.cu", "expanded.ii", "ready.ii", "kernels.o", "kernels.so"].map(|name| folder.0.join(name));
    std::fs::write(&written, source).map_err(|error| error.to_string())?;
    let mut expand = compiler();
    expand.args(["-E", "-x", "c++", "-include"]).arg(runtime.join("vocabulary.hpp"));
    expand.args(vendor.definitions()).args(&definitions).arg("-I").arg(&folder.0).arg("-I").arg(&runtime);
    run(expand.arg(&written).arg("-o").arg(&expanded))?;
    let text = std::fs::read_to_string(&expanded).map_err(|error| error.to_string())?;
    std::fs::write(&ready, translated(&text)?).map_err(|error| error.to_string())?;
    run(compiler().args(CHECKED).args(["-x", "c++-cpp-output", "-c"]).arg(&ready).arg("-o").arg(&object))?;
    let mut link = compiler();
    link.args(["-shared", "-Wl,-Bsymbolic", "-Wl,--build-id=none"]).arg(&object);
    run(link.args(["engine.o", "checks.o"].map(|name| runtime.join(name))).arg("-o").arg(&code))?;
    let bytes = std::fs::read(&code).map_err(|error| error.to_string())?;
    // If another process was faster, it has written the same file.
    let _ = std::fs::rename(&code, &kept);
    Ok(bytes)
}

/// The relevant options, or the first option that this compiler does not accept.
fn definitions(options: &[String]) -> Result<Vec<String>, String> {
    const KNOWN: [&str; 22] = [
        "--gpu-architecture",
        "-arch",
        "--std",
        "-std",
        "--use_fast_math",
        "-use_fast_math",
        "--fmad",
        "-fmad",
        "--ftz",
        "--prec-div",
        "--prec-sqrt",
        "--device-as-default-execution-space",
        "-default-device",
        "--restrict",
        "-lineinfo",
        "--generate-line-info",
        "--maxrregcount",
        "--offload-arch",
        "-O3",
        "-ffp-contract",
        "-mwavefrontsize64",
        "--extra-device-vectorization",
    ];
    let mut kept = Vec::new();
    for option in options {
        let head = option.split('=').next().unwrap_or_default();
        if option.starts_with("-D") || option.starts_with("-U") {
            kept.push(option.clone());
        } else if let Some(definition) = option.strip_prefix("--define-macro=") {
            kept.push(format!("-D{definition}"));
        } else if !KNOWN.contains(&head) && !option.starts_with("-W") && option != "-w" {
            return Err(format!("unrecognized option `{option}` found"));
        }
    }
    Ok(kept)
}

fn compiler() -> Command {
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "g++".into()));
    command.args(COMMON);
    if cfg!(target_arch = "x86_64") && fused() {
        command.arg("-mfma");
    }
    command
}

#[cfg(target_arch = "x86_64")]
fn fused() -> bool {
    std::is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn fused() -> bool {
    false
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| {
        format!("the emulator compiles kernels with g++, which cannot be started ({error}); install it or set CXX")
    })?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let output = compiler().arg("--version").output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    })
}

fn key(vendor: Vendor, source: &str, headers: &[(String, String)], definitions: &[String]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(&format!("{vendor:?} {:?} {}", fused(), version()));
    part(include_str!("source.rs"));
    COMMON.iter().chain(&CHECKED).for_each(|text| part(text));
    RUNTIME.iter().for_each(|(name, text)| [name, text].into_iter().for_each(|text| part(text)));
    headers.iter().for_each(|(name, text)| [name, text].into_iter().for_each(|text| part(text)));
    definitions.iter().for_each(|text| part(text));
    part(source);
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The folder of the runtime's sources and objects, created when this version is first used.
fn runtime() -> Result<PathBuf, String> {
    let mut hasher = blake3::Hasher::new();
    RUNTIME.iter().for_each(|(_, text)| _ = hasher.update(text.as_bytes()));
    hasher.update(version().as_bytes());
    let folder = settings().cache.join(format!("runtime-{}", &hasher.finalize().to_hex()[..16]));
    if folder.join("engine.o").exists() {
        return Ok(folder);
    }
    let text =
        |error: std::io::Error| format!("the emulator's cache `{}` cannot be written: {error}", folder.display());
    std::fs::create_dir_all(&settings().cache).map_err(text)?;
    let scratch = Scratch::new("runtime")?;
    for (name, source) in RUNTIME {
        std::fs::write(scratch.0.join(name), source).map_err(text)?;
    }
    for name in ["checks", "engine"] {
        let (source, object) = (scratch.0.join(format!("{name}.cpp")), scratch.0.join(format!("{name}.o")));
        run(compiler().args(["-O2", "-fvisibility=hidden", "-c"]).arg(source).arg("-o").arg(object))?;
    }
    // If another process was faster, its folder is used.
    let _ = std::fs::rename(&scratch.0, &folder);
    Ok(folder)
}

/// A folder of this process, removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Scratch, String> {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = settings().cache.join(format!("work-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("the emulator's cache `{}` cannot be written: {error}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The format of an image: this mark, the length, the code.
const MARK: &[u8; 16] = b"assay-emulator\x01\0";

/// The image of a module's code.
pub(crate) fn image(code: &[u8]) -> Vec<u8> {
    let mut image = MARK.to_vec();
    image.extend((code.len() as u64).to_le_bytes());
    image.extend(code);
    image
}

/// The code of an image.
///
/// # Safety
/// `image` is an address of at least 16 bytes, and of a whole image if they are its mark.
pub(crate) unsafe fn code_of<'a>(image: *const u8) -> Option<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if std::slice::from_raw_parts(image, MARK.len()) != MARK {
            return None;
        }
        let mut length = [0; 8];
        length.copy_from_slice(std::slice::from_raw_parts(image.add(MARK.len()), 8));
        Some(std::slice::from_raw_parts(image.add(MARK.len() + 8), u64::from_le_bytes(length) as usize))
    }
}
