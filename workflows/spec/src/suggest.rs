//! `did you mean`: the likeliest of the names that would have been right.

use std::cell::Cell;

/// The most names that are compared: a file with thousands of slips shall not take minutes.
const MOST: usize = 256;

/// The cells of the tables of all comparisons of one check: some tenths of a second. Beyond that, problems have no such hints.
/// Of 10,000 wrong names only the first 200 are shown.
const MOST_CELLS: usize = 20_000_000;

thread_local! {
    /// The cells that this thread's check may still fill.
    static CELLS_LEFT: Cell<usize> = const { Cell::new(MOST_CELLS) };
}

/// Begins the check of another file, which has all comparisons ahead of it.
pub(crate) fn restart() {
    CELLS_LEFT.set(MOST_CELLS);
}

/// Takes the cells of one comparison from what is left; `false` where it is not enough.
fn charge(written: usize, name: usize) -> bool {
    let left = CELLS_LEFT.get().checked_sub((written + 1) * (name + 1));
    CELLS_LEFT.set(left.unwrap_or(0));
    left.is_some()
}

/// The known name that is nearest to what was written, if it is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let (wanted, length) = (plain(written), written.chars().count());
    // Long texts are no misspelt names, and comparing them costs the product of the lengths.
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
        // One slip in a short name, a third of a longer one; a beginning of three letters or more also counts.
        let near = distance <= 1 && longest > 2 || distance * 3 <= longest;
        let begun = wanted.len() >= 3 && other.starts_with(&wanted);
        let score = 1.0 - distance as f64 / longest as f64 + if begun { 0.5 } else { 0.0 };
        if (near || begun || distance == 0) && best.is_none_or(|(known, _)| score > known) {
            best = Some((score, name));
        }
    }
    best.map(|(_, name)| name)
}

/// The most names that a hint lists.
const LISTED: usize = 16;

/// A hint: the nearest name, or else all names where they are few.
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

/// Names between backticks, with commas.
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
