//! Checks damaged workflow files for a limited time: no file may make the checker panic, or take much memory or time.
//!
//! ```text
//! cargo run --release -p assay-spec --example fuzz_workflows -- [SECONDS] [SEED]
//! ```
//!
//! It prints its first seed at the start. A failure prints the seed of its file, and `fuzz_workflows 0 SEED` checks only that file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use assay_spec::{Conclusion, Finished, check};
use memory::measure_peak;

#[path = "../tests/fake/mod.rs"]
mod fake;
#[path = "../tests/memory/mod.rs"]
mod memory;

/// The limits of a file; the largest is a few KiB. The time limit is far beyond any measured time, so that a busy machine
/// causes no failure.
const MOST_BYTES: usize = 256 << 20;
const MOST_TIME: Duration = Duration::from_secs(20);

/// The files that are damaged.
const FILES: &[&str] = &[
    include_str!("../tests/good/sweep.yaml"),
    include_str!("../tests/good/plain.yaml"),
    include_str!("../../catalog/quickstart.yaml"),
    include_str!("../../catalog/best.yaml"),
    include_str!("../../catalog/throughput.yaml"),
];

/// Text with a meaning for the parser, the expression language or the checker.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "jobs", "params", "uses", "with", "needs", "strategy", "matrix", "include", "exclude", "each", "replicates", "name",
    "if", "continue-on-error", "best(needs.", "failure()", "always()", "metrics[", ".cells", "result",
    "resources", "retry", "report", "train", "prepare", "data", "seed", ": ", ":\n", "\n", "  ", "    ", "- ", "[", "]",
    "{", "}", ", ", "\"", "'", "|\n", ">-\n", "&x ", "*x", "<<: ", "!!str ", "# ", "---\n", "\t", "${{ ", " }}",
    "params.", "matrix.", "needs.", ".outputs.", ".cells", "each.", "replicate", " | ", "sum", "map(attribute=", "map('",
    "selectattr('", "join(", "sort", "unique", "default(", "string", "list", "range(", "(", ")", " * ", " ** ", " // ", " ~ ", " if ",
    " else ", " is ", " not ", " in ", "0", "1", "16", "-9223372036854775808", "18446744073709551615", "1e308", "0.5",
    "017", "null", "yes", "\u{e9}", "\u{feff}", "\r\n", "\\", "#2", "=", "none", "true", "\u{202e}", "\u{0}",
];

/// Random numbers from a seed (SplitMix64; Steele, Lea and Flood, 2014).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }
}

/// The file of a seed: a valid one with parts replaced, repeated, exchanged or cut.
fn damaged(seed: u64) -> String {
    let mut numbers = Numbers(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut text: Vec<char> = FILES[numbers.below(FILES.len())].chars().collect();
    for _ in 0..=numbers.below(8) {
        let from = numbers.below(text.len() + 1);
        let to = (from + numbers.below(40)).min(text.len());
        let piece: Vec<char> = match numbers.below(6) {
            0 => text[from..to].iter().copied().cycle().take(numbers.below(2_000)).collect(),
            1 => {
                let other = numbers.below(text.len() + 1);
                text[other..(other + 60).min(text.len())].to_vec()
            }
            2 => Vec::new(),
            _ => (0..=numbers.below(6)).flat_map(|_| PIECES[numbers.below(PIECES.len())].chars()).collect(),
        };
        text.splice(from..to, piece);
    }
    text.into_iter().collect()
}

/// Checks a file and resolves the tasks that need no outputs. Returns what went wrong.
fn examine(text: &str, kinds: &[assay_spec::StepKind]) -> Result<(), String> {
    let begun = Instant::now();
    let check_all = || match check("fuzz.yaml", text, kinds, &[]) {
        Ok(workflow) => {
            let failed = |_: usize| Some(Finished::without_result(Conclusion::Failure));
            for task in 0..workflow.tasks.len() {
                drop(workflow.resolve(task, &|_| None));
                drop(workflow.condition(task, &failed));
            }
            let waiting = workflow.jobs.iter().position(|job| job.awaits.is_some());
            drop(waiting.map(|job| workflow.expand(job, &failed)));
        }
        Err(problems) => drop(problems.to_string()),
    };
    let (checked, peak) = measure_peak(|| catch_unwind(AssertUnwindSafe(check_all)));
    match checked {
        Err(_) => Err("the check panicked".to_owned()),
        Ok(()) if peak > MOST_BYTES => Err(format!("the check allocated {peak} bytes")),
        Ok(()) if begun.elapsed() > MOST_TIME => Err(format!("the check took {:?}", begun.elapsed())),
        Ok(()) => Ok(()),
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (seconds, seed) = match (arguments.next().unwrap_or(Ok(30)), arguments.next().transpose()) {
        (Ok(seconds), Ok(seed)) => (seconds, seed),
        _ => {
            eprintln!("usage: fuzz_workflows [SECONDS] [SEED], both whole numbers");
            return ExitCode::from(2);
        }
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let first = seed.unwrap_or(now.as_secs().wrapping_mul(1_000_000_000) >> 1);
    println!("seed {first}, {seconds} s");
    let (kinds, end) = (fake::kinds(), Instant::now() + Duration::from_secs(seconds));
    let (mut count, mut failures) = (0, 0);
    for seed in first.. {
        let text = damaged(seed);
        if let Err(problem) = examine(&text, &kinds) {
            println!("seed {seed}: {problem}\n{text}\n");
            failures += 1;
        }
        count += 1;
        if Instant::now() >= end {
            break;
        }
    }
    println!("{count} files checked, {failures} failed");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
