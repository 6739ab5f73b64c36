//! Many points, in batches as they arrive.

use assay_core::{RunId, TaskIx};

use super::story::{attempt_began, attempt_ended, metric_point, metrics_record, new_run};
use crate::Store;

const POINTS: u64 = 200_000;

#[tokio::test]
async fn two_hundred_thousand_points_are_all_there_before_and_after_sealing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let run = store.begin_run(new_run()).await.unwrap();
    assert_eq!(run, RunId(1));
    store.append_records(run, vec![attempt_began(0, 1, 1)]).await.unwrap();
    for batch in 0..40 {
        let names = ["train/loss", "train/accuracy"];
        let one =
            |i: u64| metric_point(names[i as usize % 2], i / 2, if i == 123_456 { 1e9 } else { (i as f64).sin() });
        let points = (batch * POINTS / 40..(batch + 1) * POINTS / 40).map(one).collect();
        store.append_records(run, vec![metrics_record(0, 1, points)]).await.unwrap();
    }
    let live = store.series(run, TaskIx(0), None, &[], None).await.unwrap();
    store.append_records(run, vec![attempt_ended(0, 1, None, 2)]).await.unwrap();
    let sealed = store.series(run, TaskIx(0), None, &[], None).await.unwrap();
    assert_eq!(live, sealed);
    for series in &sealed.series {
        assert_eq!(series.total, POINTS / 2);
        assert!(series.steps.iter().copied().eq(0..POINTS / 2));
    }
    assert!(store.home().join("metrics/1/0-1.parquet").exists());

    let picture = store.series(run, TaskIx(0), None, &["train/loss".into()], Some(500)).await.unwrap().series.remove(0);
    assert!(picture.values.len() <= 500 && picture.total == POINTS / 2);
    assert!(picture.values.contains(&1e9), "the spike is seen");
}
