// Draws the charts of a page: every element with `data-figure` shows the figure at that address.
//
// Figures come without colours. A trace says in its `meta` which part it plays (`line`, `band`, `faint`, `heat`) and
// which slot of the palette it takes; the colours are the custom properties of the style sheet, so that charts follow
// the reader's theme. While the address stays the same, zoom and hidden lines stay as the reader left them.
"use strict";

(() => {
  const NARROW = 640;
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    showTips: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map(); // Chart -> what it shows: its address and the text of its figure.

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ink: read("--ink"), quiet: read("--quiet"), line: read("--line"), raised: read("--raised"), font: read("--sans"),
      palette: [1, 2, 3, 4, 5, 6, 7].map((slot) => read(`--chart-${slot}`)),
    };
  }

  // A colour of the palette, #rrggbb, with an opacity.
  function faded(colour, opacity) {
    const part = (at) => parseInt(colour.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
  }

  function dress(trace, look, narrow) {
    const meta = trace.meta || {};
    const colour = look.palette[(meta.slot || 0) % look.palette.length];
    if (meta.part === "line") {
      trace.line = { ...trace.line, color: colour };
      trace.marker = { size: 7, ...trace.marker, color: colour };
      if (trace.error_y) trace.error_y = { ...trace.error_y, color: colour };
    } else if (meta.part === "band") {
      trace.fillcolor = faded(colour, 0.16);
      trace.line = { ...trace.line, color: colour };
    } else if (meta.part === "faint") {
      trace.marker = { ...trace.marker, color: look.quiet };
    } else if (meta.part === "heat") {
      trace.colorscale = "Viridis";
      trace.reversescale = Boolean(meta.reversed); // The bright end is the better one.
      trace.textfont = { size: narrow ? 10 : 13 };
      trace.colorbar = { ...trace.colorbar, thickness: 12, outlinewidth: 0, ticklen: 3, tickcolor: look.line };
      if (narrow) trace.showscale = false;
    }
    return trace;
  }

  function axis(given, look) {
    return {
      gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, tickcolor: look.line, ticks: "outside",
      ticklen: 4, automargin: true, exponentformat: "power", ...given,
      title: { ...(given || {}).title, standoff: 8 },
    };
  }

  function layout(given, look, narrow, address) {
    const legend = narrow
      ? { orientation: "h", x: 0, y: -0.25, yanchor: "top", font: { size: 11 } }
      : { x: 1.01, xanchor: "left", y: 1, font: { size: 11 }, itemsizing: "constant" };
    return {
      ...given,
      uirevision: address,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: look.font, size: 12, color: look.ink },
      margin: { l: 56, r: 12, t: 30, b: 44 },
      hoverlabel: {
        bgcolor: look.raised, bordercolor: look.line, font: { family: look.font, size: 12, color: look.ink }, align: "left",
        namelength: -1,
      },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: look.quiet, activecolor: look.ink },
      legend,
      xaxis: axis(given.xaxis, look),
      yaxis: axis(given.yaxis, look),
    };
  }

  function empty(chart) {
    if (drawn.get(chart)) Plotly.purge(chart);
    drawn.delete(chart);
    chart.textContent = chart.dataset.empty || "";
    chart.style.height = "";
    chart.classList.add("empty");
    chart.hidden = !chart.dataset.empty;
  }

  function draw(chart, address, text) {
    const figure = JSON.parse(text);
    if (!figure || figure.data.length === 0) return empty(chart);
    if (!drawn.has(chart)) chart.textContent = "";
    chart.hidden = false;
    chart.classList.remove("empty");
    chart.style.height = figure.height ? `${figure.height}px` : "";
    const look = theme();
    const narrow = chart.clientWidth < NARROW;
    drawn.set(chart, { address, text });
    const data = figure.data.map((trace) => dress(trace, look, narrow));
    return Plotly.react(chart, data, layout(figure.layout, look, narrow, address), CONFIG);
  }

  async function update(chart) {
    const address = chart.dataset.figure;
    if (!address) return empty(chart);
    if (chart.dataset.busy === address) return undefined;
    chart.dataset.busy = address;
    try {
      const response = await fetch(address, { cache: "no-store" });
      const text = response.ok ? await response.text() : "null";
      if (chart.dataset.figure !== address) return undefined; // Another choice was made meanwhile.
      const before = drawn.get(chart);
      if (!before || before.address !== address || before.text !== text) await draw(chart, address, text);
    } catch {
      // The page says that the connection is lost; the chart stays as it is.
    } finally {
      delete chart.dataset.busy;
    }
    return undefined;
  }

  const updateAll = () => document.querySelectorAll("[data-figure]").forEach(update);
  const redrawAll = () => drawn.forEach(({ address, text }, chart) => draw(chart, address, text));

  document.addEventListener("assay:round", updateAll);
  dark.addEventListener("change", redrawAll);
  updateAll();
})();
