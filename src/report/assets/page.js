// SPDX-License-Identifier: Apache-2.0
// Makes the drawn charts and timelines interactive. Everything it shows is on the page without it.
(() => {
  "use strict";
  const dashes = [[], [8, 4], [2, 3], [9, 3, 2, 3], [14, 4], [5, 3], [1, 5],
    [11, 3, 3, 3], [], [10, 4], [], [2, 3], [12, 3, 2, 3], []];  // from the eighth on: page.css
  const root = document.documentElement;
  root.classList.add("js");
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const digits = (v) => Number(v.toPrecision(3)).toString();
  const scaled = (v, units, base) => {
    let i = 0;
    for (; Math.abs(v) >= 999.5 && i + 1 < units.length; ++i) v /= base;
    return digits(v) + units[i];
  };
  const formats = {
    plain: (v) => (Math.abs(v) >= 1e4 ? scaled(v, ["", " k", " M", " B", " T"], 1e3) : digits(v)),
    bytes: (v) => scaled(v, [" B", " kB", " MB", " GB", " TB", " PB"], 1e3),
    rate: (v) => scaled(v, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"], 1e3),
    seconds: (v) => {
      const s = Math.abs(v);
      if (s === 0) return "0";
      if (s < 1e-3) return digits(v * 1e6) + " µs";
      if (s < 1) return digits(v * 1e3) + " ms";
      if (s < 60) return digits(v) + " s";
      if (s < 3600) return digits(v / 60) + " min";
      if (s < 86400) return digits(v / 3600) + " h";
      return digits(v / 86400) + " d";
    },
  };
  // Distance between ticks of seconds, six of them or fewer; as axis.cpp has it.
  const onTheClock = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800];
  const roundStep = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  };
  const clockStep = (span) => {
    const rough = span / 6;
    return rough <= 10 ? roundStep(rough) : onTheClock.find((s) => s >= rough) || roundStep(rough / 86400) * 86400;
  };

  // One unit for all ticks of an axis, and as many digits as tell them apart; as axis.cpp labels them.
  const tickLabel = (unit, v, distance) => {
    const fixed = (x, d) => x.toFixed(d >= 1 ? 0 : Math.min(9, Math.ceil(-Math.log10(d) - 1e-9)));
    if (v === 0 || !(distance > 0)) return formats[unit](v);
    if (unit === "plain" && Math.abs(v) < 1e4) return fixed(v, distance);
    if (unit !== "seconds" || Math.abs(v) < 1) return formats[unit](v);
    const [size, name] = distance < 60 ? [1, " s"] : distance < 3600 ? [60, " min"] : distance < 86400 ? [3600, " h"] : [86400, " d"];
    return fixed(v / size, Math.min(1, distance / size)) + name;
  };

  const marks = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10800, 36000, 86400, 259200, 864000, 2592000, 8640000];
  const clockMarks = (low, high) => marks.filter((m) => m >= low && m <= high).map((value) => ({ value }));
  const clockTicks = (low, high) => {
    const step = clockStep(high - low), ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push({ value: i * step });
    return ticks;
  };

  // --- charts -----------------------------------------------------------------------------------
  const live = [];

  const dataset = (series) => ({
    label: series.label, run: series.colour, faint: series.faint,
    data: series.x.map((x, i) => ({ x, y: series.y[i] === null ? NaN : series.y[i] })),
    borderColor: css(`--c${series.colour}`) + (series.faint ? "80" : ""),
    backgroundColor: css(`--c${series.colour}`),
    borderWidth: series.faint ? 1 : 2.25,
    borderDash: series.faint ? [] : dashes[series.colour],
    pointRadius: series.marks ? 2.75 : 0, pointBorderWidth: 0, pointHitRadius: 4,
    order: series.faint ? 2 : 1, tension: 0, spanGaps: false,
  });

  // The two edges of a band; the second is filled to the first.
  const bands = (series) => (!series.low ? [] : [series.low, series.high].map((edge, i) => ({
    label: series.label, run: series.colour, band: true, data: series.x.map((x, k) => ({ x, y: edge[k] === null ? NaN : edge[k] })),
    borderWidth: 0, pointRadius: 0, pointHitRadius: 0, fill: i === 1 ? "-1" : false, backgroundColor: css(`--c${series.colour}`) + "2e", order: 3,
  })));

  // A vertical line with its name, under the curves.
  const markPlugin = (mark) => ({
    id: "mark",
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales } = chart, x = scales.x.getPixelForValue(mark.x);
      if (!(x >= area.left && x <= area.right)) return;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = css("--soft");
      ctx.setLineDash([4, 4]);
      ctx.beginPath(); ctx.moveTo(x, area.top); ctx.lineTo(x, area.bottom); ctx.stroke();
      ctx.font = "12px " + Chart.defaults.font.family;
      const before = x > area.left + 0.6 * (area.right - area.left);
      ctx.textAlign = before ? "right" : "left";
      ctx.fillText(mark.label, x + (before ? -6 : 6), area.top + 14);
      ctx.restore();
    },
  });

  const axis = (chart, which, log) => ({
    type: log ? "logarithmic" : "linear",
    title: { display: true, text: chart[which + "_label"], color: css("--soft"), align: "end", font: { size: 12 } },
    grid: { color: css("--rule"), drawTicks: false, borderColor: css("--rule") },
    // Chart.js would count in powers of ten of a second: ticks of 100 s are no whole minutes.
    ...(chart[which + "_unit"] === "seconds" ? { afterBuildTicks: (scale) => { scale.ticks = (log ? clockMarks : clockTicks)(scale.min, scale.max); } } : {}),
    ticks: {
      color: css("--soft"), font: { size: 12 }, padding: 8, maxRotation: 0, includeBounds: false, maxTicksLimit: which === "x" ? 8 : 7,
      callback(value, index, ticks) {
        if (log && chart[which + "_unit"] !== "seconds") {
          const lead = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
          if (![1, 2, 5].some((f) => Math.abs(lead - f) < 0.01)) return null;
          // Names of rates are long: a decade apart, on a phone three.
          const decade = Math.round(Math.log10(value));
          if (chart[which + "_unit"] === "rate" && (Math.abs(lead - 1) > 0.01 || (innerWidth < 720 && decade % 3 !== 0))) return null;
        }
        const distance = !log && ticks.length > 1 ? Math.abs(ticks[1].value - ticks[0].value) : 0;
        return tickLabel(chart[which + "_unit"], value, distance);
      },
    },
  });

  // Chart.js would round the ends away from the data: on a log axis to the next power of ten.
  const ends = (series, log) => {
    let min = Infinity, max = 0;
    for (const s of series) for (const x of s.x) if (x > 0) { min = Math.min(min, x); max = Math.max(max, x); }
    return !(max > min) ? {} : log ? { min, max } : { max };
  };

  // Bounds of what is visible, so that zooming along x also opens up y.
  const bounds = (chart, low, high) => {
    let least = Infinity, most = -Infinity;
    chart.data.datasets.forEach((set, i) => {
      if (!chart.isDatasetVisible(i)) return;
      for (const p of set.data) {
        if (p.x >= low && p.x <= high && Number.isFinite(p.y)) { least = Math.min(least, p.y); most = Math.max(most, p.y); }
      }
    });
    return [least, most];
  };
  const zoom = (chart, low, high) => {
    const { x, y } = chart.options.scales;
    const [least, most] = low === undefined ? [undefined, undefined] : bounds(chart, low, high);
    const air = y.type === "linear" && most > least ? (most - least) * 0.05 : 0;
    Object.assign(x, { min: low, max: high }, low === undefined ? chart.whole : {});
    y.min = Number.isFinite(least) ? least - air : undefined;
    y.max = Number.isFinite(most) ? most + air : undefined;
    chart.update("none");
  };

  const brush = (chart, box) => {
    let from = null, band = null;
    const at = (event) => {
      const area = chart.chartArea;
      return Math.min(area.right, Math.max(area.left, event.clientX - box.getBoundingClientRect().left));
    };
    box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      from = at(event);
      band = box.appendChild(Object.assign(document.createElement("div"), { className: "brush" }));
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      if (from === null) return;
      band.style.left = Math.min(from, at(event)) + "px";
      band.style.width = Math.abs(at(event) - from) + "px";
    });
    box.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const ends = [from, at(event)].sort((a, b) => a - b);
      from = null;
      band.remove();
      if (ends[1] - ends[0] > 6) zoom(chart, ...ends.map((p) => chart.scales.x.getValueForPixel(p)));
    });
    box.addEventListener("dblclick", () => zoom(chart));
  };

  const checkbox = (text, checked, change) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "checkbox", checked });
    input.addEventListener("change", () => change(input.checked));
    label.append(input, text);
    return label;
  };

  const build = (chart, figure) => {
    const state = { log_x: chart.log_x, log_y: chart.log_y, hidden: new Set(), train: true };
    const box = Object.assign(document.createElement("div"), { className: "canvas-box" });
    const canvas = box.appendChild(document.createElement("canvas"));
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", figure.querySelector(".plot").getAttribute("aria-label"));
    const controls = Object.assign(document.createElement("div"), { className: "controls" });
    figure.append(box, controls);
    figure.classList.add("live");
    let drawn = null;
    const draw = () => {
      if (drawn) drawn.destroy();
      const chosen = chart.series.filter((s) => state.train || !s.faint);
      drawn = new Chart(canvas, {
        type: "line",
        data: { datasets: chosen.flatMap((series) => [dataset(series), ...bands(series)]) },
        plugins: chart.mark ? [markPlugin(chart.mark)] : [],
        options: {
          animation: false, responsive: true, maintainAspectRatio: false, normalized: true, parsing: false,
          interaction: { mode: "nearest", axis: "x", intersect: false },
          scales: { x: { ...axis(chart, "x", state.log_x), ...ends(chosen, state.log_x) }, y: axis(chart, "y", state.log_y) },
          plugins: {
            legend: { display: false },
            tooltip: {
              filter: (item) => !item.dataset.band, padding: 9, boxPadding: 4, titleFont: { weight: "normal" },
              callbacks: {
                title: (items) => (items.length ? formats[chart.x_unit](items[0].parsed.x) + " · " + chart.x_label : ""),
                label: (item) => ` ${item.dataset.label}: ${Number(item.parsed.y.toPrecision(5))}`,
              },
            },
          },
        },
      });
      drawn.whole = ends(chosen, state.log_x);
      drawn.data.datasets.forEach((set, i) => drawn.setDatasetVisibility(i, !state.hidden.has(set.run)));
      drawn.update("none");
    };
    draw();
    brush({ get chartArea() { return drawn.chartArea; }, get scales() { return drawn.scales; }, get options() { return drawn.options; },
            get data() { return drawn.data; }, get whole() { return drawn.whole; }, isDatasetVisible: (i) => drawn.isDatasetVisible(i), update: (m) => drawn.update(m) }, box);
    const toggle = (key) => (on) => { state[key] = on; draw(); };
    controls.append(checkbox("log x", state.log_x, toggle("log_x")), checkbox("log y", state.log_y, toggle("log_y")));
    if (chart.series.some((s) => s.faint)) controls.append(checkbox(chart.faint_name, true, toggle("train")));
    const reset = Object.assign(document.createElement("button"), { type: "button", textContent: "reset zoom" });
    reset.addEventListener("click", () => zoom(drawn));
    controls.append(reset, Object.assign(document.createElement("span"), { textContent: "drag across the chart to zoom" }));
    live.push({ chart, draw, state });
  };

  const startCharts = () => {
    if (typeof Chart === "undefined") return;
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const chart of JSON.parse(document.getElementById("charts").textContent)) {
      const figure = document.getElementById(chart.id);
      if (figure) build(chart, figure);
    }
    const redraw = () => live.forEach((entry) => entry.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    document.querySelectorAll("#loss .legend .run").forEach((tag, run) => {
      tag.tabIndex = 0;
      tag.setAttribute("role", "button");
      tag.title = "show or hide this run in the charts";
      const flip = () => {
        const off = tag.classList.toggle("off");
        for (const entry of live) entry.state.hidden[off ? "add" : "delete"](run % dashes.length);
        redraw();
      };
      tag.addEventListener("click", flip);
      tag.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); flip(); } });
    });
  };

  // --- timelines --------------------------------------------------------------------------------
  const startTimeline = (figure) => {
    const svg = figure.querySelector("svg"), labels = figure.querySelector(".x-labels");
    const units = Number(figure.dataset.units), scale = units / Number(figure.dataset.end);
    const height = svg.viewBox.baseVal.height, first = svg.viewBox.baseVal.width;
    let left = 0, width = first;
    const show = () => {
      width = Math.min(units, Math.max(units / 1e5, width));
      left = Math.min(units - width, Math.max(0, left));
      svg.setAttribute("viewBox", `${left} 0 ${width} ${height}`);
      const step = clockStep(width / scale);
      labels.replaceChildren();
      for (let i = Math.ceil(left / scale / step - 1e-9); i * step * scale <= left + width * 0.97; ++i) {
        const tick = labels.appendChild(document.createElement("span"));
        tick.textContent = tickLabel("seconds", i * step, step);
        tick.style.left = ((i * step * scale - left) / width) * 100 + "%";
      }
    };
    const share = (event) => (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth;
    const zoomAt = (where, factor) => { left += where * width * (1 - factor); width *= factor; show(); };
    svg.addEventListener("wheel", (event) => { event.preventDefault(); zoomAt(share(event), Math.exp(event.deltaY * 0.0015)); }, { passive: false });
    let held = null;
    svg.addEventListener("pointerdown", (event) => { held = { at: share(event), left }; svg.setPointerCapture(event.pointerId); });
    svg.addEventListener("pointermove", (event) => { if (held) { left = held.left - (share(event) - held.at) * width; show(); } });
    svg.addEventListener("pointerup", () => { held = null; });
    const reset = () => { left = 0; width = first; show(); };
    svg.addEventListener("dblclick", reset);
    const controls = Object.assign(document.createElement("div"), { className: "controls" });
    for (const [text, name, act] of [["+", "zoom in", () => zoomAt(0.5, 0.5)], ["−", "zoom out", () => zoomAt(0.5, 2)],
                                     ["←", "earlier", () => { left -= width / 2; show(); }], ["→", "later", () => { left += width / 2; show(); }],
                                     ["all", "show all", () => { left = 0; width = units; show(); }], ["reset", "first rounds", reset]]) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text, title: name });
      button.setAttribute("aria-label", name);
      button.addEventListener("click", act);
      controls.append(button);
    }
    figure.querySelector("figcaption").append(controls);
    show();
    const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    document.body.append(tip);
    svg.querySelectorAll("title").forEach((title) => { title.parentNode.dataset.what = title.textContent; title.remove(); });
    svg.addEventListener("pointermove", (event) => {
      const what = event.target.dataset && event.target.dataset.what;
      tip.hidden = !what || held !== null;
      if (!tip.hidden) {
        tip.textContent = what;
        tip.style.left = Math.max(4, Math.min(innerWidth - tip.offsetWidth - 4, event.clientX + 12)) + "px";
        tip.style.top = event.clientY + 14 + "px";
      }
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  };

  // --- other links ------------------------------------------------------------------------------
  // A slider over the rate of one link between all sites: it chooses among the clocks in the page.
  const startRetiming = () => {
    const element = document.getElementById("retiming"), entry = live.find((each) => each.chart.id === "loss-links");
    if (!element || !entry) return;
    const data = JSON.parse(element.textContent);
    if (!data.rates.length || data.curves.every((curve) => !curve.at)) return;
    const rows = document.querySelectorAll("#live-times tbody tr"), heading = document.getElementById("live-link");
    const name = entry.chart.x_label.replace(/^simulated time, .*?( \(log scale\))?$/, "simulated time, ");
    const tell = (row, what, text) => { const cell = rows[row].querySelector(`[data-is=${what}]`); if (cell) cell.textContent = text; };
    const box = Object.assign(document.createElement("fieldset"), { className: "sliders" });
    box.append(Object.assign(document.createElement("legend"), { textContent: "one link between all sites, without loss" }));
    const start = data.rates.reduce((best, rate, i) => (Math.abs(Math.log(rate / (data.bits_per_s || 1e9))) < Math.abs(Math.log(data.rates[best] / (data.bits_per_s || 1e9))) ? i : best), 0);
    const label = document.createElement("label"), output = document.createElement("output");
    const input = Object.assign(document.createElement("input"), { type: "range", min: 0, max: data.rates.length - 1, step: 1 });
    input.setAttribute("aria-label", "rate");
    label.append("rate", input, output);
    const own = entry.chart.series.map((series) => ({ ...series }));
    const first = { heading: heading.textContent, cells: [...rows].map((row) => row.innerHTML), x_label: entry.chart.x_label };
    const said = () => { output.textContent = formats.rate(data.rates[input.value]); };
    const reset = () => { input.value = start; said(); };
    const update = () => {
      said();
      const where = `${formats.rate(data.rates[input.value])}, ${formats.seconds(data.rtt_s)} round trip`;
      entry.chart.series = [];
      data.curves.forEach((curve, row) => {
        const at = curve.at && curve.at[input.value], none = curve.at ? "a round would fail" : "needs simulating";
        const series = own.find((each) => each.label === curve.label);
        if (at && series) entry.chart.series.push({ ...series, x: at.clock.slice(0, curve.mean.length), y: curve.mean });
        tell(row, "end", at ? formats.seconds(at.end) : none);
        tell(row, "utilisation", at ? (100 * at.utilisation).toFixed(1) + " %" : none);
        if (data.target !== null) tell(row, "target", at ? (at.target === null ? "missed" : formats.seconds(at.target)) : none);
      });
      const ends = entry.chart.series.map((series) => series.x[series.x.length - 1]).filter((x) => x > 0);
      entry.state.log_x = Math.max(...ends) > 6 * Math.min(...ends);
      entry.chart.x_label = name + where + (entry.state.log_x ? " (log scale)" : "");
      heading.textContent = where;
      entry.draw();
    };
    input.addEventListener("input", update);
    const again = Object.assign(document.createElement("button"), { type: "button", textContent: "the runs' own link" });
    again.addEventListener("click", () => {
      reset();
      entry.chart.series = own.map((series) => ({ ...series }));
      entry.chart.x_label = first.x_label;
      entry.state.log_x = entry.chart.log_x;
      heading.textContent = first.heading;
      rows.forEach((row, i) => { row.innerHTML = first.cells[i]; });
      entry.draw();
    });
    reset();
    box.append(label, again);
    document.getElementById("loss-links").before(box);
  };

  startCharts();
  startRetiming();
  document.querySelectorAll(".timeline").forEach(startTimeline);
})();
