//! Checks of names and values, with MLflow's limits.

use assay_store::{LONGEST_PARAM, LONGEST_TAG};
use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;

/// The longest name of a metric, parameter or tag, in characters.
const LONGEST_NAME: usize = 250;
/// The longest name of an experiment, in characters.
const LONGEST_EXPERIMENT: usize = 500;

/// Refuses a text that cannot name a metric, a parameter or a tag.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), ApiError> {
    let invalid = |why: String| ApiError::invalid(format!("Invalid {what} name: '{}'. {why}", shorten(name)));
    if name.is_empty() {
        return Err(super::fields::missing("key"));
    }
    let length = name.chars().count();
    if length > LONGEST_NAME {
        return Err(invalid(format!("It has {length} characters, and the limit is {LONGEST_NAME}.")));
    }
    if !name.chars().all(|c| c.is_alphanumeric() || "_-.: /".contains(c)) {
        let allowed = "alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colons (:) and slashes (/)";
        return Err(invalid(format!("Names may only contain {allowed}.")));
    }
    if name.starts_with('/') || name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        let why =
            "Names may be treated as files in certain cases, and must not resolve to other names when treated as such.";
        return Err(invalid(why.to_owned()));
    }
    Ok(())
}

/// Refuses a text that cannot be the id of a run.
pub(super) fn check_run_id(id: &str) -> Result<(), ApiError> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins = id.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    match begins && id.len() <= 256 && id.chars().all(good) {
        true => Ok(()),
        false => Err(ApiError::invalid(format!("Invalid run ID: '{}'", shorten(id)))),
    }
}

/// Refuses a text that cannot name an experiment.
pub(super) fn check_experiment_name(name: &str) -> Result<(), ApiError> {
    match name.chars().count() {
        0 => Err(ApiError::invalid("Invalid experiment name: ''")),
        1..=LONGEST_EXPERIMENT => Ok(()),
        length => Err(ApiError::invalid(format!(
            "The name of the experiment has {length} characters, and the limit is {LONGEST_EXPERIMENT}."
        ))),
    }
}

/// The key and value of a parameter.
pub(super) fn read_param(fields: &Fields) -> Result<(String, String), ApiError> {
    let name = fields.text("key")?;
    check_name("parameter", &name)?;
    Ok((name, cut_off(fields.text_or_empty("value")?, LONGEST_PARAM)))
}

/// The key and value of a tag.
pub(super) fn read_tag(fields: &Fields) -> Result<(String, String), ApiError> {
    let name = fields.text("key")?;
    check_name("tag", &name)?;
    Ok((name, cut_off(fields.text_or_empty("value")?, LONGEST_TAG)))
}

/// The tags of a list of objects.
pub(super) fn read_tags(tags: &[Fields]) -> Result<Vec<(String, String)>, ApiError> {
    tags.iter().map(read_tag).collect()
}

fn cut_off(text: String, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

pub(super) fn shorten(text: &str) -> String {
    text.chars().take(300).collect()
}

/// How many results a request asks for.
pub(super) fn read_max_results(fields: &Fields, default: usize, largest: usize) -> Result<usize, ApiError> {
    let Some(asked) = fields.maybe_integer("max_results")? else { return Ok(default) };
    usize::try_from(asked).ok().filter(|asked| (1..=largest).contains(asked)).ok_or_else(|| {
        ApiError::invalid(format!(
            "Invalid value {asked} for parameter 'max_results' supplied. It must be at least 1 and at most {largest}."
        ))
    })
}

/// The index of the first entry of a page. A token is this index as a decimal number.
pub(super) fn read_page_token(fields: &Fields) -> Result<usize, ApiError> {
    let token = fields.text_or_empty("page_token")?;
    if token.is_empty() {
        return Ok(0);
    }
    token.parse().map_err(|_| ApiError::invalid(format!("Invalid page token '{}'", shorten(&token))))
}

/// A page of a list, and the token of the next page if there is one.
pub(super) fn cut_page<T>(all: Vec<T>, begin: usize, most: usize) -> (Vec<T>, Option<Value>) {
    let end = begin.saturating_add(most);
    let next = (all.len() > end).then(|| Value::String(end.to_string()));
    (all.into_iter().skip(begin).take(most).collect(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_mlflow_does() {
        for good in ["loss", "train/loss", "a b", "a.b-c_d:e", "é", &"x".repeat(250)] {
            assert!(check_name("metric", good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a//b", "../a", "a/./b", "a\\b", "a\nb", "a=b", "a/", &"x".repeat(251)] {
            assert!(check_name("metric", bad).is_err(), "{bad}");
        }
        for bad in ["", "-a", "a/b", "..", "é", &"a".repeat(257)] {
            assert!(check_run_id(bad).is_err(), "{bad}");
        }
        assert!(check_experiment_name(&"x".repeat(501)).is_err() && check_experiment_name("any / name").is_ok());
    }

    #[test]
    fn long_values_are_cut_off_between_characters() {
        let fields = Fields::of_value("tag", &serde_json::json!({"key": "k", "value": "é".repeat(9000)})).unwrap();
        assert_eq!(read_tag(&fields).unwrap().1.chars().count(), LONGEST_TAG);
        assert_eq!(read_param(&fields).unwrap().1.chars().count(), LONGEST_PARAM);
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        let page = |begin| cut_page(vec![1, 2, 3, 4, 5], begin, 2);
        assert_eq!(page(0), (vec![1, 2], Some("2".into())));
        assert_eq!(page(4), (vec![5], None));
        assert_eq!(page(usize::MAX), (vec![], None));
    }
}
