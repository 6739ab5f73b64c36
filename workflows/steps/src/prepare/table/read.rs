//! The two passes over a table, and the resulting dataset.

use std::collections::HashMap;

use assay_data::table::{Columns, TableRow, visit_rows};

use super::config::Table;
use super::source::{Source, Sources};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};
use crate::prepare::prepared::PreparedDataset;
use crate::prepare::source::digest_files;
use crate::prepare::splits::{ChosenSamples, check_tokens};
use crate::prepare::text::byte_names;

/// The token between two texts.
const SEPARATOR: u32 = 256;
/// A column with more distinct values is refused as the label: it probably contains something else.
const MOST_LABELS: usize = 10_000;
/// The number of records between two reports of progress, which also check for cancellation.
const RECORDS: u64 = 4096;

/// The result of the first pass.
#[derive(Default)]
struct Survey {
    /// For each table (of train, valid and test), each record with text: its length in tokens, and the number of its label.
    records: [Vec<(u32, u32)>; 3],
    /// The labels in the order of their first occurrence.
    labels: Vec<String>,
    /// The number of records without text.
    empty: usize,
    /// The number of records whose text is truncated.
    cut: usize,
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
        let mut survey = self.survey_records(&sources, named.as_deref().unwrap_or_default(), context)?;
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
        let [train, valid, test] = self.collect_splits(&sources, &survey, &order, &chosen, context)?;
        let max_length = [&train, &valid, &test].iter().flat_map(|split| split.lengths()).max().unwrap_or(1);
        let (goal, what) = match self.label {
            Some(_) => (Goal::Classify, "; the label is a column"),
            None => (Goal::Predict, ""),
        };
        let separator = self.second_text.as_ref().map(|_| "<sep>".to_owned());
        let named_files = sources.iter().flatten().flat_map(Source::read_files);
        let count = survey.records.iter().map(Vec::len).sum::<usize>();
        Ok(PreparedDataset {
            name: "table",
            description: format!("The text of the records of `{name}`, byte by byte{what}."),
            vocabulary: byte_names().into_iter().chain(separator).collect(),
            goal,
            classes: survey.labels.len(),
            labels: survey.labels.clone(),
            max_length,
            train,
            valid,
            test,
            metrics: vec![("data/records", count as f64), ("data/cut", survey.cut as f64)],
            notes: vec![format!("{count} records with text were read")],
            warnings: warnings.into_iter().chain(self.survey_warnings(&survey)).collect(),
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
        context: &mut dyn Context,
    ) -> Result<Survey, StepError> {
        let mut survey = Survey { labels: classes.to_vec(), ..Survey::default() };
        let mut known: HashMap<String, u32> = classes.iter().cloned().zip(0..).collect();
        for (at, source) in sources.iter().enumerate() {
            let Some(source) = source else { continue };
            self.visit_records(source, context, &mut |row| {
                let Some(length) = self.count_tokens(row) else {
                    survey.empty += 1;
                    return Ok(());
                };
                survey.cut += usize::from(self.is_cut(row));
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
        survey: &Survey,
        order: &[u32],
        chosen: &[ChosenSamples; 3],
        context: &mut dyn Context,
    ) -> Result<[Split; 3], StepError> {
        let mut splits = [(); 3].map(|()| Split::default());
        for (from, source) in sources.iter().enumerate() {
            let Some(source) = source else { continue };
            // The split of each record; `None` for a record that was not chosen.
            let mut places: Vec<Option<u8>> = vec![None; survey.records[from].len()];
            for (place, split) in (0..).zip(chosen).filter(|(_, split)| split.from == from) {
                split.samples.iter().for_each(|at| places[*at] = Some(place));
            }
            let mut tokens = Vec::new();
            let mut at = 0;
            self.visit_records(source, context, &mut |row| {
                if self.count_tokens(row).is_none() {
                    return Ok(());
                }
                let (split, record) = (places.get(at).copied().flatten(), survey.records[from].get(at));
                at += 1;
                let (Some(split), Some((_, label))) = (split, record) else { return Ok(()) };
                self.encode_record(row, &mut tokens);
                match self.label {
                    Some(_) => splits[usize::from(split)].push(&tokens, order[*label as usize]),
                    None => splits[usize::from(split)].push_unlabelled(&tokens),
                }
                Ok(())
            })?;
        }
        Ok(splits)
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

    /// The number of bytes to which a text is truncated.
    fn longest_text(&self) -> usize {
        if self.second_text.is_some() { (self.max_length - 1) / 2 } else { self.max_length }
    }

    fn is_cut(&self, row: &TableRow<'_>) -> bool {
        let longest = self.longest_text();
        row.text.len() > longest || row.second.is_some_and(|text| text.len() > longest)
    }

    /// The number of a record's tokens; `None` if a text is empty, or too short for a language model.
    fn count_tokens(&self, row: &TableRow<'_>) -> Option<usize> {
        let kept = |text: &str| text.len().min(self.longest_text());
        let least = if self.label.is_none() && row.second.is_none() { 2 } else { 1 };
        let first = Some(kept(row.text)).filter(|length| *length >= least)?;
        match row.second {
            None => Some(first),
            Some(second) => Some(first + 1 + Some(kept(second)).filter(|length| *length > 0)?),
        }
    }

    fn encode_record(&self, row: &TableRow<'_>, tokens: &mut Vec<u32>) {
        let bytes = |text: &str| text.bytes().take(self.longest_text()).map(u32::from).collect::<Vec<u32>>();
        tokens.clear();
        tokens.extend(bytes(row.text));
        if let Some(second) = row.second {
            tokens.push(SEPARATOR);
            tokens.extend(bytes(second));
        }
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

fn record_error(row: &TableRow<'_>, what: &str, hint: &str) -> StepError {
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
