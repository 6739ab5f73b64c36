//! Which cells may be the best one, as far as the data can tell, and what it would take to know more.

use assay_spec::Better;
use assay_statistics::comparisons::power::MOST_REPLICATES;
use assay_statistics::{
    BestComparison, BestRule, Direction, ErrorTerm, Observation, Scale, compare_with_best, format, mean,
};
use serde::Serialize;

use super::observations::Missing;

/// A cell, as far as its rank goes.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// Its observations.
    pub values: &'a [f64],
    /// Parallel to the values: the replicate of each. Replicates of one number ran from one seed.
    pub replicates: &'a [Option<u32>],
    /// The tasks that ended without a value.
    pub missing: &'a Missing,
}

/// Gives the seconds that one more replicate of each of several cells takes, one task at a time. Cells are given by their places;
/// `None` if the time is unknown.
pub type ReplicateSeconds<'a> = &'a dyn Fn(&[usize]) -> Option<f64>;

/// What may be said of the cells of one column. Cells are named by their places.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// The cell with the best mean; `None` where there is nothing to compare.
    pub leader: Option<usize>,
    /// The cells that cannot be distinguished from the leader, itself left out.
    pub close: Vec<usize>,
    /// The leader, if it may be called the best: the data distinguish it from every other cell.
    pub best: Option<usize>,
    /// The cells that were not compared.
    pub excluded: Vec<Exclusion>,
    /// The smallest difference that the experiment detects, and what would settle an open question.
    pub power: Option<Power>,
    /// Whether cells were compared. If not, the data say nothing about those in `close`.
    pub compared: bool,
    /// The conclusions, as parts of a sentence.
    findings: Vec<String>,
    /// Which cells were not compared; empty if all were.
    omitted: String,
}

/// A cell that was not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    /// Its place.
    pub cell: usize,
    /// Why, such as `1 of 3 failed`.
    pub reason: String,
}

/// What an experiment can find.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Power {
    /// On a linear scale the smallest difference of two means that is found with a chance of about 80 %, in the metric's unit; on a
    /// logarithmic scale the smallest ratio. `None` where each cell has a variance of its own.
    pub detectable: Option<f64>,
    /// How many more replicates of each cell would distinguish the leader from every other one, with a chance of 80 %, if the
    /// means stayed as they are; `None` where it is distinguished, or where no sensible number would do.
    pub more_replicates: Option<usize>,
    /// About how long these replicates would take, one task at a time, in seconds.
    pub more_seconds: Option<f64>,
    /// The scale of the comparison.
    pub scale: Scale,
    /// The error that differences were held against.
    pub error: ErrorTerm,
    /// The p-value of the hypothesis that all cells scatter alike.
    pub equal_variances: Option<f64>,
}

impl Ranking {
    fn among(leader: usize, close: Vec<usize>, finding: impl Into<String>) -> Self {
        let best = close.is_empty().then_some(leader);
        Ranking { leader: Some(leader), close, best, findings: vec![finding.into()], ..Ranking::default() }
    }

    fn without_leader(finding: &str) -> Self {
        Ranking { findings: vec![finding.to_owned()], ..Ranking::default() }
    }

    /// The cells that may be the best, where several were compared and none of them is the best.
    #[must_use]
    pub fn contenders(&self) -> Vec<usize> {
        let open = self.compared && self.best.is_none();
        let mut places: Vec<usize> = self.close.iter().copied().chain(self.leader).filter(|_| open).collect();
        places.sort_unstable();
        places
    }

    /// Adds a part to the sentence.
    pub(super) fn add_finding(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// A sentence for people; empty where there is nothing to compare.
    #[must_use]
    pub fn verdict(&self) -> String {
        let parts = self.findings.iter().chain([&self.omitted]).filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// Ranks cells by their replicates.
///
/// Every cell is compared with the best of the others by Hsu's method, with one error for all cells where they scatter
/// alike, and without what replicates of one seed share where that matters ([`compare_with_best`]). Not compared are cells
/// of which a task failed, cells with a value that is not finite, and cells with a single replicate. Where no cell
/// scatters at all (a size in bytes), the values are exact, and are compared as such.
#[must_use]
pub fn rank_cells(cells: &[Candidate<'_>], better: Better, unit: &str, seconds: ReplicateSeconds<'_>) -> Ranking {
    let direction = match better {
        Better::Lower => Direction::LowerIsBetter,
        Better::Higher => Direction::HigherIsBetter,
        Better::Neither => return Ranking::default(),
    };
    let shown = cells.iter().filter(|cell| !cell.values.is_empty() || cell.missing.count() > 0).count();
    if shown < 2 {
        return Ranking::default();
    }
    let mut excluded = Vec::new();
    let mut sound = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        match unsound(cell) {
            Some(reason) => excluded.push(Exclusion { cell: at, reason }),
            None if !cell.values.is_empty() => sound.push(at),
            None => {}
        }
    }
    let several: Vec<usize> = sound.iter().copied().filter(|&at| cells[at].values.len() > 1).collect();
    let mut ranking = if several.len() > 1 {
        let single = sound.iter().filter(|at| !several.contains(at));
        excluded.extend(single.map(|&cell| Exclusion { cell, reason: "a single replicate".to_owned() }));
        excluded.sort_by_key(|exclusion| exclusion.cell);
        compare(cells, &several, direction, unit, seconds)
    } else {
        unranked(cells, &sound, direction)
    };
    if !excluded.is_empty() {
        let listed = excluded.iter().map(|exclusion| format!("{} ({})", cells[exclusion.cell].name, exclusion.reason));
        ranking.omitted = format!("not compared: {}", list(&listed.collect::<Vec<_>>()));
    }
    Ranking { excluded, ..ranking }
}

/// Why a cell's values are not those of all its replicates.
fn unsound(cell: &Candidate<'_>) -> Option<String> {
    let spoiled = cell.values.iter().filter(|value| !value.is_finite()).count();
    if cell.missing.is_selective() || (cell.values.is_empty() && cell.missing.count() > 0) {
        return Some(cell.missing.describe(cell.values.len()));
    }
    (spoiled > 0).then(|| format!("{spoiled} of {} not finite", cell.values.len()))
}

/// The cell with the best mean, the first of several.
fn leader(cells: &[Candidate<'_>], of: &[usize], direction: Direction) -> Option<(usize, f64)> {
    let sign = if direction == Direction::LowerIsBetter { 1.0 } else { -1.0 };
    let means = of.iter().filter_map(|&at| Some((at, mean(cells[at].values).ok()?)));
    means.min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)))
}

fn unranked(cells: &[Candidate<'_>], sound: &[usize], direction: Direction) -> Ranking {
    match leader(cells, sound, direction) {
        Some((leader, _)) if sound.len() > 1 => {
            let others = sound.iter().copied().filter(|at| *at != leader).collect();
            Ranking::among(leader, others, "not ranked: a single observation has no uncertainty")
        }
        _ => Ranking::without_leader("not ranked: there are no two cells to compare"),
    }
}

fn compare(
    cells: &[Candidate<'_>],
    several: &[usize],
    direction: Direction,
    unit: &str,
    seconds: ReplicateSeconds<'_>,
) -> Ranking {
    let is_exact = |at: &usize| cells[*at].values.windows(2).all(|pair| pair[0] == pair[1]);
    if several.iter().all(is_exact) {
        return exact(cells, several, direction);
    }
    let observed = |&at: &usize| -> Vec<Observation> {
        let replicates = cells[at].replicates.iter().copied().chain(std::iter::repeat(None));
        std::iter::zip(cells[at].values, replicates).map(|(&value, block)| Observation { value, block }).collect()
    };
    let observations: Vec<Vec<Observation>> = several.iter().map(observed).collect();
    // Only values that are not finite are refused, and such cells were left out.
    let Ok(found) = compare_with_best(&observations, direction, &BestRule::default()) else {
        return Ranking::default();
    };
    let counts: Vec<usize> = several.iter().map(|&at| cells[at].values.len()).collect();
    let least = counts.iter().copied().min().unwrap_or(0);
    let more_replicates = found.replicates_needed.map(|needed| needed.saturating_sub(least).max(1));
    let power = Power {
        detectable: found.detectable.map(|found_| if found.scale == Scale::Log { found_.exp() } else { found_ }),
        more_replicates,
        more_seconds: more_replicates.and_then(|more| Some(more as f64 * seconds(several)?)),
        scale: found.scale,
        error: found.error.clone(),
        equal_variances: found.equal_variances,
    };
    let close: Vec<usize> = found.set.iter().filter(|&&at| at != found.leader).map(|&at| several[at]).collect();
    let mut ranking = Ranking::among(several[found.leader], close, "");
    ranking.findings = if ranking.best.is_some() {
        let scale = if found.scale == Scale::Log { " (by geometric means)" } else { "" };
        vec![format!("best; distinguished from {}{scale}", every_other(several.len() - 1))]
    } else {
        describe_open_question(cells, several, &found, &power, unit)
    };
    Ranking { power: Some(power), compared: true, ..ranking }
}

fn every_other(count: usize) -> String {
    if count == 1 { "the other cell".to_owned() } else { format!("the {count} other cells") }
}

/// What is said where no cell is the best: which cells may be, what would be found, and what would settle it.
fn describe_open_question(
    cells: &[Candidate<'_>],
    several: &[usize],
    found: &BestComparison,
    power: &Power,
    unit: &str,
) -> Vec<String> {
    let names: Vec<String> = found.set.iter().map(|&at| cells[several[at]].name.to_owned()).collect();
    let which = match found.set.len() {
        all if all == several.len() => format!("the {all} cells"),
        _ => format!("{} ({} of {} cells)", list(&names), names.len(), several.len()),
    };
    let mut parts = vec![format!("not ranked: {which} cannot be distinguished")];
    match power.detectable {
        Some(smallest) => {
            let counts = || several.iter().map(|&at| cells[at].values.len());
            let n = match (counts().min().unwrap_or(0), counts().max().unwrap_or(0)) {
                (least, most) if least == most => format!("n = {least}"),
                (least, most) => format!("n = {least} to {most}"),
            };
            let difference = match power.scale {
                Scale::Linear => format!("differences above {}", format::quantity(smallest, unit)),
                Scale::Log => format!("ratios above {} (ratios of geometric means)", format::quantity(smallest, "")),
            };
            parts.push(format!("{n} detects {difference}"));
            parts.push(match power.more_replicates {
                Some(more) => {
                    let work =
                        power.more_seconds.map(|seconds| format!("; about {} of work", format::duration(seconds)));
                    let noun = if more == 1 { "replicate" } else { "replicates" };
                    let work = work.unwrap_or_default();
                    format!("{more} more {noun} of each cell would probably settle it (80 %, if the means stay{work})")
                }
                None => format!("{MOST_REPLICATES} replicates of each cell would probably not settle it"),
            });
        }
        None => {
            parts.push("the variances of the cells differ so much that each is compared with its own error".to_owned())
        }
    }
    parts
}

/// How many cells are named before the rest is counted.
const NAMED: usize = 6;

/// `a`, `a and b`, `a, b and c`, or the first of many and how many more.
fn list(names: &[String]) -> String {
    match names {
        [alone] => alone.clone(),
        many if many.len() > NAMED => format!("{} and {} more", many[..NAMED].join(", "), many.len() - NAMED),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

fn exact(cells: &[Candidate<'_>], several: &[usize], direction: Direction) -> Ranking {
    let Some((leader, best)) = leader(cells, several, direction) else { return Ranking::default() };
    let ties: Vec<usize> = several.iter().copied().filter(|&at| at != leader && cells[at].values[0] == best).collect();
    let verdict = match ties.len() + 1 {
        1 => "best; no scatter".to_owned(),
        equal if equal == several.len() => "the same in every cell".to_owned(),
        equal => format!("{equal} cells are equally good; no scatter"),
    };
    Ranking { compared: true, ..Ranking::among(leader, ties, verdict) }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NONE: Missing = Missing::none();
    const UNKNOWN: ReplicateSeconds<'_> = &|_| None;
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    const REPLICATES: [Option<u32>; 5] = [Some(1), Some(2), Some(3), Some(4), Some(5)];

    fn candidates<'a>(cells: &[&'a [f64]]) -> Vec<Candidate<'a>> {
        let cell = |(name, values): (&'a &'static str, &&'a [f64])| Candidate {
            name,
            values,
            replicates: &REPLICATES[..values.len()],
            missing: &NONE,
        };
        NAMES.iter().zip(cells).map(cell).collect()
    }

    fn check_ranking(cells: &[&[f64]], better: Better, best: Option<usize>, close: &[usize], verdict: &str) {
        let found = rank_cells(&candidates(cells), better, "", UNKNOWN);
        assert_eq!((found.best, found.close.as_slice(), found.verdict().as_str()), (best, close, verdict));
    }

    #[test]
    fn a_winner_needs_evidence() {
        let (low, high, middle) = ([1.0, 1.01, 0.99], [2.0, 1.99, 2.01], [1.01, 1.02, 0.98]);
        check_ranking(&[&high, &low], Better::Lower, Some(1), &[], "best; distinguished from the other cell");
        check_ranking(&[&high, &low], Better::Higher, Some(0), &[], "best; distinguished from the other cell");
        check_ranking(&[&high, &low], Better::Neither, None, &[], "");
        let found = rank_cells(&candidates(&[&high, &low, &middle]), Better::Lower, "", UNKNOWN);
        assert_eq!((found.leader, found.best, found.close.as_slice()), (Some(1), None, &[2][..]));
        let power = found.power.clone().unwrap();
        assert!((0.03..0.06).contains(&power.detectable.unwrap()) && power.more_replicates.unwrap() > 10, "{power:?}");
        let start = "not ranked: b and c (2 of 3 cells) cannot be distinguished; n = 3 detects differences above 0.0";
        assert!(found.verdict().starts_with(start), "{}", found.verdict());
        let end = " more replicates of each cell would probably settle it (80 %, if the means stay)";
        assert!(found.verdict().ends_with(end), "{}", found.verdict());
        assert_eq!(found.contenders(), [1, 2]);
        let timed =
            rank_cells(&candidates(&[&high, &low, &middle]), Better::Lower, "", &|cells| Some(cells.len() as f64));
        let more = timed.power.clone().unwrap().more_replicates.unwrap();
        let end = format!("(80 %, if the means stay; about {} of work)", format::duration(3.0 * more as f64));
        assert!(timed.verdict().ends_with(&end), "{}", timed.verdict());
    }

    /// The winner's lead is 3.8 pooled standard deviations. Of two replicates each, Welch's test against the next cell has
    /// p = 0.07 even without a correction.
    #[test]
    fn five_cells_of_two_replicates_can_have_a_winner() {
        let cells: [&[f64]; 5] = [&[0.99, 1.01], &[1.04, 1.06], &[1.06, 1.05], &[1.05, 1.07], &[1.065, 1.045]];
        check_ranking(&cells, Better::Lower, Some(0), &[], "best; distinguished from the 4 other cells");
    }

    #[test]
    fn what_cannot_be_compared_is_named_and_the_rest_is_ranked() {
        let words = "not ranked: a single observation has no uncertainty";
        check_ranking(&[&[1.0], &[2.0, 2.1]], Better::Lower, None, &[1], words);
        let words = "best; distinguished from the other cell; not compared: a (a single replicate)";
        check_ranking(&[&[0.5], &[1.0, 1.01, 0.99], &[2.0, 1.99, 2.01]], Better::Lower, Some(1), &[], words);
        let words = "not ranked: there are no two cells to compare; not compared: c (1 of 2 not finite)";
        check_ranking(&[&[1.0, 1.1], &[], &[f64::NAN, 0.1]], Better::Lower, None, &[], words);
        check_ranking(&[], Better::Lower, None, &[], "");
        check_ranking(&[&[1.0, 1.1], &[]], Better::Lower, None, &[], "");
    }

    #[test]
    fn a_cell_with_failures_is_never_the_best() {
        let mut cells = candidates(&[&[0.1, 0.11], &[1.0, 1.01, 0.99], &[2.0, 1.99, 2.01], &[]]);
        let [one, three] = [Missing::failures(1), Missing::failures(3)];
        (cells[0].missing, cells[3].missing) = (&one, &three);
        let found = rank_cells(&cells, Better::Lower, "", UNKNOWN);
        assert_eq!(found.best, Some(1));
        assert_eq!(found.excluded.iter().map(|exclusion| exclusion.cell).collect::<Vec<_>>(), [0, 3]);
        let words = "best; distinguished from the other cell; not compared: a (1 of 3 failed) and d (3 of 3 failed)";
        assert_eq!(found.verdict(), words);
    }

    #[test]
    fn a_cell_that_diverged_is_left_out_and_that_is_said() {
        let words = "best; distinguished from the other cell; not compared: c (1 of 2 not finite)";
        check_ranking(&[&[1.0, 1.01, 0.99], &[2.0, 1.99, 2.01], &[0.5, f64::NAN]], Better::Lower, Some(0), &[], words);
    }

    #[test]
    fn exact_values_are_compared_as_such() {
        check_ranking(&[&[8.0, 8.0], &[4.0, 4.0]], Better::Lower, Some(1), &[], "best; no scatter");
        check_ranking(&[&[4.0, 4.0], &[4.0, 4.0]], Better::Lower, None, &[1], "the same in every cell");
        let words = "2 cells are equally good; no scatter";
        check_ranking(&[&[4.0, 4.0], &[4.0, 4.0], &[5.0, 5.0]], Better::Lower, None, &[1], words);
    }

    #[test]
    fn ratios_are_said_to_be_of_geometric_means() {
        let cells: [&[f64]; 3] = [&[1.0, 1.1, 0.9], &[105.0, 110.0, 90.0], &[1e4, 1.1e4, 0.9e4]];
        let found = rank_cells(&candidates(&cells), Better::Lower, "", UNKNOWN);
        assert_eq!(found.verdict(), "best; distinguished from the 2 other cells (by geometric means)");
        let open = rank_cells(&candidates(&[cells[0], cells[1], &[1.0, 1.05, 0.9]]), Better::Lower, "", UNKNOWN);
        assert!(open.verdict().contains(" (ratios of geometric means); "), "{}", open.verdict());
    }

    #[test]
    fn many_names_are_counted() {
        let names: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        assert_eq!((list(&names[..2]), list(&names[..1])), ("0 and 1".to_owned(), "0".to_owned()));
        assert_eq!((list(&names), list(&[])), ("0, 1, 2, 3, 4, 5 and 3 more".to_owned(), String::new()));
    }

    #[test]
    fn the_best_is_the_leader_and_is_compared() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        for _ in 0..300 {
            let count = (next() * 6.0) as usize;
            let cells: Vec<Vec<f64>> =
                (0..count).map(|_| (0..(next() * 5.0) as usize).map(|_| next() * 2e3 - 1e3).collect()).collect();
            let cells: Vec<&[f64]> = cells.iter().map(Vec::as_slice).collect();
            let found = rank_cells(&candidates(&cells), Better::Lower, "", UNKNOWN);
            if let Some(leader) = found.leader {
                assert!(found.excluded.iter().all(|exclusion| exclusion.cell != leader));
                assert!(found.best.is_none_or(|best| best == leader) && !found.close.contains(&leader));
                assert_eq!(found.best.is_some(), found.close.is_empty());
            }
        }
    }
}
