// SPDX-License-Identifier: Apache-2.0
// The names of a group's ranks in errors. Immutable.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace isthmus {

class RankNames {
 public:
  /// Ranks 0 .. size-1 of an unsplit group. places: descriptions of the ranks, such as "tp 1, pp 0,
  /// dp 0"; empty: none.
  explicit RankNames(int size, std::vector<std::string> places = {})
      : places_(std::make_shared<const std::vector<std::string>>(std::move(places))) {
    for (int rank = 0; rank < size; ++rank) world_.push_back(rank);
  }

  [[nodiscard]] int size() const { return static_cast<int>(world_.size()); }
  /// "rank 1", "rank 1 (tp 1, pp 0, dp 0)", or for a split group "rank 1 (world rank 5: ...)".
  [[nodiscard]] std::string of(int rank) const {
    const int world = world_[static_cast<std::size_t>(rank)];
    const auto place = static_cast<std::size_t>(world);
    const std::string words = place < places_->size() ? (*places_)[place] : "";
    if (world == rank) {
      return words.empty() ? fmt::format("rank {}", rank)
                           : fmt::format("rank {} ({})", rank, words);
    }
    return fmt::format("rank {} (world rank {}{}{})", rank, world, words.empty() ? "" : ": ",
                       words);
  }
  /// The names of the group that consists of `ranks` of this one, in this order.
  [[nodiscard]] RankNames part(const std::vector<int>& ranks) const {
    RankNames names = *this;
    names.world_.clear();
    for (const int each : ranks) names.world_.push_back(world_[static_cast<std::size_t>(each)]);
    return names;
  }

 private:
  std::vector<int> world_;
  std::shared_ptr<const std::vector<std::string>> places_;  // of all ranks; shared by the parts
};

}  // namespace isthmus
