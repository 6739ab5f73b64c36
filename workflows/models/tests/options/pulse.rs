//! PULSE compared with its equations, evaluated by plain loops over named parameters; the effects of its keys; and its metrics.

use assay_models::{Batch, ModelConfig};
use serde_json::{Value, json};

use crate::common::{classify, distance, exact, ids, with};
use crate::equations::{Named, Sequence, add, block, finish, hidden};
use crate::heads::{attend, rotated};

const DIM: usize = 4;
const SLOTS: usize = 3;
const WIDTH: usize = 6;
const CHUNK: usize = 3;

fn config(changes: Value) -> Value {
    let mut config = json!({
        "family": "pulse", "dim": DIM, "layers": 1, "states": SLOTS, "slot_width": WIDTH, "chunk": CHUNK,
        "mixing_heads": 2, "heads": 2,
    });
    for (key, change) in changes.as_object().unwrap() {
        config[key] = change.clone();
    }
    config
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(l, r)| l * r).sum()
}

fn scaled(x: &[f64], by: f64) -> Vec<f64> {
    x.iter().map(|x| x * by).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A softmax over the `keep` highest scores; 0 elsewhere.
fn softmax(scores: &[f64], keep: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let total: f64 = order[..keep].iter().map(|slot| scores[*slot].exp()).sum();
    let weight = |slot: usize| if order[..keep].contains(&slot) { scores[slot].exp() / total } else { 0.0 };
    (0..scores.len()).map(weight).collect()
}

/// sum_i weights_i vectors_i
fn weighted(weights: &[f64], vectors: &[Vec<f64>]) -> Vec<f64> {
    let zero = vec![0.0; vectors[0].len()];
    weights.iter().zip(vectors).fold(zero, |sum, (weight, vector)| add(&sum, &scaled(vector, *weight)))
}

fn update(named: &Named, lstm: bool, slot: &mut Vec<f64>, cell: &mut [f64], written: &[f64]) {
    let both = [slot.as_slice(), written].concat();
    let gates: Vec<f64> = named.linear("blocks.0.slots.gates", &both).into_iter().map(sigmoid).collect();
    let candidate = |x: &[f64]| named.linear("blocks.0.slots.candidate", x).into_iter().map(f64::tanh);
    if lstm {
        let next: Vec<f64> = candidate(&both).collect();
        for i in 0..WIDTH {
            cell[i] = gates[WIDTH + i] * cell[i] + gates[i] * next[i];
            slot[i] = gates[2 * WIDTH + i] * cell[i].tanh();
        }
    } else {
        let reset: Vec<f64> = (0..WIDTH).map(|i| gates[WIDTH + i] * slot[i]).collect();
        let next: Vec<f64> = candidate(&[reset.as_slice(), written].concat()).collect();
        for i in 0..WIDTH {
            slot[i] = (1.0 - gates[i]) * slot[i] + gates[i] * next[i];
        }
    }
}

/// The values that the tokens read from the slots.
fn slots(named: &Named, config: &Value, x: &Sequence) -> Sequence {
    let lstm = config["gate"] == "lstm";
    let keep = if config["routing"] == "top_k" { config["top_k"].as_u64().unwrap() as usize } else { SLOTS };
    let of = |name: &str| named.get(&format!("blocks.0.slots.{name}"));
    let mut slots: Sequence = of("initial").chunks(WIDTH).map(<[f64]>::to_vec).collect();
    let mut cells = if lstm { of("initial_cell") } else { vec![0.0; SLOTS * WIDTH] };
    let mut y = Vec::new();
    for chunk in x.chunks(CHUNK) {
        let sides: Sequence = slots.iter().map(|slot| named.linear("blocks.0.slots.sides", slot)).collect();
        let (mut sums, mut mass) = (vec![vec![0.0; WIDTH]; SLOTS], [0.0; SLOTS]);
        for x in chunk {
            let projected = named.linear("blocks.0.slots.in", x);
            let (query, value) = projected.split_at(WIDTH);
            let score = |side: &Vec<f64>| dot(query, &side[..WIDTH]) / (WIDTH as f64).sqrt();
            let weights = softmax(&sides.iter().map(score).collect::<Vec<_>>(), keep);
            let read = weighted(&weights, &sides.iter().map(|side| side[WIDTH..].to_vec()).collect::<Vec<_>>());
            y.push(named.linear("blocks.0.slots.out", &read));
            for slot in 0..SLOTS {
                sums[slot] = add(&sums[slot], &scaled(value, weights[slot]));
                mass[slot] += weights[slot];
            }
        }
        for slot in 0..SLOTS {
            let written = scaled(&sums[slot], 1.0 / (mass[slot] + 1e-6));
            update(named, lstm, &mut slots[slot], &mut cells[slot * WIDTH..][..WIDTH], &written);
        }
        if config["mixing"] != "off" {
            let qkv: Sequence = slots.iter().map(|slot| named.biased("blocks.0.slots.mix.qkv", slot)).collect();
            for (slot, mixed) in slots.iter_mut().zip(attend(&qkv, 2, |_, _, _| Some(1.0))) {
                let sum = add(slot, &named.biased("blocks.0.slots.mix.out", &mixed));
                *slot = named.norm("blocks.0.slots.mix.norm", &sum);
            }
        }
    }
    y
}

fn local(named: &Named, config: &Value, x: &Sequence) -> Sequence {
    let mut y = Vec::new();
    for chunk in x.chunks(CHUNK) {
        if config["local"] == "conv" {
            let taps = named.get("blocks.0.local.taps");
            for t in 0..chunk.len() {
                let value = |d: usize| (0..=t.min(3)).map(|j| taps[j * DIM + d] * chunk[t - j][d]).sum();
                y.push((0..DIM).map(value).collect());
            }
        } else {
            let qkv = chunk.iter().map(|x| named.biased("blocks.0.local.qkv", x));
            let rope = config["positions"] != "none";
            let qkv: Sequence = qkv.enumerate().map(|(t, v)| if rope { rotated(&v, 2, t) } else { v }).collect();
            let mixed = attend(&qkv, 2, |_, t, s| (s <= t).then_some(1.0));
            y.extend(mixed.iter().map(|mixed| named.biased("blocks.0.local.out", mixed)));
        }
    }
    y
}

fn memory(named: &Named, config: &Value, x: &Sequence) -> Sequence {
    let width = config["memory"]["width"].as_u64().unwrap() as usize;
    let root = (width as f64).sqrt();
    let mut rows: Sequence = named.get("blocks.0.memory.initial").chunks(width).map(<[f64]>::to_vec).collect();
    let mut y = Vec::new();
    for chunk in x.chunks(CHUNK) {
        for x in chunk {
            let query = named.linear("blocks.0.memory.query", x);
            let scores: Vec<f64> = rows.iter().map(|row| dot(&query, row) / root).collect();
            y.push(named.linear("blocks.0.memory.out", &weighted(&softmax(&scores, rows.len()), &rows)));
        }
        let mean = scaled(&weighted(&vec![1.0; chunk.len()], chunk), 1.0 / chunk.len() as f64);
        let write = named.biased("blocks.0.memory.write", &mean);
        let scores: Vec<f64> = rows.iter().map(|row| dot(&write[..width], row) / root).collect();
        for (row, address) in rows.iter_mut().zip(softmax(&scores, scores.len())) {
            for i in 0..width {
                let erased = row[i] * (1.0 - address * sigmoid(write[width + i]));
                row[i] = erased + address * write[2 * width + i].tanh();
            }
        }
    }
    y
}

/// Every combination of options that change the equations.
fn cases() -> Vec<Value> {
    let mut cases = Vec::new();
    for routing in [json!({"routing": "dense"}), json!({"routing": "top_k", "top_k": 2})] {
        for gate in ["gru", "lstm"] {
            for mixing in ["on", "off"] {
                for rest in [
                    json!({}),
                    json!({"local": "conv"}),
                    json!({"positions": "none", "memory": {"slots": 2, "width": 5}}),
                ] {
                    let mut case = config(json!({"gate": gate, "mixing": mixing}));
                    for (key, value) in routing.as_object().unwrap().iter().chain(rest.as_object().unwrap()) {
                        case[key] = value.clone();
                    }
                    cases.push(case);
                }
            }
        }
    }
    cases
}

#[test]
fn a_pulse_computes_its_equations() {
    for config in cases() {
        let model = exact(&serde_json::from_value(config.clone()).unwrap(), &classify());
        let (named, ids) = (Named(&model), ids(8));
        let expected = block(&named, "blocks.0", named.embedded(&ids, DIM), |x| {
            let mut y: Sequence = slots(&named, &config, x);
            y = y.iter().zip(local(&named, &config, x)).map(|(y, local)| add(y, &local)).collect();
            if config["memory"].is_object() {
                y = y.iter().zip(memory(&named, &config, x)).map(|(y, read)| add(y, &read)).collect();
            }
            y
        });
        let difference = distance(&hidden(&model, &ids), &finish(&named, expected));
        assert!(difference < 1e-10, "{difference}: {config}");
    }
}

#[test]
fn a_chunk_longer_than_the_sequence_and_a_block_of_attention_compute() {
    let read = |changes| -> ModelConfig { serde_json::from_value(config(changes)).unwrap() };
    let long = exact(&read(json!({"chunk": 64})), &classify());
    assert_eq!(hidden(&long, &ids(5)).len(), 5 * DIM);
    let hybrid = exact(&read(json!({"layers": 4, "attention_every": 2})), &classify());
    let names: Vec<_> = hybrid.parameters().iter().map(|(name, _)| name).collect();
    for (layer, attends) in [(0, false), (1, true), (2, false), (3, true)] {
        let has = |part: &str| names.iter().any(|name| name.starts_with(&format!("blocks.{layer}.{part}.")));
        assert_eq!((has("attention"), has("slots"), has("local")), (attends, !attends, !attends), "block {layer}");
    }
}

#[test]
fn keeping_all_slots_is_dense_routing() {
    let dense: ModelConfig = serde_json::from_value(config(json!({}))).unwrap();
    let all = with(&dense, json!({"routing": "top_k", "top_k": SLOTS}));
    assert_eq!(hidden(&exact(&dense, &classify()), &ids(8)), hidden(&exact(&all, &classify()), &ids(8)));
}

#[test]
fn slots_are_reported_by_how_much_they_are_used() {
    for (routing, top_k) in [("dense", 1), ("top_k", 1), ("top_k", 2)] {
        let config = config(json!({"routing": routing, "top_k": top_k, "layers": 2}));
        let model = exact(&serde_json::from_value(config).unwrap(), &classify());
        let ids = ids(12);
        let batch = Batch::new(model.device(), &[&ids[..8], &ids[8..]]).unwrap();
        let metrics = model.telemetry(Some(&batch)).unwrap();
        let of = |name: &str| metrics.iter().find(|(key, _)| key == name).expect(name).1;
        let (least, most) = (of("pulse/slot_utilisation/min"), of("pulse/slot_utilisation/max"));
        assert!((0.0..=1.0 / 3.0).contains(&least) && (1.0 / 3.0..=1.0).contains(&most), "{metrics:?}");
        assert!(of("pulse/slot_utilisation/std") > 0.0 && of("pulse/slot_utilisation/evenness") < 1.0);
        let entropy = of("pulse/routing_entropy");
        let limit = if routing == "dense" { 3.0_f64 } else { f64::from(top_k) }.ln();
        assert!(entropy <= limit + 1e-12 && (entropy > 0.0 || top_k == 1), "{entropy} of at most {limit}");
        assert!(model.telemetry(None).unwrap().is_empty());
    }
}
