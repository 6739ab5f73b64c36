//! A table as a Parquet file, for exports.

use std::path::Path;

use polars::prelude::*;

use crate::MetricsError;

/// The values of a column; all columns of a table have the same length.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValues {
    /// Texts.
    Texts(Vec<Option<String>>),
    /// Whole numbers.
    Integers(Vec<Option<i64>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
}

/// Writes a table as a Parquet file. The file must not exist.
///
/// # Errors
/// If the file cannot be written, or the columns do not have the same length.
pub fn write_table(path: &Path, columns: &[(&str, ColumnValues)]) -> Result<(), MetricsError> {
    let column = |(name, values): &(&str, ColumnValues)| match values {
        ColumnValues::Texts(values) => Column::new((*name).into(), values),
        ColumnValues::Integers(values) => Column::new((*name).into(), values),
        ColumnValues::Numbers(values) => Column::new((*name).into(), values),
    };
    let columns: Vec<Column> = columns.iter().map(column).collect();
    let height = columns.first().map_or(0, Column::len);
    let mut frame = DataFrame::new(height, columns).map_err(MetricsError::parquet("encode", path))?;
    let file = std::fs::File::create_new(path).map_err(MetricsError::io("write", path))?;
    let writer = ParquetWriter::new(file).with_compression(ParquetCompression::Zstd(None));
    writer.finish(&mut frame).map_err(MetricsError::parquet("encode", path))?;
    Ok(())
}
