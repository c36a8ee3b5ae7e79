// SPDX-License-Identifier: Apache-2.0
// From lines of metrics.jsonl to TensorBoard scalars. The live sink and the export both use this
// code, so that they draw the same.
//
// Every number of a line becomes a scalar "kind/field": train/loss, eval/ppl, worker-0/loss,
// ckpt/bytes. Rounds that are applied at one step become one point each of round/bytes_payload,
// round/bytes_wire, round/wait_s (sums), round/delta_norm (of all their fragments together),
// round/err and round/cos (means over the fragments that have them), round/fragments (how many) and
// round/members (fewest), besides fragment-P/delta_norm, err and cos: some readers keep one point
// per tag and step only.
// Wall times: for a simulated run the simulated seconds, as seconds since 1970, so that
// TensorBoard's relative axis is the simulated clock; otherwise the line's real time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace isthmus::report {

class TensorBoardScalars {
 public:
  explicit TensorBoardScalars(bool simulated) : simulated_(simulated) {}

  /// Appends the records that `line` completes to `records`; rounds wait for the end of their step.
  /// RETURNS: false when it is no line of metrics.jsonl.
  [[nodiscard]] bool take(std::string_view line, std::string& records);
  /// Appends the waiting rounds.
  void finish(std::string& records);

 private:
  struct Rounds {
    std::int64_t step = 0;
    double payload_bytes = 0, wire_bytes = 0, wait_s = 0, squares = 0, members = 0;
    std::int64_t count = 0;
    /// By fragment: "delta_norm", "err" and "cos", if the line has them.
    std::map<std::int64_t, std::map<std::string, double>> fragments;
  };
  bool simulated_;
  double wall_s_ = 0;
  std::optional<Rounds> rounds_;
};

/// The beginning of a run's first file: version, a session's start, configuration and the meaning
/// of the wall time as text panels. `config` is TOML, or empty.
[[nodiscard]] std::string tensorboard_opening(double wall_s, bool simulated,
                                              std::string_view config);
/// The beginning of a resumed session's file: version, and a start that withdraws every earlier
/// point after `resumed_after`. The start is written twice: TensorBoard takes a run's first one for
/// its beginning, and files of isthmus before November 2026 begin without one.
[[nodiscard]] std::string tensorboard_reopening(double wall_s, std::int64_t resumed_after);

}  // namespace isthmus::report
