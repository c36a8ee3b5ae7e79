// SPDX-License-Identifier: Apache-2.0
// node retime_in_page.mjs retime.js CASES: the page's script gives the program's numbers, every one.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";

const [script, cases] = process.argv.slice(2);
const { retime } = createRequire(import.meta.url)(script);
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
console.log(`${lines.length - wrong} of ${lines.length} runs alike`);
process.exit(wrong > 0 || lines.length < 100 ? 1 : 0);
