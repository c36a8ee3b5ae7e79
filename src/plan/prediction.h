// SPDX-License-Identifier: Apache-2.0
// Closed-form prediction of a simulated run: compute plus exposed communication, term by term.
//
// It is arithmetic on the configuration alone (schedule, bytes, links, step time), made apart from
// the simulator so that the two can disagree: `simulate` prints it beside what it measured. Links
// join pairs of members, are full duplex and first in, first out: a frame of b bytes takes b*8/rate
// to leave and half a round trip to arrive. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "isthmus/transport.h"
#include "isthmus/types.h"

namespace isthmus {

/// One direction of a link, from one member to another.
struct LinkDirection {
  double bits_per_s = 0;  // 0: free, as in process
  Duration one_way{0};    // half the round trip
};

/// A fragment as the schedule sees it.
struct PlannedFragment {
  int id = 0;
  std::int64_t elements = 0;
  std::int64_t offset = 0;  // sent after step t when t = offset (mod H)
};

struct PredictionInput {
  std::string method;                      // "ddp" exchanges gradients every step, others every H
  int workers = 1;
  std::int64_t steps = 0;
  std::int64_t H = 1;
  std::int64_t overlap = 0;                // tau
  std::vector<PlannedFragment> fragments;  // ddp: one
  ReductionKind exchange = ReductionKind::kAuto;
  const Codec* codec = nullptr;            // borrowed; sizes only
  std::int64_t commit_every = 1;           // rounds between commits; ddp: 16
  Duration step_time{0};                   // of one inner step
  double byte_scale = 1;                   // bytes on the modelled link per byte of this model
  std::vector<LinkDirection> links;        // workers x workers, row-major [from][to]; diagonal unused
};

struct PredictionTerm {
  std::string name;     // "payload on the link"
  std::string formula;  // "bytes * 8 / rate = 3,407,872 * 8 / 100 Mbit/s"
  double seconds = 0;   // over the whole run; the terms add up to `predicted_s`
};

struct Prediction {
  std::vector<PredictionTerm> terms;
  double predicted_s = 0;
  double compute_s = 0;            // of one worker
  double utilisation = 0;          // compute_s / predicted_s
  std::int64_t rounds = 0;         // of all fragments
  double round_s = 0;              // one round of the largest fragment, nothing hidden
  std::uint64_t payload_bytes = 0; // sent by worker 0 over the run
  std::uint64_t wire_bytes = 0;    // the same with headers and protocol messages
};

/// REQUIRES: a valid input (links of workers^2 entries, codec set, H >= 1, 0 <= overlap < H).
[[nodiscard]] Prediction predict(const PredictionInput& input);

/// The terms as an aligned plain-text table, with `measured_s` and the error below when it is > 0.
[[nodiscard]] std::string render_prediction(const Prediction& prediction, double measured_s);

}  // namespace isthmus
