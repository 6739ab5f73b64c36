//! Rows from the columns of a row group (Parquet) or a batch (Arrow): types are checked, and values become text.

use std::borrow::Cow;

use polars_arrow::array::{Array, BooleanArray, DictionaryArray, DictionaryKey, PrimitiveArray};
use polars_arrow::array::{Utf8Array, Utf8ViewArray};
use polars_arrow::datatypes::{ArrowDataType, IntegerType};
use polars_arrow::types::NativeType;

use super::{RecordPlace, TableRow, record_error};
use crate::DataError;

/// The arrays of the selected columns, all of the same length.
pub(super) struct Rows<'a> {
    /// The file.
    pub name: &'a str,
    /// The number of rows before the first one here.
    pub before: u64,
    pub text: (&'a str, Box<dyn Array>),
    pub second: Option<(&'a str, Box<dyn Array>)>,
    pub label: Option<(&'a str, Box<dyn Array>)>,
    /// The names of the classes, if labels are the numbers of classes.
    pub classes: Option<&'a [String]>,
}

impl Rows<'_> {
    /// Calls `observe` with each row.
    ///
    /// # Errors
    /// If a column has another type or lacks a value; and any error of `observe`.
    pub fn visit<E: From<DataError>>(&self, observe: &mut dyn FnMut(TableRow<'_>) -> Result<(), E>) -> Result<(), E> {
        let texts = |(column, array): &'_ (&str, Box<dyn Array>)| {
            check_type(self.name, column, array.dtype(), false).map(|()| array.len())
        };
        let rows = texts(&self.text)?;
        self.second.as_ref().map(texts).transpose()?;
        if let Some((column, array)) = &self.label {
            check_type(self.name, column, array.dtype(), true)?;
        }
        for row in 0..rows {
            let place = RecordPlace::Row(self.before + row as u64 + 1);
            let value = |(column, array): &'_ (&str, Box<dyn Array>)| {
                read_value(array.as_ref(), row)
                    .map(Cow::into_owned)
                    .ok_or_else(|| record_error(self.name, place, &format!("it has no value in the column `{column}`")))
            };
            let text = value(&self.text)?;
            let second = self.second.as_ref().map(value).transpose()?;
            let label = self.label.as_ref().map(|label| self.find_label(value(label)?, place)).transpose()?;
            let (second, label) = (second.as_deref(), label.as_deref());
            observe(TableRow { file: self.name, place, text: &text, second, label })?;
        }
        Ok(())
    }

    /// The name of the class if labels are numbers of classes, otherwise the label.
    fn find_label(&self, value: String, place: RecordPlace) -> Result<String, DataError> {
        let Some(classes) = self.classes else { return Ok(value) };
        if value == "-1" {
            let message =
                format!("`{}`, {place}: its label is -1: the labels of this file are not published", self.name);
            return Err(DataError::new(
                message,
                "leave the file out of the folder; a split is cut from the training data",
            ));
        }
        let class = value.parse().ok().and_then(|class: usize| classes.get(class));
        let outside = || {
            let what = format!("the label {value} is outside the {} classes that the file names", classes.len());
            record_error(self.name, place, &what)
        };
        class.cloned().ok_or_else(outside)
    }
}

/// Refuses a column that is not text. A column of labels may also hold whole numbers or truth values.
///
/// # Errors
/// If it has another type.
pub(super) fn check_type(name: &str, column: &str, dtype: &ArrowDataType, is_label: bool) -> Result<(), DataError> {
    if is_text(dtype) || (is_label && is_number(dtype)) {
        return Ok(());
    }
    let (found, needed) = (describe_type(dtype), if is_label { "text or a whole number" } else { "text" });
    let message = format!("`{name}`: the column `{column}` contains {found}, and {needed} is needed");
    Err(DataError::new(message, "give another column"))
}

/// Whether values are text, directly or through a dictionary.
pub(super) fn is_text(dtype: &ArrowDataType) -> bool {
    match dtype {
        ArrowDataType::Utf8 | ArrowDataType::LargeUtf8 | ArrowDataType::Utf8View => true,
        ArrowDataType::Dictionary(_, values, _) => is_text(values),
        _ => false,
    }
}

fn is_number(dtype: &ArrowDataType) -> bool {
    use ArrowDataType::{Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(dtype, Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}

fn describe_type(dtype: &ArrowDataType) -> &'static str {
    use ArrowDataType::{Binary, BinaryView, FixedSizeList, Float16, Float32, Float64, LargeBinary, LargeList, List};
    match dtype {
        dtype if is_text(dtype) => "text",
        dtype if is_number(dtype) => "whole numbers",
        Float16 | Float32 | Float64 => "numbers with a fraction",
        Binary | LargeBinary | BinaryView => "bytes",
        List(_) | LargeList(_) | FixedSizeList(..) => "lists",
        ArrowDataType::Struct(_) => "records",
        ArrowDataType::Null => "no values",
        _ => "values of another type",
    }
}

/// The value in a row as text; `None` if it is null, or has a type that [`check_type`] refuses.
fn read_value(array: &dyn Array, row: usize) -> Option<Cow<'_, str>> {
    if array.is_null(row) {
        return None;
    }
    fn typed<T: 'static>(array: &dyn Array) -> Option<&T> {
        array.as_any().downcast_ref()
    }
    fn number<T: NativeType + ToString>(array: &dyn Array, row: usize) -> Option<Cow<'_, str>> {
        Some(typed::<PrimitiveArray<T>>(array)?.value(row).to_string().into())
    }
    fn entry<K: DictionaryKey>(array: &dyn Array, row: usize) -> Option<Cow<'_, str>> {
        let dictionary: &DictionaryArray<K> = typed(array)?;
        let key = dictionary.key_value(row);
        (key < dictionary.values().len()).then(|| read_value(dictionary.values().as_ref(), key))?
    }
    use ArrowDataType as Type;
    match array.dtype() {
        Type::Utf8 => typed::<Utf8Array<i32>>(array).map(|array| array.value(row).into()),
        Type::LargeUtf8 => typed::<Utf8Array<i64>>(array).map(|array| array.value(row).into()),
        Type::Utf8View => typed::<Utf8ViewArray>(array).map(|array| array.value(row).into()),
        Type::Boolean => typed::<BooleanArray>(array).map(|array| array.value(row).to_string().into()),
        Type::Int8 => number::<i8>(array, row),
        Type::Int16 => number::<i16>(array, row),
        Type::Int32 => number::<i32>(array, row),
        Type::Int64 => number::<i64>(array, row),
        Type::UInt8 => number::<u8>(array, row),
        Type::UInt16 => number::<u16>(array, row),
        Type::UInt32 => number::<u32>(array, row),
        Type::UInt64 => number::<u64>(array, row),
        Type::Dictionary(IntegerType::Int8, ..) => entry::<i8>(array, row),
        Type::Dictionary(IntegerType::Int16, ..) => entry::<i16>(array, row),
        Type::Dictionary(IntegerType::Int32, ..) => entry::<i32>(array, row),
        Type::Dictionary(IntegerType::Int64, ..) => entry::<i64>(array, row),
        Type::Dictionary(IntegerType::UInt8, ..) => entry::<u8>(array, row),
        Type::Dictionary(IntegerType::UInt16, ..) => entry::<u16>(array, row),
        Type::Dictionary(IntegerType::UInt32, ..) => entry::<u32>(array, row),
        Type::Dictionary(IntegerType::UInt64, ..) => entry::<u64>(array, row),
        _ => None,
    }
}
