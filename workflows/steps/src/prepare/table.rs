//! `dataset: table`: the records of a CSV, TSV or JSON Lines file, or of a folder of JSON files, byte by byte, with their labels or
//! for a language model.
//!
//! A table is read twice and never held as a whole. The first reading finds labels and lengths, from which the records of each split are
//! chosen. The second reading takes the text of the chosen records. Both together need about 25 bytes for each record of the table
//! (250 MB for 10 million), in addition to the dataset.
//!
//! A pair of texts becomes one sequence, with the token `<sep>` between them; each text is cut to half of `max_length`.

use std::collections::{BTreeMap, HashMap, HashSet};

use assay_data::Files;
use assay_data::table::{Columns, TableFormat, TableRow, visit_rows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, PreparedDataset, range_problem};
use super::source::{LocalFile, MOST_BYTES, digest_files};
use super::splits::{ChosenSamples, SplitSizes, check_tokens};
use super::text::byte_names;
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};

/// The token between two texts.
const SEPARATOR: u32 = 256;
/// A column with more different values is refused as the label: it probably holds something else.
const MOST_LABELS: usize = 10_000;
/// How many records are read between two reports of progress, which also check for cancellation.
const RECORDS: u64 = 4096;

/// The parameters of `dataset: table`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The file with the training records, relative to the folder of the workflow file; gzip is decompressed. Its content goes into
    /// the store, and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// The file with the official validation records. If it is left out, a part of the training records is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub valid_path: Option<LocalFile>,
    /// The file with the official test records. If it is left out, a part of the training records is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub test_path: Option<LocalFile>,
    /// How the table is stored. If it is left out, it follows from the end of the file's name: `.csv`, `.tsv`, `.tab`, `.jsonl`,
    /// `.ndjson`, each also with `.gz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Whether the first record of a CSV or TSV file names the columns. If not, they are called `1`, `2` and so on.
    #[serde(default = "yes")]
    pub header: bool,
    /// The column of the text.
    pub text: String,
    /// The column of the second text of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_text: Option<String>,
    /// The column of the label. If it is left out, the dataset is for a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The labels of each class, such as `{spam: [spam-1, spam-2], ham: [easy-ham-1]}`. If it is left out, each label is a class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, Vec<String>>,
    /// The longest sequence in bytes; of a longer text, the beginning is kept.
    #[serde(default = "thousand")]
    #[schemars(range(min = 3, max = 65536))]
    pub max_length: usize,
    /// The most training records; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The most validation records. Without `valid_path`, this number of training records is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The most test records. Without `test_path`, this number of training records is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// The part of the training records that is for validation, without `valid_path` and `valid`.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub valid_fraction: f64,
    /// The part of the training records that is for the test, without `test_path` and `test`.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub test_fraction: f64,
    /// Which records are taken follows from it.
    #[serde(default)]
    pub seed: u64,
}

/// How a table is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Values with commas between them, quoted as in RFC 4180.
    Csv,
    /// Values with tabs between them, quoted as in RFC 4180.
    Tsv,
    /// An object of JSON on each line.
    Jsonl,
    /// A folder or an archive with a file for each record, an object of JSON. Files without the text are left out.
    JsonFiles,
}

fn yes() -> bool {
    true
}
fn thousand() -> usize {
    1024
}
fn tenth() -> f64 {
    0.1
}

/// An opened table.
struct Source {
    files: Files,
    name: String,
    format: TableFormat,
}

/// The result of the first reading.
#[derive(Default)]
struct Survey {
    /// For each table (of train, valid and test), each record with text: its length in tokens, and the number of its label.
    records: [Vec<(u32, u32)>; 3],
    /// The labels in the order in which they are first read.
    labels: Vec<String>,
    /// How many records have no text.
    empty: usize,
    /// How many records have a text that is cut.
    cut: usize,
}

impl Table {
    /// What makes these parameters impossible, whatever the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        range_problem(&[("max_length", self.max_length, 3, 65536)])
            .or_else(|| self.classes_problem())
            .or_else(|| self.split_sizes().find_problem())
    }

    fn classes_problem(&self) -> Option<ConfigProblem> {
        if self.label.is_none() && !self.classes.is_empty() {
            let message = "classes are given without a label column".to_owned();
            return Some(("classes", message, "give the column of the labels as `label`".into()));
        }
        let mut seen = HashSet::new();
        let twice = self.classes.values().flatten().find(|label| !seen.insert(label.as_str()))?;
        Some(("classes", format!("the label `{twice}` is listed twice in classes"), "give each label one class".into()))
    }

    fn split_sizes(&self) -> SplitSizes {
        SplitSizes {
            most: [self.train, self.valid, self.test],
            valid_fraction: self.valid_fraction,
            test_fraction: self.test_fraction,
            seed: self.seed,
        }
    }

    /// # Errors
    /// [`StepError::Failed`] if a file cannot be read, a record is not as it should be, or a split has no record.
    pub fn make_dataset(&self, context: &mut dyn Context) -> Result<PreparedDataset, StepError> {
        let mut sources = [Some(self.open_table(&self.path, context)?), None, None];
        for (place, path) in sources[1..].iter_mut().zip([&self.valid_path, &self.test_path]) {
            *place = path.as_ref().map(|path| self.open_table(path, context)).transpose()?;
        }
        let mut survey = self.survey_records(&sources, context)?;
        let order = sort_labels(&mut survey);
        let published = [0, 1, 2].map(|at| sources[at].as_ref().map(|_| survey.records[at].len()));
        let chosen = self.split_sizes().assign_samples(published)?;
        let lengths = chosen.iter().flat_map(|split| {
            let records = &survey.records[split.from];
            split.samples.iter().map(|at| u64::from(records[*at].0))
        });
        let name = sources[0].as_ref().map_or_else(String::new, |source| source.name.clone());
        check_tokens(lengths.sum(), &format!("the records of `{name}`"), "take fewer records, or lower max_length")?;
        let [train, valid, test] = self.collect_splits(&sources, &survey, &order, &chosen, context)?;
        let max_length = [&train, &valid, &test].iter().flat_map(|split| split.lengths()).max().unwrap_or(1);
        let (goal, what) = match self.label {
            Some(_) => (Goal::Classify, "; the label is a column"),
            None => (Goal::Predict, ""),
        };
        let separator = self.second_text.as_ref().map(|_| "<sep>".to_owned());
        let named_files =
            sources.iter().flatten().flat_map(|source| source.files.names().map(move |name| (&source.files, name)));
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
            warnings: self.survey_warnings(&survey),
            sources: digest_files(named_files)?,
            ..PreparedDataset::default()
        })
    }

    fn open_table(&self, path: &LocalFile, context: &dyn Context) -> Result<Source, StepError> {
        let files = path.open(context)?;
        let names: Vec<String> = files.names().map(str::to_owned).collect();
        if self.format == Some(Format::JsonFiles) {
            return Ok(Source { name: files.name().to_owned(), files, format: TableFormat::JsonFiles });
        }
        let [name] = names.as_slice() else {
            let message = format!("`{}` holds {} files, and a table is one file", files.name(), names.len());
            return Err(StepError::Failed { message, hint: Some("name the file itself".into()) });
        };
        let format = self.format.or_else(|| format_of_name(name)).ok_or_else(|| StepError::Failed {
            message: format!("the name of `{name}` does not say how the table is stored"),
            hint: Some("give `format`: csv, tsv, jsonl or json_files".into()),
        })?;
        let delimited = |delimiter| TableFormat::Delimited { delimiter, header: self.header };
        let format = match format {
            Format::Csv => delimited(b','),
            Format::Tsv => delimited(b'\t'),
            Format::Jsonl => TableFormat::JsonLines,
            Format::JsonFiles => TableFormat::JsonFiles,
        };
        Ok(Source { name: name.clone(), files, format })
    }

    fn columns(&self) -> Columns {
        Columns { text: self.text.clone(), second: self.second_text.clone(), label: self.label.clone() }
    }

    /// The first reading.
    fn survey_records(&self, sources: &[Option<Source>; 3], context: &mut dyn Context) -> Result<Survey, StepError> {
        let mut survey = Survey::default();
        let mut known: HashMap<String, u32> = HashMap::new();
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
        }
        Ok(survey)
    }

    /// The second reading: the records that are chosen.
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
            // The split of each record; none for a record that was not chosen.
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
        visit_rows(&source.files, &source.name, source.format, &self.columns(), &mut |row| {
            if read % RECORDS == 0 {
                context.progress(read, None, "records", "");
                if context.cancelled() {
                    return Err(StepError::Cancelled);
                }
            }
            read += 1;
            observe(&row)
        })
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

    /// The most bytes of each text.
    fn longest_text(&self) -> usize {
        if self.second_text.is_some() { (self.max_length - 1) / 2 } else { self.max_length }
    }

    fn is_cut(&self, row: &TableRow<'_>) -> bool {
        let longest = self.longest_text();
        row.text.len() > longest || row.second.is_some_and(|text| text.len() > longest)
    }

    /// The number of a record's tokens; none if a text is empty, or too short for a language model.
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
            warnings.push(format!("{} records are longer than max_length and lose their end", survey.cut));
        }
        warnings
    }
}

fn format_of_name(name: &str) -> Option<Format> {
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(".gz");
    let ends = [
        (".csv", Format::Csv),
        (".tsv", Format::Tsv),
        (".tab", Format::Tsv),
        (".jsonl", Format::Jsonl),
        (".ndjson", Format::Jsonl),
    ];
    ends.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
}

/// The number of a label, in the order in which labels are first read.
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
    if labels.len() == MOST_LABELS {
        let what = format!("the label column has more than {MOST_LABELS} different values");
        return Err(record_error(row, &what, "give the column of the classes as `label`"));
    }
    let number = labels.len() as u32;
    known.insert(label.to_owned(), number);
    labels.push(label.to_owned());
    Ok(number)
}

fn record_error(row: &TableRow<'_>, what: &str, hint: &str) -> StepError {
    let message = format!("`{}`, line {}: {what}", row.file, row.line);
    StepError::Failed { message, hint: Some(hint.into()) }
}

/// Sorts the labels, by value if all are numbers, so that classes do not depend on the order of the records. Returns the new
/// number of each.
fn sort_labels(survey: &mut Survey) -> Vec<u32> {
    let mut sorted: Vec<usize> = (0..survey.labels.len()).collect();
    let numbers: Option<Vec<f64>> = survey.labels.iter().map(|label| label.parse().ok()).collect();
    sorted.sort_by(|one, other| match &numbers {
        // `1` and `1.0` are one number and two labels.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::dataset::Dataset;
    use crate::prepare::Prepare;
    use crate::testing::TestContext;

    fn context() -> TestContext {
        TestContext::new(assay_cpu::device(1).unwrap())
    }

    fn make_table(folder: &Path, more: Value) -> Result<PreparedDataset, StepError> {
        let mut config = json!({"path": folder.join("train.csv"), "text": "text", "label": "label"});
        more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let config: Table = serde_json::from_value(config).unwrap();
        assert_eq!(config.find_problem(), None);
        config.make_dataset(&mut context())
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    fn letters(count: usize) -> String {
        let row = |at: usize| format!("{},{}\n", char::from(b'a' + at as u8), at % 2 * 10 + 2);
        format!("text,label\n{}", (0..count).map(row).collect::<String>())
    }

    #[test]
    fn records_are_divided_and_labels_sorted() {
        let folder = folder(&[("train.csv", &letters(20))]);
        let found = make_table(folder.path(), json!({"valid": 2, "test_fraction": 0.2})).unwrap();
        assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [14, 2, 4]);
        // 2 before 12: labels that are numbers are sorted by value.
        assert_eq!((found.labels.as_slice(), found.classes), (["2", "12"].map(String::from).as_slice(), 2));
        for split in [&found.train, &found.valid, &found.test] {
            for at in 0..split.len() {
                assert_eq!(split.labels()[at], (split.sequence(at)[0] - u32::from(b'a')) % 2);
            }
        }
        let again = make_table(folder.path(), json!({"valid": 2, "test_fraction": 0.2, "seed": 1})).unwrap();
        assert_ne!(found.test, again.test);
    }

    #[test]
    fn official_splits_stay_what_they_are() {
        let folder = folder(&[
            ("train.csv", &letters(6)),
            ("test.jsonl", "{\"text\": \"zz\", \"label\": 12}\n{\"text\": \"\", \"label\": 2}\n"),
        ]);
        // The formats of the files differ.
        let found =
            make_table(folder.path(), json!({"test_path": folder.path().join("test.jsonl"), "valid": 1})).unwrap();
        assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [5, 1, 1]);
        assert_eq!((found.test.sequence(0), found.test.labels()), ([122, 122].as_slice(), [1].as_slice()));
        assert_eq!(found.warnings, ["1 records have no text and are left out"]);
        assert_eq!(found.sources.files.len(), 2);
    }

    #[test]
    fn pairs_have_a_separator_and_long_texts_are_cut() {
        let rows: String = (0..9).map(|at| format!("{at}\tabcdef\tgh\n")).collect();
        let folder = folder(&[("pairs.tsv", &rows)]);
        let path = folder.path().join("pairs.tsv");
        let more =
            json!({"path": path, "header": false, "text": "2", "second_text": "3", "label": "1", "max_length": 8});
        let found = make_table(folder.path(), more).unwrap();
        assert_eq!(found.train.sequence(0), [97, 98, 99, 256, 103, 104]);
        assert_eq!((found.vocabulary.len(), found.vocabulary[256].as_str()), (257, "<sep>"));
        assert_eq!(found.warnings, ["9 records are longer than max_length and lose their end"]);
    }

    #[test]
    fn a_table_without_labels_is_for_a_language_model() {
        let folder = folder(&[("train.csv", "text\nabc\nde\nx\nfgh\nij\nkl\n")]);
        let found = make_table(folder.path(), json!({"label": null, "valid": 1, "test": 1})).unwrap();
        assert_eq!((found.goal, found.train.len(), found.train.labels().len()), (Goal::Predict, 3, 0));
        assert_eq!(found.warnings, ["1 records have no text and are left out"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let folder = folder(&[
            ("train.csv", "text,label\na,1\nb,\n"),
            ("many.csv", &format!("text,label\n{}", (0..10_001).map(|at| format!("a,{at}\n")).collect::<String>())),
            ("x.dat", "text,label\n"),
            ("few.csv", "text,label\na,1\n"),
        ]);
        let error = |more| make_table(folder.path(), more).err().unwrap().to_string();
        assert_eq!(error(json!({})), "`train.csv`, line 3: it has no label");
        assert_eq!(error(json!({"label": "class"})), "`train.csv` has no column `class`; it has `text`, `label`");
        let path = |name: &str| folder.path().join(name);
        assert!(error(json!({"path": path("many.csv")})).contains("line 10002: the label column has more than 10000"));
        assert!(error(json!({"path": path("x.dat")})).contains("does not say how the table is stored"));
        assert!(error(json!({"path": path("few.csv")})).contains("has no sample"));
        assert!(error(json!({"path": folder.path()})).contains("holds 4 files, and a table is one file"));
    }

    #[test]
    fn a_class_may_have_several_labels() {
        let folder = folder(&[("train.csv", "text,label\na,x1\nb,x2\nc,y\nd,x1\ne,y\n")]);
        let found =
            make_table(folder.path(), json!({"classes": {"y": ["y"], "x": ["x1", "x2"]}, "valid": 1, "test": 1}));
        assert_eq!(found.unwrap().labels, ["x", "y"]);
        let error = make_table(folder.path(), json!({"classes": {"x": ["x1", "x2"]}})).err().unwrap();
        assert_eq!(error.to_string(), "`train.csv`, line 4: the label `y` is in no class");
    }

    #[test]
    fn classes_that_contradict_are_refused() {
        let message = |label: Option<&str>, classes: Value| {
            let config = json!({"path": "x.csv", "text": "text", "label": label, "classes": classes});
            serde_json::from_value::<Table>(config).unwrap().find_problem().unwrap().1
        };
        let twice = message(Some("label"), json!({"x": ["1", "2"], "y": ["2"]}));
        assert_eq!(twice, "the label `2` is listed twice in classes");
        assert_eq!(message(None, json!({"x": ["1"]})), "classes are given without a label column");
    }

    #[test]
    fn records_in_two_splits_are_counted() {
        let folder = folder(&[("train.csv", &letters(8)), ("test.csv", "text,label\na,2\na,12\nnew,2\n")]);
        let mut context = context();
        let config = json!({
            "dataset": "table", "path": folder.path().join("train.csv"), "test_path": folder.path().join("test.csv"),
            "text": "text", "label": "label", "valid": 1,
        });
        context.run(&Prepare, config).unwrap();
        let shared = ["train", "valid"].map(|split| context.last(&format!("data/test/shared_with/{split}")).unwrap());
        assert_eq!(shared[0] + shared[1], 2.0);
        assert_eq!(context.last("data/contradictions"), Some(1.0));
        let dataset = Dataset::read(&context.artifacts["dataset"]).unwrap();
        assert_eq!((dataset.test.len(), dataset.about.labels), (3, vec!["2".into(), "12".into()]));
    }
}
