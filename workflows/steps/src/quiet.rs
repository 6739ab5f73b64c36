//! Detects whether other programs disturbed a measurement: how many processors they kept busy before, during and after
//! it. A disturbed result is marked by a metric, which is shown with the result.
//!
//! The kernel counts the time in which each processor was busy, and the time that this process used, with the processes that it
//! started and waited for. Others used the rest, among them other tasks of the run. Time stolen by a hypervisor is not known to be a load.

use std::thread::sleep;
use std::time::Duration;

use assay_spec::{Better, MetricKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, StepError};

/// What happens to a measurement during which other programs used the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quiet {
    /// It is marked.
    #[default]
    Marked,
    /// The step fails.
    Required,
}

/// How many processors other programs kept busy; only reported for a result that they may have changed.
pub const DISTURBED: MetricKind = MetricKind {
    name: "load/others",
    unit: "",
    better: Better::Neither,
    headline: Some("others' load (cpus)"),
    covers: "",
};

/// The duration of the observation before and after a measurement.
const LOOK: Duration = Duration::from_millis(400);

/// The number of processors that others may keep busy: a desktop and the run's own main process are never quite idle.
const ALLOWED: f64 = 0.25;

/// The minimum number of ticks of the kernel's clock (10 ms each); fewer are within the rounding of its counters.
const FEWEST_TICKS: u64 = 5;

/// Processors kept busy by others, averaged over each period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Just before the measurement.
    pub before: f64,
    /// During it.
    pub during: f64,
    /// Just after it.
    pub after: f64,
}

impl Load {
    fn worst(&self) -> f64 {
        self.before.max(self.during).max(self.after)
    }
}

/// A measurement in progress.
pub struct Watch {
    quiet: Quiet,
    /// `None` if the kernel does not provide the counters.
    begun: Option<(f64, Ticks)>,
}

impl Watch {
    /// Observes the machine before a measurement.
    ///
    /// # Errors
    /// If it must be quiet and is not, or that is unknown.
    pub fn begin(quiet: Quiet) -> Result<Watch, StepError> {
        let begun = look();
        match (&begun, quiet) {
            (None, Quiet::Required) => Err(StepError::Failed {
                message: "`quiet: required` needs the load of the machine, which this system does not report".into(),
                hint: Some("leave `quiet` out".into()),
            }),
            (Some((before, _)), Quiet::Required) if *before > 0.0 => Err(disturbed(*before, "before")),
            _ => Ok(Watch { quiet, begun }),
        }
    }

    /// Observes the machine after the measurement; marks the result if others used the machine.
    ///
    /// # Errors
    /// If it must be quiet and was not.
    pub fn end(self, context: &mut dyn Context) -> Result<Option<Load>, StepError> {
        let Some((before, begun)) = self.begun else { return Ok(None) };
        let during = Ticks::read().map_or(0.0, |ended| ended.others_since(&begun));
        let after = look().map_or(0.0, |(after, _)| after);
        let load = Load { before, during, after };
        if load.worst() > 0.0 {
            if self.quiet == Quiet::Required {
                return Err(disturbed(load.worst(), "during or after"));
            }
            context.metric(DISTURBED.name, 0, load.worst());
            context.warn(&format!(
                "other programs kept processors busy ({before:.2} before, {during:.2} during and {after:.2} after the \
                 measurement): the result is marked by the metric `{}`",
                DISTURBED.name
            ));
        }
        Ok(Some(load))
    }
}

fn disturbed(load: f64, when: &str) -> StepError {
    StepError::Check {
        message: format!("other programs kept {load:.2} processors busy {when} the measurement"),
        hint: Some(
            "stop them and run again, or leave `quiet: required` out: the result is then kept, and marked".into(),
        ),
    }
}

/// Measures the load of others now; also returns the counters at the end.
fn look() -> Option<(f64, Ticks)> {
    let began = Ticks::read()?;
    sleep(LOOK);
    let ended = Ticks::read()?;
    Some((ended.others_since(&began), ended))
}

/// The kernel's counters, in ticks.
#[derive(Debug, Clone, PartialEq)]
struct Ticks {
    /// Ticks in which a processor was busy, summed over the processors.
    busy: u64,
    /// All ticks, summed over the processors.
    all: u64,
    processors: u64,
    /// That this process used, and those of its children that have ended.
    own: u64,
}

impl Ticks {
    fn read() -> Option<Ticks> {
        let text = |path: &str| std::fs::read_to_string(path).ok();
        Ticks::parse(&text("/proc/stat")?, &text("/proc/self/stat")?)
    }

    /// Parses the kernel's files about the machine and about this process.
    fn parse(machine: &str, process: &str) -> Option<Ticks> {
        let total = machine.lines().next()?.strip_prefix("cpu ")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in the first two.
        let columns: Vec<u64> = total.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let &[user, nice, system, idle, iowait, irq, softirq, ..] = &columns[..] else { return None };
        let busy = user + nice + system + irq + softirq;
        let all = busy + idle + iowait + columns.get(7).unwrap_or(&0);
        let numbered =
            |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let processors = machine.lines().filter(numbered).count() as u64;
        // The program's name is in parentheses, and may contain any characters.
        let (_, fields) = process.rsplit_once(')')?;
        // utime, stime, cutime and cstime.
        let times = fields.split_whitespace().skip(11).take(4).map_while(|word| word.parse::<u64>().ok());
        let times: Vec<u64> = times.collect();
        let own = (times.len() == 4).then(|| times.iter().sum())?;
        (processors > 0).then_some(Ticks { busy, all, processors, own })
    }

    /// How many processors others kept busy since then; 0 if that is within the allowed load.
    fn others_since(&self, then: &Ticks) -> f64 {
        let busy = self.busy.saturating_sub(then.busy);
        let others = busy.saturating_sub(self.own.saturating_sub(then.own));
        let passed = self.all.saturating_sub(then.all) as f64 / self.processors as f64;
        let load = others as f64 / passed.max(1.0);
        if others < FEWEST_TICKS || load <= ALLOWED { 0.0 } else { load }
    }
}

#[cfg(test)]
#[path = "../tests/busy/mod.rs"]
mod busy;

#[cfg(test)]
mod tests {
    use super::busy::BusyProcessors;
    use super::*;
    use crate::testing::TestContext;

    fn machine(user: u64, idle: u64) -> String {
        format!("cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\ncpufreq 7\n")
    }

    fn process(user: u64) -> String {
        format!("17 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 {user} 4 5 6 20")
    }

    #[test]
    fn what_this_process_did_not_use_was_used_by_others() {
        let at = |user, idle, own| Ticks::parse(&machine(user, idle), &process(own)).unwrap();
        let then = at(1000, 5000, 100);
        assert_eq!(then, Ticks { busy: 1000, all: 6000, processors: 2, own: 115 });
        // 100 ticks passed on two processors. All that was busy was this process, on one or on both of them.
        assert_eq!(at(1100, 5100, 200).others_since(&then), 0.0);
        assert_eq!(at(1200, 5000, 300).others_since(&then), 0.0);
        // Another program used one and a half processors.
        assert_eq!(at(1200, 5000, 150).others_since(&then), 1.5);
        // A fifth of a processor, and four ticks in a short time, do not count as load.
        assert_eq!(at(1120, 5080, 200).others_since(&then), 0.0);
        assert_eq!(at(1008, 5000, 104).others_since(&then), 0.0);
    }

    #[test]
    fn what_a_child_used_was_used_by_this_process() {
        let own = || Ticks::read().unwrap().own;
        let before = own();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let used = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            Ticks::parse(&machine(1, 1), &stat).unwrap().own
        };
        while used() < 20 {
            sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own() - before >= 20);
    }

    #[test]
    fn listings_of_other_kinds_are_none() {
        for (stat, own) in [("", process(1)), ("cpu x\n", process(1)), (&machine(1, 1), "17 (cut".into())] {
            assert_eq!(Ticks::parse(stat, &own), None, "{stat:?}");
        }
    }

    #[test]
    fn a_busy_machine_marks_the_result_or_fails_the_step() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let watch = Watch { quiet: Quiet::Required, begun: Ticks::read().map(|ticks| (0.0, ticks)) };
        let _load = BusyProcessors::start();
        let error = watch.end(&mut context).unwrap_err();
        assert!(matches!(&error, StepError::Check { message, .. } if message.contains("processors busy")), "{error:?}");
        assert!(matches!(Watch::begin(Quiet::Required), Err(StepError::Check { .. })));
        let load = Watch::begin(Quiet::Marked).unwrap().end(&mut context).unwrap().unwrap();
        assert!(load.worst() > ALLOWED, "{load:?}");
        assert_eq!(context.last(DISTURBED.name), Some(load.worst()));
        assert!(context.logs[0].contains("the result is marked"), "{:?}", context.logs);
    }
}
