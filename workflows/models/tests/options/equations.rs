//! The equations at the top of each family's file, evaluated by plain loops over named parameters: the models must
//! compute the same.

use assay_models::{Carry, Model, SequenceModel, Weight};
use assay_tensor::Tensor;
use serde_json::{Value, json};

use crate::common::{classify, distance, exact, ids};

/// Vectors over time.
pub type Sequence = Vec<Vec<f64>>;

/// A model's parameters, accessed by name.
pub struct Named<'a>(pub &'a Model);

impl Named<'_> {
    pub fn get(&self, name: &str) -> Vec<f64> {
        let parameter = self.0.parameters().get(name).unwrap_or_else(|| panic!("no parameter {name}"));
        let Weight::Dense(tensor) = &parameter.value else { panic!("{name} is int8") };
        tensor.to_f64_vec().unwrap()
    }

    pub fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.get(&format!("{name}.weight"));
        let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        weight.chunks(x.len()).map(dot).collect()
    }

    pub fn biased(&self, name: &str, x: &[f64]) -> Vec<f64> {
        add(&self.linear(name, x), &self.get(&format!("{name}.bias")))
    }

    pub fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let (gain, bias) = (self.get(&format!("{name}.gain")), self.get(&format!("{name}.bias")));
        (0..x.len()).map(|i| (x[i] - mean) / (variance + 1e-5).sqrt() * gain[i] + bias[i]).collect()
    }

    fn ffn(&self, path: &str, x: &[f64]) -> Vec<f64> {
        let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
        let hidden: Vec<f64> = self.biased(&format!("{path}.ffn.up"), x).into_iter().map(gelu).collect();
        self.biased(&format!("{path}.ffn.down"), &hidden)
    }

    pub fn embedded(&self, ids: &[u32], dim: usize) -> Sequence {
        let table = self.get("embedding.table");
        ids.iter().map(|id| table[*id as usize * dim..][..dim].to_vec()).collect()
    }
}

pub fn add(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(l, r)| l + r).collect()
}

pub fn hidden(model: &Model, ids: &[u32]) -> Vec<f64> {
    let tokens = Tensor::from_u32(model.device(), ids.to_vec(), [1, ids.len()]).unwrap();
    let (hidden, _) = model.network().forward(&tokens, &Carry::default()).unwrap();
    hidden.to_f64_vec().unwrap()
}

/// One pre-norm block, named `path`, with a mixer over the whole sequence.
pub fn block(named: &Named, path: &str, mut x: Sequence, mix: impl FnOnce(&Sequence) -> Sequence) -> Sequence {
    let normed = x.iter().map(|x| named.norm(&format!("{path}.norm1"), x)).collect();
    for (x, mixed) in x.iter_mut().zip(mix(&normed)) {
        *x = add(x, &mixed);
        *x = add(x, &named.ffn(path, &named.norm(&format!("{path}.norm2"), x)));
    }
    x
}

/// The final norm.
pub fn finish(named: &Named, x: Sequence) -> Vec<f64> {
    x.iter().flat_map(|x| named.norm("norm", x)).collect()
}

/// A complex number.
type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// R = I + eps M / |M|, applied to a complex vector.
fn resonate(named: &Named, path: &str, strength: f64, c: &[Complex]) -> Vec<Complex> {
    let (m, k) = (named.get(&format!("{path}.resonance")), c.len());
    let norm = m.iter().map(|m| m * m).sum::<f64>().sqrt();
    let row = |i: usize| {
        let sum = |part: fn(&Complex) -> f64| (0..k).map(|j| m[i * k + j] / norm * part(&c[j])).sum::<f64>();
        (c[i].0 + strength * sum(|c| c.0), c[i].1 + strength * sum(|c| c.1))
    };
    (0..k).map(row).collect()
}

/// a_t of a cell for the input `x`, which only a selective cell uses.
fn eigenvalues(named: &Named, path: &str, config: &Value, x: &[f64]) -> Vec<Complex> {
    let at = |name: &str| named.get(&format!("{path}.{name}"));
    let (sigmoid, phase) = (|x: f64| 1.0 / (1.0 + (-x).exp()), at("phase"));
    let polar = |(m, w): (f64, f64)| (m * w.cos(), m * w.sin());
    let k = phase.len();
    if config["selective"] == true {
        let (alpha, moved) = (at("alpha"), named.linear(&format!("{path}.select"), x));
        let by = |i: usize| 0.1 * moved[i].tanh();
        return (0..k).map(|i| polar((sigmoid(alpha[i] + by(i)), phase[i] + by(k + i)))).collect();
    }
    let magnitude: Vec<f64> = match config["init"] == "seed" {
        false => at("nu").iter().map(|nu| (-nu.exp()).exp()).collect(),
        true => at("alpha").iter().map(|alpha| 0.1 + 0.89 * sigmoid(*alpha)).collect(),
    };
    magnitude.into_iter().zip(phase).map(polar).collect()
}

/// The recurrence of one cell.
fn cell(named: &Named, path: &str, config: &Value, x: &Sequence) -> Sequence {
    let at = |name: &str| named.get(&format!("{path}.{name}"));
    let states = at("phase").len();
    let gamma = match config["init"] == "seed" {
        false => at("log_gamma").iter().map(|g| g.exp()).collect(),
        true => vec![1.0; states],
    };
    let strength = config["resonance_strength"].as_f64().unwrap_or(0.1);
    let resonates = |place: &str| config["resonance"] == place;
    let mut c = vec![(0.0, 0.0); states];
    let mut y = Vec::new();
    for (t, x) in x.iter().enumerate() {
        if resonates("chunk_carry") && t > 0 && (t as u64).is_multiple_of(config["chunk"].as_u64().unwrap()) {
            c = resonate(named, path, strength, &c);
        }
        c = c.into_iter().zip(eigenvalues(named, path, config, x)).map(|(c, a)| times(a, c)).collect();
        if resonates("recurrent") {
            c = resonate(named, path, strength, &c);
        }
        let projected = named.linear(&format!("{path}.in"), x);
        for k in 0..states {
            let imaginary = if config["input"] == "complex" { projected[states + k] } else { 0.0 };
            c[k] = (c[k].0 + gamma[k] * projected[k], c[k].1 + gamma[k] * imaginary);
        }
        let seen = if resonates("readout") { resonate(named, path, strength, &c) } else { c.clone() };
        let mut read: Vec<f64> = seen.iter().map(|c| c.0).collect();
        if config["readout"] != "real" {
            read.extend(seen.iter().map(|c| c.1));
        }
        let skipped: Vec<f64> = x.iter().zip(at("skip")).map(|(x, d)| x * d).collect();
        y.push(add(&named.linear(&format!("{path}.out"), &read), &skipped));
    }
    y
}

/// The mean of the cells below `path`.
fn cells(named: &Named, path: &str, config: &Value, x: &Sequence) -> Sequence {
    let count = config["cells"].as_u64().unwrap_or(1);
    let all: Vec<Sequence> = (0..count).map(|i| cell(named, &format!("{path}.cell.{i}"), config, x)).collect();
    let mean = |t: usize, d: usize| all.iter().map(|y| y[t][d]).sum::<f64>() / count as f64;
    (0..x.len()).map(|t| (0..x[0].len()).map(|d| mean(t, d)).collect()).collect()
}

#[test]
fn a_ten_computes_its_equations() {
    let mut changes = Vec::new();
    for init in ["ring", "seed"] {
        for (input, readout) in [("real", "real"), ("real", "complex"), ("complex", "real"), ("complex", "complex")] {
            changes.push(json!({"init": init, "input": input, "readout": readout}));
        }
        changes.push(json!({"init": init, "selective": true, "cells": 2}));
    }
    changes.push(json!({"resonance": "chunk_carry", "selective": true}));
    for place in ["readout", "recurrent", "chunk_carry"] {
        changes.push(json!({"resonance": place, "input": "complex"}));
        changes.push(json!({"resonance": place, "resonance_strength": 0.7, "cells": 3}));
    }
    for change in changes {
        let mut config = json!({"family": "ten", "dim": 6, "layers": 1, "states": 5, "chunk": 3});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let model = exact(&serde_json::from_value(config.clone()).unwrap(), &classify());
        let (named, ids) = (Named(&model), ids(8));
        let x = named.embedded(&ids, 6);
        let expected = finish(&named, block(&named, "blocks.0", x, |x| cells(&named, "blocks.0", &config, x)));
        let difference = distance(&hidden(&model, &ids), &expected);
        assert!(difference < 1e-10, "{difference}: {config}");
    }
}

/// At scale s: the block's output for complete windows, held until the next one is complete.
#[test]
fn a_ten_with_scales_computes_its_equations() {
    let scales = [1, 2, 3, 5];
    let config = json!({"family": "ten", "dim": 6, "layers": 1, "states": 5, "chunk": 4, "scales": scales});
    let model = exact(&serde_json::from_value(config.clone()).unwrap(), &classify());
    let weights = [0.3, -0.2, 0.5, 0.1];
    let parameters = model.parameters().map(|name, value| match name {
        "blocks.0.scale_weights" => Ok(Tensor::from_f64(value.device(), weights.to_vec(), [4])?),
        _ => Ok(value.clone()),
    });
    let model = model.with_parameters(&parameters.unwrap()).unwrap();
    let (named, ids) = (Named(&model), ids(13));
    let x = named.embedded(&ids, 6);
    let total: f64 = weights.iter().map(|w: &f64| w.exp()).sum();
    let mut y = vec![vec![0.0; 6]; x.len()];
    for (s, weight) in scales.into_iter().zip(weights) {
        let mean = |window: &[Vec<f64>]| (0..6).map(|d| window.iter().map(|x| x[d]).sum::<f64>() / s as f64).collect();
        let windows: Sequence = x.chunks_exact(s).map(mean).collect();
        let path = format!("blocks.0.scale.{s}");
        let seen = block(&named, &path, windows, |x| cells(&named, &path, &config, x));
        for (t, y) in y.iter_mut().enumerate() {
            if let Some(last) = ((t + 1) / s).checked_sub(1) {
                y.iter_mut().zip(&seen[last]).for_each(|(y, seen)| *y += weight.exp() / total * seen);
            }
        }
    }
    assert!(distance(&hidden(&model, &ids), &finish(&named, y)) < 1e-10);
}

/// Causal attention with `heads` heads; with rope, pairs of channels are rotated as complex numbers.
fn attention(named: &Named, x: &Sequence, heads: usize, rope: bool) -> Sequence {
    let dim = x[0].len();
    let width = dim / heads;
    let qkv: Sequence = x.iter().map(|x| named.biased("blocks.0.attention.qkv", x)).collect();
    let head = |t: usize, part: usize, head: usize| -> Vec<f64> {
        let mut vector = qkv[t][part * dim + head * width..][..width].to_vec();
        if rope && part < 2 {
            for i in 0..width / 2 {
                let angle = t as f64 / 10_000_f64.powf(2.0 * i as f64 / width as f64);
                let (a, b) = (vector[i], vector[i + width / 2]);
                vector[i] = a * angle.cos() - b * angle.sin();
                vector[i + width / 2] = a * angle.sin() + b * angle.cos();
            }
        }
        vector
    };
    let mixed = |t: usize| -> Vec<f64> {
        let of = |h: usize| {
            let query = head(t, 0, h);
            let score = |s: usize| query.iter().zip(head(s, 1, h)).map(|(q, k)| q * k).sum::<f64>();
            let weights: Vec<f64> = (0..=t).map(|s| (score(s) / (width as f64).sqrt()).exp()).collect();
            let total: f64 = weights.iter().sum();
            let value = |i: usize| (0..=t).map(|s| weights[s] / total * head(s, 2, h)[i]).sum();
            (0..width).map(value).collect::<Vec<f64>>()
        };
        (0..heads).flat_map(of).collect()
    };
    (0..x.len()).map(|t| named.biased("blocks.0.attention.out", &mixed(t))).collect()
}

#[test]
fn a_transformer_computes_its_equations() {
    for positions in ["learned", "rope"] {
        for kind in ["full", "flash"] {
            let config = json!({
                "family": "transformer", "dim": 8, "layers": 1, "heads": 2,
                "positions": positions, "attention": kind,
            });
            let model = exact(&serde_json::from_value(config.clone()).unwrap(), &classify());
            let (named, ids) = (Named(&model), ids(8));
            let mut x = named.embedded(&ids, 8);
            if positions == "learned" {
                let table = named.get("positions.table");
                x = x.iter().zip(table.chunks(8)).map(|(x, position)| add(x, position)).collect();
            }
            let mixed = block(&named, "blocks.0", x, |x| attention(&named, x, 2, positions == "rope"));
            let expected = finish(&named, mixed);
            let difference = distance(&hidden(&model, &ids), &expected);
            assert!(difference < 1e-10, "{difference}: {config}");
        }
    }
}

#[test]
fn eigenvalues_begin_where_the_family_says() {
    let config = |init: &str| {
        let config = json!({"family": "ten", "dim": 4, "layers": 1, "states": 64, "init": init, "max_phase": 0.5});
        exact(&serde_json::from_value(config).unwrap(), &classify())
    };
    let (ring, seed) = (config("ring"), config("seed"));
    let at = |model: &Model, name: &str| Named(model).get(&format!("blocks.0.cell.0.{name}"));
    let magnitudes: Vec<f64> = at(&ring, "nu").iter().map(|nu| (-nu.exp()).exp()).collect();
    assert!(magnitudes.iter().all(|m| (0.9..0.999).contains(m)), "{magnitudes:?}");
    let mean_area = magnitudes.iter().map(|m| m * m).sum::<f64>() / 64.0;
    assert!((mean_area - (0.81 + 0.998_001) / 2.0).abs() < 0.03, "uniform in area: {mean_area}");
    assert!(at(&ring, "phase").iter().all(|w| (0.0..0.5).contains(w)));
    for (m, gamma) in magnitudes.iter().zip(at(&ring, "log_gamma")) {
        assert!((gamma.exp() - (1.0 - m * m).sqrt()).abs() < 1e-9);
    }
    assert!(at(&seed, "alpha").iter().all(|alpha| (-3.0..0.0).contains(alpha)));
    let step = std::f64::consts::TAU / 64.0;
    assert!(at(&seed, "phase").iter().enumerate().all(|(k, w)| (w - step * k as f64).abs() < 1e-12));
}

#[test]
fn each_parameter_is_drawn_from_a_stream_of_its_own() {
    let config = json!({"family": "ten", "dim": 4, "layers": 2, "states": 4});
    let model = exact(&serde_json::from_value(config.clone()).unwrap(), &classify());
    let named = Named(&model);
    assert_ne!(named.get("blocks.0.cell.0.in.weight"), named.get("blocks.1.cell.0.in.weight"));
    let mut deeper = config;
    deeper["layers"] = json!(3);
    let deeper = exact(&serde_json::from_value(deeper).unwrap(), &classify());
    assert_eq!(named.get("blocks.1.cell.0.in.weight"), Named(&deeper).get("blocks.1.cell.0.in.weight"));
}
