//! Thousands of random histories. A failure prints its seed; `ASSAY_SIM_SEED` and `ASSAY_SIM_HISTORIES` choose others, and
//! `tests/run` simulates 100,002.
//!
//! Each flavour plays [`HISTORIES`] of them, and the core is checked after every event: by `sanity_check` from inside, and
//! by the `oracle` from its events and effects. Each flavour also lists what must occur at least once, so that a
//! simulation in which nothing happens fails. `tampering` checks the oracle itself.

mod generate;
mod known;
mod node;
mod oracle;
mod rng;
mod tampering;
mod world;

use generate::Flavour;
use oracle::Seen;

/// For each flavour; there are six.
const HISTORIES: u64 = 2_200;

const CALM: Flavour = Flavour {
    name: "calm",
    failing_steps: false,
    bad_network: false,
    dying_workers: false,
    stubborn_attempts: false,
    driver_restarts: false,
    cancels: false,
    operators: false,
};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, and is {text:?}")),
        Err(_) => default,
    }
}

fn simulate(flavour: &Flavour, must_see: &[&str]) {
    let (first, histories) = (setting("ASSAY_SIM_SEED", 1), setting("ASSAY_SIM_HISTORIES", HISTORIES));
    let mut total = Seen::default();
    for seed in (first..).take(histories as usize) {
        let again = format!(
            "ASSAY_SIM_SEED={seed} ASSAY_SIM_HISTORIES=1 cargo test -p assay-core --test simulation {}",
            flavour.name
        );
        // A panic of the core is reported like any other failure, with its seed.
        let played = std::panic::catch_unwind(|| world::play(seed, flavour));
        match played {
            Ok(Ok(seen)) => seen.0.into_iter().for_each(|(what, count)| *total.0.entry(what).or_default() += count),
            Ok(Err(problem)) => panic!("seed {seed}: {problem}\nagain: {again}"),
            Err(_) => panic!("seed {seed}: the core panicked, see above\nagain: {again}"),
        }
    }
    println!("{} histories of `{}`: {:?}", histories, flavour.name, total.0);
    if histories >= HISTORIES {
        for what in must_see {
            assert!(total.0.contains_key(what), "no `{what}` in {histories} histories of `{}`", flavour.name);
        }
    }
}

#[test]
fn calm() {
    simulate(
        &CALM,
        &["start", "success", "cached", "failed unstarted", "skip", "metric", "false condition", "tasks added"],
    );
}

#[test]
fn failures_and_cancels() {
    let flavour =
        Flavour { name: "failures_and_cancels", failing_steps: true, stubborn_attempts: true, cancels: true, ..CALM };
    let must_see = [
        "failure",
        "retry",
        "skip",
        "stop, cancelled",
        "stop, fail fast",
        "stop, timed out",
        "fenced end",
        "tolerated failure",
        "tasks added",
    ];
    simulate(&flavour, &must_see);
}

#[test]
fn bad_network() {
    let flavour = Flavour { name: "bad_network", bad_network: true, ..CALM };
    simulate(&flavour, &["start said again", "dismissal", "preemption", "fenced end", "fenced metric", "retry"]);
}

#[test]
fn dying_workers() {
    let flavour = Flavour { name: "dying_workers", dying_workers: true, driver_restarts: true, ..CALM };
    simulate(&flavour, &["death", "dismissal", "preemption", "driver restart", "retry"]);
}

#[test]
fn operators() {
    let flavour = Flavour { name: "operators", operators: true, dying_workers: true, ..CALM };
    let must_see = ["closed", "shared", "paused", "checkpoint", "preemption after a checkpoint", "retry"];
    simulate(&flavour, &must_see);
}

#[test]
fn everything_at_once() {
    let flavour = Flavour {
        name: "everything_at_once",
        failing_steps: true,
        bad_network: true,
        dying_workers: true,
        stubborn_attempts: true,
        driver_restarts: true,
        cancels: true,
        operators: true,
    };
    let must_see = [
        "retry",
        "skip",
        "fenced metric",
        "driver restart",
        "failed unstarted",
        "stop, timed out",
        "death",
        "more memory",
        "more time",
        "worker avoided",
    ];
    simulate(&flavour, &must_see);
}
