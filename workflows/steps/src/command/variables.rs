//! The environment variables of a program, which its arguments may also use.

use std::path::Path;

use crate::context::Context;

use super::folders::Folders;

/// The names, in the order of the documentation.
pub(super) const VARIABLES: [&str; 9] = [
    "ASSAY_INPUTS",
    "ASSAY_OUTPUTS",
    "ASSAY_METRICS",
    "ASSAY_RESUME",
    "ASSAY_PARAMS",
    "ASSAY_SEED",
    "ASSAY_REPLICATE",
    "ASSAY_THREADS",
    "ASSAY_DEVICE",
];

/// Variables in which numerical libraries look for their number of threads.
const THREAD_VARIABLES: [&str; 4] =
    ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];

/// Each variable with its value, in the order of [`VARIABLES`].
pub(super) fn values(folders: &Folders, context: &dyn Context) -> Vec<(&'static str, String)> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let replicate = context.replicate();
    let values = [
        text(&folders.inputs),
        text(&folders.outputs),
        text(&folders.metrics),
        text(&folders.resume),
        text(&folders.params),
        seed(replicate).to_string(),
        replicate.to_string(),
        context.threads().to_string(),
        context.device().name(),
    ];
    VARIABLES.into_iter().zip(values).collect()
}

/// A seed below 2^31, which every program can read. Replicates have different seeds, and a replicate has the same seed in
/// each attempt.
fn seed(replicate: u32) -> u32 {
    let hash = blake3::hash(format!("assay replicate {replicate}").as_bytes());
    let bytes = hash.as_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) >> 1
}

/// Variables that restrict the program's libraries to the attempt's threads and device. `own` returns variables of this
/// process: the user's choice of threads is kept, and the device is selected among the visible ones.
pub(super) fn limits(threads: usize, backend: &str, own: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut limits: Vec<(String, String)> = Vec::new();
    for name in THREAD_VARIABLES.iter().filter(|name| own(name).is_none()) {
        limits.push(((*name).to_owned(), threads.to_string()));
    }
    let visible = match backend {
        "cuda" => "CUDA_VISIBLE_DEVICES",
        "rocm" => "HIP_VISIBLE_DEVICES",
        _ => return limits,
    };
    let index: usize = own("ASSAY_DEVICE").and_then(|index| index.trim().parse().ok()).unwrap_or(0);
    let all = own(visible).filter(|all| !all.is_empty());
    let device = match &all {
        Some(all) => all.split(',').nth(index).map_or_else(|| index.to_string(), |device| device.trim().to_owned()),
        None => index.to_string(),
    };
    limits.push((visible.to_owned(), device));
    limits
}

/// The text with `$NAME` and `${NAME}` of the given variables replaced by their values. Other dollar signs are kept.
pub(super) fn expand(text: &str, values: &[(&'static str, String)]) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, name, after)) = next_name(rest) {
        let value = values.iter().find(|(known, _)| *known == name);
        expanded.push_str(before);
        match value {
            Some((_, value)) => expanded.push_str(value),
            None => expanded.push_str(&rest[before.len()..rest.len() - after.len()]),
        }
        rest = after;
    }
    expanded + rest
}

/// The `$ASSAY_` names in a text that do not exist.
pub(super) fn unknown_names(text: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut rest = text;
    while let Some((_, name, after)) = next_name(rest) {
        if name.starts_with("ASSAY_") && !VARIABLES.contains(&name) {
            unknown.push(name.to_owned());
        }
        rest = after;
    }
    unknown
}

/// The first `$NAME` or `${NAME}`: the text before it, the name, the text after it.
fn next_name(text: &str) -> Option<(&str, &str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(offset) = text[from..].find('$') {
        let start = from + offset;
        let behind = &text[start + 1..];
        let braced = behind.strip_prefix('{');
        let name = braced.unwrap_or(behind);
        let end = name.find(|c| !is_part(c)).unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        let after = if braced.is_some() { after.strip_prefix('}') } else { Some(after) };
        match after {
            Some(after) if !name.is_empty() => return Some((&text[..start], name, after)),
            _ => from = start + 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_variables_are_replaced_and_others_stay() {
        let values = [("ASSAY_OUTPUTS", "/o".to_owned()), ("ASSAY_SEED", "7".to_owned())];
        let check = |text: &str, expected: &str| assert_eq!(expand(text, &values), expected, "{text}");
        check("$ASSAY_OUTPUTS/model", "/o/model");
        check("--seed=${ASSAY_SEED}0", "--seed=70");
        check("$ASSAY_SEED$ASSAY_SEED", "77");
        check("$HOME $ $$ ${ASSAY_SEED ${} $1 ß$ASSAY_SEEDS", "$HOME $ $$ ${ASSAY_SEED ${} $1 ß$ASSAY_SEEDS");
        assert_eq!(unknown_names("$ASSAY_SEEDS ${ASSAY_OUTPUTS} $HOME ${ASSAY_X}"), ["ASSAY_SEEDS", "ASSAY_X"]);
    }

    #[test]
    fn replicates_have_different_seeds_below_two_to_the_31() {
        let seeds: std::collections::BTreeSet<u32> = (1..=1000).map(seed).collect();
        assert_eq!(seeds.len(), 1000);
        assert!(seeds.iter().all(|&seed| seed < 1 << 31));
    }

    #[test]
    fn a_program_sees_its_threads_and_its_device_alone() {
        let own = |name: &str| match name {
            "MKL_NUM_THREADS" => Some("1".to_owned()),
            "CUDA_VISIBLE_DEVICES" => Some("3, 5".to_owned()),
            "ASSAY_DEVICE" => Some("1".to_owned()),
            _ => None,
        };
        let found = limits(4, "cuda", own);
        let value = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("OMP_NUM_THREADS"), Some("4"));
        assert_eq!(value("MKL_NUM_THREADS"), None, "the user's choice is inherited");
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some("5"));
        assert_eq!(limits(4, "rocm", |_| None).last().unwrap(), &("HIP_VISIBLE_DEVICES".to_owned(), "0".to_owned()));
        assert!(limits(4, "cpu", own).iter().all(|(name, _)| !name.contains("VISIBLE")));
    }
}
