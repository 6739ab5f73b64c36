//! The whole store as text. Rows are destructured exhaustively, so that no new column can hide.
//!
//! Values that differ between two runs of the same test are omitted: times of the clock and names of sessions.

use std::fmt::Write;
use std::path::Path;

use assay_schema::{artifact, attempt, cache, claim, journal, log, metric_point, run, segment, task};
use sea_orm::{EntityTrait, QueryOrder};
use serde_json::Value;

use crate::Store;

fn json_text(value: Option<&Value>) -> String {
    value.map_or_else(|| "-".into(), Value::to_string)
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// A time of the story, or a placeholder for a time of the clock.
fn time_text(time: Option<i64>) -> String {
    match time {
        Some(time) if time > 1_000_000 => "clock".into(),
        other => or_dash(other),
    }
}

pub(super) async fn dump(store: &Store) -> String {
    let mut out = String::new();
    dump_runs(store, &mut out).await;
    dump_tasks(store, &mut out).await;
    dump_attempts(store, &mut out).await;
    journal_and_logs(store, &mut out).await;
    dump_points(store, &mut out).await;
    artifacts_and_cache(store, &mut out).await;
    for folder in ["artifacts", "metrics"] {
        let mut files = Vec::new();
        list_tree(&store.home().join(folder), folder, &mut files);
        for file in files {
            writeln!(out, "file {file}").unwrap();
        }
    }
    out
}

async fn dump_runs(store: &Store, out: &mut String) {
    for row in run::Entity::find().order_by_asc(run::Column::Id).all(store.database.reader()).await.unwrap() {
        let run::Model {
            id,
            name,
            file,
            source,
            params,
            machine,
            version,
            session: _,
            state,
            created_at,
            ended_at,
            ..
        } = &row;
        let run::Model { tags, note, git_commit, git_dirty, .. } = &row;
        let (created, ended) = (time_text(Some(*created_at)), time_text(*ended_at));
        let git = (or_dash(git_commit.as_ref()), or_dash(*git_dirty));
        writeln!(out, "run {id} `{name}` {file} v{version} {state} {created}..{ended}").unwrap();
        writeln!(out, "  tags {tags} note {note:?} commit {} dirty {}", git.0, git.1).unwrap();
        writeln!(out, "  params {params} machine {machine} source {source:?}").unwrap();
    }
}

async fn dump_tasks(store: &Store, out: &mut String) {
    let query = task::Entity::find().order_by_asc(task::Column::Run).order_by_asc(task::Column::Ix);
    for row in query.all(store.database.reader()).await.unwrap() {
        let task::Model { run, ix, address, job, kind, matrix, replicate, needs, each_of, .. } = &row;
        let (replicate, each_of) = (or_dash(*replicate), or_dash(*each_of));
        writeln!(out, "task {run}/{ix} {address}").unwrap();
        writeln!(out, "  job {job} kind {kind} matrix {matrix} replicate {replicate} needs {needs} each {each_of}")
            .unwrap();
        let task::Model { state, detail, config, cache_key, outputs, metrics, .. } = &row;
        let task::Model { source_run, source_ix, source_epoch, attempts, started_at, ended_at, .. } = &row;
        let (started, ended) = (time_text(*started_at), time_text(*ended_at));
        writeln!(out, "  {state} {detail:?} attempts {attempts} started {started} ended {ended}").unwrap();
        let key: String = or_dash(cache_key.as_ref()).chars().take(4).collect();
        writeln!(out, "  config {} key {key} outputs {}", json_text(config.as_ref()), json_text(outputs.as_ref()))
            .unwrap();
        let source = (or_dash(*source_run), or_dash(*source_ix), or_dash(*source_epoch));
        writeln!(out, "  metrics {} source {}/{}@{}", json_text(metrics.as_ref()), source.0, source.1, source.2)
            .unwrap();
    }
}

async fn dump_attempts(store: &Store, out: &mut String) {
    let query = attempt::Entity::find().order_by_asc(attempt::Column::Ix).order_by_asc(attempt::Column::Epoch);
    for row in query.all(store.database.reader()).await.unwrap() {
        let attempt::Model { run, ix, epoch, worker, backend, executor, began_at, ended_at, .. } = &row;
        let executor = json_text(executor.as_ref());
        let (began, ended) = (time_text(Some(*began_at)), time_text(*ended_at));
        writeln!(out, "attempt {run}/{ix}@{epoch} on {worker} {backend} {began}..{ended} executor {executor}").unwrap();
        let attempt::Model { failure_class, failure_message, failure_hint, .. } = row;
        if failure_class.is_some() || failure_message.is_some() || failure_hint.is_some() {
            let words = [failure_class, failure_message, failure_hint].map(or_dash);
            writeln!(out, "  {}", words.join(" | ")).unwrap();
        }
    }
}

async fn journal_and_logs(store: &Store, out: &mut String) {
    for row in journal::Entity::find().order_by_asc(journal::Column::Seq).all(store.database.reader()).await.unwrap() {
        let journal::Model { run, seq, entry } = row;
        writeln!(out, "journal {run} {seq} {entry}").unwrap();
    }
    let query = log::Entity::find().order_by_asc(log::Column::Ix).order_by_asc(log::Column::Seq);
    for row in query.all(store.database.reader()).await.unwrap() {
        let log::Model { run, ix, seq, epoch, at: time, level, text } = row;
        writeln!(out, "log {run}/{ix}@{epoch} {seq} at {} {level} {text}", time_text(Some(time))).unwrap();
    }
}

async fn dump_points(store: &Store, out: &mut String) {
    let query = metric_point::Entity::find().order_by_asc(metric_point::Column::Ix);
    let query = query.order_by_asc(metric_point::Column::Epoch).order_by_asc(metric_point::Column::Seq);
    for row in query.all(store.database.reader()).await.unwrap() {
        let metric_point::Model { run, ix, epoch, seq, name, step, bits, at: _ } = row;
        let value = f64::from_bits(bits.cast_unsigned());
        writeln!(out, "point {run}/{ix}@{epoch} {seq} {name} {} {value:?}", step.cast_unsigned()).unwrap();
    }
    let query = segment::Entity::find().order_by_asc(segment::Column::Ix).order_by_asc(segment::Column::Epoch);
    for row in query.all(store.database.reader()).await.unwrap() {
        let segment::Model { run, ix, epoch, path, hash, points, series } = row;
        writeln!(out, "segment {run}/{ix}@{epoch} {path} points {points} series {series}").unwrap();
        let file = store.layout.segment(&path);
        let read = tokio::task::spawn_blocking(move || assay_metrics::read_segment(&file, &hash, &[]).unwrap());
        for curve in read.await.unwrap() {
            writeln!(out, "  {} {:?} {:?}", curve.name, curve.steps, curve.values).unwrap();
        }
    }
}

async fn artifacts_and_cache(store: &Store, out: &mut String) {
    for row in artifact::Entity::find().order_by_asc(artifact::Column::Hash).all(store.database.reader()).await.unwrap()
    {
        let artifact::Model { hash, name, bytes, created_at: _ } = row;
        writeln!(out, "artifact {} {name} {bytes}", &hash[..8]).unwrap();
    }
    for row in claim::Entity::find().order_by_asc(claim::Column::Key).all(store.database.reader()).await.unwrap() {
        let claim::Model { key, run, ix } = row;
        writeln!(out, "claim {} by {run}/{ix}", &key[..4]).unwrap();
    }
    for row in cache::Entity::find().order_by_asc(cache::Column::Key).all(store.database.reader()).await.unwrap() {
        let cache::Model { key, run, ix, epoch } = row;
        writeln!(out, "cache {} -> {run}/{ix}@{epoch}", &key[..4]).unwrap();
    }
}

/// The files below a folder, sorted.
pub(super) fn list_tree(folder: &Path, name: &str, out: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = format!("{name}/{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() { list_tree(&path, &name, out) } else { out.push(name) }
    }
}
