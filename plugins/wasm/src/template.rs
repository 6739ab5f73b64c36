//! Templates of new plugins: the shipped plugins in C and the sources in `templates`, with a new name.

use std::path::Path;

use crate::build::BuildError;
use crate::interface::{C_HEADER, PluginWorld, WIT};

/// A language of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginLanguage {
    /// Built with clang.
    C,
    /// Built with componentize-py.
    Python,
    /// Built with componentize-qjs.
    JavaScript,
}

/// The name in a world's template, and the template's source.
fn source_of(world: PluginWorld, language: PluginLanguage) -> (&'static str, &'static str) {
    match (language, world) {
        (PluginLanguage::C, PluginWorld::Dataset) => ("dyck", include_str!("../shipped/dyck/plugin.c")),
        (PluginLanguage::C, PluginWorld::Curriculum) => ("pace", include_str!("../shipped/pace/plugin.c")),
        (PluginLanguage::C, PluginWorld::Metric) => ("calibration", include_str!("../shipped/calibration/plugin.c")),
        (PluginLanguage::C, PluginWorld::Step) => ("bytes", include_str!("../shipped/bytes/plugin.c")),
        (PluginLanguage::C, PluginWorld::Searcher) => ("climb", include_str!("../shipped/climb/plugin.c")),
        (PluginLanguage::Python, PluginWorld::Dataset) => ("parity", include_str!("../templates/dataset.py")),
        (PluginLanguage::Python, PluginWorld::Curriculum) => ("ramp", include_str!("../templates/curriculum.py")),
        (PluginLanguage::Python, PluginWorld::Metric) => ("top-k", include_str!("../templates/metric.py")),
        (PluginLanguage::Python, PluginWorld::Step) => ("words", include_str!("../templates/step.py")),
        (PluginLanguage::Python, PluginWorld::Searcher) => ("climb", include_str!("../templates/searcher.py")),
        (PluginLanguage::JavaScript, PluginWorld::Dataset) => ("parity", include_str!("../templates/dataset.js")),
        (PluginLanguage::JavaScript, PluginWorld::Curriculum) => ("ramp", include_str!("../templates/curriculum.js")),
        (PluginLanguage::JavaScript, PluginWorld::Metric) => ("top-k", include_str!("../templates/metric.js")),
        (PluginLanguage::JavaScript, PluginWorld::Step) => ("words", include_str!("../templates/step.js")),
        (PluginLanguage::JavaScript, PluginWorld::Searcher) => ("climb", include_str!("../templates/searcher.js")),
    }
}

/// Writes a complete plugin into a new folder.
///
/// # Errors
/// If the folder exists, if its name is not a valid plugin name, or if it cannot be written.
pub fn write_template(folder: &Path, world: PluginWorld, language: PluginLanguage) -> Result<(), BuildError> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || !name.chars().all(fits) {
        return Err(BuildError {
            message: format!("`{}` cannot be the name of a plugin", folder.display()),
            hint: Some("use letters, digits, `_` and `-`".into()),
        });
    }
    let failed = |error: std::io::Error| BuildError {
        message: format!("cannot make `{}`: {error}", folder.display()),
        hint: None,
    };
    std::fs::create_dir(folder).map_err(failed)?;
    let (own_name, source) = source_of(world, language);
    let source = source.replace(&format!("\"{own_name}\""), &format!("\"{name}\""));
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).map_err(failed);
    match language {
        PluginLanguage::C => {
            write("plugin.c", &source)?;
            write("assay_plugin.h", C_HEADER)
        }
        PluginLanguage::Python => write("app.py", &source),
        PluginLanguage::JavaScript => write("app.js", &source),
    }?;
    write("plugin.wit", WIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{find_javascript_world, find_python_world, find_world};

    #[test]
    fn every_template_serves_its_world_and_carries_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for world in PluginWorld::ALL {
            let c = folder.path().join(format!("c-{}", world.interface()));
            write_template(&c, world, PluginLanguage::C).unwrap();
            let source = std::fs::read_to_string(c.join("plugin.c")).unwrap();
            assert_eq!(find_world(&source), Some(world));
            assert!(source.contains(&format!("string(\"c-{}\")", world.interface())));
            let python = folder.path().join(format!("py_{}", world.interface()));
            write_template(&python, world, PluginLanguage::Python).unwrap();
            let source = std::fs::read_to_string(python.join("app.py")).unwrap();
            assert_eq!(find_python_world(&source), Some(world));
            assert!(!source.contains("format_exc("), "it reads source files, which traps in a plugin");
            assert!(source.contains(&format!("\"py_{}\"", world.interface())));
            let script = folder.path().join(format!("js-{}", world.interface()));
            write_template(&script, world, PluginLanguage::JavaScript).unwrap();
            let source = std::fs::read_to_string(script.join("app.js")).unwrap();
            assert_eq!(find_javascript_world(&source), Some(world));
            assert!(source.contains(&format!("\"js-{}\"", world.interface())));
            assert!(
                write_template(&python, world, PluginLanguage::Python).unwrap_err().message.contains("cannot make")
            );
        }
        let message =
            write_template(&folder.path().join("a b"), PluginWorld::Metric, PluginLanguage::C).unwrap_err().message;
        assert!(message.contains("cannot be the name of a plugin"), "{message}");
    }
}
