// SPDX-License-Identifier: Apache-2.0
// The ticks of the page's interactive charts, for axes of seconds: those of axis.cpp, each label the tick's own time.
//
// node page_script_test.js PAGE_JS: exit 1 on a failure. What a browser has stands in, and Chart keeps its options.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const vm = require("node:vm");

const element = () => ({
  classList: { add() {} }, style: {}, append() {}, addEventListener() {}, setAttribute() {}, getAttribute: () => "",
  appendChild: (child) => child, querySelector: element,
});
const chart = { id: "loss", x_unit: "seconds", y_unit: "plain", x_label: "x", y_label: "y", log_x: false, log_y: false, series: [] };
let x = null;
class Chart {
  static defaults = { font: {} };
  constructor(canvas, { options }) { x = options.scales.x; this.data = { datasets: [] }; }
  update() {}
}
vm.runInNewContext(fs.readFileSync(process.argv[2], "utf8"), {
  Chart, innerWidth: 1000,
  getComputedStyle: () => ({ getPropertyValue: () => "" }),
  matchMedia: element,
  document: {
    documentElement: element(), body: element(), createElement: element, querySelectorAll: () => [],
    getElementById: (id) => (id === "charts" ? { textContent: JSON.stringify([chart]) } : id === "loss" ? element() : null),
  },
});

const labels = (min, max) => {
  const scale = { min, max, ticks: [] };
  x.afterBuildTicks(scale);
  return scale.ticks.map((tick, i) => x.ticks.callback(tick.value, i, scale.ticks)).join(" | ");
};
const cases = [
  [0, 400, "0 | 2 min | 4 min | 6 min"],  // 100 s apart they would read 2 min, 3 min, 5 min, 7 min
  [0, 42, "0 | 10 s | 20 s | 30 s | 40 s"],
  [100, 160, "100 s | 110 s | 120 s | 130 s | 140 s | 150 s | 160 s"],
  [0, 3600, "0 | 10 min | 20 min | 30 min | 40 min | 50 min | 60 min"],
  [0, 20000, "0 | 1 h | 2 h | 3 h | 4 h | 5 h"],
  [0, 2e6, "0 | 5 d | 10 d | 15 d | 20 d"],
  [0, 0.5, "0 | 100 ms | 200 ms | 300 ms | 400 ms | 500 ms"],
];
for (const [min, max, expected] of cases) assert.strictEqual(labels(min, max), expected);
