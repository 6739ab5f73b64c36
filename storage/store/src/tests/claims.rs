//! Only one run claims work at a time, and another run claims it when the first has ended in any way.

use assay_core::{RunId, TaskId, TaskIx};
use assay_server::{RunStateName, TaskStateName};

use super::story::{key, new_run, state_record};
use crate::Store;

fn work_items(tasks: &[(u32, char)]) -> Vec<(TaskIx, String)> {
    tasks.iter().map(|&(task, digit)| (TaskIx(task), key(digit))).collect()
}

fn task_id(run: RunId, task: u32) -> Option<TaskId> {
    Some(TaskId { run, task: TaskIx(task) })
}

#[tokio::test]
async fn work_belongs_to_one_task_until_its_final_state() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Store::open(folder.path()).await.unwrap(), Store::open(folder.path()).await.unwrap());
    let (first, second) = (one.begin_run(new_run()).await.unwrap(), two.begin_run(new_run()).await.unwrap());
    // The third task has the work of the first one, in the same run.
    let claimed = one.claim_work(first, &work_items(&[(0, 'a'), (1, 'b'), (2, 'a')])).await.unwrap();
    assert_eq!(claimed, [None, None, task_id(first, 0)]);
    assert_eq!(one.claim_work(first, &work_items(&[(0, 'a')])).await.unwrap(), [None], "asked twice");
    let claimed = two.claim_work(second, &work_items(&[(0, 'b'), (1, 'c')])).await.unwrap();
    assert_eq!(claimed, [task_id(first, 1), None]);
    one.append_records(first, vec![state_record(1, TaskStateName::Running, "", 1)]).await.unwrap();
    assert_eq!(two.claim_work(second, &work_items(&[(0, 'b')])).await.unwrap(), [task_id(first, 1)]);
    one.append_records(first, vec![state_record(1, TaskStateName::Failed, "no luck", 2)]).await.unwrap();
    assert_eq!(two.claim_work(second, &work_items(&[(0, 'b')])).await.unwrap(), [None]);
    assert_eq!(one.claim_work(first, &work_items(&[(2, 'b')])).await.unwrap(), [task_id(second, 0)]);
}

#[tokio::test]
async fn the_work_of_a_run_that_ended_or_died_is_anybodys() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Store::open(folder.path()).await.unwrap(), Store::open(folder.path()).await.unwrap());
    let (first, second) = (one.begin_run(new_run()).await.unwrap(), two.begin_run(new_run()).await.unwrap());
    one.claim_work(first, &work_items(&[(0, 'a'), (1, 'b')])).await.unwrap();
    // As after `kill -9`: only the lock is gone.
    drop(one);
    let claimed = two.claim_work(second, &work_items(&[(0, 'a'), (1, 'b'), (2, 'a')])).await.unwrap();
    assert_eq!(claimed, [None, None, task_id(second, 0)]);
    let ended = assay_server::Record::Ended { state: RunStateName::Cancelled, at: 5 };
    two.append_records(second, vec![ended]).await.unwrap();
    let third = two.begin_run(new_run()).await.unwrap();
    assert_eq!(two.claim_work(third, &work_items(&[(3, 'b')])).await.unwrap(), [None]);
    let many: Vec<(u32, char)> = (0..3).map(|task| (task, 'd')).collect();
    assert_eq!(two.claim_work(third, &work_items(&many)).await.unwrap().iter().flatten().count(), 2);
}
