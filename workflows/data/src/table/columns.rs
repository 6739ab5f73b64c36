//! The selected columns of a table.

use crate::DataError;

/// The names of the selected columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The column of the text.
    pub text: String,
    /// The column of the second text of a pair.
    pub second: Option<String>,
    /// The column of the label.
    pub label: Option<String>,
}

/// The indices of the columns in a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indices {
    pub text: usize,
    pub second: Option<usize>,
    pub label: Option<usize>,
}

impl Columns {
    /// Finds the columns among `known`, the columns of the table `name`.
    ///
    /// # Errors
    /// If one is missing, or occurs more than once.
    pub(super) fn find(&self, name: &str, known: &[&str]) -> Result<Indices, DataError> {
        let find = |wanted: &String| {
            let mut places = (0..known.len()).filter(|place| known[*place] == wanted);
            let place = places.next().ok_or_else(|| {
                let shown: Vec<String> = known.iter().take(20).map(|column| format!("`{column}`")).collect();
                let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
                DataError::new(format!("`{name}` has no column `{wanted}`; it has {shown}"), "give one of its columns")
            })?;
            match places.next() {
                None => Ok(place),
                Some(other) => Err(DataError::new(
                    format!("`{name}` has two columns `{wanted}`: columns {} and {}", place + 1, other + 1),
                    "rename one of them; in a file without a header (`header: false`), columns have numbers",
                )),
            }
        };
        let optional = |wanted: &Option<String>| wanted.as_ref().map(find).transpose();
        Ok(Indices { text: find(&self.text)?, second: optional(&self.second)?, label: optional(&self.label)? })
    }
}
