//! The options of `assay compare`.

use clap::{Args, ValueEnum};

/// `assay compare`
#[derive(Args)]
pub struct CompareArgs {
    /// The base: RUN, RUN:CELL or RUN:JOB; RUN is a number, `latest`, or a commit or branch
    pub base: String,
    /// What to compare with it, in the same form
    pub candidate: String,
    /// For commits and branches: the workflow, if several workflows have runs at both
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// Only these metrics, separated by commas; `*` stands for any text
    #[arg(long, visible_alias = "metric", value_name = "NAME", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// The smallest relevant change, relative to A, such as 5% or 0.05 (default: 5%); exit code 1 if a metric is
    /// significantly worse by that much or more
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub threshold: Option<f64>,
    /// The format
    #[arg(long, value_enum, default_value_t = CompareFormat::Table)]
    pub format: CompareFormat,
    /// Print one JSON object on standard output: `--format json`
    #[arg(long)]
    pub json: bool,
}

/// The formats of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For a terminal
    Table,
    /// For programs
    Json,
    /// For a pull request
    Markdown,
}

/// A share such as `5%` or `0.05`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 0.01));
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value * unit),
        _ => Err("give a share of zero or more, such as 5% or 0.05".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_percent() {
        assert_eq!(["5%", "0.05", "0", "12.5 %"].map(|text| parse_share(text).unwrap()), [0.05, 0.05, 0.0, 0.125]);
        for wrong in ["-1%", "NaN", "five", "", "%", "inf"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }
}
