//! `did you mean`: the most similar valid name.

use std::cell::Cell;

/// The maximum number of names that are compared: a file with thousands of mistakes must not take minutes.
const MOST: usize = 256;

/// The limit of table cells for all comparisons of one check: some tenths of a second. Further problems have no such hints. Of
/// 10,000 wrong names, only the first 200 are shown.
const MOST_CELLS: usize = 20_000_000;

thread_local! {
    /// The remaining cells of this thread's check.
    static CELLS_LEFT: Cell<usize> = const { Cell::new(MOST_CELLS) };
}

/// Starts the check of another file and resets the limit.
pub(crate) fn restart() {
    CELLS_LEFT.set(MOST_CELLS);
}

/// Subtracts the cells of one comparison from the limit; `false` if it is exceeded.
fn charge(written: usize, name: usize) -> bool {
    let left = CELLS_LEFT.get().checked_sub((written + 1) * (name + 1));
    CELLS_LEFT.set(left.unwrap_or(0));
    left.is_some()
}

/// The most similar known name, if it is similar enough.
#[must_use]
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let (wanted, length) = (plain(written), written.chars().count());
    // Long texts are not misspelt names, and the cost of a comparison is the product of the lengths.
    if length > 64 {
        return None;
    }
    let mut best: Option<(f64, &str)> = None;
    for name in known.into_iter().filter(|name| name.len() <= 64).take(MOST) {
        if !charge(length, name.len()) {
            return None;
        }
        let other = plain(name);
        let distance = strsim::damerau_levenshtein(&wanted, &other);
        let longest = wanted.chars().count().max(other.chars().count()).max(1);
        // One mistake in a short name, a third of a longer one; a prefix of three letters or more also counts.
        let near = distance <= 1 && longest > 2 || distance * 3 <= longest;
        let begun = wanted.len() >= 3 && other.starts_with(&wanted);
        let score = 1.0 - distance as f64 / longest as f64 + if begun { 0.5 } else { 0.0 };
        if (near || begun || distance == 0) && best.is_none_or(|(known, _)| score > known) {
            best = Some((score, name));
        }
    }
    best.map(|(_, name)| name)
}

/// The maximum number of names in a hint.
const LISTED: usize = 16;

/// A hint: the most similar name, or all names if they are few.
pub(crate) fn hint<'a>(written: &str, known: impl IntoIterator<Item = &'a str> + Clone, what: &str) -> Option<String> {
    if let Some(name) = nearest(written, known.clone()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let names: Vec<&str> = known.into_iter().take(LISTED + 1).collect();
    match names.len() {
        0 => Some(format!("there are no {what}")),
        1..=LISTED => Some(format!("known {what}: {}", list(&names))),
        _ => None,
    }
}

/// Names in backticks, separated by commas.
pub(crate) fn list<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["train", "transformer", "data", "timeout-minutes", "max-parallel", "lr", "top_k"];
        let cases = [
            ("trian", Some("train")),
            ("dta", Some("data")),
            ("Train", Some("train")),
            ("timeout_minutes", Some("timeout-minutes")),
            ("timeoutMinutes", Some("timeout-minutes")),
            ("timeout", Some("timeout-minutes")),
            ("maxparallel", Some("max-parallel")),
            ("topk", Some("top_k")),
            ("LR", Some("lr")),
            ("xy", None),
            ("benchmark", None),
        ];
        for (written, meant) in cases {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
    }
}
