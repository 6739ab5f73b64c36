//! Nested timers of a step, written as a Chrome trace.
//!
//! The file is the JSON array of the Trace Event Format, with complete events (`ph: X`), times in microseconds since
//! the profiler started; Perfetto and `chrome://tracing` open it. Events are nested according to their times. A
//! disabled profiler costs one comparison per timer.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::context::StepError;

/// The maximum number of events: about 2 MB of file.
const MAX_EVENTS: usize = 20_000;

/// Collects timers, if it is enabled.
pub struct Profiler {
    began: Instant,
    on: bool,
    events: Vec<Event>,
}

/// A running timer.
#[derive(Debug, Clone, Copy)]
pub struct Span(Option<Instant>);

struct Event {
    name: &'static str,
    at: Duration,
    took: Duration,
    /// A number that distinguishes it from others with the same name, such as the training step.
    number: Option<u64>,
    /// The row in a viewer, separate for concurrent work.
    track: usize,
}

impl Profiler {
    /// An enabled profiler.
    #[must_use]
    pub fn on() -> Self {
        Profiler { began: Instant::now(), on: true, events: Vec::new() }
    }

    /// A disabled profiler.
    #[must_use]
    pub fn off() -> Self {
        Profiler { began: Instant::now(), on: false, events: Vec::new() }
    }

    /// Whether it is enabled.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Stops collecting; collected events are kept.
    pub fn stop(&mut self) {
        self.on = false;
    }

    /// Starts a timer.
    #[must_use]
    pub fn begin(&self) -> Span {
        Span(self.on.then(Instant::now))
    }

    /// Stops a timer, and records it.
    pub fn end(&mut self, span: Span, name: &'static str) {
        self.record(span, name, None);
    }

    /// Like [`Profiler::end`], with a number that is shown next to the name.
    pub fn end_numbered(&mut self, span: Span, name: &'static str, number: u64) {
        self.record(span, name, Some(number));
    }

    /// Adds an external measurement of the share `share` of some work: shares may run at the same time.
    pub fn add(&mut self, name: &'static str, share: usize, began: Instant, ended: Instant) {
        if self.on {
            let (at, took) = (began.duration_since(self.began), ended.duration_since(began));
            self.keep(Event { name, at, took, number: None, track: 1 + share });
        }
    }

    fn record(&mut self, span: Span, name: &'static str, number: Option<u64>) {
        let Some(start) = span.0 else { return };
        self.keep(Event { name, at: start.duration_since(self.began), took: start.elapsed(), number, track: 0 });
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), StepError> {
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1000.0;
        // Enclosing events come first, as viewers expect.
        let mut order: Vec<&Event> = self.events.iter().collect();
        order.sort_by_key(|event| (event.at, std::cmp::Reverse(event.took)));
        let event = |event: &&Event| {
            let args = event.number.map_or(json!({}), |number| json!({"step": number}));
            let (ts, dur) = (microseconds(event.at), microseconds(event.took));
            let track = event.track + 1;
            json!({"name": event.name, "cat": "step", "ph": "X", "ts": ts, "dur": dur, "pid": 1, "tid": track, "args": args})
        };
        let trace: Vec<Value> = order.iter().map(event).collect();
        let failed = |error: String| StepError::failed(format!("{}: {error}", path.display()));
        let text = serde_json::to_string(&trace).map_err(|error| failed(error.to_string()))?;
        std::fs::write(path, text).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(profiler: &Profiler) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        profiler.write(&path).unwrap();
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn timers_lie_in_one_another_as_they_ran() {
        let mut profiler = Profiler::on();
        let outer = profiler.begin();
        let inner = profiler.begin();
        std::thread::sleep(Duration::from_millis(2));
        profiler.end(inner, "inner");
        profiler.end_numbered(outer, "outer", 7);
        let trace = written(&profiler);
        assert_eq!((&trace[0]["name"], &trace[0]["args"]["step"]), (&json!("outer"), &json!(7)));
        let ends = |event: &Value| {
            let (at, took) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            (at, at + took)
        };
        let (outer, inner) = (ends(&trace[0]), ends(&trace[1]));
        assert!(outer.0 <= inner.0 && inner.1 <= outer.1 && inner.1 - inner.0 >= 2000.0, "{trace:?}");
    }

    #[test]
    fn shares_have_rows_of_their_own() {
        let mut profiler = Profiler::on();
        let (began, ended) = (Instant::now(), Instant::now());
        (0..2).for_each(|share| profiler.add("forward", share, began, ended));
        let tracks: Vec<Value> = written(&profiler).iter().map(|event| event["tid"].clone()).collect();
        assert_eq!(tracks, [2, 3]);
    }

    #[test]
    fn one_that_is_off_or_full_collects_nothing() {
        let mut off = Profiler::off();
        let span = off.begin();
        off.end(span, "never");
        assert!(written(&off).is_empty());
        let mut on = Profiler::on();
        (0..MAX_EVENTS + 5).for_each(|_| {
            let span = on.begin();
            on.end(span, "often");
        });
        assert_eq!(on.events.len(), MAX_EVENTS);
        on.stop();
        assert!(on.begin().0.is_none());
    }
}
