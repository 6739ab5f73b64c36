//! How many processors the attempts of a span of time kept busy.

use assay_statistics::format::duration;
use serde::Serialize;

use super::format::moment;
use super::plot::{PlotScale, PlotTick, number_text, round_ticks};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 30.0;
/// How many parts the span is divided into.
const BINS: usize = 120;

/// An attempt, as far as the use of processors goes. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Use {
    pub worker: String,
    pub cpus: u32,
    pub from: u64,
    /// `None` while it is in progress.
    pub to: Option<u64>,
}

/// The use of processors over a span of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Usage {
    /// The beginning of the span, in milliseconds since 1970.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// The duration of one part, in milliseconds.
    pub bin: u64,
    /// The average number of busy processors in each part.
    pub busy: Vec<f64>,
    /// How many processors there are; `None` if that is unknown.
    pub cpus: Option<u32>,
    /// By worker, in alphabetical order.
    pub workers: Vec<WorkerUsage>,
}

/// What a worker did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WorkerUsage {
    /// Its name.
    pub worker: String,
    /// Processor time, in seconds.
    pub seconds: f64,
    /// The same for people.
    pub text: String,
    /// How many attempts.
    pub attempts: usize,
}

/// Adds up attempts over the span from `from` to `to`.
pub(crate) fn add_up(uses: &[Use], from: u64, to: u64, cpus: Option<u32>) -> Usage {
    let bin = (to.saturating_sub(from) / BINS as u64).max(1);
    let mut busy = vec![0.0; BINS];
    let mut workers: Vec<WorkerUsage> = Vec::new();
    for one in uses {
        // Clocks differ between machines: an attempt may seem to end before it begins.
        let (start, end) = (one.from.max(from), one.to.unwrap_or(to).min(to));
        if end <= start {
            continue;
        }
        let seconds = f64::from(one.cpus) * (end - start) as f64 / 1000.0;
        match workers.iter_mut().find(|known| known.worker == one.worker) {
            Some(known) => {
                known.seconds += seconds;
                known.attempts += 1;
            }
            None => workers.push(WorkerUsage { worker: one.worker.clone(), seconds, text: String::new(), attempts: 1 }),
        }
        let first = (((start - from) / bin) as usize).min(BINS - 1);
        let last = (((end - 1 - from) / bin) as usize).min(BINS - 1);
        for (at, sum) in busy.iter_mut().enumerate().take(last + 1).skip(first) {
            let (left, right) = (from + bin * at as u64, from + bin * (at as u64 + 1));
            let shared = end.min(right).saturating_sub(start.max(left));
            *sum += f64::from(one.cpus) * shared as f64 / bin as f64;
        }
    }
    workers.sort_by(|a, b| a.worker.cmp(&b.worker));
    for worker in &mut workers {
        worker.text = duration(worker.seconds);
    }
    Usage { from, to, bin, busy, cpus, workers }
}

/// The chart, in CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct UsagePlot {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub x_ticks: Vec<PlotTick>,
    pub y_ticks: Vec<PlotTick>,
    /// The area below the busy processors.
    pub area: String,
    /// Where all processors are busy; `None` if their number is unknown.
    pub limit: Option<f64>,
    /// In words, for readers who do not see it.
    pub summary: String,
}

/// Lays out the chart.
pub(crate) fn plot_usage(usage: &Usage) -> UsagePlot {
    let peak = usage.busy.iter().copied().fold(0.0, f64::max);
    let high = 1.08 * peak.max(usage.cpus.map_or(1.0, f64::from));
    let x = PlotScale::new(usage.from as f64, usage.to as f64, (LEFT, WIDTH - RIGHT), false);
    let y = PlotScale::new(0.0, high, (HEIGHT - BOTTOM, TOP), false);
    let mut area = format!("M{LEFT} {}", HEIGHT - BOTTOM);
    for (at, busy) in usage.busy.iter().enumerate() {
        let right = x.place((usage.from + usage.bin * (at as u64 + 1)) as f64);
        area.push_str(&format!("V{}H{right}", y.place(*busy)));
    }
    area.push_str(&format!("V{}Z", HEIGHT - BOTTOM));
    let mean = usage.busy.iter().sum::<f64>() / usage.busy.len().max(1) as f64;
    let share = usage
        .cpus
        .map_or_else(String::new, |cpus| format!(" of {cpus} ({:.0} %)", 100.0 * mean / f64::from(cpus.max(1))));
    let tick = |part: u64| {
        let at = usage.from + (usage.to - usage.from) * part / 4;
        let text = moment(at).iso;
        // Day and time of `2026-11-21T04:24:49.120Z`.
        PlotTick { at: x.place(at as f64), text: format!("{} {}", &text[5..10], &text[11..16]) }
    };
    let y_tick = |value: f64| PlotTick { at: y.place(value), text: number_text(value) };
    UsagePlot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        x_ticks: (0..=4).map(tick).collect(),
        y_ticks: round_ticks(0.0, high).into_iter().filter(|value| value.fract() == 0.0).map(y_tick).collect(),
        area,
        limit: usage.cpus.map(|cpus| y.place(f64::from(cpus))),
        summary: format!("{} busy processors on average{share}, {} at most", number_text(mean), number_text(peak)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(from: u64, to: Option<u64>, cpus: u32) -> Use {
        Use { worker: "a".into(), cpus, from, to }
    }

    #[test]
    fn processors_are_added_up_by_time() {
        let second = |n: u64| 1_000_000 + n * 1000;
        let uses = [
            busy(second(0), Some(second(60)), 2),
            busy(second(30), None, 1),
            // Before the span, after it, and one whose clock went backwards.
            busy(second(0) - 5000, Some(second(0) - 1), 8),
            busy(second(200), Some(second(300)), 8),
            busy(second(50), Some(second(40)), 8),
            Use { worker: "b".into(), ..busy(second(119), Some(second(130)), 4) },
        ];
        let usage = add_up(&uses, second(0), second(120), Some(4));
        assert_eq!((usage.bin, usage.busy.len()), (1000, 120));
        assert_eq!([usage.busy[0], usage.busy[45], usage.busy[60], usage.busy[119]], [2.0, 3.0, 1.0, 5.0]);
        let workers: Vec<(&str, f64, usize)> =
            usage.workers.iter().map(|one| (one.worker.as_str(), one.seconds, one.attempts)).collect();
        assert_eq!(workers, [("a", 210.0, 2), ("b", 4.0, 1)]);
        let plot = plot_usage(&usage);
        assert_eq!(plot.summary, "1.78 busy processors on average of 4 (45 %), 5 at most");
        assert_eq!((plot.area.matches('H').count(), plot.limit.is_some()), (120, true));
    }

    #[test]
    fn a_span_without_attempts_is_flat() {
        let usage = add_up(&[], 5, 5, None);
        assert!(usage.busy.iter().all(|busy| *busy == 0.0));
        assert_eq!(plot_usage(&usage).summary, "0 busy processors on average, 0 at most");
    }
}
