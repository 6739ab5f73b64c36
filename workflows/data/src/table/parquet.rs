//! Parquet, read row group by row group: only the selected columns of one row group are in memory.

use std::io::{Cursor, Read, Seek, SeekFrom};

use polars_arrow::array::Array;
use polars_arrow::datatypes::{ArrowDataType, Field};
use polars_parquet::read::{
    BasicDecompressor, FileMetadata, PageReader, RowGroupMetadata, column_iter_to_arrays, infer_schema, read_metadata,
};

use super::column::{Rows, check_type, is_text};
use super::features::{recorded_names, without_panic};
use super::start::read_magic;
use super::{Columns, TableRow};
use crate::files::broken;
use crate::{DataError, Files, Section};

/// The size limit of a column in a row group, in bytes.
const MOST_GROUP_BYTES: i64 = 4 << 30;

/// See [`super::visit_rows`].
pub(super) fn visit_rows<E: From<DataError>>(
    files: &Files,
    name: &str,
    columns: &Columns,
    observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let opened = open(files, name)?;
    let pairs = opened.pairs();
    let Opened { mut section, metadata } = opened;
    let schema = without_panic(name, "Parquet", || infer_schema(&metadata))?;
    let fields: Vec<&Field> = schema.iter_values().collect();
    let indices = columns.find(name, &fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>())?;
    let classes = match &columns.label {
        Some(label) => recorded_names(files, name, &pairs, label)?,
        None => None,
    };
    for index in [Some(indices.text), indices.second].into_iter().flatten() {
        check_type(name, &fields[index].name, fields[index].dtype(), false)?;
    }
    if let Some(index) = indices.label {
        check_type(name, &fields[index].name, fields[index].dtype(), true)?;
    }
    let mut before = 0;
    for (at, group) in metadata.row_groups.iter().enumerate().filter(|(_, group)| group.num_rows() > 0) {
        let mut read = |index: usize| -> Result<(&str, Box<dyn Array>), DataError> {
            Ok((fields[index].name.as_str(), read_column(&mut section, (name, at), group, fields[index])?))
        };
        let rows = Rows {
            name,
            before,
            text: read(indices.text)?,
            second: indices.second.map(&mut read).transpose()?,
            label: indices.label.map(&mut read).transpose()?,
            classes: classes.as_deref(),
        };
        rows.visit(observe)?;
        before += group.num_rows() as u64;
    }
    Ok(())
}

/// A file with its footer.
pub(super) struct Opened {
    section: Section,
    metadata: FileMetadata,
}

impl Opened {
    /// The metadata of the writer: pairs of key and value.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.metadata.key_value_metadata.iter().flatten();
        pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?))).collect()
    }
}

/// Opens a file and reads its footer.
///
/// # Errors
/// If it is not a Parquet file, or damaged.
pub(super) fn open(files: &Files, name: &str) -> Result<Opened, DataError> {
    let mut section = files.section(name)?;
    let magic: [u8; 4] = read_magic(&mut section, name)?;
    if &magic != b"PAR1" {
        let hint = "give its `format`; decompress a Parquet file that gzip compressed as a whole";
        return Err(DataError::new(format!("`{name}` is not Parquet: it does not begin with `PAR1`"), hint));
    }
    let metadata = without_panic(name, "Parquet", || read_metadata(&mut section))?;
    Ok(Opened { section, metadata })
}

/// A column of the row group with the number `at`.
fn read_column(
    section: &mut Section,
    (name, at): (&str, usize),
    group: &RowGroupMetadata,
    field: &Field,
) -> Result<Box<dyn Array>, DataError> {
    let damaged = |what: &str| {
        let message = format!("`{name}`, row group {} of the column `{}`: {what}", at + 1, field.name);
        DataError::new(message, "get the file again, and compare its size with the published one")
    };
    let chunks = group.columns_under_root_iter(&field.name).map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let [chunk] = chunks.as_slice() else { return Err(damaged("it is missing")) };
    if chunk.uncompressed_size() > MOST_GROUP_BYTES {
        let what = format!("it has {} bytes, and the limit is {MOST_GROUP_BYTES}", chunk.uncompressed_size());
        return Err(DataError::new(damaged(&what).message, "write the file with smaller row groups"));
    }
    let range = without_panic(name, "Parquet", || Ok(chunk.byte_range()))?;
    if range.end > section.size() || range.start > range.end {
        return Err(damaged("the file is truncated"));
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    section.seek(SeekFrom::Start(range.start)).map_err(|error| broken(name, &error))?;
    section.read_exact(&mut bytes).map_err(|error| broken(name, &error))?;
    // Text columns are read as text even if the writer declared them as dictionaries.
    let dtype = if is_text(field.dtype()) { ArrowDataType::Utf8View } else { field.dtype().clone() };
    let field = Field::new(field.name.clone(), dtype, field.is_nullable);
    let arrays = without_panic(name, "Parquet", || {
        let pages =
            BasicDecompressor::new(PageReader::new(Cursor::new(bytes.into()), chunk, vec![], usize::MAX), vec![]);
        let primitive = &chunk.descriptor().descriptor.primitive_type;
        column_iter_to_arrays(vec![pages], vec![primitive], field.clone(), None).map(|(arrays, _)| arrays)
    })
    .map_err(|error| damaged(&error.message))?;
    match <[Box<dyn Array>; 1]>::try_from(arrays) {
        Ok([array]) if array.len() == group.num_rows() => Ok(array),
        Ok([array]) => Err(damaged(&format!("it has {} rows instead of {}", array.len(), group.num_rows()))),
        Err(arrays) => Err(damaged(&format!("it has {} parts instead of one", arrays.len()))),
    }
}
