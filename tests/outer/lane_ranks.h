// SPDX-License-Identifier: Apache-2.0
// Threads in place of the processes that are the ranks of a site and share its outer state.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "outer/place/outer_placement.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus::testing_support {

class LaneRanks {
 public:
  /// `parameters` need no values. REQUIRES: the method is one that can be shared out.
  LaneRanks(const std::string& method, const OuterOptions& options,
            std::span<const Parameter> parameters, int ranks)
      : communicators_(make_thread_communicators(ranks, std::chrono::minutes(2))) {
    for (int r = 1; r < ranks; ++r) {
      others_.emplace_back(
          [this, r, serve = outer::serve_outer_state(method, options, parameters)] {
            Communicator& own = of(r);
            while (goes_on(own, false)) serve(own);
          });
    }
  }
  ~LaneRanks() { static_cast<void>(goes_on(of(0), false)); }

  [[nodiscard]] outer::RanksCall call() {
    return [this](const std::function<void(Communicator&)>& part) {
      static_cast<void>(goes_on(of(0), true));
      ++calls_;
      in_call_ = true;
      part(of(0));
      in_call_ = false;
    };
  }
  /// Whether the other ranks wait for the first one's part of a call.
  [[nodiscard]] bool in_call() const { return in_call_; }
  [[nodiscard]] int calls() const { return calls_; }

 private:
  [[nodiscard]] Communicator& of(int rank) {
    return *communicators_[static_cast<std::size_t>(rank)];
  }
  /// What the first rank says.
  static bool goes_on(Communicator& own, bool more) {
    std::int64_t word = more ? 1 : 0;
    own.broadcast({&word, 1, Dtype::kI64}, 0);
    return word != 0;
  }

  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::jthread> others_;
  int calls_ = 0;
  bool in_call_ = false;
};

}  // namespace isthmus::testing_support
