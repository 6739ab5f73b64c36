//! For tests: a process with this library instead of the vendors' libraries.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::settings;

/// The file names of the vendors' libraries.
const LIBRARIES: [&str; 6] =
    ["libcuda.so", "libnvrtc.so", "libcublasLt.so", "libamdhip64.so", "libhiprtc.so", "librocblas.so"];

/// Set in the process of a test that runs on the emulator.
const INSIDE: &str = "ASSAY_GPU_EMULATOR_INSIDE";

/// A folder with this library under the vendors' names, for `LD_LIBRARY_PATH`. It is next to the built library and is
/// created at the first call.
///
/// # Panics
/// If the test does not run from a cargo target folder, or the folder cannot be written.
#[must_use]
pub fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let built = test.parent().expect("a test lies in a folder").join("libassay_gpu_emulator.so");
    assert!(built.exists(), "{} is not built: `cargo build --workspace --all-targets` does it", built.display());
    let folder = built.with_file_name("gpu-emulator");
    std::fs::create_dir_all(&folder).expect("the folder of the emulator is made");
    for name in LIBRARIES {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == built) {
            continue;
        }
        // Another test may create it at the same time: a link with a unique name is renamed over the existing one.
        let own = folder.join(format!("{name}.{}.{:?}", std::process::id(), std::thread::current().id()));
        std::os::unix::fs::symlink(&built, &own).expect("a link to the emulator is made");
        std::fs::rename(&own, &link).expect("a link to the emulator is put in its place");
    }
    folder
}

/// The result of a test on the emulator.
#[derive(Debug)]
pub struct Emulated {
    /// The output and exit status of the process.
    pub output: Output,
    /// The problems that the emulator found, one line each.
    pub problems: Vec<String>,
}

impl Emulated {
    /// Sets up a command to find the emulator, with a new report in `scratch`.
    ///
    /// # Panics
    /// As [`library_folder`] does.
    pub fn set_up(command: &mut Command, scratch: &Path) {
        let folder = library_folder();
        command.env("LD_LIBRARY_PATH", &folder);
        command.env(settings::CACHE, folder.join("cache"));
        command.env(settings::REPORT, scratch.join("report"));
    }

    /// The problems in the report in `scratch`.
    #[must_use]
    pub fn report(scratch: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(scratch.join("report")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Runs the body of the test `name` in a separate process, with the emulator instead of the vendors' libraries, and with
/// these variables in its environment. `name` is the test's path, as printed by `cargo test`. The test passes if the
/// body passes and `expected` accepts the result.
///
/// # Panics
/// If the body or `expected` panics.
pub fn emulated(name: &str, variables: &[(&str, &str)], body: impl FnOnce(), expected: impl FnOnce(&Emulated)) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let scratch =
        std::env::temp_dir().join(format!("assay-gpu-emulator-{}-{}", std::process::id(), name.replace("::", "-")));
    std::fs::create_dir_all(&scratch).expect("a folder for the report is made");
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own file"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1").stdin(Stdio::null());
    Emulated::set_up(&mut command, &scratch);
    command.envs(variables.iter().copied());
    let output = command.output().expect("the test starts itself again");
    let emulated = Emulated { output, problems: Emulated::report(&scratch) };
    let _ = std::fs::remove_dir_all(&scratch);
    let said = String::from_utf8_lossy(&emulated.output.stdout);
    assert!(
        emulated.output.status.success() && said.contains("1 passed"),
        "`{name}` on the emulator: {}\n{said}\n{}",
        emulated.output.status,
        String::from_utf8_lossy(&emulated.output.stderr)
    );
    expected(&emulated);
}
