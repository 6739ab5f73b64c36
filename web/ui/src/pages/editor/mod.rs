//! The editor of workflow files: it checks a text as `assay plan` does, and submits it where this server accepts submissions.

use std::sync::Arc;

use assay_server::LabSubmission;
use assay_spec::{Problem, Workflow, check_with_files};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Serialize;

use crate::error::Failure;
use crate::load;
use crate::query::{Choices, run_of};
use crate::server::{Inner, Site};
use crate::templates::render;

/// The name of the text in messages.
const FILE: &str = "workflow.yaml";
/// The largest text, in bytes.
const LARGEST: usize = 1 << 20;
/// What the editor begins with.
const EXAMPLE: &str = include_str!("example.yaml");

#[derive(Debug, Serialize)]
struct EditorPage {
    title: &'static str,
    live: bool,
    text: String,
    /// Whether this server accepts submissions.
    accepts: bool,
    checked: CheckedDraft,
}

/// What the parser says of a text.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct CheckedDraft {
    /// What is wrong, by position; empty if the workflow can run.
    pub problems: Vec<Problem>,
    /// How many problems are not listed.
    pub omitted: usize,
    /// What is probably a mistake.
    pub warnings: Vec<Problem>,
    /// What would run; `None` if something is wrong.
    pub plan: Option<DraftPlan>,
}

/// What a workflow would run.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct DraftPlan {
    /// Its name.
    pub name: String,
    /// How many tasks it has, not counting jobs whose cells depend on results.
    pub tasks: usize,
    /// The jobs, in the order of the file.
    pub jobs: Vec<DraftJob>,
}

/// A job of a plan.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct DraftJob {
    pub name: String,
    /// The step kind.
    pub kind: String,
    /// The jobs that it needs.
    pub needs: Vec<String>,
    /// How many tasks it has; `None` if that depends on results.
    pub tasks: Option<usize>,
    /// The first of its cells.
    pub cells: Vec<String>,
    /// How many cells are not listed.
    pub more_cells: usize,
}

/// How many cells of a job are listed.
const LISTED_CELLS: usize = 4;

/// The page; `?run=N` begins with the file of a run.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&["run"])?;
    let text = match choices.get("run") {
        Some(run) => load::run(&site, run_of(run)?).await?.source,
        None => EXAMPLE.to_owned(),
    };
    let checked = check_draft(&site, &text);
    page(&site, text, checked)
}

/// Checks the text that the form sent.
pub(crate) async fn check_form(State(site): State<Site>, body: Bytes) -> Result<Html<String>, Failure> {
    let text = read_form(&body)?;
    let checked = check_draft(&site, &text);
    page(&site, text, checked)
}

/// Submits the text that the form sent, and leads to the page of its run. A text with problems is shown with them instead.
pub(crate) async fn submit_form(State(site): State<Site>, body: Bytes) -> Result<Response, Failure> {
    let Some(hub) = site.hub.as_ref().map(Arc::clone) else {
        return Err(Failure {
            status: 409,
            error: "this server accepts no submissions".into(),
            hint: "save the text as a file and use `assay run`, or start `assay server --listen`".into(),
        });
    };
    let text = read_form(&body)?;
    let checked = check_draft(&site, &text);
    let Some(plan) = &checked.plan else {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, page(&site, text, checked)?).into_response());
    };
    let submission = LabSubmission {
        file: format!("{}.yaml", plan.name),
        text,
        included: Default::default(),
        params: Vec::new(),
        only: Vec::new(),
        force: false,
        tags: Vec::new(),
        note: String::new(),
        git: None,
        files: Vec::new(),
    };
    // In a task that outlives the request: a reader who leaves must not leave a run half begun.
    let begun = tokio::spawn(async move { hub.submit(submission).await });
    let run = begun.await.map_err(Failure::internal)??;
    Ok(Redirect::to(&format!("/runs/{run}")).into_response())
}

fn page(site: &Inner, text: String, checked: CheckedDraft) -> Result<Html<String>, Failure> {
    let accepts = site.hub.is_some();
    render(site, "editor.html", EditorPage { title: "Workflow editor", live: false, text, accepts, checked })
}

fn read_form(body: &[u8]) -> Result<String, Failure> {
    let mut fields = form_urlencoded::parse(body);
    let text = fields.find(|(name, _)| name == "source").map(|(_, text)| text.into_owned());
    let text = text.ok_or_else(|| {
        Failure::bad_request("the form has no field `source`", "open the page of the editor and send its form")
    })?;
    check_size(&text)?;
    // Browsers end the lines of a form with CR and LF.
    Ok(text.replace("\r\n", "\n"))
}

/// Refuses a text that is too large.
pub(crate) fn check_size(text: &str) -> Result<(), Failure> {
    match text.len() > LARGEST {
        true => Err(Failure {
            status: 413,
            error: format!("the text is larger than {LARGEST} bytes"),
            hint: "a workflow file of this size is generated: use `assay plan`".into(),
        }),
        false => Ok(()),
    }
}

/// Checks a text with the parser of workflow files. It may not include other files: those are on the writer's machine.
pub(crate) fn check_draft(site: &Inner, text: &str) -> CheckedDraft {
    let load = |_: &str| Err("the editor reads no other files; use `assay run` or `assay submit`".to_owned());
    match check_with_files(FILE, text, &site.kinds, &[], &load) {
        Ok(workflow) => CheckedDraft {
            warnings: workflow.warnings.problems.clone(),
            plan: Some(plan(&workflow)),
            ..CheckedDraft::default()
        },
        Err(found) => CheckedDraft { problems: found.problems, omitted: found.omitted, ..CheckedDraft::default() },
    }
}

fn plan(workflow: &Workflow) -> DraftPlan {
    let job = |job: &assay_spec::Job| {
        let mut cells: Vec<String> = Vec::new();
        for &task in &job.tasks {
            let cell = &workflow.tasks[task].cell;
            if cells.last() != Some(cell) && !cells.contains(cell) {
                cells.push(cell.clone());
            }
        }
        let more_cells = cells.len().saturating_sub(LISTED_CELLS);
        cells.truncate(LISTED_CELLS);
        DraftJob {
            name: job.name.clone(),
            kind: job.kind.clone(),
            needs: job.needs.iter().map(|&need| workflow.jobs[need].name.clone()).collect(),
            tasks: job.awaits.is_none().then_some(job.tasks.len()),
            cells,
            more_cells,
        }
    };
    DraftPlan {
        name: workflow.name.clone(),
        tasks: workflow.tasks.len(),
        jobs: workflow.jobs.iter().map(job).collect(),
    }
}
