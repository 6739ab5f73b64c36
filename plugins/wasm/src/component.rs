//! Checks that a file is a component, and that its imports and exports are those of a plugin.

use assay_protocol::{PLUGIN_INTERFACE, PluginLimit, PluginLimits};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::failure::Cause;
use crate::interface::{PACKAGE, PluginWorld};

/// A compiled plugin.
pub(crate) struct Plugin {
    pub component: Component,
    /// BLAKE3 of the file, in hexadecimal.
    pub hash: String,
    /// The worlds that it exports.
    pub worlds: Vec<PluginWorld>,
}

/// Checks and compiles the bytes of a file.
pub(crate) fn load_component(engine: &Engine, bytes: &[u8], limits: &PluginLimits) -> Result<Plugin, Cause> {
    check_format(bytes, limits)?;
    let component = Component::from_binary(engine, bytes).map_err(|error| {
        Cause::new(format!("cannot be compiled: {error:#}")).with_hint("build it again with `assay plugin build`")
    })?;
    let ty = component.component_type();
    let imports: Vec<String> = ty.imports(engine).map(|(name, _)| name.to_owned()).collect();
    let exports: Vec<String> = ty.exports(engine).map(|(name, _)| name.to_owned()).collect();
    let worlds = check_interfaces(&imports, &exports)?;
    Ok(Plugin { component, hash: blake3::hash(bytes).to_hex().to_string(), worlds })
}

/// Refuses files that are not components, before wasmtime reads them.
pub(crate) fn check_format(bytes: &[u8], limits: &PluginLimits) -> Result<(), Cause> {
    if bytes.len() as u64 > limits.file {
        let message = format!("is a file of {} bytes; the limit is {}", bytes.len(), limits.file);
        return Err(Cause::new(message).of_limit(PluginLimit::File).with_hint("strip its debug information"));
    }
    let build = "build it with `assay plugin build`";
    match bytes {
        [b'\0', b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [b'\0', b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(Cause::new("is a core module, not a component")
            .with_hint(format!("{build}, or put `wasm-tools component embed` and `component new` after the compiler"))),
        [0x7f, b'E', b'L', b'F', ..] => Err(Cause::new("is a precompiled file, which is never loaded")
            .with_hint("name the .wasm file that it was made from")),
        [b'\0', b'a', b's', b'm', ..] => Err(Cause::new("is WebAssembly of an unknown version").with_hint(build)),
        _ => Err(Cause::new("is not WebAssembly").with_hint(build)),
    }
}

/// An interface of our package, and its version: `("host", "0.1.0")`.
fn own_interface(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(PACKAGE)?.strip_prefix('/')?.split_once('@')
}

/// Whether the version is one of 0.1.x.
fn is_supported(version: &str) -> bool {
    version.strip_prefix("0.1.").is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|b| b.is_ascii_digit()))
}

fn other_version(name: &str) -> Cause {
    Cause::new(format!("was built for `{name}`; this Assay has {PLUGIN_INTERFACE}"))
        .with_hint("build it again with the interface that `assay plugin new` writes")
}

/// Checks imports and exports, and returns the worlds.
pub(crate) fn check_interfaces(imports: &[String], exports: &[String]) -> Result<Vec<PluginWorld>, Cause> {
    check_imports(imports)?;
    let worlds = find_worlds(exports)?;
    let uses_files = imports.iter().any(|name| own_interface(name).is_some_and(|(name, _)| name == "artifacts"));
    if uses_files && !worlds.contains(&PluginWorld::Step) {
        return Err(Cause::new(format!("imports `{PACKAGE}/artifacts@0.1.0`, which only a step may use"))
            .with_hint("export `step`, or build it for the world that it exports"));
    }
    Ok(worlds)
}

fn check_imports(imports: &[String]) -> Result<(), Cause> {
    for name in imports {
        match own_interface(name) {
            Some((_, version)) if !is_supported(version) => return Err(other_version(name)),
            Some(("host" | "types" | "artifacts", _)) => {}
            _ if name.starts_with("wasi:") => {
                return Err(Cause::new(format!(
                    "imports `{name}`: plugins have no clock, randomness, files or network"
                ))
                .with_hint(
                    "build it without WASI: `componentize-py componentize --stub-wasi`, `clang --target=wasm32`",
                ));
            }
            _ => {
                return Err(Cause::new(format!("imports `{name}`, which does not exist"))
                    .with_hint(format!("a plugin may import `{PACKAGE}/host@0.1.0` alone")));
            }
        }
    }
    Ok(())
}

fn find_worlds(exports: &[String]) -> Result<Vec<PluginWorld>, Cause> {
    let own: Vec<(&str, &str)> = exports.iter().filter_map(|name| own_interface(name)).collect();
    if let Some((name, version)) = own.iter().find(|(_, version)| !is_supported(version)) {
        return Err(other_version(&format!("{PACKAGE}/{name}@{version}")));
    }
    let has = |wanted: &str| own.iter().any(|(name, _)| *name == wanted);
    let worlds: Vec<PluginWorld> = PluginWorld::ALL.into_iter().filter(|world| has(world.interface())).collect();
    if worlds.is_empty() {
        let found = if exports.is_empty() { "nothing".to_owned() } else { format!("`{}`", exports.join("`, `")) };
        let known = PluginWorld::ALL.map(|world| format!("`{}`", world.interface())).join(", ");
        return Err(Cause::new(format!("exports none of {known}, but {found}"))
            .with_hint(format!("export an interface of {PLUGIN_INTERFACE}")));
    }
    if !has("plugin") {
        return Err(Cause::new(format!("does not export `{PACKAGE}/plugin@0.1.0`"))
            .with_hint("export `describe`, which says what the plugin is"));
    }
    Ok(worlds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn imports_are_ours_or_refused_by_name() {
        check_imports(&names(&["assay:plugin/host@0.1.0", "assay:plugin/types@0.1.7"])).unwrap();
        let message = |name: &str| check_imports(&names(&[name])).unwrap_err().message;
        assert_eq!(message("foo:bar/baz@1.0.0"), "imports `foo:bar/baz@1.0.0`, which does not exist");
        assert_eq!(message("assay:plugin/disk@0.1.0"), "imports `assay:plugin/disk@0.1.0`, which does not exist");
        assert!(message("wasi:random/random@0.2.0").contains("plugins have no clock, randomness, files or network"));
        for other in ["assay:plugin/host@0.2.0", "assay:plugin/host@1.1.0", "assay:plugin/types@0.1.x"] {
            let expected = format!("was built for `{other}`; this Assay has assay:plugin@0.1.0");
            assert_eq!(message(other), expected);
        }
    }

    #[test]
    fn only_steps_use_files() {
        let imports = names(&["assay:plugin/host@0.1.0", "assay:plugin/artifacts@0.1.0"]);
        let exports = |world: &str| names(&["assay:plugin/plugin@0.1.0", &format!("assay:plugin/{world}@0.1.0")]);
        assert_eq!(check_interfaces(&imports, &exports("step")).unwrap(), [PluginWorld::Step]);
        let message = check_interfaces(&imports, &exports("metric")).unwrap_err().message;
        assert_eq!(message, "imports `assay:plugin/artifacts@0.1.0`, which only a step may use");
    }

    #[test]
    fn exports_say_what_a_plugin_is_for() {
        let worlds = |list: &[&str]| find_worlds(&names(list)).map_err(|cause| cause.message);
        let plugin = "assay:plugin/plugin@0.1.0";
        assert_eq!(worlds(&[plugin, "assay:plugin/metric@0.1.0", "init"]).unwrap(), [PluginWorld::Metric]);
        assert_eq!(worlds(&["assay:plugin/metric@0.1.0"]).unwrap_err(), "does not export `assay:plugin/plugin@0.1.0`");
        assert_eq!(
            worlds(&[plugin, "run"]).unwrap_err(),
            "exports none of `dataset`, `curriculum`, `metric`, `step`, `searcher`, but `assay:plugin/plugin@0.1.0`, `run`"
        );
        assert_eq!(
            worlds(&[plugin, "assay:plugin/dataset@0.3.0"]).unwrap_err(),
            "was built for `assay:plugin/dataset@0.3.0`; this Assay has assay:plugin@0.1.0"
        );
    }
}
