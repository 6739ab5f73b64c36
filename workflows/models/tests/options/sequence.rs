//! The invariants of a sequence model, for every combination of options: pieces equal the whole, carries continue, the
//! past does not depend on the future, and other sequences do not matter.

use crate::common::{classify, cpu, distance, exact, ids, with};
use crate::grid::{base, depends_on_chunk, few, grid};
use assay_models::{Batch, Carry, Model, ModelConfig, SequenceModel, Task};
use assay_tensor::{DType, Device, Tensor};
use serde_json::json;

const LENGTH: usize = 9;
/// The number of tokens decoded one by one: keys and values are then in several blocks.
const TOKENS: usize = 40;

fn tokens(device: &Device, ids: &[u32], batch: usize) -> Tensor {
    Tensor::from_u32(device, ids.to_vec(), [batch, ids.len() / batch]).unwrap()
}

/// Hidden vectors of two sequences processed in pieces of the given lengths.
fn in_pieces(model: &Model, ids: &[u32], pieces: &[usize]) -> Vec<f64> {
    let all = tokens(model.device(), ids, 2);
    let mut carry = Carry::default();
    let mut parts = Vec::new();
    for length in pieces {
        let piece = all.slice(1, carry.position, *length).unwrap();
        let (hidden, next) = if *length == 1 {
            let (hidden, next) = model.network().step(&piece.reshape([2]).unwrap(), &carry).unwrap();
            let width = hidden.dims()[1];
            (hidden.reshape([2, 1, width]).unwrap(), next)
        } else {
            model.network().forward(&piece, &carry).unwrap()
        };
        parts.push(hidden);
        carry = next;
    }
    let parts: Vec<_> = parts.iter().collect();
    Tensor::concat(&parts, 1).unwrap().to_f64_vec().unwrap()
}

/// Pieces of `length` with an incomplete last piece.
fn pieces(length: usize) -> Vec<usize> {
    let mut pieces = vec![length; LENGTH / length];
    if !LENGTH.is_multiple_of(length) {
        pieces.push(LENGTH % length);
    }
    pieces
}

#[test]
fn a_sequence_in_pieces_of_any_length_gives_what_it_gives_in_one() {
    for (name, config) in grid() {
        let model = exact(&config, &classify());
        let ids = ids(2 * LENGTH);
        let whole = in_pieces(&model, &ids, &[LENGTH]);
        for length in 1..LENGTH {
            let difference = distance(&whole, &in_pieces(&model, &ids, &pieces(length)));
            assert!(difference < 1e-10, "pieces of {length} differ by {difference}: {name}");
        }
        let difference = distance(&whole, &in_pieces(&model, &ids, &[2, 1, 5, 1]));
        assert!(difference < 1e-10, "mixed pieces differ by {difference}: {name}");
    }
}

#[test]
fn the_cpu_backend_agrees_with_itself_in_pieces() {
    let device = cpu(1);
    for (name, config) in few() {
        let model = Model::fresh(&device, &config, &classify(), 7, DType::F32).unwrap();
        let ids = ids(2 * LENGTH);
        let whole = in_pieces(&model, &ids, &[LENGTH]);
        for length in [1, 2, 4] {
            let difference = distance(&whole, &in_pieces(&model, &ids, &pieces(length)));
            assert!(difference < 2e-5, "pieces of {length} differ by {difference}: {name}");
        }
    }
}

#[test]
fn the_chunk_changes_no_output() {
    for (name, config) in grid().into_iter().filter(|(_, config)| !depends_on_chunk(config)) {
        let ids = ids(2 * LENGTH);
        let whole = in_pieces(&exact(&config, &classify()), &ids, &[LENGTH]);
        for chunk in 1..=LENGTH {
            let model = exact(&with(&config, json!({"chunk": chunk})), &classify());
            let difference = distance(&in_pieces(&model, &ids, &[LENGTH]), &whole);
            assert!(difference < 1e-12, "chunk {chunk} changes {difference}: {name}");
        }
    }
}

#[test]
fn a_saved_carry_continues_exactly() {
    let device = cpu(1);
    let task = Task { max_length: 64, ..classify() };
    for (name, config) in grid() {
        let model = Model::fresh(&device, &config, &task, 7, DType::F32).unwrap();
        let (first, second) = (tokens(&device, &ids(8), 2), tokens(&device, &ids(10), 2));
        let (_, mut carry) = model.network().forward(&first, &Carry::default()).unwrap();
        for id in ids(TOKENS) {
            carry = model.network().forward(&tokens(&device, &[id; 2], 2), &carry).unwrap().1;
        }
        let bytes = carry.to_bytes().unwrap();
        let restored = Carry::from_bytes(&device, &bytes).unwrap();
        assert_eq!(restored.to_bytes().unwrap(), bytes);
        let (hidden, _) = model.network().forward(&second, &carry).unwrap();
        let (again, _) = model.network().forward(&second, &restored).unwrap();
        assert_eq!(hidden.to_f32_vec().unwrap(), again.to_f32_vec().unwrap(), "{name}");
    }
}

#[test]
fn the_future_does_not_change_the_past() {
    for (name, config) in grid() {
        let model = exact(&config, &classify());
        let hidden = |ids: &[u32]| {
            let (hidden, _) = model.network().forward(&tokens(model.device(), ids, 1), &Carry::default()).unwrap();
            let width = hidden.dims()[2];
            (hidden.to_f64_vec().unwrap(), width)
        };
        let ids = ids(LENGTH);
        let (before, width) = hidden(&ids);
        for at in 0..LENGTH {
            let mut changed = ids.clone();
            changed[at..].iter_mut().for_each(|id| *id = (*id + 1) % 5);
            let (after, _) = hidden(&changed);
            assert_eq!(before[..at * width], after[..at * width], "the past of {at} changed: {name}");
            assert_ne!(before[at * width..], after[at * width..], "{at} itself must matter: {name}");
        }
    }
}

#[test]
fn padding_and_neighbours_do_not_matter() {
    for (name, config) in few() {
        for pool in ["mean", "last", "max"] {
            let model = exact(&with(&config, json!({"pool": pool})), &classify());
            let ids = ids(16);
            let alone = |ids: &[u32]| {
                let batch = Batch::new(model.device(), &[ids]).unwrap();
                model.outputs(&batch).unwrap().to_f64_vec().unwrap()
            };
            let batch = Batch::new(model.device(), &[&ids[..3], &ids[3..12], &ids[12..13]]).unwrap();
            let together = model.outputs(&batch).unwrap().to_f64_vec().unwrap();
            let apart = [alone(&ids[..3]), alone(&ids[3..12]), alone(&ids[12..13])].concat();
            assert!(distance(&together, &apart) < 1e-10, "pool {pool}: {name}");
        }
    }
}

#[test]
fn a_carry_of_another_model_is_refused() {
    let device = assay_reference::device();
    let fresh = |config: &ModelConfig| Model::fresh(&device, config, &classify(), 7, DType::F64).unwrap();
    let model = fresh(&base());
    let wide = fresh(&with(&base(), json!({"states": 4})));
    let other = fresh(&grid().last().unwrap().1);
    let tokens = tokens(model.device(), &ids(4), 2);
    let (_, carry) = model.network().forward(&tokens, &Carry::default()).unwrap();
    assert!(wide.network().forward(&tokens, &carry).err().unwrap().to_string().contains("does not fit"));
    assert!(other.network().forward(&tokens, &carry).err().unwrap().to_string().contains("belongs to another model"));
    let single = tokens.slice(0, 0, 1).unwrap();
    assert!(model.network().forward(&single, &carry).err().unwrap().to_string().contains("does not fit"));
}

#[test]
fn learned_positions_end_where_the_task_says() {
    for (_, config) in grid().into_iter().filter(|(name, _)| name.contains("learned")).take(1) {
        let model = exact(&config, &classify());
        let error = model.network().forward(&tokens(model.device(), &ids(17), 1), &Carry::default()).err().unwrap();
        assert_eq!(error.to_string(), "17 tokens are more than the 16 positions that the model has learned");
    }
}
