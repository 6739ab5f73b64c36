//! Arrow's IPC format, read batch by batch: the stream, as written by Hugging Face, and the file.

use polars_arrow::array::Array;
use polars_arrow::datatypes::ArrowSchema;
use polars_arrow::io::ipc::read::{FileReader, StreamReader, StreamState, read_file_metadata, read_stream_metadata};
use polars_arrow::record_batch::RecordBatchT;
use polars_error::{PolarsResult, polars_err};

use super::column::Rows;
use super::features::{recorded_names, without_panic};
use super::start::read_magic;
use super::{Columns, TableRow};
use crate::{DataError, Files, Section};

type Batch = RecordBatchT<Box<dyn Array>>;

/// The batches of a file.
enum Batches {
    Stream(StreamReader<Section>),
    File(FileReader<Section>),
}

/// The columns of a file, and the metadata of its writer: pairs of key and value.
pub(super) struct Described {
    pub schema: ArrowSchema,
    pub metadata: Vec<(String, String)>,
}

/// See [`super::visit_rows`].
pub(super) fn visit_rows<E: From<DataError>>(
    files: &Files,
    name: &str,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let Described { schema, metadata } = describe(files, name)?;
    let names: Vec<&str> = schema.iter_names().map(|name| name.as_str()).collect();
    let indices = columns.find(name, &names)?;
    // Only the selected columns are read. The reader needs them in ascending order, and hands them over in this order.
    let mut selected: Vec<usize> = [Some(indices.text), indices.second, indices.label].into_iter().flatten().collect();
    selected.sort_unstable();
    selected.dedup();
    let mut batches = open(files, name, Some(&selected))?.0;
    let classes = match &columns.label {
        Some(label) => recorded_names(files, name, &metadata, label)?,
        None => None,
    };
    let mut before = 0;
    while let Some(batch) = without_panic(name, "Arrow", || batches.next())? {
        let column = |index: usize| {
            let array = selected.binary_search(&index).ok().and_then(|place| batch.arrays().get(place).cloned());
            let missing =
                || DataError::new(format!("`{name}`: a batch lacks the column `{}`", names[index]), "get it again");
            array.map(|array| (names[index], array)).ok_or_else(missing)
        };
        let rows = Rows {
            name,
            before,
            text: column(indices.text)?,
            second: indices.second.map(column).transpose()?,
            label: indices.label.map(column).transpose()?,
            classes: classes.as_deref(),
        };
        rows.visit(observe)?;
        before += batch.len() as u64;
    }
    Ok(())
}

/// The columns of a file.
///
/// # Errors
/// If it is not an Arrow file, or damaged.
pub(super) fn describe(files: &Files, name: &str) -> Result<Described, DataError> {
    open(files, name, None).map(|(_, described)| described)
}

/// Opens a file. Its batches have the columns `selected`, in ascending order, or all.
fn open(files: &Files, name: &str, selected: Option<&[usize]>) -> Result<(Batches, Described), DataError> {
    let selected = selected.map(<[usize]>::to_vec);
    let mut section = files.section(name)?;
    let magic: [u8; 6] = read_magic(&mut section, name)?;
    let pairs = |metadata: Option<&polars_arrow::datatypes::Metadata>| -> Vec<(String, String)> {
        metadata.into_iter().flatten().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    if &magic == b"ARROW1" {
        let metadata = without_panic(name, "Arrow", || read_file_metadata(&mut section))?;
        let described = Described {
            schema: (*metadata.schema).clone(),
            metadata: pairs(metadata.custom_schema_metadata.as_deref()),
        };
        return Ok((Batches::File(FileReader::new(section, metadata, selected, None)), described));
    }
    // A stream starts with the length of a message.
    if !magic.starts_with(&[0xff; 4]) {
        let message = format!("`{name}` is not Arrow: it begins neither as a stream nor as a file");
        return Err(DataError::new(message, "give its `format`, or decompress it first"));
    }
    let metadata = without_panic(name, "Arrow", || read_stream_metadata(&mut section))?;
    let described =
        Described { schema: metadata.schema.clone(), metadata: pairs(metadata.custom_schema_metadata.as_ref()) };
    Ok((Batches::Stream(StreamReader::new(section, metadata, selected)), described))
}

impl Batches {
    /// The next batch; `None` at the end.
    fn next(&mut self) -> PolarsResult<Option<Batch>> {
        match self {
            Batches::File(reader) => reader.next().transpose(),
            Batches::Stream(reader) => match reader.next().transpose()? {
                None => Ok(None),
                Some(StreamState::Some(batch)) => Ok(Some(batch)),
                // An interrupted writer leaves a stream without its end.
                Some(StreamState::Waiting) => Err(polars_err!(ComputeError: "it is truncated: the stream has no end")),
            },
        }
    }
}
