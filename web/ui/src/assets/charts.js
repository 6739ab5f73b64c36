// Draws curves with uPlot: every element with `data-curves` shows the curves at that address of the API, by the training step, or by
// what `data-x` names: `time` in milliseconds, or `tokens`.
//
// The colours are the custom properties of the style sheet, so that charts follow the reader's theme. Each cell has a slot, which
// fixes its colour. With more cells than colours, all lines are grey, and the lines that the reader chooses have a colour. The zoom
// and the choice are kept while the address stays the same.
"use strict";

(() => {
  const SLOTS = 7;
  const HEIGHT = 380;
  const NEAR = 36; // How far from the pointer a line may be, in CSS pixels.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // Chart -> its state.

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"), quiet: read("--quiet"), line: read("--line"), faint: read("--strong-line"), font: read("--sans"),
      palette: Array.from({ length: SLOTS }, (_, slot) => read(`--chart-${slot + 1}`)),
    };
  }

  // A colour of the palette, #rrggbb, with an opacity.
  function faded(colour, opacity) {
    const part = (at) => parseInt(colour.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
  }

  function numberText(value) {
    const size = Math.abs(value);
    const [unit, name] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
    if (size !== 0 && size < 1e-3) return value.toExponential(1);
    return `${Number((value / unit).toPrecision(4))}${name}`;
  }

  function durationText(milliseconds) {
    const seconds = milliseconds / 1000;
    if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
    if (seconds < 3600) return `${Number((seconds / 60).toPrecision(3))} min`;
    return `${Number((seconds / 3600).toPrecision(3))} h`;
  }

  const xText = (state, value) => (state.x === "time" ? durationText(value) : numberText(value));

  // An exponential moving average, in which `weight` is that of what came before. Dividing by 1 - weight^n corrects for its start
  // at zero. Values that are not numbers are kept, and the average ignores them.
  function smoothed(values, weight) {
    if (!weight) return values;
    let sum = 0;
    let rest = 1;
    return values.map((value) => {
      if (typeof value !== "number") return value;
      sum = weight * sum + (1 - weight) * value;
      rest *= weight;
      return sum / (1 - rest);
    });
  }

  function smoothCurve(curve, weight) {
    const { values, range } = curve;
    const ends = range && { low: smoothed(range.low, weight), high: smoothed(range.high, weight) };
    return { ...curve, values: smoothed(values, weight), range: ends };
  }

  // The curves of an answer: those of a run as they are, those of a task as its series.
  function curvesOf(answer) {
    if (answer.curves) return answer.curves;
    return (answer.series || []).map(({ name, steps, values }) => ({ label: name, slot: 0, tasks: [0], steps, values, range: null }));
  }

  // The API writes NaN and infinities as strings. They leave a gap, as do values that a logarithmic axis cannot show.
  const finite = (values, log) => values.map((value) => (typeof value === "number" && !(log && value <= 0) ? value : null));

  // Columns on one axis of steps. A step that a curve does not have is undefined: uPlot draws the line across it.
  // A value that is not finite is null: uPlot leaves a gap.
  function aligned(curves, log, xlog) {
    const tables = curves.map(({ steps, values, range }) => {
      const columns = [steps, finite(values, log), ...(range ? [finite(range.low, log), finite(range.high, log)] : [])];
      // A logarithmic axis cannot show the step zero.
      return xlog ? columns.map((column) => column.filter((_, at) => steps[at] > 0)) : columns;
    });
    return uPlot.join(tables);
  }

  function seriesOf(state, look) {
    const series = [{}];
    const bands = [];
    const lines = []; // By curve: the place of its line, and of its band's edges, among the series.
    state.curves.forEach((curve, at) => {
      const colour = colourOf(state, at, look);
      const show = isShown(state, at);
      const single = curve.steps.length === 1;
      lines.push(series.length);
      series.push({ label: curve.label, stroke: colour, width: 1.75, show, points: { show: single, size: 7, fill: colour } });
      if (!curve.range) return;
      const edge = { show, stroke: "transparent", width: 0, points: { show: false } };
      series.push({ ...edge }, { ...edge });
      const fill = colour.startsWith("#") ? faded(colour, isMany(state) ? 0.1 : 0.16) : "transparent";
      bands.push({ series: [series.length - 1, series.length - 2], fill });
    });
    return { series, bands, lines };
  }

  const isMany = (state) => new Set(state.curves.map(({ slot }) => slot)).size > SLOTS;
  const isShown = (state, at) => isMany(state) || !state.chosen.has(state.curves[at].label);

  function colourOf(state, at, look) {
    const { label, slot } = state.curves[at];
    if (!isMany(state)) return look.palette[slot % SLOTS];
    const place = [...state.chosen].indexOf(label);
    return place < 0 ? look.faint : look.palette[place % SLOTS];
  }

  function axes(state, look) {
    const common = { stroke: look.quiet, grid: { stroke: look.line, width: 1 }, ticks: { stroke: look.line, width: 1, size: 4 } };
    const font = `12px ${look.font}`;
    const unit = state.unit ? ` [${state.unit}]` : "";
    return [
      { ...common, font, label: state.x, labelFont: font, labelSize: 20, size: 34, values: (_, ticks) => ticks.map((tick) => (tick === null ? null : xText(state, tick))) },
      {
        ...common, font, label: `${state.metric}${unit}`, labelFont: font, labelSize: 20, size: 58,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? null : numberText(tick))),
      },
    ];
  }

  // The place in a column at or nearest to `at` that holds a value.
  function nearest(column, at) {
    for (let away = 0; away < column.length; away += 1) {
      if (typeof column[at - away] === "number") return at - away;
      if (typeof column[at + away] === "number") return at + away;
    }
    return null;
  }

  function showTip(state, plot, lines) {
    const { left, top, idx } = plot.cursor;
    const tip = state.tip;
    tip.hidden = true;
    if (idx === null || idx === undefined || left < 0) return;
    let best = null;
    lines.forEach((place, at) => {
      if (!plot.series[place].show) return;
      const row = nearest(plot.data[place], idx);
      if (row === null) return;
      const [x, y] = [plot.valToPos(plot.data[0][row], "x"), plot.valToPos(plot.data[place][row], "y")];
      const away = Math.hypot(x - left, y - top);
      if (!best || away < best.away) best = { at, row, place, x, y, away };
    });
    if (!best || best.away > NEAR) return;
    const curve = state.curves[best.at];
    const unit = state.unit ? ` ${state.unit}` : "";
    const value = numberText(plot.data[best.place][best.row]);
    const text = [curve.label, state.x === "step" ? `step ${plot.data[0][best.row]}` : `${xText(state, plot.data[0][best.row])}${state.x === "tokens" ? " tokens" : ""}`];
    if (curve.range) {
      const [low, high] = [1, 2].map((more) => plot.data[best.place + more][best.row]);
      text.push(`mean ${value}${unit}`, `${numberText(low)} to ${numberText(high)} over ${curve.tasks.length} replicates`);
    } else {
      text.push(`${value}${unit}`);
    }
    tip.textContent = text.join("\n");
    tip.hidden = false;
    const { offsetLeft, offsetTop, clientWidth } = plot.over;
    const right = best.x > clientWidth / 2;
    tip.style.left = right ? "" : `${offsetLeft + best.x + 12}px`;
    tip.style.right = right ? `${state.chart.clientWidth - offsetLeft - best.x + 12}px` : "";
    tip.style.top = `${offsetTop + Math.max(0, best.y - 30)}px`;
  }

  function nameButton(state, at, look) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    const label = state.curves[at].label;
    button.type = "button";
    button.setAttribute("aria-pressed", String(isMany(state) ? state.chosen.has(label) : !state.chosen.has(label)));
    const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    swatch.setAttribute("width", "16");
    swatch.setAttribute("height", "8");
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "path");
    stroke.setAttribute("d", "M0 4H16");
    stroke.setAttribute("stroke", colourOf(state, at, look));
    stroke.setAttribute("stroke-width", "2.5");
    swatch.append(stroke);
    button.append(swatch, label);
    button.addEventListener("click", () => {
      if (!state.chosen.delete(label)) state.chosen.add(label);
      // No more lines have a colour than there are colours: the one that was chosen first loses its own.
      if (isMany(state) && state.chosen.size > SLOTS) state.chosen.delete(state.chosen.values().next().value);
      draw(state);
      state.names.querySelectorAll("button")[at].focus({ preventScroll: true });
    });
    item.append(button);
    return item;
  }

  function draw(state) {
    const look = theme();
    const { chart } = state;
    const zoom = state.plot && state.isZoomed ? [state.plot.scales.x.min, state.plot.scales.x.max] : null;
    if (state.plot) state.plot.destroy();
    const { series, bands, lines } = seriesOf(state, look);
    const options = {
      width: chart.clientWidth, height: HEIGHT, series, bands, axes: axes(state, look), legend: { show: false },
      scales: { x: { time: false, distr: state.xlog ? 3 : 1 }, y: { distr: state.log ? 3 : 1 } },
      cursor: { drag: { x: true, y: false, setScale: true }, points: { show: false }, y: false },
      hooks: {
        setCursor: [(plot) => showTip(state, plot, lines)],
        setScale: [(plot, key) => {
          if (key !== "x") return;
          const steps = plot.data[0];
          const { min, max } = plot.scales.x;
          state.isZoomed = min > steps[0] || max < steps[steps.length - 1];
        }],
      },
    };
    state.plot = new uPlot(options, aligned(state.curves, state.log, state.xlog), state.area);
    if (zoom) state.plot.setScale("x", { min: zoom[0], max: zoom[1] });
    chart.classList.toggle("many", isMany(state));
    const scrolled = state.names.scrollTop;
    const alone = state.curves.length === 1;
    state.names.replaceChildren(...(alone ? [] : state.curves.map((_, at) => nameButton(state, at, look))));
    state.names.scrollTop = scrolled;
  }

  function part(name, kind, chart) {
    const element = document.createElement(name);
    element.className = kind;
    chart.append(element);
    return element;
  }

  function begin(chart) {
    chart.textContent = "";
    chart.classList.remove("empty");
    const state = { chart, chosen: new Set(), isZoomed: false, plot: null };
    state.area = part("div", "curve-area", chart);
    state.tip = part("div", "curve-tip", chart);
    state.tip.hidden = true;
    state.names = part("ul", "curve-names", chart);
    state.resize = new ResizeObserver(() => {
      if (state.plot && chart.clientWidth !== state.plot.width) state.plot.setSize({ width: chart.clientWidth, height: HEIGHT });
    });
    state.resize.observe(chart);
    drawn.set(chart, state);
    return state;
  }

  function empty(chart) {
    const state = drawn.get(chart);
    if (state) {
      state.resize.disconnect();
      if (state.plot) state.plot.destroy();
      drawn.delete(chart);
    }
    chart.textContent = chart.dataset.empty || "";
    chart.classList.add("empty");
  }

  function show(chart, address, text) {
    const { metric, unit, scale, x, xscale, smooth } = chart.dataset;
    const xlog = xscale === "log";
    const shown = ({ steps }) => (xlog ? steps.some((step) => step > 0) : steps.length > 0);
    const curves = curvesOf(JSON.parse(text)).filter(shown).map((curve) => smoothCurve(curve, Number(smooth || 0)));
    if (curves.length === 0) return empty(chart);
    const state = drawn.get(chart) || begin(chart);
    if (state.address !== address || state.xlog !== xlog) state.isZoomed = false;
    Object.assign(state, { address, text, curves, metric, unit, x: x || "step", xlog, log: scale === "log", look: lookOf(chart) });
    draw(state);
    return undefined;
  }

  // The choices that change the picture and not the data.
  const lookOf = ({ dataset }) => [dataset.scale, dataset.xscale, dataset.smooth].join(" ");

  async function update(chart) {
    const address = chart.dataset.curves;
    if (!address) return empty(chart);
    if (chart.dataset.busy === address) return undefined;
    chart.dataset.busy = address;
    try {
      const response = await fetch(address, { cache: "no-cache" });
      const text = response.ok ? await response.text() : "{}";
      if (chart.dataset.curves !== address) return undefined; // Another choice was made meanwhile.
      const before = drawn.get(chart);
      const same = before && before.address === address && before.text === text && before.look === lookOf(chart);
      if (!same) show(chart, address, text);
    } catch {
      // The page says that the connection is lost; the chart stays as it is.
    } finally {
      delete chart.dataset.busy;
    }
    return undefined;
  }

  const updateAll = () => document.querySelectorAll("[data-curves]").forEach(update);

  document.addEventListener("assay:round", updateAll);
  dark.addEventListener("change", () => drawn.forEach(draw));
  updateAll();
})();
