//! The claims of the store's workflows, each with its verdict, what was claimed and what was measured.

use assay_claims::{JudgedClaim, Verdict};
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::claims::{JudgedRun, changed_params, latest_claims};
use crate::error::Failure;
use crate::server::Site;
use crate::templates::render;
use crate::views::format::{Moment, moment};
use crate::views::interval::{IntervalStrip, interval_strip};
use crate::views::states::StateView;

/// The most tasks behind a claim that are linked.
const MOST_TASKS: usize = 12;

#[derive(Debug, Serialize)]
struct ClaimsPage {
    title: &'static str,
    live: bool,
    counts: Vec<(usize, StateView)>,
    groups: Vec<Group>,
}

/// The claims of one workflow.
#[derive(Debug, Serialize)]
struct Group {
    run: i64,
    name: String,
    file: String,
    started: Moment,
    /// The commit of the run's repository; empty where there is none.
    commit: String,
    /// The processor that the run was made on; empty where it is not known.
    machine: String,
    command: String,
    /// Why the recorded file cannot be read; empty where it can.
    problem: String,
    claims: Vec<ClaimRow>,
}

#[derive(Debug, Serialize)]
struct ClaimRow {
    id: String,
    says: String,
    source: String,
    verdict: StateView,
    check: String,
    claimed: String,
    measured: String,
    n: usize,
    reason: String,
    scaled: String,
    strip: Option<IntervalStrip>,
    arithmetic: Vec<Sum>,
    /// The tasks behind the measurement, with their places in the run.
    tasks: Vec<(usize, String)>,
    more_tasks: usize,
}

#[derive(Debug, Serialize)]
struct Sum {
    text: String,
    shown: String,
    holds: bool,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>) -> Result<Html<String>, Failure> {
    let judged = latest_claims(&site.store, &site.kinds).await?;
    let verdicts: Vec<Verdict> =
        judged.iter().filter_map(|run| run.claims.as_ref().ok()).flatten().map(|claim| claim.verdict).collect();
    let count = |verdict: &Verdict| verdicts.iter().filter(|one| *one == verdict).count();
    let counts = Verdict::ALL.iter().map(|verdict| (count(verdict), verdict_view(*verdict)));
    let page = ClaimsPage {
        title: "Claims",
        live: false,
        counts: counts.filter(|(count, _)| *count > 0).collect(),
        groups: judged.into_iter().map(|run| claim_group(run, &site.kinds)).collect(),
    };
    render(&site, "claims.html", page)
}

/// How a verdict is shown: with the colours of states, and words and glyphs for verdicts.
fn verdict_view(verdict: Verdict) -> StateView {
    let (class, glyph) = match verdict {
        Verdict::Supported => ("succeeded", "✓"),
        Verdict::Refuted => ("failed", "✕"),
        Verdict::Undecided => ("backing-off", "?"),
        Verdict::Impossible => ("cancelled", "≠"),
        Verdict::Consistent => ("cached", "="),
        Verdict::NotTested => ("skipped", "–"),
    };
    StateView { class, glyph, text: verdict.name() }
}

fn claim_group(judged: JudgedRun, kinds: &[assay_spec::StepKind]) -> Group {
    let JudgedRun { run, claims, addresses } = judged;
    let changed = changed_params(&run, kinds);
    let params: Vec<String> =
        changed.iter().map(|(name, value)| format!(" -P {}", shell_word(&format!("{name}={value}")))).collect();
    let (claims, problem) = match claims {
        Ok(claims) => (claims.into_iter().map(|claim| claim_row(claim, &addresses)).collect(), String::new()),
        Err(problem) => (Vec::new(), problem),
    };
    let machine = run.machine.get("cpu").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    Group {
        run: run.summary.id.0,
        command: format!("assay claims {}{}", shell_word(&run.summary.file), params.concat()),
        started: moment(run.summary.created_at),
        commit: run.summary.git.as_ref().map(|git| git.commit.chars().take(12).collect()).unwrap_or_default(),
        machine,
        name: run.summary.name,
        file: run.summary.file,
        problem,
        claims,
    }
}

fn claim_row(claim: JudgedClaim, addresses: &[String]) -> ClaimRow {
    let strip = claim
        .measured
        .as_ref()
        .zip(claim.band)
        .map(|(measured, band)| interval_strip(measured.value, measured.low.zip(measured.high), band));
    let tasks = claim.tasks.iter().filter_map(|&place| Some((place, addresses.get(place)?.clone())));
    ClaimRow {
        verdict: verdict_view(claim.verdict),
        strip,
        claimed: claim.claimed.unwrap_or_default(),
        n: claim.measured.as_ref().map_or(0, |measured| measured.n),
        measured: claim.measured.map(|measured| measured.text).unwrap_or_default(),
        arithmetic: claim
            .arithmetic
            .into_iter()
            .map(|one| Sum { text: one.text, shown: one.shown, holds: one.holds })
            .collect(),
        tasks: tasks.take(MOST_TASKS).collect(),
        more_tasks: claim.tasks.len().saturating_sub(MOST_TASKS),
        id: claim.id,
        says: claim.says.unwrap_or_default(),
        source: claim.source.unwrap_or_default(),
        check: claim.check.unwrap_or_default(),
        reason: claim.reason,
        scaled: claim.scaled.unwrap_or_default(),
    }
}

/// A text as one word of a POSIX shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
