//! Chosen metrics of a run by cell: the table that the views of a sweep draw.

use assay_core::RunId;
use assay_server::{Column, OTHERS_LOAD, Results, Selection, TaskResult, tabulate_results};
use assay_spec::Better;
use assay_store::{RunView, TaskView};

use crate::error::Failure;
use crate::load;
use crate::pages::run::in_order;
use crate::server::Inner;
use crate::views::states::is_final;

/// A run with its metrics.
pub(crate) struct MetricTable {
    /// The run.
    pub run: RunView,
    /// The table of the chosen metrics.
    pub results: Results,
    /// What can be chosen: the metrics of finished tasks, then the titles of columns that are the values of one job.
    pub choices: Vec<String>,
    /// Whether some task is in progress, so that cells are missing.
    pub is_unfinished: bool,
}

impl MetricTable {
    /// Loads a run, and tabulates the metrics that `choose` names, given the headline columns that have a direction.
    ///
    /// # Errors
    /// If a named metric is not one of the run's.
    pub async fn load(site: &Inner, id: RunId, choose: impl FnOnce(&[Column]) -> Vec<String>) -> Result<Self, Failure> {
        let run = load::run(site, id).await?;
        let tasks = load::tasks(site, id).await?;
        let is_unfinished = tasks.iter().any(|task| !is_final(task.state));
        let metrics: std::collections::BTreeSet<&String> = tasks.iter().flat_map(|task| task.metrics.keys()).collect();
        let mut choices = in_order(site, metrics.into_iter().cloned().collect());
        let rows: Vec<TaskResult<'_>> = tasks.iter().map(TaskView::result).collect();
        let mut headlines = tabulate_results(&rows, &site.kinds, &Selection::Headlines).columns;
        headlines.retain(|column| column.better != Better::Neither && column.metric != OTHERS_LOAD);
        let chosen = choose(&headlines);
        let named = chosen.iter().map(|name| metric_of(name, &choices, id)).collect::<Result<Vec<_>, _>>()?;
        let results = tabulate_results(&rows, &site.kinds, &Selection::Named(named));
        for column in &results.columns {
            if column.title != column.metric && !choices.contains(&column.title) {
                choices.push(column.title.clone());
            }
        }
        Ok(MetricTable { run, results, choices, is_unfinished })
    }

    /// The column of a metric or with a title: its place.
    pub fn column(&self, name: &str) -> Option<usize> {
        let columns = &self.results.columns;
        columns.iter().position(|c| c.title == name).or_else(|| columns.iter().position(|c| c.metric == name))
    }
}

/// The metric that a reader names: by its name, or by the title of a column, which is a metric and a job.
fn metric_of(name: &str, known: &[String], run: RunId) -> Result<String, Failure> {
    let is_meant = |metric: &&String| {
        name.strip_prefix(metric.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '(']))
    };
    // A metric's name may begin with another's.
    known.iter().filter(is_meant).max_by_key(|metric| metric.len()).cloned().ok_or_else(|| {
        let error = format!("no task of run {run} has the metric `{}`", name.chars().take(100).collect::<String>());
        Failure::not_found(error, "choose one of those that the page without a query offers")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_metric_that_a_title_begins_with_is_meant() {
        let known = ["loss".to_owned(), "loss a".to_owned()];
        let found = |name: &str| metric_of(name, &known, RunId(1)).map_err(|failure| failure.error);
        assert_eq!(found("loss").as_deref(), Ok("loss"));
        assert_eq!(found("loss train").as_deref(), Ok("loss"));
        assert_eq!(found("loss a b").as_deref(), Ok("loss a"));
        assert_eq!(found("lossy").unwrap_err(), "no task of run 1 has the metric `lossy`");
    }
}
