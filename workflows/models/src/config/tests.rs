//! Accepted and refused configs, and defaults.

use super::*;
use serde_json::{Value, json};

fn read(value: Value) -> Result<ModelConfig, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn keys_at_fault(value: Value) -> Vec<&'static str> {
    read(value).unwrap().validate().iter().map(|finding| finding.key).collect()
}

#[test]
fn a_short_config_takes_the_documented_defaults() {
    let config = read(json!({"family": "ten", "dim": 8, "layers": 2, "states": 4})).unwrap();
    let ModelConfig::Ten(ten) = &config else { panic!("family ten") };
    assert_eq!((ten.chunk, ten.truncate, ten.cells, ten.ffn_multiplier), (64, true, 1, 4));
    assert_eq!((ten.init, ten.input, ten.readout), (TenInit::Ring, Field::Real, Field::Complex));
    assert!(config.validate().is_empty());
}

#[test]
fn a_config_survives_json() {
    for value in [
        json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "ffn": "swiglu", "max_phase": 0.1}),
        json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2, "positions": "rope"}),
    ] {
        let config = read(value).unwrap();
        assert_eq!(read(serde_json::to_value(&config).unwrap()).unwrap(), config);
    }
}

#[test]
fn unknown_keys_and_options_that_do_not_exist_yet_are_refused() {
    for (value, part) in [
        (json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "sates": 4}), "sates"),
        (json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "drop_out": 0.1}), "drop_out"),
        (json!({"family": "ten", "dim": 8, "layers": 2, "states": 4, "resonances": "off"}), "resonances"),
        (json!({"family": "transformer", "dim": 8, "layers": 2, "attention": "ring"}), "ring"),
        (json!({"family": "pulse", "dim": 8, "layers": 2, "states": 4, "mixing": "some"}), "some"),
        (json!({"family": "pulsar", "dim": 8}), "pulsar"),
        (json!({"dim": 8}), "family"),
    ] {
        let error = read(value).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_no_single_key_can_say_is_found() {
    assert_eq!(keys_at_fault(json!({"family": "transformer", "dim": 10, "layers": 1, "heads": 4})), ["heads"]);
    assert_eq!(keys_at_fault(json!({"family": "transformer", "dim": 10, "layers": 1, "heads": 0})), ["heads"]);
    let odd = json!({"family": "transformer", "dim": 6, "layers": 1, "heads": 2, "positions": "rope"});
    assert_eq!(keys_at_fault(odd), ["positions"]);
    let ten = json!({
        "family": "ten", "dim": 5, "layers": 0, "states": 9000, "max_phase": 7.0, "positions": "sinusoidal",
    });
    assert_eq!(keys_at_fault(ten), ["layers", "states", "max_phase", "positions"]);
    for (key, change) in [
        ("dropout", json!({"dropout": 1.0})),
        ("resonance", json!({"resonance": "recurrent", "selective": true})),
        ("resonance_strength", json!({"resonance_strength": -1.0})),
        ("scales", json!({"scales": []})),
        ("scales", json!({"scales": [2, 4]})),
        ("scales", json!({"scales": [1, 4, 2]})),
        ("scales", json!({"scales": [1, 100_000]})),
    ] {
        let mut ten = json!({"family": "ten", "dim": 1, "layers": 1, "states": 1});
        ten.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(keys_at_fault(ten), [key]);
    }
}

#[test]
fn the_schema_names_every_key_with_a_description() {
    let schema = schemars::schema_for!(ModelConfig).to_value();
    let text = serde_json::to_string_pretty(&schema).unwrap();
    for key in ["dim", "states", "chunk", "heads", "max_phase", "top_k", "sparsity", "memory"] {
        assert!(text.contains(&format!("\"{key}\"")), "{key} is missing from {text}");
    }
}
