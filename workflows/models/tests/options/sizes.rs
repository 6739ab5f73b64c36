//! The parameter count computed from a config is that of the model.

use assay_models::{Model, ModelChoice, ModelConfig, Objective};
use assay_tensor::DType;
use serde_json::json;

use crate::common::{classify, cpu, predict};
use crate::grid::{few, grid, whole};

#[test]
fn a_count_is_that_of_the_model_over_the_grid_of_options() {
    let device = cpu(1);
    let mut configs = grid();
    configs.extend(few());
    configs.extend(whole());
    for (name, config) in configs {
        for task in [classify(), predict()] {
            if task.objective == Objective::Predict && !config.causal() {
                continue;
            }
            let model = Model::fresh(&device, &config, &task, 1, DType::F32).unwrap();
            assert_eq!(config.parameter_count(&task), model.parameters().count() as u64, "{name}, {task:?}");
        }
    }
}

#[test]
fn a_model_of_a_chosen_width_has_the_size_that_was_said() {
    for family in [
        json!({"family": "ten", "layers": 2, "states": 8, "parameters": 20_000}),
        json!({"family": "pulse", "layers": 2, "states": 4, "heads": 1, "mixing_heads": 1, "parameters": 22_500}),
        json!({"family": "transformer", "layers": 2, "heads": 2, "parameters": 20_000}),
    ] {
        let target = family["parameters"].as_u64().unwrap();
        let choice: ModelChoice = serde_json::from_value(family).unwrap();
        let sized = choice.resolve(&predict()).unwrap();
        let model = Model::fresh(&cpu(1), &sized.config, &predict(), 1, DType::F32).unwrap();
        assert_eq!(sized.parameters, model.parameters().count() as u64);
        assert!(20 * sized.parameters.abs_diff(target) <= target, "{sized:?}");
        // The stored config contains the width.
        let stored = serde_json::to_value(model.config()).unwrap();
        assert!(stored.get("parameters").is_none() && stored["dim"].as_u64().unwrap() > 1);
        assert_eq!(serde_json::from_value::<ModelConfig>(stored).unwrap(), sized.config);
    }
}
