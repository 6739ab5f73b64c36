//! Checks the answers of a plugin before they are forwarded.

use std::collections::BTreeMap;

use assay_protocol::{PluginFacts, PluginLimit, PluginLimits};

use crate::failure::Cause;
use crate::interface::{Proposal, Sequences, Stage, Value};

/// The maximum number of tokens of a vocabulary, and of classes.
const MOST_SYMBOLS: usize = 1 << 20;

/// The maximum number of values of a metric.
const MOST_VALUES: usize = 1000;

/// The size limit of a step's result, in bytes.
const MOST_RESULT: usize = 1 << 20;

/// The length limit of a value's name, in characters.
const MOST_NAME: usize = 100;

fn wrong(message: impl std::fmt::Display) -> Cause {
    Cause::new(format!("gave an invalid answer: {message}"))
}

/// Checks the facts of a dataset: its vocabulary, classes and longest sequence.
pub(crate) fn check_facts(facts: &PluginFacts) -> Result<(), Cause> {
    if facts.vocabulary.is_empty() || facts.vocabulary.len() > MOST_SYMBOLS {
        return Err(wrong(format!("a vocabulary of {} tokens, outside 1..={MOST_SYMBOLS}", facts.vocabulary.len())));
    }
    if facts.classes == 1 || facts.classes as usize > MOST_SYMBOLS {
        return Err(wrong(format!(
            "{} classes: give 0 to predict the next token, and 2 or more otherwise",
            facts.classes
        )));
    }
    let least = if facts.classes == 0 { 2 } else { 1 };
    if facts.max_length < least {
        return Err(wrong(format!("sequences of at most {} tokens: give {least} or more", facts.max_length)));
    }
    Ok(())
}

/// Checks `count` sequences of a dataset.
pub(crate) fn check_sequences(sequences: &Sequences, facts: &PluginFacts, count: u32) -> Result<(), Cause> {
    let Sequences { tokens, offsets, labels } = sequences;
    if offsets.len() != count as usize + 1 {
        return Err(wrong(format!(
            "{} offsets instead of {} for {count} sequences",
            offsets.len(),
            count as usize + 1
        )));
    }
    let (first, last) = (offsets[0] as usize, offsets[count as usize] as usize);
    if first != 0 || last != tokens.len() {
        return Err(wrong(format!("offsets from {first} to {last} for {} tokens", tokens.len())));
    }
    let least = if facts.classes == 0 { 2 } else { 1 };
    for (index, pair) in offsets.windows(2).enumerate() {
        let length = i64::from(pair[1]) - i64::from(pair[0]);
        if length < least || length > i64::from(facts.max_length) {
            let range = format!("{least}..={}", facts.max_length);
            return Err(wrong(format!("sequence {index} has {length} tokens, outside {range}")));
        }
    }
    if let Some(token) = tokens.iter().find(|token| **token as usize >= facts.vocabulary.len()) {
        return Err(wrong(format!("token {token} is outside the vocabulary of {}", facts.vocabulary.len())));
    }
    let wanted = if facts.classes == 0 { 0 } else { count as usize };
    if labels.len() != wanted {
        return Err(wrong(format!("{} labels instead of {wanted}", labels.len())));
    }
    match labels.iter().find(|label| **label >= facts.classes) {
        Some(label) => Err(wrong(format!("label {label} is outside the {} classes", facts.classes))),
        None => Ok(()),
    }
}

/// Checks the size of a saved state.
pub(crate) fn check_state(state: &[u8], limits: &PluginLimits) -> Result<(), Cause> {
    if state.len() as u64 <= limits.state {
        return Ok(());
    }
    let message = format!("gave a state of {} bytes; the limit is {}", state.len(), limits.state);
    Err(Cause::new(message).of_limit(PluginLimit::State).with_hint("keep sums instead of samples"))
}

/// Whether a text can be the name of a metric of a step: the parts between its slashes are names.
pub(crate) fn is_metric_path(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.len() <= MOST_NAME && name.split('/').all(|part| !part.is_empty() && part.chars().all(fits))
}

/// Checks that the result of a step is JSON of moderate size.
pub(crate) fn check_result(result: &str) -> Result<(), Cause> {
    if result.len() > MOST_RESULT {
        return Err(wrong(format!("a result of {} bytes; the limit is {MOST_RESULT}", result.len()))
            .with_hint("write it into an output"));
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(result) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(format!("the result is not JSON: {error}"))),
    }
}

/// Checks the trials that a searcher proposes: at most as many as requested, and each a JSON object.
pub(crate) fn check_proposal(proposal: &Proposal, count: u32) -> Result<(), Cause> {
    if proposal.params.len() > count as usize {
        return Err(wrong(format!("{} trials; at most {count} were requested", proposal.params.len())));
    }
    if proposal.params.is_empty() && !proposal.finished {
        return Err(wrong("no trials, although the search has not ended"));
    }
    for (index, params) in proposal.params.iter().enumerate() {
        if let Err(error) = serde_json::from_str::<BTreeMap<String, serde::de::IgnoredAny>>(params) {
            return Err(wrong(format!("the parameters of trial {index} are not a JSON object: {error}")));
        }
    }
    Ok(())
}

/// Checks the names of a metric's values.
pub(crate) fn check_values(values: &[Value]) -> Result<(), Cause> {
    if values.is_empty() || values.len() > MOST_VALUES {
        return Err(wrong(format!("{} values, outside 1..={MOST_VALUES}", values.len())));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut names = std::collections::BTreeSet::new();
    for Value { name, .. } in values {
        if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(fits) {
            let shown: String = name.chars().take(MOST_NAME).collect();
            return Err(wrong(format!("a value is named {shown:?}: names have letters, digits, `_`, `-` and `.`")));
        }
        if !names.insert(name) {
            return Err(wrong(format!("two values are named `{name}`")));
        }
    }
    Ok(())
}

/// Checks that a stage ends after the current step and admits sequences.
pub(crate) fn check_stage(stage: &Stage, step: u64) -> Result<(), Cause> {
    if stage.until_step <= step {
        return Err(wrong(format!("a stage until step {} at step {step}: it must end later", stage.until_step)));
    }
    if stage.max_length == 0 { Err(wrong("a stage of sequences without tokens")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(classes: u32) -> PluginFacts {
        PluginFacts { vocabulary: vec!["a".into(), "b".into()], classes, max_length: 3 }
    }

    #[test]
    fn sequences_that_contradict_themselves_are_refused() {
        let check = |tokens: &[u32], offsets: &[u32], labels: &[u32], classes| {
            let sequences = Sequences { tokens: tokens.into(), offsets: offsets.into(), labels: labels.into() };
            check_sequences(&sequences, &facts(classes), 2).map_err(|cause| cause.message)
        };
        check(&[0, 1, 1], &[0, 1, 3], &[1, 0], 2).unwrap();
        check(&[0, 1, 1, 0], &[0, 2, 4], &[], 0).unwrap();
        let refused = |tokens: &[u32], offsets: &[u32], labels: &[u32], classes, expected: &str| {
            assert_eq!(
                check(tokens, offsets, labels, classes).unwrap_err(),
                format!("gave an invalid answer: {expected}")
            );
        };
        refused(&[0], &[0, 1], &[0], 2, "2 offsets instead of 3 for 2 sequences");
        refused(&[0, 1], &[0, 1, 3], &[0, 0], 2, "offsets from 0 to 3 for 2 tokens");
        refused(&[0, 1], &[0, 2, 2], &[0, 0], 2, "sequence 1 has 0 tokens, outside 1..=3");
        refused(&[0, 1], &[0, u32::MAX, 2], &[0, 0], 2, "sequence 0 has 4294967295 tokens, outside 1..=3");
        refused(&[0, 1, 0], &[0, 1, 3], &[], 0, "sequence 0 has 1 tokens, outside 2..=3");
        refused(&[0, 2], &[0, 1, 2], &[0, 0], 2, "token 2 is outside the vocabulary of 2");
        refused(&[0, 1], &[0, 1, 2], &[0], 2, "1 labels instead of 2");
        refused(&[0, 1], &[0, 1, 2], &[0, 2], 2, "label 2 is outside the 2 classes");
    }

    #[test]
    fn facts_stages_states_and_values_are_checked() {
        check_facts(&facts(0)).unwrap();
        assert!(check_facts(&facts(1)).is_err());
        assert!(check_facts(&PluginFacts { max_length: 1, ..facts(0) }).is_err());
        assert!(check_facts(&PluginFacts { vocabulary: Vec::new(), ..facts(2) }).is_err());
        let stage = |until_step, max_length| Stage { until_step, max_length, note: String::new() };
        check_stage(&stage(5, 1), 4).unwrap();
        assert!(check_stage(&stage(4, 1), 4).is_err());
        assert!(check_stage(&stage(5, 0), 4).is_err());
        let limits = PluginLimits { state: 2, ..PluginLimits::default() };
        check_state(&[1, 2], &limits).unwrap();
        assert_eq!(check_state(&[1, 2, 3], &limits).unwrap_err().limit, Some(PluginLimit::State));
        let value = |name: &str| Value { name: name.into(), value: 0.0 };
        check_values(&[value("ece"), value("mce_10.a")]).unwrap();
        assert!(check_values(&[]).is_err());
        assert!(check_values(&[value("a/b")]).is_err());
        assert!(check_values(&[value("a"), value("a")]).is_err());
    }

    #[test]
    fn results_and_proposals_are_json() {
        check_result("{\"a\": [1]}").unwrap();
        assert!(check_result("{a}").unwrap_err().message.contains("the result is not JSON"));
        assert!(check_result(&" ".repeat(MOST_RESULT + 1)).is_err());
        let check = |params: &[&str], finished: bool| {
            let params = params.iter().map(|text| (*text).to_owned()).collect();
            check_proposal(&Proposal { state: Vec::new(), params, finished }, 2).map_err(|cause| cause.message)
        };
        check(&["{}", "{\"lr\": 0.1}"], false).unwrap();
        check(&[], true).unwrap();
        assert!(check(&[], false).unwrap_err().contains("no trials"));
        assert!(check(&["{}", "{}", "{}"], false).unwrap_err().contains("3 trials; at most 2"));
        assert!(check(&["[]"], false).unwrap_err().contains("trial 0 are not a JSON object"));
        assert!(is_metric_path("valid/loss") && !is_metric_path("valid//loss") && !is_metric_path(""));
    }
}
