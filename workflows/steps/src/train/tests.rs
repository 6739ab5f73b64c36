//! Training as a whole: it learns, is reproducible to the bit, and explains failures.

use assay_models::checkpoint;
use serde_json::{Value, json};

use super::Train;
use crate::context::{Context, StepError};
use crate::dataset::{About, Dataset, Goal, Split};
use crate::step::Step;
use crate::testing::TestContext;

/// The task is to name which of three letters comes first, followed by noise: it only needs memory.
fn dataset() -> Dataset {
    let split = |from: u32, count: u32| {
        let mut split = Split::default();
        for index in from..from + count {
            let length = 3 + index % 6;
            let tokens: Vec<u32> = (0..length).map(|t| (index * 7 + t * t * 5 + index * t) % 3).collect();
            split.push(&tokens, tokens[0]);
        }
        split
    };
    let about = About {
        name: "first".into(),
        description: "The first letter.".into(),
        vocabulary: ["a", "b", "c"].map(String::from).into(),
        objective: Goal::Classify,
        classes: 3,
        max_length: 8,
        config: Value::Null,
        labels: Vec::new(),
        groups: Vec::new(),
        pairs: false,
        tokenizer: None,
        text: None,
        sources: Default::default(),
    };
    Dataset { about, train: split(0, 120), valid: split(200, 30), test: split(300, 30) }
}

pub fn context(threads: usize) -> (TestContext, Value) {
    let mut context = TestContext::new(assay_cpu::device(threads).unwrap());
    let path = context.workdir().join("dataset.safetensors");
    dataset().write(&path).unwrap();
    let data = context.provide(&path);
    let config = json!({
        "data": data,
        "model": {"family": "ten", "dim": 16, "layers": 1, "states": 8, "chunk": 4, "pool": "last"},
        "optimizer": {"name": "adamw", "lr": 0.02, "schedule": "cosine", "warmup_steps": 5, "clip_norm": 1.0},
        "batch_size": 16,
        "curriculum": [{"until_step": 20, "max_length": 4}, {"until_step": 80, "max_length": 8}],
        "eval_every": 40,
        "seed": 9,
    });
    (context, config)
}

fn trained(threads: usize, replicate: u32, change: impl FnOnce(&mut Value)) -> TestContext {
    let (mut context, mut config) = context(threads);
    context.replicate = replicate;
    change(&mut config);
    context.run(&Train, config).unwrap();
    context
}

/// All reported metrics except those of time and memory.
pub fn results(context: &TestContext) -> Vec<(String, u64, u64)> {
    let measured = |name: &str| name == "train/tokens_per_second" || name.starts_with("memory/");
    let timeless = context.metrics.iter().filter(|(name, _, _)| !measured(name));
    timeless.map(|(name, step, value)| (name.clone(), *step, value.to_bits())).collect()
}

pub fn checkpoint_bytes(context: &TestContext) -> Vec<u8> {
    std::fs::read(&context.artifacts["model"]).unwrap()
}

#[test]
fn a_task_that_needs_memory_is_learned_by_each_family() {
    for model in [
        json!({"family": "ten", "dim": 16, "layers": 1, "states": 8, "chunk": 64, "pool": "last"}),
        json!({"family": "pulse", "dim": 16, "layers": 1, "states": 4, "chunk": 4, "heads": 2, "pool": "last"}),
        json!({"family": "transformer", "dim": 16, "layers": 1, "heads": 2, "pool": "last"}),
        json!({
            "family": "transformer", "dim": 16, "layers": 1, "heads": 2, "attention": "sparse",
            "sparsity": {"kind": "learned", "block": 2}, "pool": "last",
        }),
    ] {
        let context = trained(1, 1, |config| config["model"] = model.clone());
        let first = context.metrics.iter().find(|(name, _, _)| name == "train/loss").unwrap().2;
        let (loss, accuracy) = (context.last("test/loss").unwrap(), context.last("test/accuracy").unwrap());
        assert!(loss < 0.5 * first && accuracy > 0.9, "{first} to {loss}, accuracy {accuracy}: {model}");
        let kinds = Train.kind().metrics;
        for (name, _, _) in &context.metrics {
            assert!(kinds.iter().any(|kind| covers(kind.name, name)), "{name} is not announced");
        }
    }
}

#[test]
fn the_tokens_that_were_trained_on_are_counted() {
    let context = trained(1, 1, |_| ());
    let of = |wanted: &str| -> Vec<(u64, f64)> {
        let own = context.metrics.iter().filter(|(name, _, _)| name == wanted);
        own.map(|(_, step, value)| (*step, *value)).collect()
    };
    let counts = of("train/tokens");
    assert!(counts.iter().map(|(step, _)| step).eq(of("train/loss").iter().map(|(step, _)| step)));
    assert!(counts[0].1 > 0.0 && counts.windows(2).all(|pair| pair[0].1 < pair[1].1), "{counts:?}");
    assert!(counts.iter().all(|(_, count)| count.fract() == 0.0), "{counts:?}");
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let (one, two) = (trained(1, 1, |_| ()), trained(2, 1, |_| ()));
    assert_eq!(results(&one), results(&two));
    assert_eq!(checkpoint_bytes(&one), checkpoint_bytes(&two));
    assert_eq!(checkpoint_bytes(&one), checkpoint_bytes(&trained(1, 1, |_| ())));
}

#[test]
fn seeds_and_replicates_give_other_models() {
    let one = checkpoint_bytes(&trained(1, 1, |_| ()));
    assert_ne!(one, checkpoint_bytes(&trained(1, 2, |_| ())));
    assert_ne!(one, checkpoint_bytes(&trained(1, 1, |config| config["seed"] = json!(10))));
}

/// Whether a pattern such as `ten/*` matches a metric's name.
fn covers(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), name.split('/').collect());
    pattern.len() == name.len() && pattern.iter().zip(name).all(|(want, part)| *want == "*" || *want == part)
}

#[test]
fn what_is_reported_is_what_was_asked_for() {
    let context = trained(1, 1, |_| ());
    let steps = |wanted: &str| -> Vec<u64> {
        context.metrics.iter().filter(|(name, _, _)| name == wanted).map(|(_, step, _)| *step).collect()
    };
    assert_eq!(steps("train/loss"), [10, 20, 30, 40, 50, 60, 70, 80]);
    assert_eq!(steps("valid/accuracy"), [40, 80]);
    assert_eq!(steps("train/stage"), [1, 21]);
    assert_eq!(context.progress, (80, Some(80)));
    let kinds = Train.kind().metrics;
    for (name, _, _) in &context.metrics {
        assert!(kinds.iter().any(|kind| covers(kind.name, name)), "{name} is not announced");
    }
    #[cfg(target_os = "linux")]
    assert!(context.last("memory/peak_bytes").unwrap() > 1e6);
    let model = checkpoint::load(&assay_cpu::device(1).unwrap(), &context.artifacts["model"]).unwrap();
    assert_eq!(context.last("model/parameters"), Some(model.parameters().count() as f64));
    assert_eq!(context.last("size/bytes"), Some(checkpoint_bytes(&context).len() as f64));
    assert_eq!(model.task(), &dataset().task());
}

#[test]
fn a_number_of_parameters_chooses_the_width() {
    for family in [
        json!({"family": "ten", "layers": 1, "states": 8, "chunk": 4, "parameters": "4k"}),
        json!({"family": "pulse", "layers": 1, "states": 4, "chunk": 4, "heads": 1, "mixing_heads": 1, "parameters": "4.2k"}),
        json!({"family": "transformer", "layers": 1, "heads": 1, "parameters": 4000}),
    ] {
        let context = trained(1, 1, |config| {
            config["model"] = family.clone();
            config["curriculum"] = json!([{"until_step": 2, "max_length": 8}]);
            config["optimizer"] = json!({"name": "adamw", "lr": 0.02});
        });
        let model = checkpoint::load(&assay_cpu::device(1).unwrap(), &context.artifacts["model"]).unwrap();
        let (count, dim) = (model.parameters().count() as f64, model.config().common().dim as f64);
        assert!((3800.0..=4400.0).contains(&count), "{count}: {family}");
        assert_eq!(context.last("chosen/parameters"), Some(count));
        assert_eq!((context.last("model/parameters"), context.last("chosen/dim")), (Some(count), Some(dim)));
    }
    let with = |change: Value| move |config: &mut Value| config["model"] = change;
    let ten = |more: Value| {
        let mut model = json!({"family": "ten", "layers": 1, "states": 8});
        model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        model
    };
    refused(with(ten(json!({"parameters": "10"}))), "no width gives 10 parameters within 5 %; the nearest are ");
    refused(with(ten(json!({"parameters": "4k", "dim": 8}))), "both set the width of the model");
    refused(with(ten(json!({}))), "neither `dim` nor `parameters`");
}

#[test]
fn a_gradient_in_pieces_trains_the_same_model_up_to_rounding() {
    let whole = trained(1, 1, |config| config["batch_size"] = json!(15));
    let pieces = trained(1, 1, |config| {
        config["batch_size"] = json!(15);
        config["accumulate"] = json!(4);
    });
    for (one, other) in whole.metrics.iter().zip(&pieces.metrics).filter(|(one, _)| one.0 == "train/loss") {
        // A difference in rounding grows a little with every step.
        assert!((one.2 - other.2).abs() <= 0.02 * one.2, "{one:?} is not {other:?}");
    }
    assert_ne!(checkpoint_bytes(&whole), checkpoint_bytes(&pieces));
}

#[test]
fn batches_of_a_budget_of_tokens_train_too() {
    let context = trained(1, 1, |config| {
        config.as_object_mut().unwrap().remove("batch_size");
        config["batching"] = json!({"max_tokens": 64, "max_sequences": 32});
    });
    assert!(context.last("test/accuracy").unwrap() > 0.9);
    refused(
        |config| {
            config.as_object_mut().unwrap().remove("batch_size");
            config["batching"] = json!({"max_tokens": 7});
        },
        "a sequence of 8 tokens does not fit batching.max_tokens 7",
    );
}

#[test]
fn bf16_trains_what_f32_trains_but_for_rounding() {
    for model in [
        json!({"family": "ten", "dim": 16, "layers": 1, "states": 8, "chunk": 4, "pool": "last"}),
        json!({"family": "pulse", "dim": 16, "layers": 1, "states": 4, "chunk": 4, "heads": 2, "pool": "last"}),
        json!({"family": "transformer", "dim": 16, "layers": 1, "heads": 2, "pool": "last", "checkpoint": "block"}),
    ] {
        let of = |threads, precision: &str| {
            trained(threads, 1, |config| {
                config["model"] = model.clone();
                config["precision"] = json!(precision);
            })
        };
        let (wide, narrow) = (of(1, "f32"), of(1, "bf16"));
        let losses = |context: &TestContext| -> Vec<f64> {
            let of_training = context.metrics.iter().filter(|(name, _, _)| name == "train/loss");
            of_training.map(|(_, _, loss)| *loss).collect()
        };
        let (wide, narrow_losses) = (losses(&wide), losses(&narrow));
        assert_ne!(wide, narrow_losses, "nothing was rounded: {model}");
        for (wide, narrow) in wide.iter().zip(&narrow_losses) {
            assert!((wide - narrow).abs() < 0.05 * wide + 0.01, "{narrow} is not {wide}: {model}");
        }
        assert!(narrow.last("test/accuracy").unwrap() > 0.9);
        let two = of(2, "bf16");
        assert_eq!((results(&narrow), checkpoint_bytes(&narrow)), (results(&two), checkpoint_bytes(&two)));
    }
    let context = trained(1, 1, |_| ());
    assert_eq!(
        checkpoint_bytes(&context),
        checkpoint_bytes(&trained(1, 1, |config| config["precision"] = json!("f32")))
    );
    refused(|config| config["precision"] = json!("bf17"), "bf17");
}

#[test]
fn label_smoothing_is_for_training_alone() {
    let smoothed = trained(1, 1, |config| config["label_smoothing"] = json!(0.2));
    // With a fifth of each target spread over three classes, no loss is below this value.
    let floor = -(1.0 - 0.4 / 3.0_f64) * (1.0 - 0.4 / 3.0_f64).ln() - 2.0 * (0.2 / 3.0_f64) * (0.2 / 3.0_f64).ln();
    assert!(smoothed.last("train/loss").unwrap() > floor - 1e-6);
    assert!(smoothed.last("test/accuracy").unwrap() > 0.9);
}

#[test]
fn a_language_model_learns_text_and_is_scored_by_token() {
    let mut context = TestContext::new(assay_cpu::device(1).unwrap());
    let (_, data) = context.provide_language_model(json!({"family": "ten", "dim": 8, "layers": 1, "states": 4}), 1);
    let config = json!({
        "data": data,
        "model": {"family": "ten", "dim": 16, "layers": 1, "states": 8, "chunk": 4},
        "optimizer": {"name": "adamw", "lr": 0.02, "clip_norm": 1.0},
        "batch_size": 8,
        "curriculum": [{"until_step": 60, "max_length": 11}],
    });
    context.run(&Train, config).unwrap();
    let value = |name: &str| context.last(name).unwrap();
    assert!(value("test/accuracy") > 0.95, "{}", value("test/accuracy"));
    assert!((value("test/perplexity") - value("test/loss").exp()).abs() < 1e-9 && value("test/perplexity") < 1.5);
    assert!(value("valid/perplexity") >= 1.0);
}

#[test]
fn a_profile_names_the_parts_of_each_step() {
    let context = trained(1, 1, |config| config["profile"] = json!(true));
    let text = std::fs::read_to_string(&context.artifacts["profile"]).unwrap();
    let trace: Vec<Value> = serde_json::from_str(&text).unwrap();
    let times = |name: &str| trace.iter().filter(|event| event["name"] == name).count();
    assert_eq!((times("step"), times("learn"), times("optimizer"), times("validate")), (80, 80, 80, 2));
    assert!(times("forward") >= 80 && times("backward") == times("forward"));
    assert_eq!(checkpoint_bytes(&context), checkpoint_bytes(&trained(1, 1, |_| ())), "it changes nothing");
    assert!(!trained(1, 1, |_| ()).artifacts.contains_key("profile"));
}

#[test]
fn a_diverged_training_is_a_failed_check_that_names_the_step() {
    let (mut context, mut config) = context(1);
    config["optimizer"] = json!({"name": "adamw", "lr": 1e30});
    let Err(StepError::Check { message, hint: Some(_) }) = context.run(&Train, config) else { panic!("it must fail") };
    assert!(message.starts_with("training diverged: the ") && message.contains("at step "), "{message}");
    assert!(context.artifacts.is_empty());
}

#[test]
fn an_unstable_recurrence_is_named_as_the_cause() {
    let (mut context, mut config) = context(1);
    config["model"]["resonance"] = json!("recurrent");
    config["model"]["resonance_strength"] = json!(10.0);
    config["optimizer"] = json!({"name": "adamw", "lr": 1e30});
    let Err(StepError::Check { hint: Some(hint), .. }) = context.run(&Train, config) else { panic!("it must fail") };
    assert!(
        hint.starts_with("`resonance: recurrent` makes the recurrence unstable: after step 0 its spectral radius"),
        "{hint}"
    );
    assert!(!hint.contains("optimizer.lr") && hint.contains("lower model.resonance_strength"), "{hint}");
    let warning = "warning: after step 0 the recurrence has a spectral radius of ";
    assert_eq!(context.logs.iter().filter(|line| line.starts_with(warning)).count(), 1, "{:#?}", context.logs);
    // A weak resonance is stable initially: then both may be the cause.
    let (mut context, mut config) = self::context(1);
    config["model"]["resonance"] = json!("recurrent");
    config["model"]["resonance_strength"] = json!(1e-6);
    config["optimizer"] = json!({"name": "adamw", "lr": 1e30});
    let Err(StepError::Check { hint: Some(hint), .. }) = context.run(&Train, config) else { panic!("it must fail") };
    assert!(hint.contains("lower optimizer.lr") && hint.contains("or the recurrence became unstable"), "{hint}");
}

#[test]
fn a_model_that_the_last_step_spoiled_is_no_result() {
    let (mut context, mut config) = context(1);
    config["optimizer"] = json!({"name": "adamw", "lr": 1e300});
    config["curriculum"] = json!([{"until_step": 1, "max_length": 8}]);
    let Err(StepError::Check { message, hint: Some(hint) }) = context.run(&Train, config) else {
        panic!("it must fail")
    };
    assert!(message.starts_with("training diverged: the validation loss is "), "{message}");
    assert!(hint.contains("give optimizer.clip_norm") && context.artifacts.is_empty());
}

fn refused(change: impl FnOnce(&mut Value), part: &str) {
    let (mut context, mut config) = context(1);
    change(&mut config);
    let Err(StepError::Failed { message, hint: Some(_) }) = context.run(&Train, config) else { panic!("{part}") };
    assert!(message.contains(part), "{message}");
}

#[test]
fn what_cannot_work_is_refused_with_a_hint() {
    refused(|config| config["curriculum"][0]["max_length"] = json!(2), "stage 0 has no sample");
    refused(|config| config["curriculum"][1]["until_step"] = json!(20), "until_step 20 does not come after");
    refused(|config| config["model"]["dim"] = json!(0), "dim 0 is outside");
    refused(|config| config["optimiser"] = json!({}), "optimiser");
    refused(|config| config["optimizer"]["eps"] = json!(0.0), "eps 0 is not above 0");
    refused(|config| config["optimizer"]["clip_norm"] = json!(0.0), "clip_norm 0 is not above 0");
    refused(|config| config["early_stopping"] = json!({"patience": 0}), "early_stopping.patience is 0");
    refused(
        |config| config["early_stopping"] = json!({"min_delta": -1.0}),
        "min_delta -1 is not a number of at least 0",
    );
    refused(|config| config["early_stopping"] = json!({"metric": "train/loss"}), "train/loss");
    refused(
        |config| config["early_stopping"] = json!({"metric": "valid/perplexity"}),
        "which a classifier does not have",
    );
}

#[test]
fn it_stops_when_told() {
    for patience in [0, 3, 45] {
        let (mut context, config) = context(1);
        context.patience.set(Some(patience));
        assert_eq!(context.run(&Train, config), Err(StepError::Cancelled));
        assert!(context.artifacts.is_empty());
    }
}

#[test]
fn early_stopping_ends_the_last_stage_and_says_so() {
    let stopping = |config: &mut Value| {
        config["eval_every"] = json!(10);
        config["optimizer"] = json!({"name": "adamw", "lr": 0.3});
        config["early_stopping"] = json!({"patience": 2, "min_delta": 0.0001});
    };
    let context = trained(1, 1, stopping);
    let stopped = context.last("stopped/step").expect("it stops early") as u64;
    let evaluations: Vec<(u64, f64)> = points(&context, "valid/loss");
    assert_eq!(evaluations.last().unwrap().0, stopped);
    assert!(stopped >= 40 && stopped < 80, "{stopped}: two evaluations of the last stage, at least");
    let best = evaluations.iter().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
    assert_eq!((context.last("best/step"), context.last("best/value")), (Some(best.0 as f64), Some(best.1)));
    assert_eq!(context.last("kept/step"), Some(stopped as f64));
    assert_eq!(points(&context, "test/loss")[0].0, stopped);
    assert_eq!(context.progress, (stopped, Some(stopped)));
    let line = format!(
        "stopped early after step {stopped} of 80: valid/loss has not improved by more than 0.0001 in 2 evaluations"
    );
    assert!(context.logs.iter().any(|log| log.starts_with(&line)), "{line} is not in {:#?}", context.logs);
    // Until then, the results are the same as without early stopping.
    let whole = trained(1, 1, |config| {
        stopping(config);
        config.as_object_mut().unwrap().remove("early_stopping");
    });
    assert_eq!(points(&whole, "valid/loss")[..evaluations.len()], evaluations);
    assert!(whole.last("best/step").is_none() && whole.last("kept/step").is_none());
}

#[test]
fn the_best_parameters_are_kept_where_that_is_asked_for() {
    // Of equally good evaluations the first is the best, and the accuracy reaches 1 long before the end.
    let by_accuracy = |config: &mut Value, keep: &str| {
        config["eval_every"] = json!(5);
        config["optimizer"] = json!({"name": "adamw", "lr": 0.02});
        config["early_stopping"] = json!({"metric": "valid/accuracy", "patience": 1000});
        config["keep"] = json!(keep);
    };
    let best = trained(1, 1, |config| by_accuracy(config, "best"));
    let kept = best.last("kept/step").unwrap() as u64;
    assert!(kept < 80 && best.last("best/step") == Some(kept as f64), "{kept}");
    assert_eq!(points(&best, "test/loss")[0].0, kept);
    assert!(best.last("stopped/step").is_none());
    // The bits are those of a training that ends at that step, since the learning rate is constant.
    let until = trained(1, 1, |config| {
        by_accuracy(config, "last");
        let stages = json!([{"until_step": 20, "max_length": 4}, {"until_step": kept, "max_length": 8}]);
        config["curriculum"] = if kept > 20 { stages } else { json!([{"until_step": kept, "max_length": 4}]) };
    });
    assert_eq!(checkpoint_bytes(&best), checkpoint_bytes(&until));
    assert_eq!(best.last("test/loss"), until.last("test/loss"));
    let last = trained(1, 1, |config| by_accuracy(config, "last"));
    assert_eq!(last.last("kept/step"), Some(80.0));
    assert_ne!(checkpoint_bytes(&last), checkpoint_bytes(&best));
    // Without early stopping the metric is the loss.
    let by_loss = trained(1, 1, |config| {
        config["eval_every"] = json!(20);
        config["keep"] = json!("best");
    });
    let losses = points(&by_loss, "valid/loss");
    let best = losses.iter().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
    assert_eq!(by_loss.last("best/value"), Some(best.1));
}

/// The points of a metric: step and value.
fn points(context: &TestContext, wanted: &str) -> Vec<(u64, f64)> {
    context.metrics.iter().filter(|(name, _, _)| name == wanted).map(|(_, step, value)| (*step, *value)).collect()
}
