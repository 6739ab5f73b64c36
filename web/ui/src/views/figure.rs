//! Charts as plotly.js takes them: traces and a layout in JSON.
//!
//! No colour is written here, and a `height` in CSS pixels only where the data call for one. A trace says in its `meta` which part it plays and which slot it takes; the script on the
//! page gives it the colours of the reader's theme. (The `plotly` crate's own types lack what these charts need, such as
//! the text in the cells of a heat map, so that the JSON is written as it is.)

use serde_json::{Value, json};

use super::curves::{Curve, Gaps};
use super::sweep::Sweep;

/// How many colours the style sheet has for lines; then the dash changes.
const COLOURS: usize = 7;
const DASHES: [&str; 4] = ["solid", "dash", "dot", "dashdot"];

/// Lines over the training step; `log` for a logarithmic axis of values.
pub(crate) fn curves(curves: &[Curve], (metric, unit): (&str, &str), log: bool, legend: bool) -> Value {
    let traces: Vec<Value> = curves.iter().flat_map(|curve| lines(curve, unit)).collect();
    let layout = json!({
        "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": titled(metric, unit)}, "type": if log { "log" } else { "linear" }},
        "hovermode": "closest",
        "showlegend": legend,
    });
    json!({"data": traces, "layout": layout})
}

fn lines(curve: &Curve, unit: &str) -> Vec<Value> {
    let label = plain(&curve.label);
    let dash = DASHES[curve.slot / COLOURS % DASHES.len()];
    let slot = curve.slot % COLOURS;
    // A metric that is measured once has no course: its point is shown as such.
    let mode = if curve.steps.len() > 1 { "lines" } else { "markers" };
    let unit = plain(unit);
    let mut line = json!({
        "type": "scatter", "mode": mode, "name": label, "legendgroup": label,
        "x": curve.steps, "y": Gaps(&curve.values),
        "line": {"dash": dash, "width": 1.75}, "meta": {"part": "line", "slot": slot},
        "hovertemplate": format!("<b>%{{fullData.name}}</b><br>step %{{x}}<br>%{{y:.5~g}} {unit}<extra></extra>"),
    });
    let Some(range) = &curve.range else { return vec![line] };
    let n = curve.tasks.len();
    let spread: Vec<String> = std::iter::zip(&range.low, &range.high)
        .map(|(&low, &high)| {
            let [low, high] = [low, high].map(|value| assay_statistics::format::quantity(value, ""));
            format!("{low} to {high}")
        })
        .collect();
    line["text"] = json!(spread);
    line["hovertemplate"] = json!(format!(
        "<b>%{{fullData.name}}</b><br>step %{{x}}<br>mean %{{y:.5~g}} {unit}<br>%{{text}} over {n} replicates<extra></extra>"
    ));
    let edge = |values: &[f64], fill: &str| {
        json!({
            "type": "scatter", "mode": "lines", "legendgroup": label, "showlegend": false, "hoverinfo": "skip",
            "x": curve.steps, "y": Gaps(values), "fill": fill, "line": {"width": 0},
            "meta": {"part": "band", "slot": slot},
        })
    };
    vec![edge(&range.low, "none"), edge(&range.high, "tonexty"), line]
}

/// A sweep: a heat map over two axes, points with error bars over one; `None` over none.
pub(crate) fn sweep(sweep: &Sweep) -> Option<Value> {
    match (&sweep.x, &sweep.y) {
        (Some(x), Some(y)) => Some(heat_map(sweep, x, y)),
        (Some(axis), None) | (None, Some(axis)) => Some(error_bars(sweep, axis)),
        (None, None) => None,
    }
}

fn heat_map(sweep: &Sweep, x: &str, y: &str) -> Value {
    let (columns, rows) = (sweep.values(&sweep.x), sweep.values(&sweep.y));
    let grid = |make: &dyn Fn(&super::sweep::SweepCell) -> Value| -> Vec<Vec<Value>> {
        let row =
            |row: &String| columns.iter().map(|column| sweep.cell(column, row).map_or(Value::Null, make)).collect();
        rows.iter().map(row).collect()
    };
    let text = |cell: &super::sweep::SweepCell| json!(format!("{}<br>{}", broken(&cell.measured.text), n(cell)));
    let colours = colours(sweep);
    let height = (rows.len() * 92 + 110).clamp(300, 640);
    json!({
        "data": [{
            "type": "heatmap",
            "x": labels(&columns), "y": labels(&rows),
            "z": grid(&|cell| cell.measured.mean.map_or(Value::Null, Value::from)),
            "zmin": colours.map(|ends| ends.0), "zmax": colours.map(|ends| ends.1),
            "text": grid(&text), "texttemplate": "%{text}",
            "hovertext": grid(&|cell| json!(hover(sweep, cell, &[x, y]))), "hoverinfo": "text",
            "customdata": grid(&|cell| json!(cell.tasks)),
            "xgap": 2, "ygap": 2, "hoverongaps": false,
            "colorbar": {"title": {"text": titled(&sweep.metric, sweep.unit), "side": "right"}},
            "meta": {"part": "heat", "reversed": sweep.direction == "lower is better"},
        }],
        "layout": {
            "xaxis": {"title": {"text": plain(x)}, "type": "category", "showgrid": false},
            "yaxis": {"title": {"text": plain(y)}, "type": "category", "showgrid": false},
            "hovermode": "closest", "showlegend": false,
            "annotations": missing_value_notes(sweep),
        },
        "height": height,
    })
}

/// Notes at the places of cells without a mean, which would look empty otherwise.
fn missing_value_notes(sweep: &Sweep) -> Vec<Value> {
    let cells = sweep.cells.iter().filter(|cell| cell.measured.mean.is_none());
    let note = |cell: &super::sweep::SweepCell| {
        let text = plain(&cell.measured.text).replace(", ", "<br>");
        json!({"x": plain(&cell.x), "y": plain(&cell.y), "text": text, "showarrow": false})
    };
    cells.map(note).collect()
}

/// The values at the ends of the colour scale: those of all intervals and observations. A scale over the means alone would
/// paint their scatter in full contrast. None where nothing scatters, or no cell has a mean.
fn colours(sweep: &Sweep) -> Option<(f64, f64)> {
    let cells = sweep.cells.iter().filter_map(|cell| Some((cell.measured.mean?, &cell.measured)));
    let ends = cells.flat_map(|(mean, measured)| {
        let half = measured.half_width.unwrap_or(0.0);
        measured.values.iter().copied().chain([mean - half, mean + half])
    });
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
    (low < high && low.is_finite() && high.is_finite()).then_some((low, high))
}

/// Means with their intervals over one axis, and every observation beside them.
fn error_bars(sweep: &Sweep, axis: &str) -> Value {
    let place = |cell: &super::sweep::SweepCell| if sweep.x.is_some() { cell.x.clone() } else { cell.y.clone() };
    let numbers: Option<Vec<f64>> = sweep.cells.iter().map(|cell| place(cell).parse().ok()).collect();
    let numbers = numbers.filter(|numbers: &Vec<f64>| numbers.iter().all(|number| number.is_finite()));
    let at = |index: usize, cell: &super::sweep::SweepCell| match &numbers {
        Some(numbers) => numbers.get(index).copied().into(),
        None => json!(plain(&place(cell))),
    };
    let cells = || sweep.cells.iter().enumerate();
    let x: Vec<Value> = cells().map(|(index, cell)| at(index, cell)).collect();
    let singles = cells().flat_map(|(index, cell)| cell.measured.values.iter().map(move |value| (index, cell, *value)));
    let (single_x, single_y): (Vec<Value>, Vec<Value>) = singles
        .filter(|single| single.2.is_finite())
        .map(|(index, cell, value)| (at(index, cell), value.into()))
        .unzip();
    let hovers: Vec<String> = sweep.cells.iter().map(|cell| hover(sweep, cell, &[axis])).collect();
    json!({
        "data": [
            {
                "type": "scatter", "mode": if numbers.is_some() { "lines+markers" } else { "markers" },
                "name": "mean ± 95 % interval", "x": x,
                "y": sweep.cells.iter().map(|cell| cell.measured.mean).collect::<Vec<_>>(),
                "error_y": {
                    "type": "data", "visible": true, "thickness": 1.5, "width": 5,
                    "array": sweep.cells.iter().map(|cell| cell.measured.half_width).collect::<Vec<_>>(),
                },
                "hovertext": hovers, "hoverinfo": "text",
                "marker": {"size": 8}, "line": {"width": 1.75}, "meta": {"part": "line", "slot": 0},
            },
            {
                "type": "scatter", "mode": "markers", "name": "replicates", "x": single_x, "y": single_y,
                "marker": {"size": 6, "symbol": "circle-open"}, "meta": {"part": "faint", "slot": 0},
                "hovertemplate": format!("one replicate<br>%{{y:.5~g}} {}<extra></extra>", plain(sweep.unit)),
            },
        ],
        "layout": {
            "xaxis": {"title": {"text": plain(axis)}, "type": scale(numbers.as_deref()),
                      "tickmode": "array", "tickvals": x, "ticktext": sweep.cells.iter().map(|c| plain(&place(c))).collect::<Vec<_>>()},
            "yaxis": {"title": {"text": titled(&sweep.metric, sweep.unit)}},
            "hovermode": "closest", "showlegend": true,
        },
    })
}

/// Numbers that span almost a decade are spread by their ratios, as state counts and lengths are chosen.
fn scale(numbers: Option<&[f64]>) -> &'static str {
    let Some(numbers) = numbers else { return "category" };
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if numbers.len() > 2 && low > 0.0 && high / low >= 4.0 { "log" } else { "linear" }
}

/// What stands in the box over a cell: where, what, and every observation.
fn hover(sweep: &Sweep, cell: &super::sweep::SweepCell, axes: &[&str]) -> String {
    let at = |axis: &&str| {
        let value = if sweep.x.as_deref() == Some(*axis) { &cell.x } else { &cell.y };
        format!("{} = {}", plain(axis), plain(value))
    };
    let place: Vec<String> = axes.iter().map(at).collect();
    let observations = cell.measured.listed.iter().enumerate().map(|(i, text)| format!("#{} {}", i + 1, plain(text)));
    let kind = match (cell.provisional, cell.best, cell.may_be_best) {
        (true, ..) => ", still running",
        (false, true, _) => ", the best",
        (false, false, true) => ", may be the best",
        (false, false, false) => "",
    };
    format!(
        "<b>{}</b><br>{}: {}<br>{}{kind}<br>{}",
        place.join(", "),
        plain(&sweep.metric),
        plain(&cell.measured.text),
        n(cell),
        observations.collect::<Vec<_>>().join("<br>")
    )
}

fn n(cell: &super::sweep::SweepCell) -> String {
    let more = if cell.provisional { " …" } else { "" };
    let missing = if cell.missing_text.is_empty() { String::new() } else { format!(", {}", cell.missing_text) };
    format!("n = {}{missing}{more}", cell.measured.n)
}

/// A value and its uncertainty on two lines, so that they fit into a cell.
fn broken(text: &str) -> String {
    let text = plain(text);
    match text.split_once(" ± ") {
        Some((value, spread)) => format!("<b>{value}</b><br>± {spread}"),
        None => format!("<b>{text}</b>"),
    }
}

fn titled(metric: &str, unit: &str) -> String {
    if unit.is_empty() { plain(metric) } else { format!("{} [{}]", plain(metric), plain(unit)) }
}

/// Text as plotly shall show it: it reads a few tags in labels, and text of a user is no tag.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn labels(values: &[String]) -> Vec<String> {
    values.iter().map(|value| plain(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::curves::Range;

    fn curve(slot: usize, label: &str, range: bool) -> Curve {
        let range = range.then(|| Range { low: vec![0.5, f64::NAN], high: vec![1.5, 2.0] });
        Curve { label: label.into(), tasks: vec![1, 2], slot, steps: vec![0, 5], values: vec![1.0, f64::NAN], range }
    }

    #[test]
    fn a_band_lies_below_its_line_and_goes_with_it() {
        let figure = curves(&[curve(8, "a", true)], ("train/loss", "s"), true, true);
        let parts: Vec<&Value> = figure["data"].as_array().unwrap().iter().map(|trace| &trace["meta"]).collect();
        assert_eq!(
            parts.iter().map(|meta| meta["part"].as_str().unwrap()).collect::<Vec<_>>(),
            ["band", "band", "line"]
        );
        assert!(parts.iter().all(|meta| meta["slot"] == 1));
        assert_eq!(figure["data"][2]["line"]["dash"], "dash");
        assert_eq!(figure["data"][2]["y"], json!([1.0, null]));
        assert_eq!(figure["layout"]["yaxis"]["title"]["text"], "train/loss [s]");
        assert_eq!(figure["layout"]["yaxis"]["type"], "log");
    }

    #[test]
    fn text_of_a_user_is_no_tag() {
        let figure = curves(&[curve(0, "<a href='//x'>&", false)], ("<b>", ""), false, false).to_string();
        assert!(figure.contains("&lt;a href='//x'&gt;&amp;") && figure.contains("&lt;b&gt;"), "{figure}");
    }

    #[test]
    fn numbers_are_spread_as_they_were_chosen() {
        assert_eq!(scale(Some(&[16.0, 32.0, 64.0])), "log");
        assert_eq!(scale(Some(&[1.0, 2.0, 3.0])), "linear");
        assert_eq!(scale(Some(&[0.0, 2.0, 30.0])), "linear");
        assert_eq!(scale(None), "category");
    }
}
