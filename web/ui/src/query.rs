//! What a request names, parsed once: runs and tasks in its path, choices in its query. Whatever is written there gives
//! a value or a [`Failure`], and never a panic.

use std::collections::BTreeMap;

use assay_core::{RunId, TaskIx};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::Failure;

/// The run in a path, `{run}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunAt(pub RunId);

/// The run and the task in a path, `{run}` and `{task}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskAt(pub RunId, pub TaskIx);

/// The run and the cell in a path, `{run}` and `{cell}`.
#[derive(Debug, Clone)]
pub(crate) struct CellAt(pub RunId, pub String);

/// The query, decoded. Empty values count as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choices(BTreeMap<String, Vec<String>>);

impl Choices {
    /// Reads a query string. What cannot be decoded is replaced, not refused.
    pub fn read(query: &str) -> Self {
        let mut choices = Choices::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            if !value.is_empty() {
                choices.0.entry(key).or_default().push(value);
            }
        }
        choices
    }

    /// A choice by its name; the last one if it is given several times.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.last().map(String::as_str)
    }

    /// All values of a name, in their order.
    pub fn all(&self, key: &str) -> Vec<&str> {
        self.0.get(key).into_iter().flatten().map(String::as_str).collect()
    }

    /// A whole number up to a largest one; `default` if absent.
    pub fn number(&self, key: &str, default: u64, largest: u64) -> Result<u64, Failure> {
        let Some(text) = self.get(key) else { return Ok(default) };
        text.parse().ok().filter(|number| *number <= largest).ok_or_else(|| {
            let hint = format!("give a whole number from 0 to {largest}, as in `?{key}={default}`");
            Failure::bad_request(format!("`{key}` is `{}`", short(text)), hint)
        })
    }

    /// One of a few words; `None` where nothing was chosen.
    pub fn one_of(&self, key: &str, words: &[&str]) -> Result<Option<&str>, Failure> {
        let chosen = self.get(key);
        match chosen.filter(|chosen| !words.contains(chosen)) {
            None => Ok(chosen),
            Some(other) => {
                let hint = format!("give `{}`", words.join("` or `"));
                Err(Failure::bad_request(format!("`{key}` is `{}`", short(other)), hint))
            }
        }
    }

    /// Refuses all other parameters; a name that ends in a dot is a prefix.
    pub fn only(&self, known: &[&str]) -> Result<(), Failure> {
        let is_known =
            |key: &String| known.iter().any(|known| key == known || known.ends_with('.') && key.starts_with(known));
        let Some(other) = self.0.keys().find(|key| !is_known(key)) else { return Ok(()) };
        let hint = match known {
            [] => "leave it out: this address takes none".to_owned(),
            _ => format!("this address takes `{}`", known.join("`, `")),
        };
        Err(Failure::bad_request(format!("there is no parameter `{}`", short(other)), hint))
    }

    /// The choices whose names begin so, without that beginning.
    pub fn beginning(&self, prefix: &str) -> BTreeMap<String, String> {
        let rest = |(key, values): (&String, &Vec<String>)| {
            Some((key.strip_prefix(prefix)?.to_owned(), values.last()?.clone()))
        };
        self.0.iter().filter_map(rest).collect()
    }
}

/// The first characters of what a stranger wrote.
fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// What [`encode`] escapes: everything but RFC 3986's unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent encoding of one path segment, key or value.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

pub(crate) fn run_of(text: &str) -> Result<RunId, Failure> {
    let error = || {
        Failure::not_found(format!("`{text}` is not a run number"), "runs are numbered from 1; see the list of runs")
    };
    text.parse().ok().filter(|&id| id > 0).map(RunId).ok_or_else(error)
}

fn task_of(text: &str) -> Result<TaskIx, Failure> {
    let error = || Failure::not_found(format!("`{text}` is not a task"), "tasks start at 0; see the run's graph");
    text.parse().map(TaskIx).map_err(|_| error())
}

async fn named(parts: &mut Parts, names: [&str; 2]) -> Result<[String; 2], Failure> {
    let params = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|_| Failure::bad_request("the address is not UTF-8 text", "check how the address was encoded"))?;
    let find = |name: &str| params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    Ok(names.map(|name| find(name).unwrap_or_default()))
}

impl<S: Send + Sync> FromRequestParts<S> for RunAt {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let [run, _] = named(parts, ["run", ""]).await?;
        Ok(RunAt(run_of(&run)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TaskAt {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let [run, task] = named(parts, ["run", "task"]).await?;
        Ok(TaskAt(run_of(&run)?, task_of(&task)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for CellAt {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let [run, cell] = named(parts, ["run", "cell"]).await?;
        Ok(CellAt(run_of(&run)?, cell))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Choices {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Choices::read(parts.uri.query().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_is_read_leniently() {
        let choices = Choices::read("metric=train%2Floss&x=a+b&x=c&&y&=z&at.job=%E2%82%ac&bad=%zz%f");
        assert_eq!(choices.get("metric"), Some("train/loss"));
        assert_eq!((choices.get("x"), choices.all("x")), (Some("c"), vec!["a b", "c"]));
        assert_eq!(choices.get("y"), None);
        assert_eq!(choices.get("bad"), Some("%zz%f"));
        assert_eq!(choices.beginning("at."), BTreeMap::from([("job".to_owned(), "€".to_owned())]));
    }

    #[test]
    fn what_is_no_number_or_too_large_is_refused_with_its_name() {
        let choices = Choices::read("a=5&b=99999999999999999999&c=-1&d=x&e=700&g=");
        let read = |key| choices.number(key, 10, 500);
        assert_eq!(["a", "f", "g"].map(|key| read(key).unwrap()), [5, 10, 10]);
        for (key, text) in [("b", "99999999999999999999"), ("c", "-1"), ("d", "x"), ("e", "700")] {
            let failure = read(key).unwrap_err();
            assert_eq!((failure.status, failure.error), (400, format!("`{key}` is `{text}`")));
            assert!(failure.hint.contains("from 0 to 500"), "{}", failure.hint);
        }
    }

    #[test]
    fn words_and_names_that_are_not_known_are_refused() {
        let choices = Choices::read("by=task&scale=cubic&at.dim=3");
        assert_eq!(choices.one_of("by", &["cell", "task"]).unwrap(), Some("task"));
        assert_eq!(choices.one_of("job", &["a"]).unwrap(), None);
        let failure = choices.one_of("scale", &["linear", "log"]).unwrap_err();
        assert_eq!((failure.error.as_str(), failure.hint.as_str()), ("`scale` is `cubic`", "give `linear` or `log`"));
        assert!(choices.only(&["by", "scale", "at."]).is_ok());
        let failure = choices.only(&["by", "at."]).unwrap_err();
        assert_eq!(failure.error, "there is no parameter `scale`");
        assert!(choices.only(&[]).is_err() && Choices::default().only(&[]).is_ok());
    }

    #[test]
    fn ids_that_are_none_are_named_in_the_error() {
        assert_eq!(run_of("12").unwrap(), RunId(12));
        for bad in ["0", "-1", "x", "", "1e3", "99999999999999999999", "１"] {
            assert!(run_of(bad).unwrap_err().error.contains(bad), "{bad}");
        }
        assert!(task_of("4294967296").is_err() && task_of("0").is_ok());
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(text in any::<String>()) {
            let choices = Choices::read(&format!("{0}={0}", encode(&text)));
            prop_assert_eq!(choices.get(&text).unwrap_or_default(), text);
        }

        #[test]
        fn any_query_can_be_read(text in any::<String>()) {
            let _ = Choices::read(&text);
        }
    }
}
