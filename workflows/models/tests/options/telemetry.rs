//! The telemetry of models.

use assay_models::{Model, ModelConfig, Weight};
use serde_json::json;

use crate::common::{classify, exact, ragged};
use crate::grid::grid;

fn ten(change: serde_json::Value) -> Model {
    let mut config = json!({"family": "ten", "dim": 4, "layers": 1, "states": 5});
    config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    exact(&serde_json::from_value::<ModelConfig>(config).unwrap(), &classify())
}

fn get(model: &Model, name: &str) -> f64 {
    let all = model.telemetry(None).unwrap();
    all.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("no {name} in {all:?}")).1
}

#[test]
fn a_ten_tells_how_long_it_remembers() {
    let model = ten(json!({}));
    let Weight::Dense(nu) = &model.parameters().get("blocks.0.cell.0.nu").unwrap().value else { panic!() };
    let mut magnitudes: Vec<f64> = nu.to_f64_vec().unwrap().iter().map(|nu| (-nu.exp()).exp()).collect();
    magnitudes.sort_by(f64::total_cmp);
    for (name, m) in ["min", "p25", "p50", "p75", "max"].into_iter().zip(&magnitudes) {
        assert!((get(&model, &format!("ten/magnitude/{name}")) - m).abs() < 1e-12);
        let half_life = 0.5_f64.ln() / m.ln();
        assert!((get(&model, &format!("ten/half_life/{name}")) / half_life - 1.0).abs() < 1e-9, "{name}");
    }
    // The published init forgets half of everything within about a token; a slow scale also counts in tokens.
    assert!(get(&ten(json!({"init": "seed"})), "ten/half_life/max") < 2.0);
    assert!(get(&ten(json!({"init": "seed", "scales": [1, 8]})), "ten/half_life/max") > 2.0);
}

#[test]
fn a_recurrent_resonance_tells_its_spectral_radius() {
    let radius = |strength: f64| {
        let model = ten(json!({"resonance": "recurrent", "resonance_strength": strength, "cells": 2}));
        assert_eq!(model.recurrent_radius().unwrap(), Some(get(&model, "ten/spectral_radius")));
        (get(&model, "ten/spectral_radius"), get(&model, "ten/magnitude/max"))
    };
    // R is the identity: the radius is the largest magnitude.
    let (none, largest) = radius(0.0);
    assert!((none - largest).abs() < 2e-3, "{none} is not {largest}");
    // |R| is at most 1 + strength.
    let (strong, largest) = radius(10.0);
    assert!(strong > 1.0 && strong < 11.0 * largest, "{strong}");
    let readout = ten(json!({"resonance": "readout"}));
    assert_eq!(readout.recurrent_radius().unwrap(), None);
    assert!(readout.telemetry(None).unwrap().iter().all(|(name, _)| name != "ten/spectral_radius"));
}

#[test]
fn every_model_tells_the_same_names_of_finite_numbers() {
    for (name, config) in grid() {
        let model = exact(&config, &classify());
        let (without, with) = (model.telemetry(None).unwrap(), model.telemetry(Some(&ragged(model.device()))).unwrap());
        assert!(without.iter().all(|one| with.iter().any(|other| one.0 == other.0)), "{name}");
        assert!(with.iter().all(|(_, value)| value.is_finite()), "{name}: {with:?}");
    }
}
