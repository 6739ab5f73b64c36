//! Converts a compiler's core module into a component.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::interface::{PluginWorld, WIT};

/// Why a core module cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the module is not a {world}: {why}")]
pub struct EncodeError {
    /// The requested world.
    pub world: String,
    /// What is wrong with the module.
    pub why: String,
}

/// Converts a core module into a component. The module exports the functions of a world under their canonical names,
/// such as `assay:plugin/dataset@0.1.0#batch`, and `cabi_realloc`.
///
/// # Errors
/// [`EncodeError`] with the function that is missing or has the wrong signature.
pub fn encode_component(module: &[u8], world: PluginWorld) -> Result<Vec<u8>, EncodeError> {
    // The errors of wit-parser and wit-component have no common type.
    let refuse = |why: String| EncodeError { world: world.name(), why };
    let mut resolve = Resolve::default();
    let package = resolve.push_source("plugin.wit", WIT).map_err(|error| refuse(format!("{error:#}")))?;
    let id = resolve.select_world(&[package], Some(&world.name())).map_err(|error| refuse(format!("{error:#}")))?;
    let mut module = module.to_vec();
    embed_component_metadata(&mut module, &resolve, id, StringEncoding::UTF8)
        .map_err(|error| refuse(format!("{error:#}")))?;
    let encoder = ComponentEncoder::default().module(&module).map_err(|error| refuse(format!("{error:#}")))?;
    encoder.validate(true).encode().map_err(|error| refuse(format!("{error:#}")))
}
