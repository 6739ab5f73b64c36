//! What a filter of runs asks for, parsed.

use assay_server::RunStateName;

use super::literal::Literal;

/// Conditions on runs, all of which must hold. The default has none: every run is wanted.
///
/// [`RunFilter::parse`] describes the language.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFilter {
    pub(super) conditions: Vec<Condition>,
}

impl RunFilter {
    /// Whether every run is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// The same, and only runs with this tag.
    #[must_use]
    pub fn with_tag(self, tag: &str) -> Self {
        self.and(Condition::Tag(TextTest { matching: Matching::Whole, any_of: vec![tag.to_owned()], negated: false }))
    }

    /// The same, and only runs whose workflow's name contains this.
    #[must_use]
    pub fn with_name_part(self, part: &str) -> Self {
        let test = TextTest { matching: Matching::Part, any_of: vec![part.to_owned()], negated: false };
        self.and(Condition::Text(TextField::Name, test))
    }

    /// The same, and only runs in this state.
    #[must_use]
    pub fn with_state(self, state: RunStateName) -> Self {
        self.and(Condition::State { any_of: vec![state], negated: false })
    }

    /// The same, and only runs of the workflow with exactly this name.
    #[must_use]
    pub fn with_workflow(self, name: &str) -> Self {
        let test = TextTest { matching: Matching::Whole, any_of: vec![name.to_owned()], negated: false };
        self.and(Condition::Text(TextField::Name, test))
    }

    /// The same, and only runs of this commit, or of the commits that begin so.
    #[must_use]
    pub fn with_commit(self, commit: &str) -> Self {
        let test = TextTest { matching: Matching::Start, any_of: vec![commit.to_owned()], negated: false };
        self.and(Condition::Text(TextField::Commit, test))
    }

    pub(super) fn and(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    /// The run's state is one of these.
    State {
        /// The states.
        any_of: Vec<RunStateName>,
        /// Whether it must be none of them.
        negated: bool,
    },
    /// A text of the run.
    Text(TextField, TextTest),
    /// One of the run's tags; negated, none of them.
    Tag(TextTest),
    /// A number of the run.
    Number(NumberField, NumberTest),
    /// A parameter of the run, or a matrix value or metric of a task.
    Value(ValueKey, ValueTest),
}

/// A text of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextField {
    /// The workflow's name.
    Name,
    /// The workflow file.
    File,
    /// The note.
    Note,
    /// The commit.
    Commit,
}

/// A number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberField {
    /// The run's number.
    Run,
    /// How many tasks it has.
    Tasks,
    /// How many of them failed.
    Failed,
    /// How many of them came from the cache.
    Cached,
    /// How long it took, in seconds; up to now if it is in progress.
    Took,
    /// Seconds since it was started.
    Age,
    /// When it was started, in milliseconds since 1970.
    Started,
    /// When it ended.
    Ended,
}

/// How texts are compared. All but `Whole` ignore the case of ASCII letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    /// They are equal.
    Whole,
    /// The text contains the wanted one.
    Part,
    /// The text begins with the wanted one.
    Start,
}

/// A test of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextTest {
    /// How it is compared.
    pub matching: Matching,
    /// With which texts; one of them must match.
    pub any_of: Vec<String>,
    /// Whether none of them may match.
    pub negated: bool,
}

/// An order of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// A test of a number.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NumberTest {
    /// It is one of these, or none of them.
    OneOf {
        /// The numbers.
        any_of: Vec<f64>,
        /// Whether it must be none of them.
        negated: bool,
    },
    /// It is on this side of a bound.
    Ordered(Order, f64),
}

/// Which values a condition is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueKey {
    /// Where they are looked for.
    pub places: Places,
    /// The name.
    pub name: String,
    /// The names of metrics with this headline.
    pub headlines: Vec<String>,
}

/// Where values are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// In all three.
    Anywhere,
    /// `params.NAME`
    Params,
    /// `matrix.NAME`
    Matrix,
    /// `metrics.NAME`
    Metrics,
}

/// A test of a value that may be a number, a text or a truth value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueTest {
    /// It is one of these; negated, it is something else.
    OneOf {
        /// The values.
        any_of: Vec<Literal>,
        /// Whether it must be something else.
        negated: bool,
    },
    /// Its text contains one of these; negated, it contains none of them.
    Contains {
        /// The parts.
        any_of: Vec<String>,
        /// Whether it must contain none.
        negated: bool,
    },
    /// It is a number on this side of a bound.
    Ordered(Order, f64),
}
