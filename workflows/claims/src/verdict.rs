//! The verdict on a claim, and its basis.

use std::fmt;

use serde::Serialize;

/// The outcome of testing a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The value lies inside the claimed band.
    Supported,
    /// It lies outside.
    Refuted,
    /// The observations do not decide it.
    Undecided,
    /// The claimed numbers contradict each other.
    Impossible,
    /// The claimed numbers agree with each other, and nothing else was claimed.
    Consistent,
    /// It cannot be tested here.
    NotTested,
}

impl Verdict {
    /// In the order in which they are counted.
    pub const ALL: [Verdict; 6] = [
        Verdict::Supported,
        Verdict::Refuted,
        Verdict::Undecided,
        Verdict::Impossible,
        Verdict::Consistent,
        Verdict::NotTested,
    ];

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Supported => "supported",
            Verdict::Refuted => "refuted",
            Verdict::Undecided => "undecided",
            Verdict::Impossible => "impossible",
            Verdict::Consistent => "consistent",
            Verdict::NotTested => "not tested",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgedClaim {
    /// The claim's name.
    pub id: String,
    /// The statement in words.
    pub says: Option<String>,
    /// Where the statement was made.
    pub source: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one sentence.
    pub reason: String,
    /// The check as written.
    pub check: Option<String>,
    /// What was claimed, for people: `53.9 ± 10 %`, `> 0`.
    pub claimed: Option<String>,
    /// The ends of the claimed band; `None` for an open end, or if nothing is measured.
    pub band: Option<(Option<f64>, Option<f64>)>,
    /// What was measured.
    pub measured: Option<Measurement>,
    /// How many replicates would decide the claim with a chance of 80 %, if it is undecided and the estimate does not
    /// change; `None` if that is unknown or more than 1,000.
    pub replicates_to_decide: Option<usize>,
    /// How the check is reduced from the published experiment.
    pub scaled: Option<String>,
    /// The comparisons of claimed numbers.
    pub arithmetic: Vec<Arithmetic>,
    /// The indices of the tasks behind the measurement.
    pub tasks: Vec<usize>,
    /// The file and line of the claim.
    pub place: (String, usize),
}

/// A measured value with its test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// The mean over the replicates; the geometric mean for a ratio.
    pub value: f64,
    /// The lower end of the 95 % interval; `None` for a single observation.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The unit.
    pub unit: String,
    /// Value and interval, for people.
    pub text: String,
    /// The number of replicates.
    pub n: usize,
    /// Whether replicates with the same number were compared as pairs.
    pub paired: bool,
    /// Whether the values have no scatter, so that they are compared exactly.
    pub exact: bool,
    /// The p-value of the verdict that the data point to; `None` if there is no test.
    pub p: Option<f64>,
    /// The same, corrected for all claims of the file.
    pub p_corrected: Option<f64>,
}

/// A comparison of claimed numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arithmetic {
    /// The comparison as written.
    pub text: String,
    /// Both sides as numbers: `75.2667 == 75.3`.
    pub shown: String,
    /// Whether it is true.
    pub holds: bool,
}
