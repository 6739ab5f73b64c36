//! Converts wasmtime errors into messages for people.

use assay_protocol::{PluginFailure, PluginLimit, PluginLimits};
use wasmtime::{Trap, WasmBacktrace};

use crate::interface::Problem;
use crate::store::{HostFailure, LimitReached};

/// How many characters of a plugin's own message, hint or traceback are kept.
const MOST_TEXT: usize = 16 << 10;

/// How many lines of the log a failure contains.
const LOG_LINES: usize = 20;

/// A failure without plugin, function and log, which [`Cause::name`] adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    pub message: String,
    pub limit: Option<PluginLimit>,
    pub hint: Option<String>,
    pub at: Option<String>,
    pub trace: Option<String>,
}

impl Cause {
    /// A plain message.
    pub fn new(message: impl Into<String>) -> Self {
        Cause { message: message.into(), ..Cause::default() }
    }

    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Cause { hint: Some(hint.into()), ..self }
    }

    pub fn of_limit(self, limit: PluginLimit) -> Self {
        Cause { limit: Some(limit), ..self }
    }

    /// Adds the plugin, the function and the end of the log.
    pub fn name(self, plugin: &str, function: &str, log: &[(String, String)]) -> PluginFailure {
        let last = &log[log.len().saturating_sub(LOG_LINES)..];
        PluginFailure {
            plugin: plugin.to_owned(),
            function: function.to_owned(),
            message: self.message,
            limit: self.limit,
            hint: self.hint,
            at: self.at,
            trace: self.trace,
            log: last.iter().map(|(level, text)| format!("{level}: {text}")).collect(),
        }
    }
}

impl From<Problem> for Cause {
    fn from(problem: Problem) -> Self {
        let Problem { message, hint, at, trace } = problem;
        let message = format!("failed: {}", cut_text(message));
        Cause { message, limit: None, hint: hint.map(cut_text), at: at.map(cut_text), trace: trace.map(cut_text) }
    }
}

fn cut_text(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_TEXT));
    text
}

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    /// Units of fuel.
    pub fuel: u64,
    /// Seconds.
    pub seconds: u64,
}

/// Explains an error of a call with these limits. `otherwise` describes errors that are neither traps nor limits.
pub(crate) fn explain(error: &wasmtime::Error, limits: &PluginLimits, call: CallLimits, otherwise: &str) -> Cause {
    let trace = error.downcast_ref::<WasmBacktrace>().map(ToString::to_string).map(cut_text);
    let mut cause = explain_without_trace(error, limits, call, otherwise);
    cause.trace = trace.filter(|trace| !trace.is_empty());
    cause
}

fn explain_without_trace(error: &wasmtime::Error, limits: &PluginLimits, call: CallLimits, otherwise: &str) -> Cause {
    if let Some(LimitReached { limit, message }) = error.downcast_ref() {
        let hint = match limit {
            PluginLimit::Output => "write less, or split the work into several jobs",
            PluginLimit::Points => "report each metric less often",
            _ => "raise the plugin's `memory`, or let it use less",
        };
        return Cause::new(message).of_limit(*limit).with_hint(hint);
    }
    if let Some(HostFailure(message)) = error.downcast_ref() {
        return Cause::new(format!("failed: {message}"));
    }
    let root = error.root_cause().to_string();
    let Some(trap) = error.downcast_ref::<Trap>() else {
        if root.starts_with("too much data") {
            return Cause::new(format!("passed too much data; the limit is {} bytes", limits.transfer))
                .of_limit(PluginLimit::Transfer)
                .with_hint("make smaller batches");
        }
        if root.starts_with("resource limit exceeded") {
            return Cause::new(format!("failed: {root}")).of_limit(PluginLimit::Table);
        }
        return Cause::new(format!("{otherwise}: {root}"));
    };
    match trap {
        Trap::OutOfFuel => Cause::new(format!("ran out of fuel; the limit of this call was {} units", call.fuel))
            .of_limit(PluginLimit::Fuel)
            .with_hint("it may loop forever; otherwise do less in one call"),
        Trap::Interrupt => {
            Cause::new(format!("took longer than {} s", call.seconds)).of_limit(PluginLimit::Time)
        }
        Trap::StackOverflow => Cause::new(format!("needs more stack than {} bytes", limits.stack))
            .of_limit(PluginLimit::Stack)
            .with_hint("it may call itself forever"),
        Trap::UnreachableCodeReached => Cause::new("aborted (it executed `unreachable`)")
            .with_hint("an assertion, an uncaught exception or, in Python, `print` or a file; return a `problem` with its traceback"),
        other => Cause::new(format!("trapped: {}", other.to_string().trim_start_matches("wasm trap: "))),
    }
}
