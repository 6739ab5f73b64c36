//! Greedy decoding, one token at a time.

use std::time::Instant;

use assay_models::{Batch, Carry, Model, ModelError, SequenceModel};

use crate::context::StepError;

/// Decodes `count` tokens of one sequence from its start; returns them and the time in seconds.
///
/// # Errors
/// If the device fails, or the model does not support this length.
pub(super) fn decode(model: &Model, count: usize) -> Result<(Vec<u32>, f64), StepError> {
    let began = Instant::now();
    let (mut carry, mut token) = (Carry::default(), 0);
    let mut tokens = Vec::with_capacity(count);
    for _ in 0..count {
        let batch = Batch::new(model.device(), &[&[token]])?;
        let (hidden, after) = model.network().forward(batch.tokens(), &carry)?;
        let logits = model.head().forward(&hidden, &batch)?.to_f32_vec().map_err(ModelError::from)?;
        (carry, token) = (after, likeliest(&logits));
        tokens.push(token);
    }
    Ok((tokens, began.elapsed().as_secs_f64()))
}

/// The index of the largest logit; the lower index on a tie.
fn likeliest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (place, value) in logits.iter().enumerate() {
        if *value > logits[best] {
            best = place;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use assay_models::{ModelConfig, Objective, Task};
    use assay_tensor::DType;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_token_is_the_likeliest_after_those_before() {
        let device = assay_cpu::device(1).unwrap();
        let config: ModelConfig =
            serde_json::from_value(json!({"family": "ten", "dim": 16, "layers": 2, "states": 8})).unwrap();
        let task = Task { vocabulary: 9, max_length: 12, objective: Objective::Predict };
        let model = Model::fresh(&device, &config, &task, 5, DType::F32).unwrap();
        let (tokens, seconds) = decode(&model, 12).unwrap();
        assert!(seconds > 0.0);
        let read: Vec<u32> = std::iter::once(0).chain(tokens[..11].iter().copied()).collect();
        let logits = model.outputs(&Batch::new(&device, &[&read]).unwrap()).unwrap().to_f32_vec().unwrap();
        let whole: Vec<u32> = logits.chunks_exact(9).map(likeliest).collect();
        assert_eq!(tokens, whole);
    }
}
