// SPDX-License-Identifier: Apache-2.0
#include "session/outcome_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace isthmus::app {
namespace {

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// null where no window was left over.
std::string closing_json(const ClosingTotals& closing) {
  if (closing.rounds == 0) return "null";
  return JsonLine()
      .add("rounds", closing.rounds)
      .add("bytes_payload", closing.payload_bytes)
      .add("bytes_wire", closing.wire_bytes)
      .add("wait_s", closing.wait_s)
      .str();
}

}  // namespace

std::string links_json(const RunDirectory& directory, const Config& config) {
  const auto link_json = [&](const LinkConfig& link) {
    JsonLine line;
    line.add("a", link.a)
        .add("b", link.b)
        .add("bits_per_s_up", link.bits_per_s_up)
        .add("bits_per_s_down", link.bits_per_s_down)
        .add("rtt_s", in_seconds(link.rtt))
        .add("loss", link.loss)
        .add("streams", link.streams)
        .add("congestion", link.congestion);
    if (!link.trace.empty()) {  // rates are then its means
      line.add("trace", link.trace.string())
          .add("trace_digest", directory.trace_digest(link.trace));
    }
    return line;
  };
  return JsonLine().add_list("links", config.links, link_json).str();
}

double utilisation(const RunTotals& totals) {
  const double available = totals.clock_s * static_cast<double>(totals.compute_s.size());
  return available > 0 ? total(totals.compute_s) / available : 0;
}

JsonLine outcome_summary(const RunOutcome& outcome, std::int64_t parameters,
                         std::optional<double> simulated_s) {
  const RunTotals& totals = outcome.totals;
  JsonLine line;
  line.add("status", outcome.status)
      .add("steps", totals.steps)
      .add("tokens", totals.tokens)
      .add("parameters", parameters)
      .add("rounds", totals.rounds)
      .add_raw("closing_round", closing_json(totals.closing))
      .add("final_train_loss", totals.train_loss);
  if (totals.eval_loss) {
    line.add("final_eval_loss", *totals.eval_loss).add("final_eval_step", totals.eval_step);
  } else {
    line.add_null("final_eval_loss");
  }
  line.add("bytes_payload", std::span<const std::uint64_t>(totals.payload_bytes))
      .add("bytes_wire", std::span<const std::uint64_t>(totals.wire_bytes));
  line.add_or_null("simulated_s", simulated_s)
      .add("wall_s", totals.wall_s)
      .add("compute_s", std::span<const double>(totals.compute_s))
      .add("compute_utilisation", utilisation(totals));
  if (outcome.late) {
    line.add("late_rounds", outcome.late->rounds)
        .add("late_steps_skipped", outcome.late->steps_skipped);
  }
  return line;
}

void add_world(JsonLine& line, const RunOutcome& outcome, const WorldResult& result) {
  // Traffic is counted by session: a resumed run leaves it out rather than give a part.
  using Rows = std::vector<std::vector<std::uint64_t>>;
  line.add_list("traffic", outcome.resumed ? Rows{} : result.traffic,
                [](const auto& row) { return fmt::format("[{}]", fmt::join(row, ",")); });
  if (result.trace_hash) {
    line.add("trace_hash", fmt::format("{:016x}", *result.trace_hash));
  }
  if (outcome.totals.measured_step > Duration{0}) {
    line.add("measured_step_s", in_seconds(outcome.totals.measured_step));
  }
}

}  // namespace isthmus::app
