// SPDX-License-Identifier: Apache-2.0
// A run's clock over other links, played from its program: src/plan/retiming.cpp, replayed_member.cpp
// and src/sim/link_queue.cpp once more, for one link between all sites. Nanoseconds are whole numbers
// below 2^53, products that are not go through BigInt, so the numbers are those of the program itself
// (tests/plan/retime_in_page.mjs). Jitter, lossy cubic and rates that change are not played here.
(function (root) {
  "use strict";
  const kSecond = 1e9, kOverhead = 68, kDone = kOverhead + 16;
  const kSegmentBytes = 1448, kPacketBytes = 1500, kInitialWindowPackets = 10, kBbrGapPerThousand = 110, kAcknowledgementBytes = 52;
  const kShortestWindowedRtt = 100e3, kRetransmission = 200e6;

  /// floor(a b / c) of whole numbers.
  function multiplyDivide(a, b, c) {
    const product = a * b;
    if (product > Number.MAX_SAFE_INTEGER) return Number((BigInt(a) * BigInt(b)) / BigInt(c));
    let quotient = Math.floor(product / c);
    const rest = product - quotient * c;
    if (rest < 0) --quotient; else if (rest >= c) ++quotient;
    return quotient;
  }
  /// ceil(a b / c).
  function multiplyDivideUp(a, b, c) {
    const product = a * b;
    if (product + c > Number.MAX_SAFE_INTEGER) return Number((BigInt(a) * BigInt(b) + BigInt(c) - 1n) / BigInt(c));
    const down = multiplyDivide(a, b, c);
    return down * c === product ? down : down + 1;
  }

  class WindowRamp {
    constructor(rate, rtt, streams) {
      this.target = Math.max(1, multiplyDivide(rate, rtt, kSecond));
      this.initial = this.window = streams * kInitialWindowPackets * kSegmentBytes * 8;
    }
    open() { return this.roundBits() >= this.target; }
    roundBits() { return Math.min(this.window, this.target); }
    endRound(used) {
      if (2 * used < this.window || this.open()) return;
      this.window *= 2;
    }
    regain() { if (this.open()) this.window = Math.max(Math.floor(this.target * 3 / 8), this.initial); }
  }

  class LinkQueue {
    constructor(link, options) {
      this.oneWay = Math.floor(link.rtt_ns / 2);
      this.rtt = 2 * this.oneWay;
      this.scale = options.byte_scale;
      this.rate = link.bits_per_s;
      if (options.tcp && this.rate > 0) {
        this.rate = multiplyDivide(this.rate, kSegmentBytes, kPacketBytes);
        this.rate -= multiplyDivide(this.rate, kBbrGapPerThousand, 1000 * options.streams);
        this.rate -= multiplyDivide(this.rate, kAcknowledgementBytes, 2 * kPacketBytes);
        this.rate = Math.max(1, this.rate);
      }
      const windowed = link.bits_per_s > 0 && this.rtt >= kShortestWindowedRtt;
      this.ramp = windowed && options.tcp ? new WindowRamp(this.rate, this.rtt, options.streams) : null;
      this.freeAt = 0; this.lastArrival = 0; this.frames = 0;
      this.busySince = 0; this.steadyUntil = 0; this.busyBits = 0;
      this.roundBegin = 0; this.roundUsed = 0;
    }
    endRound(begin) {
      this.ramp.endRound(this.roundUsed);
      this.roundBegin = begin;
      this.roundUsed = 0;
    }
    /// BBR does not start anew after idle time, but takes two round trips to its rate.
    wake(begin) {
      if (!this.ramp) return;
      if (this.frames === 0) { this.roundBegin = begin; return; }
      if (begin === this.freeAt || begin < this.roundBegin + this.rtt) return;
      const idle = begin - this.freeAt;
      this.endRound(begin);
      if (idle >= this.rtt) this.ramp.regain();
    }
    leaveSteadily(begin, bits) {
      if (this.rate === 0) return begin;
      if (begin !== this.steadyUntil) { this.busySince = begin; this.busyBits = 0; }
      this.busyBits += bits;
      this.steadyUntil = this.busySince + multiplyDivideUp(this.busyBits, kSecond, this.rate);
      return this.steadyUntil;
    }
    leaveInSlices(time, bits) {
      for (;;) {
        let rate = this.rate, sliceEnd = Infinity;
        if (!this.ramp.open()) {
          const roundEnd = this.roundBegin + this.rtt;
          if (time >= roundEnd) {
            this.endRound(time >= roundEnd + this.rtt ? time : roundEnd);
            continue;
          }
          sliceEnd = roundEnd;
          rate = Math.min(rate, multiplyDivide(this.ramp.roundBits(), kSecond, this.rtt));
        }
        if (rate > 0) {
          const needed = multiplyDivideUp(bits, kSecond, rate);
          if (time + needed <= sliceEnd) { this.roundUsed += bits; return time + needed; }
          const sent = multiplyDivide(rate, sliceEnd - time, kSecond);
          bits -= Math.min(sent, bits);
          this.roundUsed += sent;
        }
        time = sliceEnd;
      }
    }
    /// RETURNS: when the frame arrives.
    send(now, frameBytes) {
      const bits = (this.scale === 1 ? frameBytes : Math.round(frameBytes * this.scale)) * 8;
      const begin = Math.max(now, this.freeAt);
      this.wake(begin);
      this.freeAt = this.ramp && !this.ramp.open() ? this.leaveInSlices(begin, bits) : this.leaveSteadily(begin, bits);
      ++this.frames;
      return (this.lastArrival = Math.max(this.freeAt + this.oneWay, this.lastArrival));
    }
  }

  /// Earliest first; of one time, the one pushed first.
  class EventHeap {
    constructor() { this.heap = []; this.number = 0; }
    before(a, b) { return a.time < b.time || (a.time === b.time && a.number < b.number); }
    push(event) {
      event.number = this.number++;
      const heap = this.heap;
      let i = heap.push(event) - 1;
      while (i > 0) {
        const up = (i - 1) >> 1;
        if (!this.before(event, heap[up])) break;
        heap[i] = heap[up];
        i = up;
      }
      heap[i] = event;
    }
    pop() {
      const heap = this.heap, first = heap[0], last = heap.pop();
      if (heap.length === 0) return first;
      let i = 0;
      for (;;) {
        let down = 2 * i + 1;
        if (down >= heap.length) break;
        if (down + 1 < heap.length && this.before(heap[down + 1], heap[down])) ++down;
        if (!this.before(heap[down], last)) break;
        heap[i] = heap[down];
        i = down;
      }
      heap[i] = last;
      return first;
    }
  }

  class Member {
    constructor(self, members, shapes) {
      Object.assign(this, { self, members, shapes, begun: 0, uncovered: [], unsettled: [] });
      this.rounds = new Map(); this.early = new Map(); this.dones = new Map(); this.uncommitted = new Set();
    }
    begin(which, out) {
      const shape = this.shapes[which], number = this.begun++;
      const round = { shape, open: shape.parts.length, inputs: new Array(shape.parts.length).fill(0), covers: [], closed: false };
      this.rounds.set(number, round);
      if (shape.commits) {
        round.covers = this.uncovered;
        this.uncovered = [];
        this.unsettled.push(number);
        this.unsettled.sort((a, b) => this.rounds.get(a).shape.fragment - this.rounds.get(b).shape.fragment || a - b);
      } else {
        this.uncovered.push(number);
      }
      for (let hop = 1; hop < this.members; ++hop) {
        const to = (this.self + hop) % this.members;
        shape.parts.forEach(([owner, bytes], part) => {
          if (shape.all || owner === to) out.push({ kind: "input", to, round: number, part, bytes: kOverhead + bytes });
        });
      }
      if (round.open === 0) this.finish(number, round);
      shape.parts.forEach(([owner], part) => { if (owner < 0 || owner === this.self) this.addInput(number, part, out); });
      for (const frame of this.early.get(number) || []) this.feed(frame, out);
      this.early.delete(number);
      this.sayDone(out);
    }
    receive(frame, out) {
      if (frame.kind === "input" || frame.kind === "result") {
        if (frame.round < this.begun) this.feed(frame, out);
        else if (this.early.has(frame.round)) this.early.get(frame.round).push(frame);
        else this.early.set(frame.round, [frame]);
        this.sayDone(out);
      } else if (frame.kind === "done") {
        this.takeDone(frame.round, out);
      } else if (frame.kind === "commit") {
        this.rounds.get(frame.round).closed = true;
      }
    }
    leave(out) { this.toPeers({ kind: "bye", bytes: kOverhead }, out); }
    closed(number) { return this.rounds.get(number).closed; }
    taken(number) { this.rounds.delete(number); }

    feed(frame, out) {
      if (frame.kind === "input") this.addInput(frame.round, frame.part, out);
      else this.finishPart(frame.round);
    }
    addInput(number, part, out) {
      const round = this.rounds.get(number);
      if (++round.inputs[part] < this.members) return;
      if (!round.shape.all) {
        const bytes = kOverhead + Math.floor((this.members + 7) / 8) + round.shape.parts[part][1];
        for (let hop = 1; hop < this.members; ++hop) out.push({ kind: "result", to: (this.self + hop) % this.members, round: number, part, bytes });
      }
      this.finishPart(number);
    }
    finishPart(number) {
      const round = this.rounds.get(number);
      if (--round.open === 0) this.finish(number, round);
    }
    finish(number, round) {
      if (round.shape.commits) return;
      round.closed = true;
      this.uncommitted.add(number);
    }
    sayDone(out) {
      for (let i = 0; i < this.unsettled.length;) {
        const number = this.unsettled[i], round = this.rounds.get(number);
        if (round.open > 0 || !round.covers.every((covered) => this.uncommitted.has(covered))) { ++i; continue; }
        this.unsettled.splice(i, 1);
        for (const covered of round.covers) this.uncommitted.delete(covered);
        if (this.self === 0) this.takeDone(number, out);
        else out.push({ kind: "done", to: 0, round: number, bytes: kDone });
      }
    }
    takeDone(number, out) {
      const count = (this.dones.get(number) || 0) + 1;
      this.dones.set(number, count);
      if (count < this.members) return;
      this.dones.delete(number);
      this.toPeers({ kind: "commit", round: number, bytes: kOverhead }, out);
      this.rounds.get(number).closed = true;
    }
    toPeers(frame, out) {
      for (let to = 0; to < this.members; ++to) if (to !== this.self) out.push({ ...frame, to });
    }
  }

  function unrolled(runs) {
    const all = [];
    for (const [value, times] of runs) for (let i = 0; i < times; ++i) all.push(value);
    return all;
  }

  /// `run`: what the report embeds. `link`: { bits_per_s, rtt_ns }, whole numbers. `speed`: steps are so
  /// many times as fast. RETURNS: { ends: ns at which each step has ended, computed: ns by worker }.
  function retime(run, link, speed) {
    const { program } = run, count = program.workers, bodies = program.bodies;
    const steps = unrolled(program.steps), lengths = run.lengths.map(unrolled);
    const members = [], links = [], workers = [];
    for (let w = 0; w < count; ++w) {
      members.push(new Member(w, count, program.shapes));
      workers.push({ step: 0, act: 0, begin: 0, length: 0, awaits: -1 });
      for (let to = 0; to < count; ++to) links.push(new LinkQueue(w === to ? { bits_per_s: 0, rtt_ns: 0 } : link, run));
    }
    const ends = new Array(steps.length).fill(0), computed = new Array(count).fill(0);
    const events = new EventHeap(), ready = [];
    let out = [], now = 0;

    const sendAll = (from) => {
      for (const frame of out) events.push({ time: links[from * count + frame.to].send(now, frame.bytes), member: frame.to, frame });
      out = [];
    };
    const wakeAt = (member, time) => events.push({ time, member, frame: null });
    const beginStep = (w) => {
      const worker = workers[w];
      if (worker.step === steps.length) return;
      const length = lengths[w][worker.step];
      worker.act = 0;
      worker.begin = now;
      worker.length = length === null || speed === 1 ? length : Math.round(length / speed);
    };
    const endStep = (w) => {
      const worker = workers[w];
      ends[worker.step] = Math.max(ends[worker.step], now);
      ++worker.step;
      beginStep(w);
      if (worker.step === steps.length) { members[w].leave(out); sendAll(w); }
    };
    /// RETURNS: false when the worker stops here for now.
    const does = (w, [kind, value]) => {
      const worker = workers[w], length = worker.length || 0;
      if (kind === "w") {
        const round = members[w].begun - 1 - value;
        if (!members[w].closed(round)) { worker.awaits = round; return false; }
        worker.awaits = -1;
        members[w].taken(round);
        ++worker.act;
        return true;
      }
      ++worker.act;
      if (kind === "b") { members[w].begin(value, out); sendAll(w); return true; }
      if (kind === "t") {
        if (worker.length === null) return true;
        computed[w] += length;
        wakeAt(w, worker.begin + length);
        return false;
      }
      const until = worker.begin + Math.trunc(length * value);
      if (kind === "c") {
        if (value > 0) computed[w] += length;
        wakeAt(w, Math.max(now, until));
      } else if (until > now) {
        wakeAt(w, until);
      } else {
        ready.push(w);
      }
      return false;
    };
    const goOn = (w) => {
      const worker = workers[w];
      while (worker.step < steps.length) {
        const body = bodies[steps[worker.step]];
        while (worker.act < body.length) if (!does(w, body[worker.act])) return;
        endStep(w);
      }
    };
    const runReady = () => { while (ready.length > 0) goOn(ready.shift()); };

    for (let w = 0; w < count; ++w) { beginStep(w); ready.push(w); }
    runReady();
    while (events.heap.length > 0) {
      const event = events.pop();
      now = event.time;
      if (event.frame) {
        const member = members[event.member], awaits = workers[event.member].awaits;
        member.receive(event.frame, out);
        if (awaits >= 0 && member.closed(awaits)) ready.push(event.member);
        sendAll(event.member);
      } else {
        ready.push(event.member);
      }
      runReady();
    }
    return { ends, computed };
  }

  const seconds = (ns) => ns / 1e9;
  /// Share of its time that a worker computes.
  const utilisation = ({ ends, computed }) => {
    const whole = ends.length ? ends[ends.length - 1] : 0;
    return whole > 0 ? computed.reduce((sum, each) => sum + each, 0) / whole / computed.length : 1;
  };
  /// The clock at which `losses`, read after `steps` at `clock`, come to `target`: linear between
  /// evaluations; Infinity where they do not, or after `budgetSteps` (0: no bound). As
  /// report::reaching, for which the step is a whole number.
  const reaching = (losses, steps, clock, target, budgetSteps) => {
    for (let i = 0; i < losses.length; ++i) {
      if (losses[i] === null || losses[i] > target) continue;
      const share = i === 0 ? 1 : (losses[i - 1] - target) / (losses[i - 1] - losses[i]);
      const between = (all) => (i === 0 ? all[0] : all[i - 1] + (all[i] - all[i - 1]) * share);
      return budgetSteps > 0 && Math.round(between(steps)) > budgetSteps ? Infinity : between(clock);
    }
    return Infinity;
  };
  const median = (values) => {
    const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
    if (sorted.length % 2 === 1) return sorted[middle];
    return sorted[middle] === Infinity ? Infinity : (sorted[middle - 1] + sorted[middle]) / 2;
  };

  const api = { retime, seconds, utilisation, reaching, median };
  if (typeof module === "object" && module.exports) module.exports = api;
  root.isthmusRetime = api;
})(typeof globalThis === "object" ? globalThis : this);
