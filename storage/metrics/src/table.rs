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

/// A table as the content of a Parquet file.
///
/// # Errors
/// If the columns do not have the same length.
pub fn encode_table(columns: &[(&str, ColumnValues)]) -> Result<Vec<u8>, MetricsError> {
    let place = Path::new("a table");
    let mut frame = to_frame(columns).map_err(MetricsError::parquet("encode", place))?;
    let mut content = Vec::new();
    let writer = ParquetWriter::new(&mut content).with_compression(ParquetCompression::Zstd(None));
    writer.finish(&mut frame).map_err(MetricsError::parquet("encode", place))?;
    Ok(content)
}

/// Writes a table as a Parquet file. The file must not exist.
///
/// # Errors
/// If the file cannot be written, or the columns do not have the same length.
pub fn write_table(path: &Path, columns: &[(&str, ColumnValues)]) -> Result<(), MetricsError> {
    let mut frame = to_frame(columns).map_err(MetricsError::parquet("encode", path))?;
    let file = std::fs::File::create_new(path).map_err(MetricsError::io("write", path))?;
    let writer = ParquetWriter::new(file).with_compression(ParquetCompression::Zstd(None));
    writer.finish(&mut frame).map_err(MetricsError::parquet("encode", path))?;
    Ok(())
}

fn to_frame(columns: &[(&str, ColumnValues)]) -> PolarsResult<DataFrame> {
    let column = |(name, values): &(&str, ColumnValues)| match values {
        ColumnValues::Texts(values) => Column::new((*name).into(), values),
        ColumnValues::Integers(values) => Column::new((*name).into(), values),
        ColumnValues::Numbers(values) => Column::new((*name).into(), values),
    };
    let columns: Vec<Column> = columns.iter().map(column).collect();
    DataFrame::new(columns.first().map_or(0, Column::len), columns)
}
