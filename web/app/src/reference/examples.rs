//! A complete workflow file for each step kind. A test runs every one of them.

/// The example of a step kind.
pub fn example(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "prepare" => include_str!("../../../../docs/src/examples/prepare.yaml"),
        "train" => include_str!("../../../../docs/src/examples/train.yaml"),
        "evaluate" => include_str!("../../../../docs/src/examples/evaluate.yaml"),
        "quantize" => include_str!("../../../../docs/src/examples/quantize.yaml"),
        "export" => include_str!("../../../../docs/src/examples/export.yaml"),
        "benchmark" => include_str!("../../../../docs/src/examples/benchmark.yaml"),
        "throughput" => include_str!("../../../../docs/src/examples/throughput.yaml"),
        "command" => include_str!("../../../../docs/src/examples/command.yaml"),
        "plugin" => include_str!("../../../../docs/src/examples/plugin.yaml"),
        "search" => include_str!("../../../../docs/src/examples/search.yaml"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_example_that_uses_it() {
        let kinds = crate::commands::step_kinds();
        for kind in kinds {
            let text = example(kind.name).unwrap_or_else(|| panic!("`{}` lacks docs/src/examples/{0}.yaml", kind.name));
            let workflow =
                assay_spec::check(kind.name, text, kinds, &[]).unwrap_or_else(|problems| panic!("{problems}"));
            assert!(workflow.jobs.iter().any(|job| job.kind == kind.name), "the example of `{}`", kind.name);
            assert!(workflow.warnings.problems.is_empty(), "{}", workflow.warnings);
        }
    }
}
