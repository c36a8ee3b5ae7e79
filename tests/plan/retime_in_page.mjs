// SPDX-License-Identifier: Apache-2.0
// node retime_in_page.mjs retime.js CASES: the page's script gives the program's numbers, every one.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";

const [script, cases] = process.argv.slice(2);
const { retime, reaching } = createRequire(import.meta.url)(script);
const lines = execFileSync(cases, { maxBuffer: 1 << 28 }).toString().trim().split("\n");
let wrong = 0;
for (const line of lines) {
  const { name, run, link, speed, ends, computed } = JSON.parse(line);
  const got = retime(run, link, speed);
  const at = ends.findIndex((end, i) => end !== got.ends[i]);
  const same = at < 0 && got.ends.length === ends.length && computed.every((each, w) => each === got.computed[w]);
  if (same) continue;
  ++wrong;
  console.error(`${name} at ${JSON.stringify(link)}, speed ${speed}: step ${at + 1} ends at ${got.ends[at]} ns, not at ${ends[at]} ns`);
}
// Where losses come to a target, as report::reaching has it: half way here, at step 15.
const way = (target, budget) => reaching([4, 3, 2], [10, 20, 30], [1, 3, 9], target, budget);
for (const [target, budget, expected] of [[3.5, 0, 2], [3.5, 15, 2], [3.5, 14, Infinity], [4, 10, 1], [4, 9, Infinity], [1, 0, Infinity]]) {
  if (way(target, budget) === expected) continue;
  ++wrong;
  console.error(`target ${target} within ${budget} steps: ${way(target, budget)}, not ${expected}`);
}
console.log(`${lines.length - wrong} of ${lines.length} runs alike`);
process.exit(wrong > 0 || lines.length < 100 ? 1 : 0);
