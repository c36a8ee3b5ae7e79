// SPDX-License-Identifier: Apache-2.0
// When the data and the verdict of one round are where, as arithmetic on links (protocol:
// src/transport/wire/WIRE_FORMAT.md and peer_exchange.h). Rounds are laid on the links in the order
// in which they begin; a protocol message waits for the data queued before it but takes no room
// itself, being a hundred bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/critical_path.h"
#include "plan/prediction.h"
#include "sim/link_queue.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/tree/tree_plan.h"

namespace isthmus::plan {

class ExchangeModel {
 public:
  /// Borrows `input` for its life.
  explicit ExchangeModel(const PredictionInput& input);

  /// One round of `elements` values, begun by worker w at begin[w].
  /// RETURNS: by worker, when its result is whole.
  [[nodiscard]] std::vector<PathTime> exchange(std::int64_t elements,
                                               std::span<const PathTime> begin);
  /// Rounds of so many values each that begin together, so that their frames take turns.
  /// RETURNS: by worker, when the results of all are whole.
  [[nodiscard]] std::vector<PathTime> exchange_together(std::span<const std::int64_t> elements,
                                                        std::span<const PathTime> begin);
  /// One round along a ring or a tree, as benchmarks play it
  /// (transport/exchange/tree/tree_exchange.h).
  [[nodiscard]] std::vector<PathTime> exchange_along(const TreePlan& plan,
                                                     std::span<const PathTime> begin);
  /// Everyone says DONE to worker 0 at whole[w]; it says COMMIT to all.
  /// RETURNS: by worker, when it knows the round committed.
  [[nodiscard]] std::vector<PathTime> commit(std::span<const PathTime> whole);

  /// Sent so far by all workers together.
  [[nodiscard]] double payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] double wire_bytes() const { return wire_bytes_; }

 private:
  /// One directed link.
  struct Link {
    double line_bits_per_s = 0;  // 0: free
    double one_way_s = 0;
    PathTime free;                   // when the last frame queued has left
    std::optional<LinkQueue> curve;  // where throughput is not simply the line's rate
  };

  class GroupedReduce;
  class AlongTrees;

  [[nodiscard]] Link& link(std::size_t from, std::size_t to) {
    return links_[from * workers_ + to];
  }
  /// Queues data from one worker to another. RETURNS: when the last of it has arrived.
  PathTime send_data(std::size_t from, std::size_t to, const PathTime& ready,
                     std::size_t payload_bytes, std::size_t header_bytes);
  [[nodiscard]] PathTime send_word(std::size_t from, std::size_t to, const PathTime& ready,
                                   std::size_t bytes);
  [[nodiscard]] ReductionPlan plan_of(std::int64_t elements) const;
  [[nodiscard]] std::vector<PathTime> play(const ReductionPlan& plan,
                                           std::span<const PathTime> begin);
  void gather(const ReductionPlan& plan, std::span<const PathTime> begin,
              std::vector<PathTime>& whole);
  void reduce(const ReductionPlan& plan, std::span<const PathTime> begin,
              std::vector<PathTime>& whole);
  void reduce_in_groups(const ReductionPlan& plan, std::span<const PathTime> begin,
                        std::vector<PathTime>& whole);

  const PredictionInput& input_;
  std::size_t workers_;
  std::vector<Link> links_;  // [from][to]
  double payload_bytes_ = 0;
  double wire_bytes_ = 0;
};

}  // namespace isthmus::plan
