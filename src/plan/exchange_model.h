// SPDX-License-Identifier: Apache-2.0
// When the data and the verdict of one round are where, as arithmetic on links (protocol:
// src/transport/WIRE_FORMAT.md and peer_exchange.h). Rounds are laid on the links in the order in
// which they begin; a protocol message waits for the data queued before it but takes no room
// itself, being a hundred bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/critical_path.h"
#include "plan/prediction.h"

namespace isthmus::plan {

class ExchangeModel {
 public:
  /// Borrows `input` for its life.
  explicit ExchangeModel(const PredictionInput& input);

  /// One round of `elements` values, begun by worker w at begin[w].
  /// RETURNS: by worker, when its result is whole.
  [[nodiscard]] std::vector<PathTime> exchange(std::int64_t elements,
                                               std::span<const PathTime> begin);
  /// Everyone says DONE to worker 0 at whole[w]; it says COMMIT to all.
  /// RETURNS: by worker, when it knows the round committed.
  [[nodiscard]] std::vector<PathTime> commit(std::span<const PathTime> whole);

  /// Sent so far by all workers together.
  [[nodiscard]] double payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] double wire_bytes() const { return wire_bytes_; }

 private:
  [[nodiscard]] std::size_t pair(std::size_t from, std::size_t to) const {
    return from * workers_ + to;
  }
  [[nodiscard]] double seconds(std::size_t link, double bytes) const;
  /// Queues data from one worker to another. RETURNS: when the last of it has arrived.
  PathTime send_data(std::size_t from, std::size_t to, const PathTime& ready, double payload_bytes,
                     double header_bytes);
  [[nodiscard]] PathTime send_word(std::size_t from, std::size_t to, const PathTime& ready,
                                   double bytes);
  void gather(const std::vector<std::size_t>& part_bytes, std::span<const PathTime> begin,
              std::vector<PathTime>& whole);

  const PredictionInput& input_;
  std::size_t workers_;
  std::vector<PathTime> link_free_;  // [from][to]: when the last frame queued has left
  double payload_bytes_ = 0;
  double wire_bytes_ = 0;
};

}  // namespace isthmus::plan
