//! The kinds of attention compared with each other and with full attention with an explicit block mask.

use assay_models::{Batch, Carry, Model, ModelConfig, SequenceModel, SparsityConfig, SparsityKind};
use assay_tensor::{DType, Tensor};
use serde_json::{Value, json};

use crate::common::{classify, cpu, distance, exact, ids, predict, with};
use crate::equations::{Named, Sequence, block, finish, hidden};
use crate::heads::{attend, head, rotated};

const DIM: usize = 8;
const HEADS: usize = 2;

fn config(changes: Value) -> Value {
    let mut config = json!({
        "family": "transformer", "dim": DIM, "layers": 1, "heads": HEADS, "positions": "rope", "ffn_multiplier": 2,
        "attention": "sparse",
    });
    for (key, change) in changes.as_object().unwrap() {
        config[key] = change.clone();
    }
    config
}

fn read(config: Value) -> ModelConfig {
    serde_json::from_value(config).unwrap()
}

/// The mean of the vectors of block `index`, which `of` returns for each token.
fn mean(block: usize, index: usize, of: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    let all: Vec<Vec<f64>> = (index * block..(index + 1) * block).map(of).collect();
    (0..all[0].len()).map(|i| all.iter().map(|vector| vector[i]).sum::<f64>() / block as f64).collect()
}

/// s_ij of one head: query block i, key block j < i.
fn score(named: &Named, sparsity: &SparsityConfig, x: &Sequence, qkv: &Sequence, h: usize, i: usize, j: usize) -> f64 {
    let (block, width) = (sparsity.block, DIM / HEADS);
    let (query, key) = match sparsity.kind {
        SparsityKind::Learned => {
            let project = |name: &str, index| {
                let projected =
                    named.linear(&format!("blocks.0.attention.select.{name}"), &mean(block, index, |t| x[t].clone()));
                projected[h * width..][..width].to_vec()
            };
            (project("query", i - 1), project("key", j))
        }
        _ => (
            mean(block, i - 1, |t| head(&qkv[t], HEADS, 0, h).to_vec()),
            mean(block, j, |t| head(&qkv[t], HEADS, 1, h).to_vec()),
        ),
    };
    query.iter().zip(&key).map(|(q, k)| q * k).sum::<f64>() / (width as f64).sqrt()
}

/// Full attention with the block mask.
fn masked(named: &Named, sparsity: &SparsityConfig, x: &Sequence) -> Sequence {
    let qkv: Sequence = x.iter().map(|x| named.biased("blocks.0.attention.qkv", x)).collect();
    let qkv: Sequence = qkv.iter().enumerate().map(|(t, qkv)| rotated(qkv, HEADS, t)).collect();
    let seen = |h: usize, t: usize, s: usize| {
        let (i, j) = (t / sparsity.block, s / sparsity.block);
        if s > t || i == j {
            return (s <= t).then_some(1.0);
        }
        if sparsity.kind == SparsityKind::Block {
            return (j < sparsity.global || j + sparsity.local >= i).then_some(1.0);
        }
        let of = |j| score(named, sparsity, x, &qkv, h, i, j);
        let better = (0..i).filter(|other| *other != j && (of(*other) > of(j) || (of(*other) == of(j) && *other < j)));
        let kept = (sparsity.density * (i + 1) as f64).ceil() as usize - 1;
        let factor = if sparsity.kind == SparsityKind::Learned { 2.0 / (1.0 + (-of(j)).exp()) } else { 1.0 };
        (better.count() < kept).then_some(factor)
    };
    attend(&qkv, HEADS, seen).iter().map(|mixed| named.biased("blocks.0.attention.out", mixed)).collect()
}

#[test]
fn sparse_attention_is_full_attention_with_a_mask_of_blocks() {
    for sparsity in [
        json!({"kind": "block", "block": 2, "local": 1, "global": 1}),
        json!({"kind": "block", "block": 3, "local": 0, "global": 0}),
        json!({"kind": "block", "block": 1, "local": 2, "global": 1}),
        json!({"kind": "threshold", "block": 2, "density": 0.5}),
        json!({"kind": "threshold", "block": 3, "density": 0.9}),
        json!({"kind": "threshold", "block": 1, "density": 0.3}),
        json!({"kind": "learned", "block": 2, "density": 0.5}),
        json!({"kind": "learned", "block": 5, "density": 1.0}),
        json!({"kind": "learned", "block": 1, "density": 0.4}),
        json!({"kind": "learned", "block": 64}),
    ] {
        let model = exact(&read(config(json!({"sparsity": sparsity}))), &classify());
        let (named, ids) = (Named(&model), ids(15));
        let sparsity: SparsityConfig = serde_json::from_value(sparsity).unwrap();
        let expected = block(&named, "blocks.0", named.embedded(&ids, DIM), |x| masked(&named, &sparsity, x));
        let difference = distance(&hidden(&model, &ids), &finish(&named, expected));
        assert!(difference < 1e-10, "{difference}: {sparsity:?}");
    }
}

#[test]
fn full_flash_and_sparse_with_every_block_agree() {
    let device = cpu(1);
    let outputs = |changes: Value, dtype: DType, exact: bool| {
        let device = if exact { assay_reference::device() } else { device.clone() };
        let config = with(&read(config(json!({"layers": 2}))), changes);
        let model = Model::fresh(&device, &config, &classify(), 7, dtype).unwrap();
        let tokens = Tensor::from_u32(&device, ids(2 * 13), [2, 13]).unwrap();
        model.network().forward(&tokens, &Carry::default()).unwrap().0.to_f64_vec().unwrap()
    };
    for (dtype, exact, tolerance) in [(DType::F64, true, 1e-10), (DType::F32, false, 1e-5)] {
        let full = outputs(json!({"attention": "full"}), dtype, exact);
        for other in [
            json!({"attention": "flash"}),
            json!({"sparsity": {"kind": "threshold", "block": 2, "density": 1.0}}),
            json!({"sparsity": {"kind": "block", "block": 4, "local": 4, "global": 0}}),
            json!({"sparsity": {"kind": "block", "block": 16, "local": 0, "global": 0}}),
        ] {
            let difference = distance(&full, &outputs(other.clone(), dtype, exact));
            assert!(difference < tolerance, "{difference} in {dtype}: {other}");
        }
    }
}

#[test]
fn the_realised_density_is_reported() {
    let sparsity = json!({"kind": "threshold", "block": 2, "density": 0.5});
    let model = exact(&read(config(json!({"sparsity": sparsity}))), &classify());
    let ids = ids(9);
    let batch = Batch::new(model.device(), &[&ids]).unwrap();
    // Five blocks see 1 + 2 + 3 + 4 + 5 blocks and keep 1 + 1 + 2 + 2 + 3.
    assert_eq!(model.telemetry(Some(&batch)).unwrap(), [("attention/density".to_string(), 9.0 / 15.0)]);
    let dense = exact(&read(config(json!({"attention": "full"}))), &classify());
    assert!(dense.telemetry(Some(&batch)).unwrap().is_empty());
}

#[test]
fn a_bidirectional_model_sees_the_future_but_neither_padding_nor_neighbours() {
    for attention in ["full", "flash"] {
        let config =
            read(config(json!({"attention": attention, "causal": false, "positions": "learned", "layers": 2})));
        let model = exact(&config, &classify());
        let ids = ids(14);
        let of = |sequences: &[&[u32]]| {
            let batch = Batch::new(model.device(), sequences).unwrap();
            model.outputs(&batch).unwrap().to_f64_vec().unwrap()
        };
        let parts = [&ids[..3], &ids[3..9], &ids[9..12], &ids[12..13]];
        let apart: Vec<f64> = parts.iter().flat_map(|part| of(&[part])).collect();
        assert!(distance(&of(&parts), &apart) < 1e-10, "{attention}");
        let first = |last: u32| hidden(&model, &[1, 2, last])[..DIM].to_vec();
        assert!(distance(&first(3), &first(4)) > 1e-6, "{attention}");
    }
}

#[test]
fn a_bidirectional_model_is_refused_where_the_order_of_tokens_matters() {
    let config = read(config(json!({"attention": "flash", "causal": false})));
    let device = assay_reference::device();
    let error = Model::fresh(&device, &config, &predict(), 1, DType::F64).err().unwrap().to_string();
    assert!(error.contains("would see the tokens that it is to predict"), "{error}");
    let model = exact(&config, &classify());
    let tokens = Tensor::from_u32(model.device(), ids(4), [1, 4]).unwrap();
    let (_, carry) = model.network().forward(&tokens, &Carry::default()).unwrap();
    let error = model.network().forward(&tokens, &carry).err().unwrap().to_string();
    assert!(error.contains("reads the whole sequence"), "{error}");
    for (changes, key) in [(json!({"attention": "sparse"}), "causal"), (json!({"checkpoint": "chunk"}), "checkpoint")] {
        let found = with(&config, changes).validate();
        assert_eq!(found.iter().map(|finding| finding.key).collect::<Vec<_>>(), [key]);
    }
}
