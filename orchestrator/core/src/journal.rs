//! The journal: every event in the order in which it was applied. The driver decides where it is stored.

use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::event::Event;
use crate::orchestrator::Orchestrator;
use crate::time::Millis;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Counts from 1 without gaps.
    pub seq: u64,
    /// When the event was applied, according to the driver's clock.
    pub now: Millis,
    /// What happened.
    pub event: Event,
}

/// The journal has a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {expected} of the journal is missing: found entry {found} instead")]
pub struct JournalGap {
    /// The expected number.
    pub expected: u64,
    /// The actual number.
    pub found: u64,
}

impl Orchestrator {
    /// The journal's next entry. Store it before applying it: an event that is not in the journal did not happen.
    #[must_use]
    pub fn entry(&self, now: Millis, event: Event) -> Entry {
        Entry { seq: self.applied + 1, now, event }
    }

    /// Applies the journal's next entry.
    ///
    /// # Errors
    /// If it is not the next entry; the state is then unchanged.
    pub fn apply_entry(&mut self, entry: Entry) -> Result<Vec<Effect>, JournalGap> {
        let expected = self.applied + 1;
        if entry.seq != expected {
            return Err(JournalGap { expected, found: entry.seq });
        }
        Ok(self.apply(entry.now, entry.event))
    }
}

/// The state that a journal leads to: equal to the state of its writer. Its effects were already performed, except
/// perhaps the last ones: see [`Orchestrator::outstanding`].
///
/// # Errors
/// If an entry is missing or out of place.
pub fn replay(entries: impl IntoIterator<Item = Entry>) -> Result<Orchestrator, JournalGap> {
    let mut orchestrator = Orchestrator::new();
    for entry in entries {
        orchestrator.apply_entry(entry)?;
    }
    Ok(orchestrator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_gap_is_refused_and_changes_nothing() {
        let mut core = Orchestrator::new();
        let first = core.entry(Millis(5), Event::Configured { settings: Settings::SERVER });
        assert_eq!(first.seq, 1);
        core.apply_entry(first.clone()).unwrap();
        let before = core.clone();
        assert_eq!(core.apply_entry(first.clone()), Err(JournalGap { expected: 2, found: 1 }));
        assert_eq!(core, before);
        let late = Entry { seq: 3, now: Millis(6), event: Event::Tick };
        let gap = replay([first, late]).unwrap_err();
        assert_eq!(gap.to_string(), "entry 2 of the journal is missing: found entry 3 instead");
    }

    #[test]
    fn an_entry_reads_as_json() {
        let entry = Orchestrator::new().entry(Millis(5), Event::Configured { settings: Settings::EMBEDDED });
        let text = serde_json::to_string(&entry).unwrap();
        let settings = r#"{"lease_ms":null,"patience_ms":0,"grace_ms":10000,"resend_ms":null}"#;
        assert_eq!(text, format!(r#"{{"seq":1,"now":5,"event":{{"event":"configured","settings":{settings}}}}}"#));
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }

    /// As written before retries had `memory_factor`, `timeout_factor` and `exclude_worker`.
    const OLD: &str = r#"{"seq":1,"now":5,"event":{"event":"run_submitted","run":1,"plan":{"tasks":[{"address":"a","job":0,"needs":[],
        "variants":[{"backend":"cpu","cpus":1,"memory":null,"exclusive":false}],
        "retry":{"max":2,"when":["oom"],"backoff_ms":10,"factor":2.0},"timeout_ms":null}],
        "jobs":[{"name":"a","max_parallel":null,"fail_fast":false}]}}}"#;

    #[test]
    fn an_entry_of_an_older_version_is_read() {
        let entry: Entry = serde_json::from_str(OLD).unwrap();
        let written = serde_json::to_value(&entry).unwrap();
        let old: serde_json::Value = serde_json::from_str(OLD).unwrap();
        assert_eq!(written, old, "a retry without the new keys is written as before");
        let state = replay([entry]).unwrap();
        let retry = &state.run(crate::RunId(1)).unwrap().plan().tasks[0].retry;
        assert_eq!((retry.memory_factor, retry.timeout_factor, retry.exclude_worker), (None, None, false));
    }
}
