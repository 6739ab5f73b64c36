//! Arbitrary sequences of batches, compared with a model in memory.

use std::collections::BTreeMap;

use assay_core::{Epoch, RunId, TaskIx};
use assay_protocol::MetricPoint;
use assay_server::Record;
use proptest::prelude::*;

use super::story::{attempt_began, attempt_ended, log_record, metrics_record, new_run};
use crate::Store;

/// An action on one of three tasks. The model numbers attempts, so any sequence is a legal history.
#[derive(Debug, Clone)]
enum Act {
    Begin,
    End,
    Measure(Vec<(u8, u64, u64)>),
    Say(String),
}

fn any_act() -> impl Strategy<Value = (u32, Act)> {
    let act = prop_oneof![
        2 => Just(Act::Begin),
        1 => Just(Act::End),
        4 => prop::collection::vec((0..3u8, any::<u64>(), any::<u64>()), 0..6).prop_map(Act::Measure),
        2 => ".{0,12}".prop_map(Act::Say),
    ];
    (0..3u32, act)
}

/// Steps and bits of values, by name.
type Curves = BTreeMap<String, Vec<(u64, u64)>>;

/// The oracle: the expected results of queries.
#[derive(Default)]
struct Model {
    latest: BTreeMap<u32, u32>,
    ended: BTreeMap<(u32, u32), bool>,
    curves: BTreeMap<(u32, u32), Curves>,
    lines: BTreeMap<u32, Vec<(u32, String)>>,
}

impl Model {
    /// The record of an action, if it is possible now.
    fn record(&mut self, task: u32, act: Act) -> Option<Record> {
        if let Act::Begin = act {
            let epoch = self.latest.entry(task).or_default();
            *epoch += 1;
            return Some(attempt_began(task, *epoch, 1));
        }
        let epoch = *self.latest.get(&task)?;
        match act {
            Act::Begin => None,
            Act::End => {
                self.ended.insert((task, epoch), true);
                Some(attempt_ended(task, epoch, None, 2))
            }
            Act::Measure(points) => {
                let curves = self.curves.entry((task, epoch)).or_default();
                let mut reported = Vec::new();
                for (name, step, bits) in points {
                    let name = format!("metric/{name}");
                    curves.entry(name.clone()).or_default().push((step, bits));
                    reported.push(MetricPoint { name, step, value: f64::from_bits(bits) });
                }
                Some(metrics_record(task, epoch, reported))
            }
            Act::Say(text) => {
                self.lines.entry(task).or_default().push((epoch, text.clone()));
                Some(log_record(task, epoch, 3, &text))
            }
        }
    }

    async fn check_store(&self, store: &Store, run: RunId) -> Result<(), TestCaseError> {
        for (&task, &latest) in &self.latest {
            for epoch in 1..=latest {
                let found = store.series(run, TaskIx(task), Some(Epoch(epoch)), &[], None).await.unwrap();
                let found: Curves = found
                    .series
                    .into_iter()
                    .map(|s| (s.name, s.steps.into_iter().zip(s.values.into_iter().map(f64::to_bits)).collect()))
                    .collect();
                prop_assert_eq!(found, self.curves.get(&(task, epoch)).cloned().unwrap_or_default());
            }
            let view = store.task(run, TaskIx(task)).await.unwrap().unwrap();
            prop_assert_eq!(view.attempts, latest);
            for attempt in store.attempts(run, TaskIx(task)).await.unwrap() {
                prop_assert_eq!(attempt.ended_at.is_some(), self.ended.contains_key(&(task, attempt.epoch.0)));
            }
            let lines = store.logs(run, TaskIx(task), 0, 1000).await.unwrap();
            let lines: Vec<_> = lines.into_iter().map(|line| (line.epoch.0, line.text)).collect();
            prop_assert_eq!(lines, self.lines.get(&task).cloned().unwrap_or_default());
        }
        let last = store.last_metrics(run).await.unwrap();
        for task in 0..3 {
            let latest = self.latest.get(&task).and_then(|epoch| self.curves.get(&(task, *epoch)));
            let expected: BTreeMap<String, u64> =
                latest.into_iter().flatten().map(|(name, points)| (name.clone(), points[points.len() - 1].1)).collect();
            let found: BTreeMap<String, u64> = last
                .get(&TaskIx(task))
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), value.to_bits()))
                .collect();
            prop_assert_eq!(same_nan(found), same_nan(expected));
        }
        Ok(())
    }
}

/// A last value is stored as JSON, which keeps NaN but not its bits.
fn same_nan(values: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let one = |bits: u64| if f64::from_bits(bits).is_nan() { f64::NAN.to_bits() } else { bits };
    values.into_iter().map(|(name, bits)| (name, one(bits))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_store_answers_what_it_was_told(batches in prop::collection::vec(prop::collection::vec(any_act(), 1..8), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path()).await.unwrap();
            let run = store.begin_run(new_run()).await.unwrap();
            let mut model = Model::default();
            for batch in batches {
                let batch = batch.into_iter().filter_map(|(task, act)| model.record(task, act)).collect();
                store.append_records(run, batch).await.unwrap();
                model.check_store(&store, run).await?;
            }
            drop(store);
            let store = Store::open(folder.path()).await.unwrap();
            model.check_store(&store, run).await
        })?;
    }
}
