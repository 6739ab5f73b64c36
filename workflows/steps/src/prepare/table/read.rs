//! The two passes over a table, and the resulting dataset.

use std::collections::HashMap;

use assay_data::table::{Columns, TableRow, visit_rows};
use assay_data::text::TextTokenizer;

use super::config::{PairForm, Table};
use super::record::{Encoder, TokenCounts};
use super::source::{Source, Sources};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split, TextUnits, Units};
use crate::prepare::prepared::PreparedDataset;
use crate::prepare::source::digest_files;
use crate::prepare::splits::{ChosenSamples, check_tokens};
use crate::prepare::text::changed_warnings;

/// A column with more distinct values is refused as the label: it probably contains something else.
const MOST_LABELS: usize = 10_000;
/// The number of records between two reports of progress, which also check for cancellation.
const RECORDS: u64 = 4096;

/// The result of the first pass.
#[derive(Default)]
struct Survey {
    /// For each table (of train, valid and test), each record with text: its length in tokens, and the number of its label.
    records: [Vec<(u32, u32)>; 3],
    /// For each table, whether each record has text.
    has_text: [Vec<bool>; 3],
    /// The labels in the order of their first occurrence.
    labels: Vec<String>,
    /// The number of records without text.
    empty: usize,
    /// The number of records whose text is truncated.
    cut: usize,
}

/// The result of the second pass.
#[derive(Default)]
struct Collected {
    splits: [Split; 3],
    /// The text of the predicted tokens.
    units: [Units; 3],
    counts: TokenCounts,
}

impl Table {
    /// # Errors
    /// [`StepError::Failed`] if a file cannot be read, a record is invalid, or a split has no record.
    pub fn make_dataset(&self, context: &mut dyn Context) -> Result<PreparedDataset, StepError> {
        let Sources { splits: sources, classes, warnings } = self.open_tables(context)?;
        // Names are trimmed like the labels of the records.
        let named = classes
            .filter(|_| self.classes.is_empty())
            .map(|names| names.iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>());
        let (tokenizer, described) = self.tokenizer.open(context)?;
        let encoder = Encoder::new(self, &tokenizer);
        let mut survey = self.survey_records(&sources, named.as_deref().unwrap_or_default(), &encoder, context)?;
        // Classes that a file names keep the order of their numbers.
        let order = match named {
            Some(_) => (0..survey.labels.len() as u32).collect(),
            None => sort_labels(&mut survey),
        };
        let published = [0, 1, 2].map(|at| sources[at].as_ref().map(|_| survey.records[at].len()));
        let chosen = self.split_sizes().assign_samples(published)?;
        let lengths = chosen.iter().flat_map(|split| {
            let records = &survey.records[split.from];
            split.samples.iter().map(|at| u64::from(records[*at].0))
        });
        let name = sources[0].as_ref().map_or_else(String::new, |source| source.name().to_owned());
        check_tokens(lengths.sum(), &format!("the records of `{name}`"), "take fewer records, or lower max_length")?;
        let collected = self.collect_splits(&sources, (&survey, &order, &chosen), &encoder, context)?;
        let (counts, [train_text, valid_text, test_text]) = (collected.counts, collected.units);
        let [train, valid, test] = collected.splits;
        let max_length = [&train, &valid, &test].iter().flat_map(|split| split.lengths()).max().unwrap_or(1);
        let (goal, what) = match self.label {
            Some(_) => (Goal::Classify, "; the label is a column"),
            None => (Goal::Predict, ""),
        };
        let separator =
            self.second_text.as_ref().filter(|_| self.pairs == PairForm::Joined).map(|_| "<sep>".to_owned());
        let is_text = self.label.is_none();
        let named_files = sources.iter().flatten().flat_map(Source::read_files);
        let count = survey.records.iter().map(Vec::len).sum::<usize>();
        Ok(PreparedDataset {
            name: "table",
            description: format!("The text of the records of `{name}`, {}{what}.", unit_of(&tokenizer)),
            vocabulary: tokenizer.vocabulary().into_iter().chain(separator).collect(),
            goal,
            classes: survey.labels.len(),
            labels: survey.labels.clone(),
            max_length,
            train,
            valid,
            test,
            pairs: self.pairs == PairForm::Separate,
            tokenizer: is_text.then_some(described),
            text: is_text.then_some(TextUnits { train: train_text, valid: valid_text, test: test_text }),
            metrics: counts.metrics(&tokenizer, &[("data/records", count as f64), ("data/cut", survey.cut as f64)]),
            notes: vec![format!("{count} records with text were read")],
            warnings: warnings
                .into_iter()
                .chain(self.survey_warnings(&survey))
                .chain(changed_warnings(counts.changed, (counts.records, "records"), counts.unknown))
                .collect(),
            sources: digest_files(named_files)?,
            ..PreparedDataset::default()
        })
    }

    fn columns(&self) -> Columns {
        Columns { text: self.text.clone(), second: self.second_text.clone(), label: self.label.clone() }
    }

    /// The first pass.
    fn survey_records(
        &self,
        sources: &[Option<Source>; 3],
        classes: &[String],
        encoder: &Encoder<'_>,
        context: &mut dyn Context,
    ) -> Result<Survey, StepError> {
        let mut survey = Survey { labels: classes.to_vec(), ..Survey::default() };
        let mut known: HashMap<String, u32> = classes.iter().cloned().zip(0..).collect();
        for (at, source) in sources.iter().enumerate() {
            let Some(source) = source else { continue };
            self.visit_records(source, context, &mut |row| {
                let measured = encoder.measure(row)?;
                survey.has_text[at].push(measured.is_some());
                let Some((length, is_cut)) = measured else {
                    survey.empty += 1;
                    return Ok(());
                };
                survey.cut += usize::from(is_cut);
                let label = match row.label {
                    None => 0,
                    Some(label) => {
                        number_label(self.find_class(label.trim(), row)?, row, &mut known, &mut survey.labels)?
                    }
                };
                survey.records[at].push((length as u32, label));
                Ok(())
            })?;
            if survey.records[at].is_empty() {
                let message = format!("`{}` contains no record with text", source.name());
                let hint = "check the column of the text, and that the file is complete";
                return Err(StepError::Failed { message, hint: Some(hint.into()) });
            }
        }
        Ok(survey)
    }

    /// The second pass, over the chosen records.
    fn collect_splits(
        &self,
        sources: &[Option<Source>; 3],
        (survey, order, chosen): (&Survey, &[u32], &[ChosenSamples; 3]),
        encoder: &Encoder<'_>,
        context: &mut dyn Context,
    ) -> Result<Collected, StepError> {
        let mut collected = Collected::default();
        for (from, source) in sources.iter().enumerate() {
            let Some(source) = source else { continue };
            // The split of each record with text; `None` for a record that was not chosen.
            let mut places: Vec<Option<u8>> = vec![None; survey.records[from].len()];
            for (place, split) in (0..).zip(chosen).filter(|(_, split)| split.from == from) {
                split.samples.iter().for_each(|at| places[*at] = Some(place));
            }
            let (mut at, mut has_text) = (0, survey.has_text[from].iter());
            self.visit_records(source, context, &mut |row| {
                if has_text.next() != Some(&true) {
                    return Ok(());
                }
                let (place, record) = (places.get(at).copied().flatten(), survey.records[from].get(at));
                at += 1;
                let (Some(place), Some((_, label))) = (place, record) else { return Ok(()) };
                let Some(record) = encoder.encode(row, &mut collected.counts)? else { return Ok(()) };
                let (split, place) = (&mut collected.splits[usize::from(place)], usize::from(place));
                match (self.label.is_some(), &record.second) {
                    (true, Some(second)) => split.push_pair(&record.tokens, second, order[*label as usize]),
                    (true, None) => split.push(&record.tokens, order[*label as usize]),
                    (false, _) => {
                        split.push_unlabelled(&record.tokens);
                        collected.units[place].add(record.text);
                    }
                }
                Ok(())
            })?;
        }
        Ok(collected)
    }

    fn visit_records(
        &self,
        source: &Source,
        context: &mut dyn Context,
        observe: &mut dyn FnMut(&TableRow<'_>) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        let mut read = 0;
        for name in &source.names {
            visit_rows(&source.files, name, source.format, &self.columns(), &mut |row| {
                if read % RECORDS == 0 {
                    context.progress(read, None, "records", "");
                    if context.cancelled() {
                        return Err(StepError::Cancelled);
                    }
                }
                read += 1;
                observe(&row)
            })?;
        }
        Ok(())
    }

    /// The class of a label.
    fn find_class<'a>(&'a self, label: &'a str, row: &TableRow<'_>) -> Result<&'a str, StepError> {
        if self.classes.is_empty() {
            return Ok(label);
        }
        let class = self.classes.iter().find(|(_, labels)| labels.iter().any(|known| known == label));
        class.map(|(class, _)| class.as_str()).ok_or_else(|| {
            record_error(row, &format!("the label `{label}` is in no class"), "add it to a class of `classes`")
        })
    }

    fn survey_warnings(&self, survey: &Survey) -> Vec<String> {
        let mut warnings = Vec::new();
        if survey.empty > 0 {
            warnings.push(format!("{} records have no text and are left out", survey.empty));
        }
        if survey.cut > 0 {
            warnings.push(format!("{} records are longer than max_length and are cut", survey.cut));
        }
        warnings
    }
}

/// The number of a label, in the order of first occurrence.
fn number_label(
    label: &str,
    row: &TableRow<'_>,
    known: &mut HashMap<String, u32>,
    labels: &mut Vec<String>,
) -> Result<u32, StepError> {
    if let Some(number) = known.get(label) {
        return Ok(*number);
    }
    if label.is_empty() {
        return Err(record_error(row, "it has no label", "give every record a label, or leave it out of the file"));
    }
    if labels.len() >= MOST_LABELS {
        let what = format!("the label column has more than {MOST_LABELS} different values");
        return Err(record_error(row, &what, "give the column of the classes as `label`"));
    }
    let number = labels.len() as u32;
    known.insert(label.to_owned(), number);
    labels.push(label.to_owned());
    Ok(number)
}

/// How a tokenizer divides text, for descriptions.
fn unit_of(tokenizer: &TextTokenizer) -> &'static str {
    if tokenizer.is_bytes() { "byte by byte" } else { "in the tokens of a tokenizer" }
}

pub(super) fn record_error(row: &TableRow<'_>, what: &str, hint: &str) -> StepError {
    let message = format!("`{}`, {}: {what}", row.file, row.place);
    StepError::Failed { message, hint: Some(hint.into()) }
}

/// Sorts the labels, by value if all are numbers, so that classes do not depend on the order of the records. Returns the new
/// number of each.
fn sort_labels(survey: &mut Survey) -> Vec<u32> {
    let mut sorted: Vec<usize> = (0..survey.labels.len()).collect();
    let numbers: Option<Vec<f64>> = survey.labels.iter().map(|label| label.parse().ok()).collect();
    sorted.sort_by(|one, other| match &numbers {
        // `1` and `1.0` are the same number but two labels.
        Some(numbers) => {
            numbers[*one].total_cmp(&numbers[*other]).then_with(|| survey.labels[*one].cmp(&survey.labels[*other]))
        }
        None => survey.labels[*one].cmp(&survey.labels[*other]),
    });
    let mut order = vec![0; sorted.len()];
    for (new, old) in (0..).zip(&sorted) {
        order[*old] = new;
    }
    survey.labels = sorted.into_iter().map(|old| survey.labels[old].clone()).collect();
    order
}
