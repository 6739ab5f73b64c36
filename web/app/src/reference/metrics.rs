//! What each metric means, for `assay help KIND` and for the book's page of metrics.

/// The metrics of the step kinds: the name as the kind declares it, the kinds for which the meaning holds (none: all kinds that
/// declare it), and the meaning.
const MEANINGS: &[(&str, &[&str], &str)] = &[
    // Datasets.
    ("data/*/sequences", &[], "Number of sequences in the split `train`, `valid` or `test`."),
    ("data/generated", &[], "Sequences that were generated and kept."),
    ("data/rejected", &[], "Generated sequences that were dropped: too short, too long, or duplicates."),
    ("data/bytes", &[], "Bytes of the text."),
    ("data/tokens", &[], "Tokens of the text, with a trained tokenizer."),
    ("data/bytes_per_token", &[], "Bytes of the text for each token, with a trained tokenizer."),
    ("data/unknown", &[], "Tokens that represent text which is not in the vocabulary of the tokenizer."),
    ("data/changed", &[], "Documents or records whose tokens decode to another text."),
    (
        "data/length/*",
        &[],
        "Length of the training sequences in tokens: `min`, `q25`, `median`, `q75`, `q95` and `max`.",
    ),
    ("data/label/*", &[], "Share of the training sequences that have this label."),
    ("data/documents", &[], "Number of documents of a text."),
    ("data/records", &[], "Number of records of a table that contain text."),
    ("data/cut", &[], "Number of records or pairs with a text that is longer than `max_length` and is cut."),
    ("data/classes", &[], "Number of classes of a classification dataset."),
    ("data/*/length/*", &[], "Length of the split's sequences in tokens, for data read from files."),
    ("data/*/label/*", &[], "Share of the split's sequences that have this label, for data read from files."),
    ("data/*/duplicates", &[], "Sequences of the split that occur earlier in the same split."),
    (
        "data/*/shared_with/*",
        &[],
        "Sequences of the split that also occur in the other split named: leakage from `train` to `test` makes scores too good.",
    ),
    ("data/contradictions", &[], "Different sequences that occur with more than one label."),
    ("data/loss_floor", &[], "Loss of the best possible language model on this task, in nats for each token."),
    ("data/accuracy_ceiling", &[], "Expected accuracy of the best possible language model on this task."),
    (
        "baseline/accuracy",
        &[],
        "Accuracy on `test` of always answering with the most frequent label (or token) of `train`.",
    ),
    // Scores.
    ("test/accuracy", &[], "Share of correct predictions on the split `test` after the last step."),
    ("test/loss", &[], "Mean cross entropy of a prediction on `test`, in nats."),
    ("test/perplexity", &[], "Perplexity per token, exp(`test/loss`); language models only."),
    ("test/perplexity_per_byte", &[], "As `*/perplexity_per_byte`, on `test`."),
    ("test/bits_per_byte", &[], "As `*/bits_per_byte`, on `test`."),
    ("test/perplexity_per_word", &[], "As `*/perplexity_per_word`, on `test`."),
    ("valid/loss", &[], "Mean cross entropy on `valid`, in nats, every `eval_every` steps."),
    ("valid/accuracy", &[], "Share of correct predictions on `valid`."),
    ("valid/perplexity", &[], "Perplexity per token, exp(`valid/loss`); language models only."),
    ("valid/perplexity_per_byte", &[], "As `*/perplexity_per_byte`, on `valid`."),
    ("valid/bits_per_byte", &[], "As `*/bits_per_byte`, on `valid`."),
    ("valid/perplexity_per_word", &[], "As `*/perplexity_per_word`, on `valid`."),
    (
        "*/accuracy",
        &[],
        "Share of correct predictions on the split: sequences of a classifier, tokens of a language model.",
    ),
    ("*/loss", &[], "Mean cross entropy of a prediction on the split, in nats."),
    ("*/perplexity", &[], "Perplexity per token, exp(loss) of the split; language models only."),
    (
        "*/perplexity_per_byte",
        &[],
        "Perplexity per byte of a text: exp(loss of all predicted tokens / bytes of their text). It can be compared between tokenizers.",
    ),
    ("*/bits_per_byte", &[], "Base-2 logarithm of the perplexity per byte."),
    (
        "*/perplexity_per_word",
        &[],
        "Perplexity per word of a text: exp(loss of all predicted tokens / words that start in their text). A word is a longest run of bytes without ASCII white space.",
    ),
    ("*/accuracy_low", &[], "Lower end of Wilson's 95 % interval of the accuracy; classifiers only."),
    ("*/accuracy_high", &[], "Upper end of that interval."),
    ("*/error/*", &[], "1 - accuracy on one task of the split (bAbI), by the task's name."),
    ("*/tasks_solved", &[], "Number of tasks of the split (bAbI) with an accuracy of at least 95 %."),
    (
        "*/plugin/*/*",
        &[],
        "A value of a metric of `metrics`, by the plugin's name under `plugins` and the value's name.",
    ),
    ("valid/plugin/*/*", &[], "The same on `valid`, at each evaluation."),
    ("test/plugin/*/*", &[], "The same on `test`, with the trained model."),
    // Training.
    ("train/loss", &[], "Mean training loss over the steps since the last report (`log_every`), in nats."),
    ("train/accuracy", &[], "Share of correct predictions in the same training batches."),
    ("train/gradient_norm", &[], "Mean L2 norm of the gradient of all parameters over these steps, before clipping."),
    ("train/learning_rate", &[], "Learning rate of the step."),
    (
        "train/tokens_per_second",
        &["train"],
        "Training tokens a second since the last report; validation is not counted.",
    ),
    ("train/tokens", &[], "Tokens of all training batches up to this step."),
    ("train/stage", &[], "Index of the curriculum's stage that begins at this step, from 0."),
    ("memory/peak_bytes", &["train"], "Peak memory of the executor's process so far."),
    ("model/parameters", &[], "Number of trainable parameters."),
    ("chosen/parameters", &[], "With `parameters` in the model: the number of parameters of the width that it chose."),
    ("chosen/dim", &[], "With `parameters` in the model: the width that it chose."),
    ("stopped/step", &[], "Step at which early stopping ended the training."),
    ("best/step", &[], "Step of the best evaluation on `valid`, with early stopping or `keep: best`."),
    ("best/value", &[], "Value of the monitored metric in that evaluation."),
    ("kept/step", &[], "Step whose parameters are the output `model`, with `keep: best`."),
    (
        "ten/*",
        &[],
        "`ten/spectral_radius`: with `resonance: recurrent`, the largest spectral radius of R diag(a); above 1, states grow with every token.",
    ),
    (
        "ten/*/*",
        &[],
        "Distribution over all eigenstates of a TEN: `ten/magnitude/*` is the magnitude of the eigenvalue, `ten/half_life/*` the number of tokens after which a state has decayed to one half; each with `min`, `p25`, `p50`, `p75`, `max`.",
    ),
    ("pulse/*", &[], "`pulse/routing_entropy`: mean entropy of a token's routing weights, in nats."),
    (
        "pulse/*/*",
        &[],
        "`pulse/slot_utilisation/*`: mean routing mass of the slots of a PULSE (`min`, `p25`, `p50`, `p75`, `max`, `std`), their `evenness` (entropy over its largest value, 0 to 1), and single slots as `blockB.slotS`; `pulse/routing_entropy/blockB` is the entropy of one block.",
    ),
    ("attention/density", &[], "Sparse attention: share of the visible pairs of blocks that is computed."),
    // Quantization.
    ("quantized/accuracy", &[], "Accuracy of the int8 model on `test`."),
    ("quantized/accuracy_low", &[], "Lower end of Wilson's 95 % interval of that accuracy; classifiers only."),
    ("quantized/accuracy_high", &[], "Upper end of that interval."),
    ("quantized/loss", &[], "Loss of the int8 model on `test`, in nats."),
    ("quantized/perplexity", &[], "exp(`quantized/loss`); language models only."),
    ("quantized/accuracy_change", &[], "Accuracy of the int8 model less that of the f32 model."),
    ("quantized/loss_change", &[], "Loss of the int8 model less that of the f32 model."),
    ("quantize/max_error", &[], "Largest absolute difference between a weight and its quantized value."),
    ("quantize/sqnr_db", &[], "Ratio of the weights' energy to the energy of their quantization error."),
    // Sizes.
    ("size/bytes", &["prepare"], "Size of the dataset's file."),
    ("size/bytes", &["train", "quantize"], "Size of the checkpoint's file."),
    ("size/ratio", &[], "Size of the int8 checkpoint over that of the original one."),
    ("size/onnx_bytes", &[], "Size of the ONNX file."),
    ("size/safetensors_bytes", &[], "Size of the safetensors file."),
    ("size/parameters", &[], "Number of parameters of the exported model."),
    (
        "export/max_difference",
        &[],
        "Largest absolute difference between a logit of the model and the same logit computed from the ONNX file by tract. The step fails above 1e-4.",
    ),
    // Latencies.
    (
        "latency/median",
        &[],
        "Median latency of the first model at the longest length: one figure for a whole benchmark.",
    ),
    ("latency/median_low", &[], "Lower end of its 95 % interval."),
    ("latency/median_high", &[], "Upper end of its 95 % interval."),
    (
        "latency/*/*/median",
        &[],
        "`latency/MODEL/LENGTH/median`: time of one forward pass. The mean of the processes' medians; of a single process, its median.",
    ),
    ("latency/*/*/median_low", &[], "Lower end of its 95 % interval."),
    ("latency/*/*/median_high", &[], "Upper end of its 95 % interval."),
    ("latency/*/*/mean", &[], "The same of the means, outliers removed."),
    ("latency/*/*/mean_low", &[], "Lower end of its 95 % interval."),
    ("latency/*/*/mean_high", &[], "Upper end of its 95 % interval."),
    ("latency/*/*/outliers", &[], "Number of samples outside Tukey's fences, which were removed."),
    ("latency/*/*/samples", &[], "Number of samples."),
    ("latency/*/*/processes", &[], "Number of processes that took the samples."),
    ("latency/*/exponent", &[], "k of `latency = c length^k`, fitted to the measured lengths."),
    ("latency/*/exponent_low", &[], "Lower end of its 95 % interval."),
    ("latency/*/exponent_high", &[], "Upper end of its 95 % interval."),
    // Measured programs.
    ("time/median", &["command"], "Median wall-clock time of the runs of the program, with `measures`."),
    ("time/median_low", &["command"], "Lower end of its 95 % interval over the runs."),
    ("time/median_high", &["command"], "Upper end of its 95 % interval over the runs."),
    ("time/mean", &["command"], "Their mean, outliers removed."),
    ("time/mean_low", &["command"], "Lower end of its 95 % interval."),
    ("time/mean_high", &["command"], "Upper end of its 95 % interval."),
    ("time/outliers", &["command"], "Number of runs outside Tukey's fences."),
    ("time/samples", &["command"], "Measured runs."),
    ("time/run", &["command"], "Time of each run, in the order of the rounds."),
    ("time/*/median", &["command"], "Median wall-clock time of the runs of the program of this name, with `measures`."),
    ("time/*/median_low", &["command"], "Lower end of its 95 % interval over the runs."),
    ("time/*/median_high", &["command"], "Upper end of its 95 % interval over the runs."),
    ("time/*/mean", &["command"], "Their mean, outliers removed."),
    ("time/*/mean_low", &["command"], "Lower end of its 95 % interval."),
    ("time/*/mean_high", &["command"], "Upper end of its 95 % interval."),
    ("time/*/outliers", &["command"], "Number of runs outside Tukey's fences."),
    ("time/*/samples", &["command"], "Measured runs."),
    ("time/*/run", &["command"], "Time of each run, in the order of the rounds."),
    (
        "speedup/*/ratio",
        &["command"],
        "`speedup/NAME/ratio`: time of the program named by `compare` over that of NAME, within rounds; above 1, NAME is faster.",
    ),
    ("speedup/*/low", &["command"], "Lower end of its 95 % interval."),
    ("speedup/*/high", &["command"], "Upper end of its 95 % interval."),
    (
        "speedup/*/p",
        &["command"],
        "p-value of the comparison, corrected by Holm's method for all comparisons of the step.",
    ),
    (
        "speedup/*/*/ratio",
        &[],
        "`speedup/MODEL/LENGTH/ratio`: latency of the model named by `compare` over that of MODEL; above 1, MODEL is faster.",
    ),
    ("speedup/*/*/low", &[], "Lower end of its 95 % interval."),
    ("speedup/*/*/high", &[], "Upper end of its 95 % interval."),
    (
        "speedup/*/*/p",
        &[],
        "p-value of the comparison, corrected by Holm's method for all comparisons of the benchmark.",
    ),
    (
        "load/others",
        &[],
        "Processors that other programs kept busy before, during or after the measurement; reported only where it exceeds 0.25.",
    ),
    // Throughput.
    ("train/tokens_per_second", &["throughput"], "Median rate of training in tokens a second."),
    ("train/tokens_per_second_low", &[], "Lower end of its 95 % interval."),
    ("train/tokens_per_second_high", &[], "Upper end of its 95 % interval."),
    (
        "floor/ratio",
        &[],
        "Rate of training over the rate that the machine's arithmetic would allow, each pair measured in one round.",
    ),
    ("floor/ratio_low", &[], "Lower end of its 95 % interval."),
    ("floor/ratio_high", &[], "Upper end of its 95 % interval."),
    ("floor/tokens_per_second", &[], "Rate of training that the machine's arithmetic would allow."),
    ("floor/tokens_per_second_low", &[], "Lower end of its 95 % interval."),
    ("floor/tokens_per_second_high", &[], "Upper end of its 95 % interval."),
    ("floor/operations_per_second", &[], "The machine's rate of arithmetic, measured between the samples."),
    ("floor/operations_per_second_low", &[], "Lower end of its 95 % interval."),
    ("floor/operations_per_second_high", &[], "Upper end of its 95 % interval."),
    (
        "floor/operations_per_token",
        &[],
        "Floating-point operations that training needs for a token, from the model's formulas.",
    ),
    ("decode/f32/tokens_per_second", &[], "Tokens decoded a second, one after the other, with f32 weights."),
    ("decode/f32/tokens_per_second_low", &[], "Lower end of its 95 % interval."),
    ("decode/f32/tokens_per_second_high", &[], "Upper end of its 95 % interval."),
    ("decode/int8/tokens_per_second", &[], "The same with int8 weights."),
    ("decode/int8/tokens_per_second_low", &[], "Lower end of its 95 % interval."),
    ("decode/int8/tokens_per_second_high", &[], "Upper end of its 95 % interval."),
    ("decode/int8_ratio", &[], "Rate of int8 decoding over that of f32."),
    ("decode/int8_ratio_low", &[], "Lower end of its 95 % interval."),
    ("decode/int8_ratio_high", &[], "Upper end of its 95 % interval."),
    (
        "memory/peak_bytes",
        &["throughput"],
        "Peak memory of training: of the device if it has its own memory, else of the process.",
    ),
];

/// What a metric of a step kind means; `None` where that is not written down, which a test refuses.
pub fn meaning(kind: &str, name: &str) -> Option<&'static str> {
    let holds = |kinds: &[&str]| kinds.is_empty() || kinds.contains(&kind);
    MEANINGS.iter().find(|(known, kinds, _)| *known == name && holds(kinds)).map(|(.., about)| *about)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_of_every_kind_has_a_meaning() {
        let kinds = crate::commands::step_kinds();
        let declared = kinds.iter().flat_map(|kind| kind.metrics.iter().map(|metric| (kind.name, metric.name)));
        let missing: Vec<_> = declared.filter(|(kind, name)| meaning(kind, name).is_none()).collect();
        assert!(missing.is_empty(), "these metrics lack a line in reference/metrics.rs: {missing:?}");
    }

    #[test]
    fn every_meaning_belongs_to_a_metric() {
        let kinds = crate::commands::step_kinds();
        let declared: BTreeSet<(&str, &str)> =
            kinds.iter().flat_map(|kind| kind.metrics.iter().map(|metric| (kind.name, metric.name))).collect();
        for (name, only, _) in MEANINGS {
            let known = |kind: &str| declared.contains(&(kind, *name));
            let belongs = match only.is_empty() {
                true => kinds.iter().any(|kind| known(kind.name)),
                false => only.iter().all(|kind| known(kind)),
            };
            assert!(belongs, "no step kind declares `{name}`");
        }
    }
}
