//! From a checked workflow to the core's plan.

use std::time::Duration;

use assay_core::{JobIx, JobPlan, PlanError, Resource, Retry, RunPlan, TaskIx, TaskPlan, TriggerRule};
use assay_spec::Workflow;

/// All that the core needs to know of a workflow.
///
/// # Errors
/// If the workflow is not one that the spec would pass.
pub fn run_plan(workflow: &Workflow) -> Result<RunPlan, PlanError> {
    let jobs = workflow
        .jobs
        .iter()
        .map(|job| JobPlan {
            name: job.name.clone(),
            max_parallel: job.max_parallel,
            fail_fast: job.fail_fast,
            awaits: job.awaits.as_ref().map(|jobs| jobs.iter().map(|&job| JobIx(job as u32)).collect()),
        })
        .collect();
    let tasks = workflow.tasks.iter().map(task_plan).collect();
    let plan = RunPlan { tasks, jobs };
    plan.validate()?;
    Ok(plan)
}

pub(crate) fn task_plan(task: &assay_spec::Task) -> TaskPlan {
    let variants = task.resources.iter().map(|resource| Resource {
        backend: resource.backend.clone(),
        cpus: resource.cpus,
        memory: resource.memory,
        exclusive: resource.exclusive,
        label: resource.label.clone(),
    });
    let retry = Retry {
        max: task.retry.max,
        // The spec refuses what is no failure class.
        when: task.retry.when.iter().filter_map(|class| class.parse().ok()).collect(),
        backoff_ms: millis(task.retry.backoff.duration),
        factor: task.retry.backoff.factor,
        memory_factor: task.retry.escalate.memory,
        timeout_factor: task.retry.escalate.timeout,
        exclude_worker: task.retry.exclude_node,
    };
    TaskPlan {
        address: task.address.clone(),
        job: JobIx(u32::try_from(task.job_index).unwrap_or(u32::MAX)),
        needs: task.needs.iter().map(|&ix| TaskIx(ix as u32)).collect(),
        variants: variants.collect(),
        retry,
        timeout_ms: Some(millis(task.timeout)),
        trigger: match task.trigger {
            assay_spec::TriggerRule::AllSuccess => TriggerRule::AllSuccess,
            assay_spec::TriggerRule::AllDone => TriggerRule::AllDone,
            assay_spec::TriggerRule::AncestorsDone => TriggerRule::AncestorsDone,
        },
        continue_on_error: task.continue_on_error,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
