//! The list of runs.

use std::collections::BTreeMap;

use assay_server::{Results, RunStateName};
use assay_store::{FilterError, RunFilter, RunSummary, TaskView};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use crate::error::Failure;
use crate::load;
use crate::query::{Choices, encode};
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::format::{Moment, moment, span};
use crate::views::marks::{Tag, tags};
use crate::views::results::results;
use crate::views::run_columns::{
    ColumnKind, Headline, RunColumn, headlines, known_columns, read_columns, value_text, write_columns,
};
use crate::views::states::{StateView, Tally, of_run, tally};

/// How many runs a page lists.
const PAGE: u64 = 25;
/// How many headline metrics of a run are shown.
const HEADLINES: usize = 4;

#[derive(Debug, Serialize)]
struct RunsPage {
    title: &'static str,
    live: bool,
    home: String,
    rows: Vec<RunRow>,
    columns: Vec<RunColumn>,
    /// The names that could be columns.
    choices: Vec<ColumnChoice>,
    /// The filter as it was written.
    filter: String,
    /// The chosen columns, in the form of a URL.
    chosen: String,
    problem: Option<FilterProblem>,
    offset: u64,
    newer: Option<String>,
    older: Option<String>,
    /// All runs, with the same columns.
    unfiltered: String,
}

/// What is wrong with the filter.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct FilterProblem {
    text: String,
    hint: String,
    marked: String,
}

/// A column that could be shown, and the address that shows or hides it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ColumnChoice {
    name: String,
    shown: bool,
    href: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RunRow {
    id: i64,
    name: String,
    file: String,
    state: StateView,
    started: Moment,
    duration: String,
    tally: Tally,
    tags: Vec<Tag>,
    note: String,
    commit: Option<String>,
    headlines: Vec<Headline>,
    /// Parallel to the columns: the texts of those that show values.
    values: Vec<String>,
}

/// The choices in the address.
struct Wanted<'a> {
    filter: &'a str,
    columns: Vec<RunColumn>,
    offset: u64,
}

impl Wanted<'_> {
    fn address(&self, columns: &[String], filter: &str, offset: u64) -> String {
        let number = if offset > 0 { offset.to_string() } else { String::new() };
        let parts = [("filter", filter.to_owned()), ("columns", write_columns(columns)), ("offset", number)];
        let parts = parts.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = parts.map(|(key, value)| format!("{key}={}", encode(value))).collect();
        if query.is_empty() { "/runs".to_owned() } else { format!("/runs?{}", query.join("&")) }
    }

    fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Response, Failure> {
    choices.only(&["filter", "columns", "offset"])?;
    let columns = read_columns(choices.get("columns").unwrap_or_default());
    let wanted = Wanted {
        filter: choices.get("filter").unwrap_or_default(),
        columns: columns.map_err(|(error, hint)| Failure::bad_request(error, hint))?,
        offset: choices.number("offset", 0, i64::MAX as u64)?,
    };
    match RunFilter::parse(wanted.filter, &site.kinds) {
        Ok(filter) => Ok(list(&site, &wanted, &filter).await?.into_response()),
        Err(error) => {
            let page = empty_page(&site, &wanted, &error);
            Ok((StatusCode::BAD_REQUEST, render(&site, "runs.html", page)?).into_response())
        }
    }
}

fn empty_page(site: &Inner, wanted: &Wanted<'_>, error: &FilterError) -> RunsPage {
    let problem =
        FilterProblem { text: error.to_string(), hint: error.hint.clone(), marked: error.marked(wanted.filter) };
    page(site, wanted, Vec::new(), Vec::new(), Some(problem), false)
}

fn page(
    site: &Inner,
    wanted: &Wanted<'_>,
    rows: Vec<RunRow>,
    known: Vec<String>,
    problem: Option<FilterProblem>,
    more: bool,
) -> RunsPage {
    let names = wanted.names();
    let at = |offset: u64| wanted.address(&names, wanted.filter, offset);
    let choice = |name: String| {
        let shown = names.contains(&name);
        let others = names.iter().filter(|other| **other != name).cloned();
        let columns: Vec<String> = if shown { others.collect() } else { others.chain([name.clone()]).collect() };
        ColumnChoice { href: wanted.address(&columns, wanted.filter, wanted.offset), shown, name }
    };
    RunsPage {
        title: "Runs",
        live: rows.iter().any(|row| row.state == of_run(RunStateName::Running)),
        home: site.store.home().display().to_string(),
        older: more.then(|| at(wanted.offset.saturating_add(PAGE))),
        newer: (wanted.offset > 0).then(|| at(wanted.offset.saturating_sub(PAGE))),
        unfiltered: wanted.address(&names, "", 0),
        choices: known.into_iter().map(choice).collect(),
        chosen: write_columns(&names),
        filter: wanted.filter.to_owned(),
        offset: wanted.offset,
        columns: wanted.columns.clone(),
        problem,
        rows,
    }
}

async fn list(site: &Inner, wanted: &Wanted<'_>, filter: &RunFilter) -> Result<axum::response::Html<String>, Failure> {
    // One more than is shown tells whether there is another page.
    let mut runs = site.store.find_runs(filter, PAGE + 1, wanted.offset).await?;
    let more = runs.len() as u64 > PAGE;
    runs.truncate(PAGE as usize);
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    let params = site.store.run_params(&ids).await?;
    let now = now();
    let (mut rows, mut every, mut titles) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs {
        let tasks = load::tasks(site, run.id).await?;
        let results = results(&tasks, &site.kinds);
        titles.extend(results.columns.iter().map(|column| column.title.clone()));
        rows.push(row(site, run, &results, (&tasks, &params), &wanted.columns, now));
        every.extend(tasks);
    }
    // The chosen names too, so that each can be hidden again.
    let mut known = known_columns(params.values(), every.iter(), titles.iter().map(String::as_str));
    let chosen = wanted.names().into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>();
    known.extend(chosen);
    render(site, "runs.html", page(site, wanted, rows, known, None, more))
}

fn row(
    site: &Inner,
    run: RunSummary,
    results: &Results,
    (tasks, params): (&[TaskView], &BTreeMap<i64, Value>),
    columns: &[RunColumn],
    now: u64,
) -> RunRow {
    let text = |column: &RunColumn| match column.kind {
        ColumnKind::Value => value_text(&column.name, params.get(&run.id.0), tasks, &site.kinds),
        _ => String::new(),
    };
    RunRow {
        id: run.id.0,
        state: of_run(run.state),
        started: moment(run.created_at),
        duration: span(run.created_at, run.ended_at, now),
        tally: tally(&run.states),
        headlines: headlines(results, HEADLINES),
        values: columns.iter().map(text).collect(),
        tags: tags(&run),
        commit: run.git.as_ref().map(|git| git.commit.chars().take(10).collect()),
        note: run.note,
        name: run.name,
        file: run.file,
    }
}
