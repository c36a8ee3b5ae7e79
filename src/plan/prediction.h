// SPDX-License-Identifier: Apache-2.0
// Closed-form prediction of a simulated run: compute plus exposed communication, term by term.
//
// It is arithmetic on the configuration alone (schedule, bytes, links, step times), independent of
// the simulator, so that the two can disagree: `simulate` prints it beside the measured time. Links
// connect pairs of members, are full duplex and first in, first out: a frame of b bytes takes
// b*8/rate to send and half a round trip to arrive. TCP's reduction of that rate has no closed
// form; it is a separate term, from the link's throughput curve (sim/link_queue.h). Jitter, outages
// and faults are not predicted. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/step_shares.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"
#include "isthmus/types.h"
#include "sim/link.h"
#include "transport/exchange/reduction.h"

namespace isthmus {

/// A fragment (ddp: a bucket of gradients) in the schedule.
struct PlannedFragment {
  std::int64_t elements = 0;
  std::int64_t offset = 0;  // sent after step t when t = offset (mod H)
  double ready = 1;         // share of the inner step at which its values are final
};

class RoundTimes;  // record/round_times.h

struct PredictionInput {
  int workers = 1;
  std::int64_t steps = 0;
  std::int64_t H = 1;
  std::int64_t overlap = 0;  // tau
  /// Each round is awaited at the end of the next one, before that one is sent (delayed, eager,
  /// co2); overlap is then ignored.
  bool round_behind = false;
  /// Rounds in flight at the end are awaited under final_sync = "drain". Under "full" they always
  /// are.
  bool drains = true;
  std::vector<PlannedFragment> fragments;
  ReductionKind exchange = ReductionKind::kAuto;
  std::vector<std::uint32_t> shares;        // of the owners in a reduce; empty: even
  std::vector<std::uint32_t> groups;        // two levels: the group by worker; empty: one level
  std::size_t chunk_bytes = kMaxPartBytes;  // most value bytes of a frame
  std::shared_ptr<const Codec> codec;       // co-owned by the input's creator; only sizes are used
  /// 0: every round commits. k: results are used when complete; the last fragment of every k-th
  /// step commits, and an empty round at the end if steps are left over (ddp).
  std::int64_t commit_every = 0;
  std::int64_t steps_before = 0;  // of earlier stretches of the same run
  bool ends_the_run = true;       // false: another stretch follows
  FinalSync final_sync = FinalSync::kFull;
  /// Steps after the last regular sync are sent at the end, whatever `final_sync` is (01-adam).
  bool closes_always = false;
  /// Duration of inner step t (from 1) of one worker.
  std::function<Duration(WorkerId worker, StepIndex t)> step_time;
  std::vector<DirectedLink> links;  // workers x workers, row-major [from][to]; diagonal unused
  LinkOptions link;                 // their options; byte_scale: declared / trained parameters
  /// Bits of a vector in fp32 that a site's processor exchanges in a second, however fast the links
  /// are; 0: any number.
  double processor_bits_per_s = 0;
};

/// The input from method, options and model; the caller adds step_time, link and links (which are
/// free at first). THROWS: ConfigError as make_outer_strategy.
[[nodiscard]] PredictionInput prediction_input(std::string_view method, const OuterOptions& options,
                                               std::span<const Parameter> parameters, int workers,
                                               std::int64_t steps);

/// The same for methods whose exchange changes: consecutive stretches of the run, whose predictions
/// are added. 1bit-adam: its warm-up and the rest; without outer.freeze the end of the warm-up is
/// unknown beforehand, and the whole run is predicted as warm-up. 01-adam: its full-precision
/// steps, its compressed ones, then its local steps by their spacing J.
[[nodiscard]] std::vector<PredictionInput> prediction_phases(std::string_view method,
                                                             const OuterOptions& options,
                                                             std::span<const Parameter> parameters,
                                                             int workers, std::int64_t steps);

struct PredictionTerm {
  std::string name;     // "payload on the link"
  std::string formula;  // "bytes * 8 / rate = 3,407,872 * 8 / 100 Mbit/s"
  double seconds = 0;   // over the whole run; the terms add up to `predicted_s`
};

/// The cost of the closing round (FinalSync::kFull), which blocks, so nothing overlaps it.
struct ClosingCost {
  std::int64_t rounds = 0;          // fragments with an open window after the last step
  std::uint64_t payload_bytes = 0;  // sent by one worker (mean); scaled
  std::uint64_t wire_bytes = 0;
  double seconds = 0;
};

struct Prediction {
  std::vector<PredictionTerm> terms;
  double predicted_s = 0;
  double compute_s = 0;             // of the worker that ends last
  double utilisation = 0;           // compute / predicted, mean over the workers
  std::int64_t rounds = 0;          // of all fragments
  double round_s = 0;               // one round of the largest fragment, without overlap
  std::uint64_t payload_bytes = 0;  // sent by one worker over the run (mean); scaled
  std::uint64_t wire_bytes = 0;     // the same with headers and protocol messages
  ClosingCost closing;              // included above
};

/// Of a run of more than 131,072 steps one stretch of whole periods stands for the others: exact
/// where step times repeat in it, else (jitter) by the mean. REQUIRES: links of workers^2 entries,
/// codec and step_time set, H >= 1, 0 <= overlap < H.
[[nodiscard]] Prediction predict(const PredictionInput& input);

/// The predicted rounds of the run, at one worker. REQUIRES: as predict; `observer` is one of the
/// workers.
[[nodiscard]] RoundTimes predict_rounds(const PredictionInput& input, WorkerId observer);

/// Two consecutive stretches of a run: times and bytes add up.
[[nodiscard]] Prediction one_after_another(const Prediction& first, const Prediction& second);

/// "the closing round: 0.1 s and ..."; empty if there is none.
[[nodiscard]] std::string closing_text(const ClosingCost& closing);

/// The terms as an aligned plain-text table of at most 100 columns, with `measured_s` and the error
/// below if it is > 0. `links_absent`: why the run did not use the predicted links, shown in place
/// of the error.
[[nodiscard]] std::string render_prediction(const Prediction& prediction, double measured_s,
                                            std::string_view links_absent = {});

}  // namespace isthmus
