//! `assay compare`: what differs between two runs, jobs or cells, first in their configs and then in their results.

use std::path::Path;
use std::process::ExitCode;

use assay_spec::printable_lines;
use assay_statistics::format;
use assay_store::Store;
use assay_ui::comparison::{
    CandidateComparison, ComparedMetric, ComparisonReport, DEFAULT_THRESHOLD, Difference, Side, compare_sides,
};

use super::results::select_results;
use crate::cli::{CommandError, CompareArgs, CompareFormat};
use crate::commits::{NamedRun, find_named_runs};
use crate::exit::REGRESSION;
use crate::record::RunRecord;
use crate::tables::{format_markdown, format_table};
use crate::terminal::print_line;

pub async fn run(home: &Path, args: &CompareArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let [named_base, named_candidate] =
        find_named_runs(&store, [&args.base, &args.candidate], args.workflow.as_deref()).await?;
    let base = load_side(&store, &named_base, &args.metrics).await?;
    let candidate = load_side(&store, &named_candidate, &args.metrics).await?;
    let comparison = compare_sides(&base, &[&candidate], args.threshold.unwrap_or(DEFAULT_THRESHOLD));
    let Some(found) = comparison.candidates.first() else { return Err("there is nothing to compare".into()) };
    for named in [&named_base, &named_candidate] {
        if let Some(note) = named.note() {
            print_line(format_args!("note: {note}"));
        }
    }
    let names = [named_base.title(&base), named_candidate.title(&candidate)];
    let report = Report { args, comparison: &comparison, found, names };
    match args.format {
        _ if args.json => super::print_json(&comparison.json_of_first())?,
        CompareFormat::Json => super::print_json(&comparison.json_of_first())?,
        CompareFormat::Table => super::print_out(&report.text())?,
        CompareFormat::Markdown => super::print_out(&report.markdown())?,
    }
    if args.threshold.is_some() && !found.has_common_cells {
        return Err(format!("{}; no regression can be judged", report.no_common_cell()).into());
    }
    let regressed = args.threshold.is_some() && found.regressions().next().is_some();
    Ok(if regressed { ExitCode::from(REGRESSION) } else { ExitCode::SUCCESS })
}

async fn load_side(store: &Store, named: &NamedRun, metrics: &[String]) -> Result<Side, CommandError> {
    let record = RunRecord::load(store, named.run).await?;
    let results = select_results(&record, metrics)?;
    Ok(Side::new(record.run, record.tasks, results, named.part.as_deref())?)
}

/// What is printed.
struct Report<'a> {
    args: &'a CompareArgs,
    comparison: &'a ComparisonReport<'a>,
    found: &'a CandidateComparison<'a>,
    /// The base and the candidate.
    names: [String; 2],
}

/// The note that explains the table of metrics.
const NOTE: &str = "Means with half of their 95 % intervals over replicates (Student's t). The interval of a difference or of a ratio (of \
                    geometric means)\nis at 95 %. It pools the error of a metric's cells if their variances are \
                    similar, and removes what replicates with the same seed share.\nTwo values are called different \
                    only if Student's test is significant after Holm's correction for all comparisons in this \
                    table (α = 0.05).\nDetectable: the smallest difference that this table detects with a power of \
                    about 80 %.";

/// The columns of the table of configs.
const CONFIG_HEAD: [&str; 5] = ["job", "config", "base", "candidate", "in"];

impl Report<'_> {
    fn no_common_cell(&self) -> String {
        let (base, candidate) = (&self.args.base, &self.args.candidate);
        format!(
            "`{base}` and `{candidate}` have no cell in common that has results; name two cells or jobs, as in \
             `assay compare '1:train[x=1]' '2:train[x=2]'`"
        )
    }

    fn metric_rows(&self) -> Vec<Vec<String>> {
        self.found.metrics.iter().map(ComparedMetric::table_line).collect()
    }

    fn text(&self) -> String {
        let [base, candidate] = &self.names;
        let mut parts = vec![format!("base:       {base}\ncandidate:  {candidate}")];
        parts.push(match self.config_rows() {
            rows if rows.is_empty() => "The configs do not differ.".to_owned(),
            rows => format_table(&CONFIG_HEAD.map(str::to_owned), &rows),
        });
        let only = [(&self.found.only_in_base, &self.args.base), (&self.found.only_in_candidate, &self.args.candidate)];
        for (alone, name) in only.into_iter().filter(|(alone, _)| !alone.is_empty()) {
            parts.push(format!("only in {name}: {}", alone.join(", ")));
        }
        if !self.found.has_common_cells {
            parts.push(format!("{}.", self.no_common_cell()));
            return printable_lines(&parts.join("\n\n")).into_owned();
        }
        parts.push(format_table(&ComparedMetric::HEAD.map(str::to_owned), &self.metric_rows()));
        if self.args.threshold.is_some() {
            parts.push(self.summarize_regressions());
        }
        parts.push(NOTE.to_owned());
        printable_lines(&parts.join("\n\n")).into_owned()
    }

    /// The form for a pull request: the answer first, then the metrics, then the differences of configs in a collapsed section.
    fn markdown(&self) -> String {
        let [base, candidate] = &self.names;
        let heading = format!("### {candidate} against {base}");
        let answer = match self.found.has_common_cells {
            true => format!("**{}**", self.summarize_regressions()),
            false => format!("**{}.**", self.no_common_cell()),
        };
        let table = format_markdown(&ComparedMetric::HEAD.map(str::to_owned), &self.metric_rows());
        let configs = match self.config_rows() {
            rows if rows.is_empty() => "The configs do not differ.".to_owned(),
            rows => {
                let table = format_markdown(&CONFIG_HEAD.map(str::to_owned), &rows);
                format!("<details><summary>{} differences of configs</summary>\n\n{table}\n\n</details>", rows.len())
            }
        };
        let mut parts = vec![heading, answer];
        parts.extend(self.found.has_common_cells.then_some(table));
        parts.push(configs);
        parts.extend(self.found.has_common_cells.then(|| NOTE.replace('\n', " ")));
        printable_lines(&parts.join("\n\n")).into_owned()
    }

    /// How many metrics are worse, and which; otherwise how many were judged.
    fn summarize_regressions(&self) -> String {
        let percent = format::quantity(self.comparison.threshold * 100.0, "");
        let judged = self.found.metrics.iter().filter(|metric| metric.outcome.is_some()).count();
        let describe = |metric: &ComparedMetric| {
            format!("{} of {} ({})", metric.title, metric.cells(), format::change(metric.change.unwrap_or(0.0)))
        };
        let worse: Vec<String> = self.found.regressions().map(describe).collect();
        match worse.len() {
            0 if judged == 0 => "No metric could be judged.".to_owned(),
            0 => format!("No significant regression of {percent} % or more in {judged} metrics that were judged."),
            1 => format!("1 significant regression of {percent} % or more: {}.", worse[0]),
            n => format!("{n} significant regressions of {percent} % or more: {}.", worse.join(", ")),
        }
    }

    fn config_rows(&self) -> Vec<Vec<String>> {
        let row = |job: &str, difference: &Difference, cells: String| {
            let value = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
            let Difference { path, base, candidate } = difference;
            vec![job.to_owned(), path.clone(), value(base), value(candidate), cells]
        };
        let params = self.found.params.iter().map(|difference| row("params", difference, String::new()));
        let configs = self.found.configs.iter().map(|found| {
            let cells =
                if found.cells.len() == 1 { found.cells[0].clone() } else { format!("{} cells", found.cells.len()) };
            row(&found.job, &found.difference, cells)
        });
        params.chain(configs).collect()
    }
}
