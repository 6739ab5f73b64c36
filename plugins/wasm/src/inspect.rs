//! Reads the declarations of a component file, without running or compiling it: for checks before a workflow runs.

use assay_protocol::PluginLimits;
use wasmparser::{Parser, Payload};

use crate::component::{check_format, check_interfaces};
use crate::failure::Cause;
use crate::interface::PluginWorld;

/// A component that can be a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedComponent {
    /// The worlds that it exports.
    pub worlds: Vec<PluginWorld>,
    /// BLAKE3 of the file, in hexadecimal.
    pub hash: String,
    /// The size of the file.
    pub bytes: u64,
}

/// Why a file is not a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it {message}")]
pub struct InspectError {
    /// What is wrong, as the continuation of a sentence about the file.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl From<Cause> for InspectError {
    fn from(cause: Cause) -> Self {
        InspectError { message: cause.message, hint: cause.hint }
    }
}

/// Reads the imports and exports of a component. Its code is checked when it is loaded.
///
/// # Errors
/// [`InspectError`] if it is not a component, or was built for another interface.
pub fn inspect_component(bytes: &[u8]) -> Result<InspectedComponent, InspectError> {
    check_format(bytes, &PluginLimits::default())?;
    let (imports, exports) = read_names(bytes).map_err(|error| InspectError {
        message: format!("is damaged: {error}"),
        hint: Some("build it again with `assay plugin build`".into()),
    })?;
    let worlds = check_interfaces(&imports, &exports)?;
    Ok(InspectedComponent { worlds, hash: blake3::hash(bytes).to_hex().to_string(), bytes: bytes.len() as u64 })
}

/// The names of the imports and exports of the component itself, without those of nested components.
fn read_names(bytes: &[u8]) -> wasmparser::Result<(Vec<String>, Vec<String>)> {
    let (mut imports, mut exports, mut depth) = (Vec::new(), Vec::new(), 0_u32);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((imports, exports))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DYCK: &[u8] = include_bytes!("../shipped/dyck/dyck.wasm");

    #[test]
    fn a_shipped_plugin_is_recognised_and_a_damaged_one_is_refused() {
        let found = inspect_component(DYCK).unwrap();
        assert_eq!((found.worlds.as_slice(), found.bytes), ([PluginWorld::Dataset].as_slice(), DYCK.len() as u64));
        assert_eq!(found.hash, blake3::hash(DYCK).to_hex().to_string());
        let error = inspect_component(&DYCK[..DYCK.len() / 2]).unwrap_err();
        assert!(error.message.starts_with("is damaged: "), "{error}");
        assert_eq!(
            inspect_component(b"\0asm\x01\0\0\0").unwrap_err().to_string(),
            "it is a core module, not a component"
        );
    }

    #[test]
    fn another_version_of_the_interface_is_refused() {
        let old = |name: &str| DYCK.windows(name.len()).position(|part| part == name.as_bytes());
        let (from, to) = ("assay:plugin/dataset@0.1.0", "assay:plugin/dataset@0.9.0");
        let mut changed = DYCK.to_vec();
        while let Some(at) = changed.windows(from.len()).position(|part| part == from.as_bytes()) {
            changed[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
        assert!(old(from).is_some());
        let error = inspect_component(&changed).unwrap_err();
        assert!(error.message.contains("was built for `assay:plugin/dataset@0.9.0`; this Assay has"), "{error}");
    }
}
