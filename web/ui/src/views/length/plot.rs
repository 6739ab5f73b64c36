//! Lays out families over length on two logarithmic axes, in CSS pixels for the template.

use assay_statistics::format;
use assay_statistics::trends::crossover::Crossover;
use serde::Serialize;

use super::super::plot::{PlotScale, PlotTick, decade_ticks, fit_text, number_text};
use super::fits::{FamilyView, LengthView};

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
/// Room for the ticks and titles of the axes, and for the names of the families.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 240.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// How far apart the names of families are at least.
const LINE: f64 = 15.0;
/// How many characters of a name there is room for.
const LETTERS: usize = 32;
/// The number of families with a separate colour.
pub(crate) const COLOURS: usize = 7;

/// The chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LengthPlot {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub value: String,
    pub x_ticks: Vec<PlotTick>,
    pub y_ticks: Vec<PlotTick>,
    pub families: Vec<PlottedFamily>,
    pub crossings: Vec<PlottedCrossing>,
}

/// A family in the chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedFamily {
    /// Its colour from 1; 0 without one.
    pub slot: usize,
    pub name: String,
    pub short: String,
    /// Where its name is written.
    pub label_y: f64,
    /// Where its last point is.
    pub end: (f64, f64),
    /// The path through its means.
    pub line: String,
    /// The ends of its power law: x, y, x, y.
    pub law: Option<(f64, f64, f64, f64)>,
    pub points: Vec<PlottedLength>,
}

/// A point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedLength {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
    pub title: String,
}

/// Where a family crosses the base.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedCrossing {
    pub slot: usize,
    pub x: f64,
    /// The left end and the width of the interval.
    pub interval: Option<(f64, f64)>,
    pub title: String,
}

/// The chart of families; `None` without two positive lengths or a positive value.
pub(crate) fn plot_lengths(view: &LengthView) -> Option<LengthPlot> {
    let measured = || view.families.iter().flat_map(|family| family.values.iter().flatten());
    // The lower end of an interval may be negative, which a logarithmic axis cannot show.
    let ends = measured().flat_map(|found| [found.mean, found.low, found.high]).flatten().filter(|end| *end > 0.0);
    let (low, high) = ends
        .filter(|end| end.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
    let (first, last) = (*view.lengths.first()? as f64, *view.lengths.last()? as f64);
    if low > high || first >= last {
        return None;
    }
    let (low, high) = (low / 1.15, high * 1.15);
    let x = PlotScale::new(first, last, (LEFT + 12.0, WIDTH - RIGHT - 12.0), true);
    let y = PlotScale::new(low, high, (HEIGHT - BOTTOM, TOP), true);
    let mut families: Vec<PlottedFamily> = view
        .families
        .iter()
        .enumerate()
        .filter_map(|(at, family)| plot_family(at, family, view, &x, &y, low))
        .collect();
    spread_labels(&mut families);
    let crossings =
        view.families.iter().enumerate().filter_map(|(at, family)| plot_crossing(at, family, (first, last), &x));
    Some(LengthPlot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        value: view.metric.clone(),
        x_ticks: length_ticks(&view.lengths, &x),
        y_ticks: decade_ticks(low, high)
            .into_iter()
            .map(|value| PlotTick { at: y.place(value), text: value_text(value, &view.unit) })
            .collect(),
        crossings: crossings.collect(),
        families,
    })
}

/// A tick with its unit, so that `500 µs` is not written as `5.0e-4`.
fn value_text(value: f64, unit: &str) -> String {
    if unit.is_empty() { number_text(value) } else { format::quantity(value, unit) }
}

fn slot_of(at: usize) -> usize {
    if at < COLOURS { at + 1 } else { 0 }
}

fn plot_family(
    at: usize,
    family: &FamilyView,
    view: &LengthView,
    x: &PlotScale,
    y: &PlotScale,
    low: f64,
) -> Option<PlottedFamily> {
    let points: Vec<PlottedLength> = std::iter::zip(&view.lengths, &family.values)
        .filter_map(|(&length, value)| {
            let found = value.as_ref()?;
            let mean = found.mean.filter(|mean| *mean > 0.0)?;
            let interval = found.low.zip(found.high).map(|(from, to)| (y.place(to), y.place(from.max(low))));
            let title = format!("{}\nlength {length}: {}\nn = {}", family.name, found.text, found.n);
            Some(PlottedLength { x: x.place(length as f64), y: y.place(mean), interval, title })
        })
        .collect();
    let end = points.last().map(|point| (point.x, point.y))?;
    let measured: Vec<f64> = std::iter::zip(&view.lengths, &family.values)
        .filter(|(_, value)| value.is_some())
        .map(|(length, _)| *length as f64)
        .collect();
    let law = family.factor.zip(family.exponent.as_ref()).and_then(|(factor, k)| {
        let value = |length: f64| factor * length.powf(k.value);
        let (from, to) = (*measured.first()?, *measured.last()?);
        (from < to).then(|| (x.place(from), y.place(value(from)), x.place(to), y.place(value(to))))
    });
    let steps = points
        .iter()
        .enumerate()
        .map(|(at, point)| format!("{}{} {}", if at == 0 { "M" } else { "L" }, point.x, point.y));
    Some(PlottedFamily {
        slot: slot_of(at),
        short: fit_text(&family.name, LETTERS),
        name: family.name.clone(),
        label_y: end.1,
        end,
        line: steps.collect(),
        law,
        points,
    })
}

fn plot_crossing(at: usize, family: &FamilyView, ends: (f64, f64), x: &PlotScale) -> Option<PlottedCrossing> {
    let Some(Crossover::Measured { at: crossing, .. }) = &family.crossover else { return None };
    let interval = crossing.low().zip(crossing.high()).map(|(low, high)| {
        let (from, to) = (x.place(low.max(ends.0)), x.place(high.min(ends.1)));
        (from, ((to - from) * 10.0).round() / 10.0)
    });
    let title = format!("{} crosses {}", family.name, family.crossover_text);
    Some(PlottedCrossing { slot: slot_of(at), x: x.place(crossing.value), interval, title })
}

/// Moves names apart that would be written over each other.
fn spread_labels(families: &mut [PlottedFamily]) {
    let mut order: Vec<usize> = (0..families.len()).collect();
    order.sort_by(|a, b| families[*a].end.1.total_cmp(&families[*b].end.1));
    let mut free = TOP;
    for at in &order {
        families[*at].label_y = families[*at].end.1.max(free);
        free = families[*at].label_y + LINE;
    }
    let mut free = HEIGHT - 6.0;
    for at in order.iter().rev() {
        families[*at].label_y = families[*at].label_y.min(free);
        free = families[*at].label_y - LINE;
    }
}

/// The measured lengths, as far as their texts have room.
fn length_ticks(lengths: &[u64], x: &PlotScale) -> Vec<PlotTick> {
    let mut ticks: Vec<PlotTick> = Vec::new();
    for &length in lengths {
        let tick = PlotTick { at: x.place(length as f64), text: number_text(length as f64) };
        if ticks.last().is_none_or(|last| tick.at - last.at > 34.0) {
            ticks.push(tick);
        }
    }
    ticks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use assay_spec::Better;

    use super::super::families::{Family, LengthMetric};
    use super::super::fits::length_view;
    use super::*;

    fn plot(families: Vec<Family>) -> Option<LengthPlot> {
        let metric = LengthMetric { name: "m/*".into(), example: "m/16".into(), families };
        plot_lengths(&length_view(&metric, None, "s", Better::Lower))
    }

    fn family(at: usize, law: impl Fn(f64) -> f64) -> Family {
        let values = [16, 64, 256].map(|length| (length, vec![law(length as f64), 1.01 * law(length as f64)]));
        Family { name: format!("family {at}"), values: BTreeMap::from(values) }
    }

    #[test]
    fn families_lie_inside_and_their_names_apart() {
        let found = plot((0..9).map(|at| family(at, |x| (1.0 + at as f64 / 100.0) * x)).collect()).unwrap();
        assert_eq!(found.families.len(), 9);
        let slots: Vec<usize> = found.families.iter().map(|family| family.slot).collect();
        assert_eq!(slots, [1, 2, 3, 4, 5, 6, 7, 0, 0]);
        let mut labels: Vec<f64> = found.families.iter().map(|family| family.label_y).collect();
        labels.sort_by(f64::total_cmp);
        assert!(labels.windows(2).all(|pair| pair[1] - pair[0] >= LINE - 1e-9), "{labels:?}");
        for point in found.families.iter().flat_map(|family| &family.points) {
            assert!(
                (LEFT..=WIDTH - RIGHT).contains(&point.x) && (TOP..=HEIGHT - BOTTOM).contains(&point.y),
                "{point:?}"
            );
        }
    }

    #[test]
    fn crossings_are_marked_where_they_are_measured() {
        let found = plot(vec![family(0, |x| x * x), family(1, |x| 64.0 * x), family(2, |x| 1e9 * x)]).unwrap();
        assert_eq!(found.crossings.len(), 1);
        let middle = found.families[0].points[1].x;
        assert!((found.crossings[0].x - middle).abs() < 10.0, "{found:?}");
    }

    #[test]
    fn what_a_logarithmic_axis_cannot_show_is_left_out() {
        assert_eq!(plot(vec![family(0, |_| 0.0)]), None);
        assert_eq!(plot(vec![family(0, |_| f64::NAN)]), None);
        assert_eq!(plot(Vec::from([Family { name: "x".into(), values: BTreeMap::from([(4, vec![1.0])]) }])), None);
        assert_eq!(decade_ticks(0.15, 30.0), [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(decade_ticks(0.5, 2e4), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }
}
