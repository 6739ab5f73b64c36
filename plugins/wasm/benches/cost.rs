//! The cost of plugins: starting a process, and a call with one sample and with 10,000, including pipe and checks.
//!
//!     cargo bench --bench plugin_cost                       the shipped plugins
//!     cargo bench --bench plugin_cost -- path/to/a.wasm     your own dataset or metric, with its default config
//!     cargo bench --bench plugin_cost -- languages          the metrics and datasets of the templates, in each language that can be built here

use std::path::{Path, PathBuf};
use std::time::Instant;

use assay_host::{PluginCommand, PluginProcess};
use assay_protocol::{PluginFailure, PluginLimits, PluginSplit};
use assay_wasm::{PluginLanguage, PluginWorld, build_plugin, write_template};

/// Samples of a large call.
const MANY: u32 = 10_000;
/// Classes of a prediction.
const CLASSES: u32 = 10;

fn main() {
    let given: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).filter(|path| path.is_file()).collect();
    let shipped = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shipped/{name}/{name}.wasm"));
    let folder = tempfile::tempdir().expect("a folder for plugins");
    let files = match given.as_slice() {
        [] if std::env::args().any(|argument| argument == "languages") => build_templates(folder.path()),
        [] => vec![shipped("dyck"), shipped("calibration")],
        _ => given,
    };
    println!(
        "{:<24} {:>10} {:>16} {:>22} {:>18}",
        "plugin", "start", "a batch of 1", "a sample of 10,000", "fuel of a sample"
    );
    for file in files {
        if let Err(failure) = measure(&file) {
            eprintln!("{}: {failure}", file.display());
        }
    }
}

/// The components of the templates. What cannot be built is reported and left out.
fn build_templates(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for world in [PluginWorld::Dataset, PluginWorld::Metric] {
        for (language, name) in
            [(PluginLanguage::C, "c"), (PluginLanguage::JavaScript, "javascript"), (PluginLanguage::Python, "python")]
        {
            let folder = folder.join(format!("{}-{name}", world.interface()));
            match write_template(&folder, world, language).and_then(|()| build_plugin(&folder)) {
                Ok(built) => files.push(built.file),
                Err(error) => eprintln!("{}: {error}", folder.display()),
            }
        }
    }
    files
}

fn measure(file: &Path) -> Result<(), PluginFailure> {
    let begin = Instant::now();
    let command = PluginCommand { program: env!("CARGO_BIN_EXE_assay-plugin-host").into(), arguments: Vec::new() };
    let mut process = PluginProcess::start(&command, "measured", file, PluginLimits::default())?;
    let start = begin.elapsed().as_secs_f64();
    let is_dataset = process.about().interfaces.iter().any(|name| name == "dataset");
    if is_dataset {
        process.open_dataset(0, "{}")?;
    } else {
        process.open_metric(0, "{}")?;
    }
    let call = |process: &mut PluginProcess, count: u32| match is_dataset {
        true => process.batch(0, 1, PluginSplit::Train, 0, count).map(|made| made.tokens.len()),
        false => {
            let targets = vec![1; count as usize];
            let scores: Vec<f32> = (0..count * CLASSES).map(|at| (at % 17) as f32 / 4.0).collect();
            process.add(0, (&[], &[0]), &targets, &scores, CLASSES).map(|()| 0)
        }
    };
    let one = median_seconds(200, || call(&mut process, 1).map(drop))?;
    let many = median_seconds(10, || call(&mut process, MANY).map(drop))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let fuel = process.fuel() / u64::from(MANY);
    let (start, one, many) = (start * 1e3, one * 1e6, many * 1e6 / f64::from(MANY));
    println!("{name:<24} {start:>7.0} ms {one:>13.1} us {many:>19.3} us {fuel:>18}");
    Ok(())
}

/// The median time of `count` calls, in seconds.
fn median_seconds(count: usize, mut call: impl FnMut() -> Result<(), PluginFailure>) -> Result<f64, PluginFailure> {
    let mut seconds = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        call()?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[count / 2])
}
