//! Builds components: from C with clang and its linker, from Python with componentize-py, from JavaScript with componentize-qjs.
//!
//! A plugin is a folder with `plugin.c`, `app.py` or `app.js`; its component is the file NAME.wasm in it, where NAME is that of the folder.
//! A component contains the hash of its sources in a custom section, so that an outdated component is detected. Sources are all files
//! of the folder in the same language.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::encode::encode_component;
use crate::interface::{C_HEADER, PluginWorld, WIT};
use crate::template::PluginLanguage;

/// The name of the custom section with the hash of the sources, in hexadecimal.
pub const SOURCES_SECTION: &str = "assay:sources";

/// Versions of clang and lld whose programs have version numbers in their names on Debian and Ubuntu.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=30;

/// Why a plugin cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    /// What happened.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl BuildError {
    fn new(message: impl Into<String>, hint: Option<&str>) -> Self {
        BuildError { message: message.into(), hint: hint.map(str::to_owned) }
    }
}

/// The world that a C source selects with `#define ASSAY_DATASET` or the name of another world.
#[must_use]
pub fn find_world(source: &str) -> Option<PluginWorld> {
    let defines = |world: &PluginWorld| {
        let wanted = format!("ASSAY_{}", world.interface().to_uppercase());
        source.lines().any(|line| line.strip_prefix("#define ").is_some_and(|rest| rest.trim() == wanted))
    };
    PluginWorld::ALL.into_iter().find(defines)
}

/// The world of a Python source: it has a `class Dataset(..)` or a class for another world.
#[must_use]
pub fn find_python_world(source: &str) -> Option<PluginWorld> {
    let class = |world: &PluginWorld| {
        let (first, rest) = world.interface().split_at(1);
        let wanted = format!("class {}{rest}(", first.to_uppercase());
        source.lines().any(|line| line.starts_with(&wanted))
    };
    PluginWorld::ALL.into_iter().find(class)
}

/// The world of a source in JavaScript: it has an `export const dataset` or an export for another world.
#[must_use]
pub fn find_javascript_world(source: &str) -> Option<PluginWorld> {
    let export = |world: &PluginWorld| {
        let wanted = format!("export const {} ", world.interface());
        source.lines().any(|line| line.starts_with(&wanted))
    };
    PluginWorld::ALL.into_iter().find(export)
}

/// A language, its main source and the extensions of all its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SourceKind {
    language: PluginLanguage,
    main: &'static str,
    extensions: &'static [&'static str],
}

const SOURCE_KINDS: [SourceKind; 3] = [
    SourceKind { language: PluginLanguage::C, main: "plugin.c", extensions: &["c", "h"] },
    SourceKind { language: PluginLanguage::Python, main: "app.py", extensions: &["py"] },
    SourceKind { language: PluginLanguage::JavaScript, main: "app.js", extensions: &["js", "mjs"] },
];

impl SourceKind {
    /// The main source, then all other sources in the folder, ordered by name. The header of Assay does not count.
    fn read_sources(&self, folder: &Path) -> Result<Vec<Vec<u8>>, BuildError> {
        let main = folder.join(self.main);
        let is_source = |path: &PathBuf| {
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            self.extensions.contains(&extension)
                && path.file_name().is_some_and(|name| name != self.main && name != "assay_plugin.h")
                && path.is_file()
        };
        let entries = std::fs::read_dir(folder).map_err(|error| unusable(folder, &error))?;
        let mut others: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_source).collect();
        others.sort();
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| unusable(path, &error));
        std::iter::once(&main).chain(&others).map(read).collect()
    }
}

/// BLAKE3 of sources together with the header and the interface, in hexadecimal.
#[must_use]
pub fn hash_sources(sources: &[impl AsRef<[u8]>]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in sources.iter().map(AsRef::as_ref).chain([C_HEADER.as_bytes(), WIT.as_bytes()]) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex().to_string()
}

/// The hash of the sources that [`build_plugin`] stored in a component.
#[must_use]
pub fn read_sources_hash(component: &[u8]) -> Option<&str> {
    // The section is the last one, and has a fixed length.
    let hash = component.get(component.len().checked_sub(64)?..)?;
    let name = component.get(..component.len() - 64)?;
    name.ends_with(SOURCES_SECTION.as_bytes()).then(|| std::str::from_utf8(hash).ok()).flatten()
}

/// The result of [`build_plugin`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The path of the component.
    pub file: PathBuf,
    /// Whether it already existed and was built from the same sources.
    pub is_unchanged: bool,
}

/// Builds the plugin in a folder, unless its component was built from the same sources.
///
/// # Errors
/// If there is no source, if a tool is missing or fails, or if a function of the world is missing.
pub fn build_plugin(folder: &Path) -> Result<Built, BuildError> {
    let whole = folder.canonicalize().map_err(|error| unusable(folder, &error))?;
    let name = whole.file_name().map_or_else(|| "plugin".into(), |name| name.to_string_lossy().into_owned());
    let file = folder.join(format!("{name}.wasm"));
    let Some(kind) = SOURCE_KINDS.into_iter().find(|kind| folder.join(kind.main).is_file()) else {
        let message = format!("`{}` has no `plugin.c`, `app.py` or `app.js`", folder.display());
        return Err(BuildError::new(message, Some("`assay plugin new NAME` creates a plugin")));
    };
    let sources = kind.read_sources(folder)?;
    let hash = hash_sources(&sources);
    if std::fs::read(&file).is_ok_and(|built| read_sources_hash(&built) == Some(hash.as_str())) {
        return Ok(Built { file, is_unchanged: true });
    }
    let text = String::from_utf8_lossy(&sources[0]);
    let mut component = match kind.language {
        PluginLanguage::C => build_c_plugin(&whole.join(kind.main))?,
        PluginLanguage::Python => build_python_plugin(&whole, &text)?,
        PluginLanguage::JavaScript => build_javascript_plugin(&whole, &text)?,
    };
    append_section(&mut component, SOURCES_SECTION, hash.as_bytes());
    std::fs::write(&file, component).map_err(|error| unusable(&file, &error))?;
    Ok(Built { file, is_unchanged: false })
}

fn unusable(path: &Path, error: &std::io::Error) -> BuildError {
    BuildError::new(format!("cannot use `{}`: {error}", path.display()), None)
}

/// Runs componentize-py in a folder with `app.py`.
fn build_python_plugin(folder: &Path, text: &str) -> Result<Vec<u8>, BuildError> {
    let world = find_python_world(text).ok_or_else(|| {
        let hint = "define `class Dataset(exports.Dataset)`, or `Metric`, `Curriculum`, `Step` or `Searcher`";
        BuildError::new("`app.py` does not define an interface", Some(hint))
    })?;
    let program = find_program("componentize-py").ok_or_else(|| {
        let install = "install it: `pip install componentize-py==0.25.1`";
        BuildError::new("`componentize-py` was not found on PATH", Some(install))
    })?;
    let scratch = Scratch::make(folder)?;
    let (wit, module) = (scratch.write_interface()?, scratch.0.join("plugin.wasm"));
    let mut command = Command::new(&program);
    command.current_dir(folder).arg("-d").arg(&wit).arg("-w").arg(world.name());
    command.args(["componentize", "--stub-wasi", "app", "-o"]).arg(&module);
    run_tool(&mut command, &module)
}

/// Runs componentize-qjs in a folder with `app.js`: the one on PATH, or the one that npm installed in the folder or above it.
fn build_javascript_plugin(folder: &Path, text: &str) -> Result<Vec<u8>, BuildError> {
    const TOOL: &str = "componentize-qjs";
    let world = find_javascript_world(text).ok_or_else(|| {
        let hint = "write `export const dataset = {..}`, or `metric`, `curriculum`, `step` or `searcher`";
        BuildError::new("`app.js` does not define an interface", Some(hint))
    })?;
    let installed = || folder.ancestors().map(|at| at.join("node_modules/.bin").join(TOOL)).find(|file| file.is_file());
    let program = find_program(TOOL).or_else(installed).ok_or_else(|| {
        let install = "install it: `npm install componentize-qjs@0.4.5`";
        BuildError::new(format!("`{TOOL}` was not found on PATH or in `node_modules`"), Some(install))
    })?;
    let scratch = Scratch::make(folder)?;
    let (wit, module) = (scratch.write_interface()?, scratch.0.join("plugin.wasm"));
    let mut command = Command::new(&program);
    command.current_dir(folder).arg("--wit").arg(&wit).arg("--world").arg(world.name());
    command.args(["--stub-wasi", "--sync", "--js", "app.js", "--output"]).arg(&module);
    run_tool(&mut command, &module)
}

/// A folder for temporary files, which is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// The name of the folder differs between sources, so that one process can build several at the same time.
    fn make(source: &Path) -> Result<Self, BuildError> {
        let hash = blake3::hash(source.as_os_str().as_encoded_bytes()).to_hex();
        let folder = std::env::temp_dir().join(format!("assay-plugin-{}-{}", std::process::id(), &hash.as_str()[..16]));
        std::fs::create_dir_all(&folder).map_err(|error| unusable(&folder, &error))?;
        Ok(Scratch(folder))
    }

    /// Writes the interface into a new folder, and returns that folder.
    fn write_interface(&self) -> Result<PathBuf, BuildError> {
        let wit = self.0.join("wit");
        std::fs::create_dir_all(&wit).map_err(|error| unusable(&wit, &error))?;
        std::fs::write(wit.join("plugin.wit"), WIT).map_err(|error| unusable(&wit, &error))?;
        Ok(wit)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the folder stays among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a tool and reads its output file.
fn run_tool(command: &mut Command, made: &Path) -> Result<Vec<u8>, BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| BuildError::new(format!("cannot run `{program}`: {error}"), None))?;
    if output.status.success() {
        return std::fs::read(made).map_err(|error| unusable(made, &error));
    }
    let [errors, said] = [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    Err(BuildError::new(format!("`{program}` failed:\n{errors}\n{said}").trim_end().to_owned(), None))
}

/// Compiles a C file into a component.
fn build_c_plugin(source: &Path) -> Result<Vec<u8>, BuildError> {
    let text = std::fs::read(source).map_err(|error| unusable(source, &error))?;
    let world = find_world(&String::from_utf8_lossy(&text)).ok_or_else(|| {
        let message = format!("`{}` does not define an interface", source.display());
        BuildError::new(
            message,
            Some("begin it with `#define ASSAY_DATASET`, or `_METRIC`, `_CURRICULUM`, `_STEP` or `_SEARCHER`"),
        )
    })?;
    let module = compile_c(source)?;
    encode_component(&module, world)
        .map_err(|error| BuildError::new(error.to_string(), Some("define every function that assay_plugin.h declares")))
}

/// Appends a custom section, which every reader of WebAssembly ignores. Name and content have less than 100 bytes in total.
fn append_section(component: &mut Vec<u8>, name: &str, content: &[u8]) {
    let length = 1 + name.len() + content.len();
    debug_assert!(length < 128, "the length takes one byte");
    component.extend([0, length as u8, name.len() as u8]);
    component.extend(name.as_bytes());
    component.extend(content);
}

fn compile_c(source: &Path) -> Result<Vec<u8>, BuildError> {
    let install = Some("install them: `apt-get install clang lld`, `dnf install clang lld` or `brew install llvm lld`");
    let clang = find_program("clang").ok_or_else(|| BuildError::new("`clang` was not found on PATH", install))?;
    let linker = find_program("wasm-ld").ok_or_else(|| BuildError::new("`wasm-ld` was not found on PATH", install))?;
    let scratch = Scratch::make(source)?;
    let header = scratch.0.join("assay_plugin.h");
    std::fs::write(&header, C_HEADER).map_err(|error| unusable(&header, &error))?;
    let module = scratch.0.join("plugin.wasm");
    let mut command = Command::new(&clang);
    command
        .args(["--target=wasm32", "-O2", "-mbulk-memory", "-nostdlib", "-ffreestanding", "-Wall"])
        .arg(format!("-fuse-ld={}", linker.display()))
        .args(["-Wl,--no-entry", "-Wl,--strip-debug", "-Wl,--stack-first", "-Wl,-z,stack-size=65536"])
        .arg("-I")
        .arg(&scratch.0)
        .arg("-o")
        .arg(&module)
        .arg(source);
    run_tool(&mut command, &module)
}

/// A program on PATH: the one without a version in its name, otherwise the latest version.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut names = std::iter::once(name.to_owned()).chain(VERSIONS.rev().map(|version| format!("{name}-{version}")));
    let find = |name: String| std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|file| file.is_file());
    names.find_map(find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_the_sources_survives_in_the_component() {
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        assert_eq!(read_sources_hash(&component), None);
        let hash = hash_sources(&["int x;"]);
        append_section(&mut component, SOURCES_SECTION, hash.as_bytes());
        assert_eq!(read_sources_hash(&component), Some(hash.as_str()));
        assert_ne!(hash_sources(&["int y;"]), hash);
        assert_ne!(hash_sources(&["int x;", ""]), hash);
    }

    #[test]
    fn all_sources_of_the_language_count_except_the_header() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.py", "2"), ("app.py", "1"), ("a.py", "3"), ("plugin.wit", "4"), ("app.wasm", "5")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let sources = SOURCE_KINDS[1].read_sources(folder.path()).unwrap();
        assert_eq!(sources, [b"1", b"3", b"2"]);
        std::fs::write(folder.path().join("plugin.c"), "6").unwrap();
        std::fs::write(folder.path().join("assay_plugin.h"), "7").unwrap();
        assert_eq!(SOURCE_KINDS[0].read_sources(folder.path()).unwrap(), [b"6"]);
    }

    #[test]
    fn a_source_says_what_it_is_for() {
        assert_eq!(find_python_world("class Dataset(exports.Dataset):\n"), Some(PluginWorld::Dataset));
        assert_eq!(find_python_world("class Data(exports.Dataset):\n"), None);
        assert_eq!(find_javascript_world("export const step = {\n"), Some(PluginWorld::Step));
        assert_eq!(find_javascript_world("export const steps = {\n"), None);
        assert_eq!(find_world("// x\n#define ASSAY_METRIC\n"), Some(PluginWorld::Metric));
        assert_eq!(find_world("#define ASSAY_METRICS\n// #define ASSAY_METRIC\n"), None);
    }
}
