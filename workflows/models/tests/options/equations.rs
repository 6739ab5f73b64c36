//! The equations at the head of each family's file, evaluated by plain loops over named parameters: what the models
//! compute is what they say that they compute.

use assay_models::{Carry, Model, SequenceModel, Weight};
use assay_tensor::Tensor;
use serde_json::{Value, json};

use crate::common::{classify, distance, exact, ids};

/// Vectors over time.
type Sequence = Vec<Vec<f64>>;

/// A model's parameters, to be asked for by name.
struct Named<'a>(&'a Model);

impl Named<'_> {
    fn get(&self, name: &str) -> Vec<f64> {
        let parameter = self.0.parameters().get(name).unwrap_or_else(|| panic!("no parameter {name}"));
        let Weight::Dense(tensor) = &parameter.value else { panic!("{name} is int8") };
        tensor.to_f64_vec().unwrap()
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.get(&format!("{name}.weight"));
        let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        weight.chunks(x.len()).map(dot).collect()
    }

    fn biased(&self, name: &str, x: &[f64]) -> Vec<f64> {
        add(&self.linear(name, x), &self.get(&format!("{name}.bias")))
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let (gain, bias) = (self.get(&format!("{name}.gain")), self.get(&format!("{name}.bias")));
        (0..x.len()).map(|i| (x[i] - mean) / (variance + 1e-5).sqrt() * gain[i] + bias[i]).collect()
    }

    fn ffn(&self, x: &[f64]) -> Vec<f64> {
        let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
        let hidden: Vec<f64> = self.biased("blocks.0.ffn.up", x).into_iter().map(gelu).collect();
        self.biased("blocks.0.ffn.down", &hidden)
    }

    fn embedded(&self, ids: &[u32], dim: usize) -> Sequence {
        let table = self.get("embedding.table");
        ids.iter().map(|id| table[*id as usize * dim..][..dim].to_vec()).collect()
    }
}

fn add(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(l, r)| l + r).collect()
}

fn hidden(model: &Model, ids: &[u32]) -> Vec<f64> {
    let tokens = Tensor::from_u32(model.device(), ids.to_vec(), [1, ids.len()]).unwrap();
    let (hidden, _) = model.network().forward(&tokens, &Carry::default()).unwrap();
    hidden.to_f64_vec().unwrap()
}

/// One pre-norm block around a mixer over the whole sequence, then the last norm.
fn block(named: &Named, mut x: Sequence, mix: impl FnOnce(&Sequence) -> Sequence) -> Vec<f64> {
    let normed = x.iter().map(|x| named.norm("blocks.0.norm1", x)).collect();
    for (x, mixed) in x.iter_mut().zip(mix(&normed)) {
        *x = add(x, &mixed);
        *x = add(x, &named.ffn(&named.norm("blocks.0.norm2", x)));
    }
    x.iter().flat_map(|x| named.norm("norm", x)).collect()
}

/// The recurrence of one cell, with complex numbers as pairs.
fn cell(named: &Named, config: &Value, x: &Sequence) -> Sequence {
    let at = |name: &str| named.get(&format!("blocks.0.cell.0.{name}"));
    let ring = config["init"] == "ring";
    let magnitude: Vec<f64> = match ring {
        true => at("nu").iter().map(|nu| (-nu.exp()).exp()).collect(),
        false => at("alpha").iter().map(|alpha| 0.1 + 0.89 / (1.0 + (-alpha).exp())).collect(),
    };
    let gamma = if ring { at("log_gamma").iter().map(|g| g.exp()).collect() } else { vec![1.0; magnitude.len()] };
    let (phase, states) = (at("phase"), magnitude.len());
    let mut c = vec![(0.0, 0.0); states];
    let mut y = Vec::new();
    for x in x {
        let projected = named.linear("blocks.0.cell.0.in", x);
        for k in 0..states {
            let imaginary = if config["input"] == "complex" { projected[states + k] } else { 0.0 };
            let beta = (gamma[k] * projected[k], gamma[k] * imaginary);
            let a = (magnitude[k] * phase[k].cos(), magnitude[k] * phase[k].sin());
            c[k] = (a.0 * c[k].0 - a.1 * c[k].1 + beta.0, a.0 * c[k].1 + a.1 * c[k].0 + beta.1);
        }
        let mut read: Vec<f64> = c.iter().map(|c| c.0).collect();
        if config["readout"] == "complex" {
            read.extend(c.iter().map(|c| c.1));
        }
        let skipped: Vec<f64> = x.iter().zip(at("skip")).map(|(x, d)| x * d).collect();
        y.push(add(&named.linear("blocks.0.cell.0.out", &read), &skipped));
    }
    y
}

#[test]
fn a_ten_computes_its_equations() {
    for init in ["ring", "seed"] {
        for (input, readout) in [("real", "real"), ("real", "complex"), ("complex", "real"), ("complex", "complex")] {
            let config = json!({
                "family": "ten", "dim": 6, "layers": 1, "states": 5, "chunk": 3,
                "init": init, "input": input, "readout": readout,
            });
            let model = exact(&serde_json::from_value(config.clone()).unwrap(), &classify());
            let (named, ids) = (Named(&model), ids(8));
            let expected = block(&named, named.embedded(&ids, 6), |x| cell(&named, &config, x));
            let difference = distance(&hidden(&model, &ids), &expected);
            assert!(difference < 1e-10, "{difference}: {config}");
        }
    }
}

/// Causal attention with `heads` heads; with rope, pairs of channels are turned as complex numbers.
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
            let expected = block(&named, x, |x| attention(&named, x, 2, positions == "rope"));
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
