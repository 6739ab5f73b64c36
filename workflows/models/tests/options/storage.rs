//! Checkpoints: a saved model is loaded, f32 and int8; equal models are equal bytes; a mismatch is refused.

use crate::common::{classify, cpu, distance, predict, ragged, with};
use crate::grid::{base, grid};
use assay_models::{Array, Carry, Model, ModelError, Parameter, Parameters, Role, SequenceModel, Weight, checkpoint};
use assay_tensor::{DType, Device, Tensor};
use serde_json::json;

fn fresh(device: &Device, seed: u64) -> Model {
    Model::fresh(device, &base(), &classify(), seed, DType::F32).unwrap()
}

/// Every matrix as int8, rounded to the nearest of 255 levels of its row.
fn quantized(model: &Model) -> Model {
    let mut parameters = Parameters::default();
    for (name, parameter) in model.parameters().iter() {
        let Weight::Dense(tensor) = &parameter.value else { panic!("{name} is int8 already") };
        let value = if parameter.role == Role::Linear { int8(tensor) } else { parameter.value.clone() };
        parameters.insert(name, Parameter { value, role: parameter.role });
    }
    model.with_parameters(&parameters).unwrap()
}

fn int8(weight: &Tensor) -> Weight {
    let (rows, columns) = (weight.dims()[0], weight.dims()[1]);
    let (mut q, mut scales) = (Vec::new(), Vec::new());
    for row in weight.to_f32_vec().unwrap().chunks(columns) {
        let scale = row.iter().fold(0.0_f32, |most, value| most.max(value.abs())) / 127.0;
        q.extend(row.iter().map(|value| (value / scale).round() as i8));
        scales.push(scale);
    }
    let device = weight.device();
    Weight::Int8 {
        q: Tensor::from_i8(device, q, [rows, columns]).unwrap(),
        scale: Tensor::from_f32(device, scales, [rows]).unwrap(),
    }
}

fn outputs(model: &Model) -> Vec<f64> {
    model.outputs(&ragged(model.device())).unwrap().to_f64_vec().unwrap()
}

#[test]
fn what_is_saved_is_loaded_to_the_bit() {
    let device = cpu(1);
    for (name, config) in grid() {
        for task in [classify(), predict()] {
            let model = Model::fresh(&device, &config, &task, 3, DType::F32).unwrap();
            let file = checkpoint::to_file(&model).unwrap();
            let loaded = checkpoint::from_file(&device, &file).unwrap();
            assert_eq!(outputs(&model), outputs(&loaded), "{name}");
            assert_eq!(checkpoint::to_file(&loaded).unwrap().to_bytes(), file.to_bytes(), "{name}");
            assert_eq!((loaded.config(), loaded.task()), (&config, &task));
        }
    }
}

#[test]
fn an_int8_checkpoint_loads_and_runs_near_the_f32_one() {
    let device = cpu(1);
    for (name, config) in grid() {
        let wide = with(&config, json!({"dim": 32}));
        let model = Model::fresh(&device, &wide, &classify(), 3, DType::F32).unwrap();
        let small = quantized(&model);
        let file = checkpoint::to_file(&small).unwrap();
        assert!(file.to_bytes().len() < checkpoint::to_file(&model).unwrap().to_bytes().len(), "{name}");
        let loaded = checkpoint::from_file(&device, &file).unwrap();
        assert_eq!(outputs(&small), outputs(&loaded), "{name}");
        let difference = distance(&outputs(&model), &outputs(&loaded));
        assert!(difference > 0.0 && difference < 0.1, "{difference}: {name}");
        assert_eq!(loaded.parameters().count(), model.parameters().count());
    }
}

#[test]
fn an_int8_model_gives_what_its_layers_give_one_by_one() {
    let run = |model: &Model| {
        let batch = ragged(model.device());
        let (hidden, carry) = model.network().forward(batch.tokens(), &Carry::default()).unwrap();
        let mut values = hidden.to_f64_vec().unwrap();
        carry.state.parts().for_each(|part| values.extend(part.to_f64_vec().unwrap()));
        values
    };
    let (fused, apart) = (cpu(1), assay_reference::device());
    for (name, config) in grid() {
        let model = quantized(&Model::fresh(&fused, &config, &predict(), 3, DType::F32).unwrap());
        let file = checkpoint::to_file(&model).unwrap();
        let other = checkpoint::from_file(&apart, &file).unwrap();
        // A rounding may put a value into the next of 255 levels.
        let difference = distance(&run(&model), &run(&other));
        assert!(difference < 0.02, "{difference}: {name}");
    }
}

#[test]
fn the_seed_decides_every_bit() {
    let device = cpu(1);
    let bytes = |seed| checkpoint::to_file(&fresh(&device, seed)).unwrap().to_bytes();
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn names_are_the_documented_ones() {
    let model = fresh(&cpu(1), 1);
    let names: Vec<_> = model.parameters().iter().map(|(name, _)| name.to_string()).collect();
    for name in ["embedding.table", "blocks.0.cell.0.nu", "blocks.1.ffn.down.weight", "head.bias", "norm.gain"] {
        assert!(names.contains(&name.to_string()), "{name} is not among {names:?}");
    }
    let plain = |name: &str| model.parameters().get(name).unwrap().role == Role::Plain;
    for name in ["nu", "phase", "log_gamma", "skip"] {
        assert!(plain(&format!("blocks.0.cell.0.{name}")), "{name} must not decay");
    }
    assert!(!plain("blocks.0.cell.0.in.weight") && !plain("embedding.table"));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let device = cpu(1);
    let file = checkpoint::to_file(&fresh(&device, 1)).unwrap();
    let refused = |change: &dyn Fn(&mut assay_models::ArrayFile), part: &str| {
        let mut file = file.clone();
        change(&mut file);
        let error: ModelError = checkpoint::from_file(&device, &file).err().expect(part);
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&|file| drop(file.arrays.remove("norm.gain")), "`norm.gain` is missing");
    refused(&|file| drop(file.arrays.insert("extra".into(), Array::f32(&[0.0], &[1]))), "`extra` is in the file");
    refused(&|file| drop(file.arrays.insert("norm.gain".into(), Array::f32(&[0.0], &[1]))), "has shape [1]");
    refused(&|file| drop(file.arrays.insert("norm.gain".into(), Array::u32(&[0; 4], &[4]))), "is not f32");
    refused(&|file| drop(file.arrays.insert("x.q".into(), Array::i8(&[0], &[1, 1]))), "x.scale");
    refused(&|file| drop(file.metadata.remove("assay.format")), "not a checkpoint of format 1");
    refused(&|file| drop(file.metadata.insert("assay.task".into(), "{}".into())), "`assay.task` cannot be read");
}

#[test]
fn a_table_is_never_int8() {
    let device = cpu(1);
    let model = fresh(&device, 1);
    let mut parameters = model.parameters().clone();
    let Weight::Dense(table) = &parameters.get("embedding.table").unwrap().value else { panic!("dense") };
    let value = int8(table);
    parameters.insert("embedding.table", Parameter { value, role: Role::Table });
    assert!(model.with_parameters(&parameters).err().unwrap().to_string().contains("int8"));
}
