//! The files of a table: one file, or the tables of a folder in the layout of Hugging Face.

use assay_data::Files;
use assay_data::table::{Delimited, TableFormat, class_names, find_splits};

use super::config::{Format, Table};
use crate::context::{Context, StepError};
use crate::prepare::source::LocalFile;

/// The tables of one split.
pub(super) struct Source {
    /// The folder, archive or file that contains them.
    pub files: Files,
    /// Their names in it, in order. For JSON files, the name of the folder or archive.
    pub names: Vec<String>,
    pub format: TableFormat,
}

/// The tables of all splits.
#[derive(Default)]
pub(super) struct Sources {
    /// Of train, valid and test; `None` for a split without tables.
    pub splits: [Option<Source>; 3],
    /// The names of all classes in the order of their numbers, if a file has them.
    pub classes: Option<Vec<String>>,
    /// Warnings about the folder.
    pub warnings: Vec<String>,
}

impl Source {
    /// The files that are read.
    pub fn read_files(&self) -> impl Iterator<Item = (&Files, &str)> {
        let names: Box<dyn Iterator<Item = &str>> = match self.format {
            TableFormat::JsonFiles => Box::new(self.files.names()),
            _ => Box::new(self.names.iter().map(String::as_str)),
        };
        names.map(|name| (&self.files, name))
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        match self.names.as_slice() {
            [name] => name,
            _ => self.files.name(),
        }
    }
}

impl Table {
    /// Opens the tables of all splits. `valid_path` and `test_path` replace a split of the folder.
    ///
    /// # Errors
    /// If a path cannot be read, or its format is unknown.
    pub(super) fn open_tables(&self, context: &dyn Context) -> Result<Sources, StepError> {
        let mut sources = self.open_path(&self.path, context)?;
        if sources.splits[0].is_none() {
            let mut found = sources.splits.iter().zip(["train", "valid", "test"]).filter(|(split, _)| split.is_some());
            let (name, split) = match found.next() {
                Some((Some(source), split)) => (source.files.name().to_owned(), split),
                _ => (String::new(), "none"),
            };
            let message = format!("`{name}` contains no file of the split `train`: it contains the split `{split}`");
            let hint = "name the folder that also has the training records, or the file itself to train on it";
            return Err(StepError::Failed { message, hint: Some(hint.into()) });
        }
        for (at, path) in [(1, &self.valid_path), (2, &self.test_path)] {
            if let Some(path) = path {
                let mut own = self.open_path(path, context)?.splits.into_iter().flatten();
                let first = own.next();
                if own.next().is_some() {
                    let message =
                        format!("`{}` contains several splits", first.as_ref().map_or("", |own| own.files.name()));
                    let hint = "name the file of the split, or leave the path out";
                    return Err(StepError::Failed { message, hint: Some(hint.into()) });
                }
                sources.splits[at] = first;
            }
        }
        if let (Some(label), Some(Source { files, names, format })) = (&self.label, &sources.splits[0]) {
            sources.classes = names.first().map(|name| class_names(files, name, *format, label)).transpose()?.flatten();
        }
        Ok(sources)
    }

    fn open_path(&self, path: &LocalFile, context: &dyn Context) -> Result<Sources, StepError> {
        let files = path.open(context)?;
        if self.format == Some(Format::JsonFiles) {
            let source = Source { names: vec![files.name().to_owned()], files, format: TableFormat::JsonFiles };
            return Ok(Sources { splits: [Some(source), None, None], ..Sources::default() });
        }
        let names: Vec<String> = files.names().map(str::to_owned).collect();
        let has_tables = names.iter().any(|name| matches!(format_of_name(name), Some(Format::Parquet | Format::Arrow)));
        if self.format == Some(Format::HuggingFace) || (self.format.is_none() && files.is_collection() && has_tables) {
            return self.open_folder(&files);
        }
        let [name] = names.as_slice() else {
            let message = format!("`{}` contains {} files, and a table is one file", files.name(), names.len());
            return Err(StepError::Failed { message, hint: Some("name the file itself".into()) });
        };
        let format = self.format.or_else(|| format_of_name(name)).ok_or_else(|| StepError::Failed {
            message: format!("the name of `{name}` does not show the format of the table"),
            hint: Some("give `format`: csv, tsv, jsonl, json_files, parquet, arrow or hugging_face".into()),
        })?;
        let source = Source { format: self.table_format(format), names: vec![name.clone()], files };
        Ok(Sources { splits: [Some(source), None, None], ..Sources::default() })
    }

    fn open_folder(&self, files: &Files) -> Result<Sources, StepError> {
        let found = find_splits(files)?;
        let mut sources = Sources::default();
        for (place, names) in sources.splits.iter_mut().zip(found.splits) {
            let Some(first) = names.first() else { continue };
            let format = format_of_name(first).unwrap_or(Format::Parquet);
            *place = Some(Source { files: files.clone(), format: self.table_format(format), names });
        }
        if let Some(first) = found.others.first() {
            let count = found.others.len();
            sources.warnings.push(format!("{count} tables of no known split are left out, such as `{first}`"));
        }
        Ok(sources)
    }

    fn table_format(&self, format: Format) -> TableFormat {
        let delimited = |delimiter, quotes: bool| {
            let quotes = self.quotes.unwrap_or(quotes);
            TableFormat::Delimited(Delimited { delimiter, header: self.header, quotes })
        };
        match format {
            Format::Csv => delimited(b',', true),
            Format::Tsv => delimited(b'\t', false),
            Format::Jsonl => TableFormat::JsonLines,
            Format::JsonFiles => TableFormat::JsonFiles,
            Format::Parquet | Format::HuggingFace => TableFormat::Parquet,
            Format::Arrow => TableFormat::Arrow,
        }
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
        (".parquet", Format::Parquet),
        (".arrow", Format::Arrow),
    ];
    ends.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
}
