//! The plugins that a workflow file declares, checked before anything runs: each file exists and is a component of this
//! interface with the demanded hash.

use std::fs::File;
use std::io::Read;

use assay_protocol::PluginLimits;
use assay_spec::{PluginDeclaration, Problems, Workflow};
use assay_statistics::format::quantity;
use assay_wasm::{InspectedComponent, PluginWorld, inspect_component};
use serde_json::{Value, json};

/// The problems of the plugins, at the places where their files are named.
pub fn check_plugins(workflow: &Workflow) -> Problems {
    workflow.plugin_problems(|plugin| inspect(plugin).err())
}

/// Reads the file of a plugin. An error is a message and a hint.
fn inspect(plugin: &PluginDeclaration) -> Result<InspectedComponent, (String, Option<String>)> {
    let shown = plugin.file.display();
    let unreadable = |error: std::io::Error| {
        let hint = format!("build it with `assay plugin build`, or name another file; it is looked for as `{shown}`");
        (format!("cannot read its file: {error}"), Some(hint))
    };
    let mut bytes = Vec::new();
    let file = File::open(&plugin.file).map_err(unreadable)?;
    // One byte more than the limit is enough to refuse a larger file.
    file.take(PluginLimits::default().file + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let found = inspect_component(&bytes).map_err(|error| (error.to_string(), error.hint))?;
    match plugin.blake3.as_ref().filter(|demanded| **demanded != found.hash) {
        Some(demanded) => {
            let hint = "check the file, then write its hash into `blake3`".to_owned();
            Err((format!("its file has the hash {}, not {demanded}", found.hash), Some(hint)))
        }
        None => Ok(found),
    }
}

/// Each plugin with its hash and its limits, as lines for a plan.
pub fn plugin_lines(workflow: &Workflow) -> Vec<String> {
    let line = |plugin: &PluginDeclaration| {
        let found = inspect(plugin).ok()?;
        let uses: Vec<&str> = found.worlds.iter().map(|world| world.interface()).collect();
        let limits = limits_of(plugin);
        let limits_of_calls = if found.worlds == [PluginWorld::Step] {
            format!("{} units of fuel, {} s", limits.fuel_per_step, limits.step_seconds)
        } else {
            let PluginLimits { fuel_per_call, fuel_per_sample, call_seconds, .. } = limits;
            format!("{fuel_per_call} units of fuel a call and {fuel_per_sample} a sample, {call_seconds} s a call")
        };
        Some(format!(
            "plugin {}: {}, {}, BLAKE3 {}; at most {}, {limits_of_calls}",
            plugin.name,
            uses.join(" and "),
            quantity(found.bytes as f64, "B"),
            &found.hash[..12],
            quantity(limits.memory as f64, "B"),
        ))
    };
    workflow.plugins().iter().filter_map(line).collect()
}

/// Each plugin with its hash and its limits, as JSON for a plan.
pub fn plugins_json(workflow: &Workflow) -> Value {
    let one = |plugin: &PluginDeclaration| {
        let found = inspect(plugin).ok()?;
        let uses: Vec<&str> = found.worlds.iter().map(|world| world.interface()).collect();
        let limits = serde_json::to_value(limits_of(plugin)).ok()?;
        Some(json!({
            "name": plugin.name, "file": plugin.file, "uses": uses, "blake3": found.hash, "bytes": found.bytes,
            "limits": limits,
        }))
    };
    workflow.plugins().iter().filter_map(one).collect()
}

fn limits_of(plugin: &PluginDeclaration) -> PluginLimits {
    let (chosen, default) = (plugin.limits, PluginLimits::default());
    PluginLimits {
        memory: chosen.memory.unwrap_or(default.memory),
        fuel_per_call: chosen.fuel_per_call.unwrap_or(default.fuel_per_call),
        fuel_per_sample: chosen.fuel_per_sample.unwrap_or(default.fuel_per_sample),
        call_seconds: chosen.call_seconds.unwrap_or(default.call_seconds),
        fuel_per_step: chosen.fuel_per_step.unwrap_or(default.fuel_per_step),
        step_seconds: chosen.step_seconds.unwrap_or(default.step_seconds),
        ..default
    }
}
