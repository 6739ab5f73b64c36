//! The oracle finds wrong effects: in each test, one effect of a history is changed before the oracle sees it.

use assay_core::{Effect, Epoch, Event, RunOutcome, TaskId, TaskIx, TaskState, TriggerRule, WorkerId};

use crate::generate::Flavour;
use crate::world::{Tamper, judge_tampered};

const ALL: Flavour = Flavour {
    name: "tampered",
    failing_steps: true,
    bad_network: true,
    dying_workers: true,
    stubborn_attempts: true,
    driver_restarts: false,
    cancels: true,
    operators: true,
};

/// The oracle refuses what `tamper` makes of the effects, in every history in which it applies.
#[track_caller]
fn is_found(what: &str, words: &str, tamper: Tamper) {
    let verdicts = (1..3_000).filter_map(|seed| Some((seed, judge_tampered(seed, &ALL, tamper)?)));
    let verdicts: Vec<_> = verdicts.take(20).collect();
    assert_eq!(verdicts.len(), 20, "there was no opportunity: {what}");
    for (seed, verdict) in &verdicts {
        assert!(verdict.is_err(), "the oracle accepts it in history {seed}: {what}");
    }
    let said = verdicts.iter().any(|(_, verdict)| verdict.as_ref().is_err_and(|problem| problem.contains(words)));
    assert!(said, "`{words}` is not in {:?}", verdicts[0]);
}

/// The first start among the effects.
fn start(effects: &mut [Effect]) -> Option<&mut Effect> {
    effects.iter_mut().find(|effect| matches!(effect, Effect::Start { .. }))
}

#[test]
fn wrong_starts() {
    is_found("another variant", "", |_, effects| match start(effects) {
        Some(Effect::Start { variant, .. }) => {
            *variant += 1;
            true
        }
        _ => false,
    });
    is_found("more processors", "not the resource of its variant", |event, effects| match start(effects) {
        // A repeated start is compared with the first one by its worker alone.
        Some(Effect::Start { resource, attempt, .. }) if attempt.epoch == Epoch(1) && !matches!(event, Event::Tick) => {
            resource.cpus += 1;
            true
        }
        _ => false,
    });
    is_found("a second attempt at the same time", "its task has a live attempt", |_, effects| {
        let Some(Effect::Start { attempt, worker, variant, resource, device }) = start(effects).cloned() else {
            return false;
        };
        let attempt = assay_core::AttemptId { epoch: Epoch(attempt.epoch.0 + 1), ..attempt };
        effects.push(Effect::Start { attempt, worker, variant, resource, device });
        true
    });
    is_found("a skipped epoch", "the latest attempt was", |_, effects| match start(effects) {
        Some(Effect::Start { attempt, .. }) => {
            attempt.epoch.0 += 5;
            true
        }
        _ => false,
    });
    is_found("an unknown worker", "no such worker", |_, effects| match start(effects) {
        Some(Effect::Start { worker, attempt, .. }) if attempt.epoch == Epoch(1) => {
            *worker = WorkerId(999);
            true
        }
        _ => false,
    });
    is_found("a device that does not exist", "Some(99)", |event, effects| match start(effects) {
        Some(Effect::Start { device, attempt, .. }) if attempt.epoch == Epoch(1) && !matches!(event, Event::Tick) => {
            *device = Some(99);
            true
        }
        _ => false,
    });
}

#[test]
fn wrong_ends() {
    is_found("the same end twice", "it is not live", |_, effects| {
        let over = effects.iter().find(|effect| matches!(effect, Effect::AttemptOver { .. })).cloned();
        effects.extend(over.clone());
        over.is_some()
    });
    is_found("another outcome of a run", "expected", |_, effects| {
        for effect in effects.iter_mut() {
            if let Effect::RunEnded { outcome, .. } = effect {
                *outcome = match outcome {
                    RunOutcome::Succeeded => RunOutcome::Failed,
                    _ => RunOutcome::Succeeded,
                };
                return true;
            }
        }
        false
    });
    is_found("a run that ends at once", "some task has not", |event, effects| match event {
        Event::RunSubmitted { run, plan } if !plan.tasks.is_empty() && !effects.is_empty() => {
            effects.push(Effect::RunEnded { run: *run, outcome: RunOutcome::Succeeded });
            true
        }
        _ => false,
    });
    is_found("a success without an attempt", "no attempt of it has succeeded", |_, effects| {
        for effect in effects.iter_mut() {
            if let Effect::TaskChanged { state: state @ TaskState::Ready { .. }, .. } = effect {
                *state = TaskState::Succeeded { epoch: Epoch(1) };
                return true;
            }
        }
        false
    });
}

#[test]
fn wrong_requests() {
    is_found("a task before its needs", "is not there", |event, effects| {
        let Event::RunSubmitted { run, plan } = event else { return false };
        let waits =
            plan.tasks.iter().position(|task| task.trigger == TriggerRule::AllSuccess && !task.needs.is_empty());
        let task = waits.filter(|_| !effects.is_empty()).map(|task| TaskId { run: *run, task: TaskIx(task as u32) });
        effects.extend(task.map(|task| Effect::Resolve { task }));
        task.is_some()
    });
    is_found("a stop of nothing", "there is nothing to stop", |_, effects| {
        let Some(Effect::Start { attempt, worker, .. }) = start(effects).cloned() else { return false };
        let attempt = assay_core::AttemptId { epoch: Epoch(77), ..attempt };
        effects.push(Effect::Stop { attempt, worker, reason: assay_core::StopReason::TimedOut });
        true
    });
    is_found("a worker that is not dismissed", "is not dismissed", |event, effects| {
        let (Event::WorkerJoined { worker: spoke, .. } | Event::WorkerHeartbeat { worker: spoke }) = event else {
            return false;
        };
        let before = effects.len();
        effects.retain(|effect| !matches!(effect, Effect::Dismiss { worker } if worker == spoke));
        effects.len() < before
    });
}
