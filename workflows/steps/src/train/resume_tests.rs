//! A stopped training resumes with the same bits as an uninterrupted one, wherever it was stopped; it ignores a state
//! that it cannot use.

use std::path::{Path, PathBuf};

use assay_models::ArrayFile;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Train;
use super::tests::{checkpoint_bytes, context, results};
use crate::context::StepError;
use crate::testing::TestContext;

/// A short training in this folder, with two stages, more than one pass over the data and several validations, which
/// saves its state after each third step.
fn world(folder: &Path, change: impl FnOnce(&mut Value)) -> (TestContext, Value) {
    let (mut context, mut config) = context(1);
    context.resume = Some(folder.join("resume"));
    config["curriculum"] = json!([{"until_step": 7, "max_length": 4}, {"until_step": 14, "max_length": 8}]);
    config["batch_size"] = json!(13);
    (config["log_every"], config["eval_every"]) = (json!(4), json!(5));
    config["checkpoints"] = json!({"every_steps": 3});
    change(&mut config);
    if config["curriculum"].get("plugin").is_some() {
        config["curriculum"]["plugin"] = context.provide_plugin("growing");
        config["metrics"] = json!([{"plugin": context.provide_plugin("targets")}]);
    }
    (context, config)
}

fn uninterrupted(change: impl FnOnce(&mut Value)) -> TestContext {
    let folder = TempDir::new().unwrap();
    let (mut context, config) = world(folder.path(), change);
    context.resume = None;
    context.run(&Train, config).unwrap();
    context
}

fn state_in(folder: &Path) -> PathBuf {
    folder.join("resume/checkpoint.safetensors")
}

#[track_caller]
fn goes_on_from(context: &TestContext, step: u64) {
    let line = format!("resuming from the checkpoint at step {step}");
    assert!(context.logs.contains(&line), "{line} is not in {:#?}", context.logs);
}

#[track_caller]
fn same(one: &TestContext, other: &TestContext) {
    assert_eq!(results(one), results(other));
    assert!(checkpoint_bytes(one) == checkpoint_bytes(other), "other parameters");
}

/// With this learning rate the model gets worse, so training stops in the last stage.
fn stop_early(config: &mut Value, keep: &str) {
    config["eval_every"] = json!(1);
    config["optimizer"] = json!({"name": "adamw", "lr": 0.5});
    config["early_stopping"] = json!({"metric": "valid/loss", "patience": 2, "min_delta": 0.001});
    config["keep"] = json!(keep);
}

#[test]
fn one_that_was_cancelled_after_any_step_goes_on_with_the_same_bits() {
    type Change = fn(&mut Value);
    let changes: [Change; 9] = [
        |_| (),
        |config| config["shuffle_window"] = json!(5),
        |config| config["precision"] = json!("bf16"),
        |config| {
            config["model"] = json!({
                "family": "pulse", "dim": 8, "layers": 1, "states": 4, "chunk": 4, "heads": 2, "dropout": 0.2,
            });
        },
        |config| {
            config.as_object_mut().unwrap().remove("batch_size");
            config["batching"] = json!({"max_tokens": 50});
            config["accumulate"] = json!(2);
        },
        |config| {
            config["model"] = json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2, "dropout": 0.1});
            config["label_smoothing"] = json!(0.1);
        },
        |config| stop_early(config, "last"),
        |config| stop_early(config, "best"),
        |config| config["curriculum"] = json!({"plugin": null, "steps": 14}),
    ];
    for change in changes {
        let whole = uninterrupted(change);
        let last = whole.last("stopped/step").map_or(14, |step| step as u64);
        let stops_early = world(Path::new("unused"), change).1.get("early_stopping").is_some();
        assert_eq!(last < 14, stops_early, "{last}");
        let mut stops = std::collections::BTreeSet::new();
        for patience in 0.. {
            let folder = TempDir::new().unwrap();
            let (mut first, config) = world(folder.path(), change);
            first.patience.set(Some(patience));
            match first.run(&Train, config) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, StepError::Cancelled),
            }
            if let Ok(file) = ArrayFile::read(&state_in(folder.path())) {
                stops.insert(file.json::<Value>("assay.training").unwrap()["step"].as_u64().unwrap());
            }
            let (mut second, config) = world(folder.path(), change);
            second.run(&Train, config).unwrap();
            same(&second, &whole);
        }
        // Also in the middle of a validation, between the microbatches of a batch, and after the last step.
        assert!(stops.iter().copied().eq(1..=last), "{stops:?}");
    }
}

/// A killed process leaves the state that it saved last, whatever it reported later.
#[test]
fn one_that_was_killed_goes_on_from_what_it_saved() {
    let whole = uninterrupted(|_| ());
    let folder = TempDir::new().unwrap();
    let (mut first, config) = world(folder.path(), |_| ());
    first.run(&Train, config).unwrap();
    assert_eq!(first.logs.iter().filter(|log| log.starts_with("resuming")).count(), 0);
    // The state of step 12 is the last one: the training ended two steps later.
    let (mut second, config) = world(folder.path(), |_| ());
    second.run(&Train, config).unwrap();
    goes_on_from(&second, 12);
    same(&second, &whole);
}

#[test]
fn one_that_is_stopped_again_and_again_comes_to_its_end() {
    let whole = uninterrupted(|_| ());
    let folder = TempDir::new().unwrap();
    for attempt in 0..40 {
        let (mut next, config) = world(folder.path(), |_| ());
        next.patience.set(Some(7));
        match next.run(&Train, config) {
            Ok(()) => {
                assert!(attempt > 1);
                return same(&next, &whole);
            }
            Err(error) => assert_eq!(error, StepError::Cancelled),
        }
    }
    panic!("it never came to its end");
}

#[test]
fn a_state_that_is_damaged_or_of_another_training_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let (mut first, config) = world(folder.path(), |_| ());
    first.run(&Train, config).unwrap();
    let good = std::fs::read(state_in(folder.path())).unwrap();
    let begins_anew = |bytes: &[u8], change: fn(&mut Value), replicate: u32, why: &str| {
        std::fs::write(state_in(folder.path()), bytes).unwrap();
        let (mut second, config) = world(folder.path(), change);
        second.replicate = replicate;
        second.run(&Train, config).unwrap();
        let line = second.logs.iter().find(|log| log.contains("training starts again"));
        assert!(line.is_some_and(|line| line.contains(why)), "{why} is not in {:#?}", second.logs);
        second
    };
    let whole = uninterrupted(|_| ());
    same(&begins_anew(b"", |_| (), 1, "not a safetensors file"), &whole);
    same(&begins_anew(&good[..good.len() / 2], |_| (), 1, "not a safetensors file"), &whole);
    for at in [good.len() - 1, good.len() / 2] {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        same(&begins_anew(&flipped, |_| (), 1, "does not match its hash"), &whole);
    }
    begins_anew(&good, |config| config["seed"] = json!(10), 1, "another training");
    begins_anew(&good, |config| config["optimizer"]["lr"] = json!(0.01), 1, "another training");
    begins_anew(&good, |_| (), 2, "another training");
}

#[test]
fn what_cannot_be_saved_does_not_end_a_training() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("resume"), "a file where a folder should be").unwrap();
    let (mut context, config) = world(folder.path(), |_| ());
    context.run(&Train, config).unwrap();
    same(&context, &uninterrupted(|_| ()));
    assert!(context.logs.iter().any(|log| log.contains("could not be saved")), "{:#?}", context.logs);
}

#[test]
fn a_short_training_saves_nothing_unless_it_is_told_to() {
    let folder = TempDir::new().unwrap();
    let (mut context, config) = world(folder.path(), |config| {
        config.as_object_mut().unwrap().remove("checkpoints");
    });
    context.run(&Train, config).unwrap();
    assert!(!folder.path().join("resume").exists());
}
