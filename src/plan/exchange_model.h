// SPDX-License-Identifier: Apache-2.0
// The times at which data and verdict of one round arrive, computed from the links (protocol:
// src/transport/wire/WIRE_FORMAT.md and peer_exchange.h). Rounds are queued on the links in the
// order of their begin. A control frame waits for the data queued before it but takes no capacity
// itself, since it has about a hundred bytes.
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
#include "transport/exchange/ring/ring_plan.h"

namespace isthmus::plan {

class ExchangeModel {
 public:
  /// Borrows `input` for its life.
  explicit ExchangeModel(const PredictionInput& input);

  /// One round of `elements` values, begun by worker w at begin[w]. RETURNS: by worker, when its
  /// result is complete.
  [[nodiscard]] std::vector<PathTime> exchange(std::int64_t elements,
                                               std::span<const PathTime> begin);
  /// Rounds with elements[i] values each that begin together, so that their frames alternate.
  /// RETURNS: by worker, when the results of all rounds are complete.
  [[nodiscard]] std::vector<PathTime> exchange_together(std::span<const std::int64_t> elements,
                                                        std::span<const PathTime> begin);
  /// One round along a ring, as in benchmarks (transport/exchange/ring/ring_exchange.h).
  [[nodiscard]] std::vector<PathTime> exchange_along(const RingPlan& plan,
                                                     std::span<const PathTime> begin);
  /// Every worker sends DONE to worker 0 at whole[w]; worker 0 sends COMMIT to all. RETURNS: by
  /// worker, when it knows the commit.
  [[nodiscard]] std::vector<PathTime> commit(std::span<const PathTime> whole);

  /// Bytes sent so far by all workers together.
  [[nodiscard]] double payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] double wire_bytes() const { return wire_bytes_; }

 private:
  /// One directed link.
  struct Link {
    double line_bits_per_s = 0;  // 0: unlimited
    double one_way_s = 0;
    PathTime free;                   // when the last queued frame has been sent
    std::optional<LinkQueue> curve;  // if throughput differs from the line's rate
  };

  class GroupedReduce;
  class AlongRing;

  [[nodiscard]] Link& link(std::size_t from, std::size_t to) {
    return links_[from * workers_ + to];
  }
  /// Queues data from one worker to another. RETURNS: when the last byte has arrived.
  PathTime send_data(std::size_t from, std::size_t to, const PathTime& ready,
                     std::size_t payload_bytes, std::size_t header_bytes);
  [[nodiscard]] PathTime send_word(std::size_t from, std::size_t to, const PathTime& ready,
                                   std::size_t bytes);
  [[nodiscard]] ReductionPlan plan_of(std::int64_t elements) const;
  [[nodiscard]] std::vector<PathTime> play(const ReductionPlan& plan,
                                           std::span<const PathTime> begin);
  /// No result is complete before each worker's processor has had its time for the round.
  void bound_by_processors(const ReductionPlan& plan, std::span<const PathTime> begin,
                           std::vector<PathTime>& whole);
  void gather(const ReductionPlan& plan, std::span<const PathTime> begin,
              std::vector<PathTime>& whole);
  void reduce(const ReductionPlan& plan, std::span<const PathTime> begin,
              std::vector<PathTime>& whole);
  void reduce_in_groups(const ReductionPlan& plan, std::span<const PathTime> begin,
                        std::vector<PathTime>& whole);

  const PredictionInput& input_;
  std::size_t workers_;
  std::vector<Link> links_;           // [from][to]
  std::vector<PathTime> processors_;  // by worker: when it has done its work for earlier rounds
  double payload_bytes_ = 0;
  double wire_bytes_ = 0;
};

}  // namespace isthmus::plan
