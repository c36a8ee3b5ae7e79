// SPDX-License-Identifier: Apache-2.0
// One rank's lane (shard) of a fragment: a FragmentState over the lane's local values, which come
// from the first rank before they are read and return after they are written. Memory: as
// FragmentState, for the lane; local values exist only during a request. One thread.
#pragma once

#include <span>

#include "isthmus/inner_loop.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/lanes.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

class Lane {
 public:
  /// local: (range.size(),), the anchor's initial values; copied.
  Lane(const FragmentedSettings& settings, const Fragment& fragment, LaneRange range,
       std::span<float> local);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Sets the memory of the next requests' local values, (range.size(),); borrowed until the next
  /// call.
  void put_local(std::span<float> local) { state_.put_local(local); }
  [[nodiscard]] FragmentState& state() { return state_; }
  [[nodiscard]] const FragmentState& state() const { return state_; }
  [[nodiscard]] std::size_t whole() const { return whole_; }
  [[nodiscard]] LaneRange range() const { return range_; }

 private:
  /// The part of an InnerLoop that FragmentState uses: one parameter, the lane.
  class LocalValues final : public InnerLoop {
   public:
    LocalValues(const Fragment& fragment, std::span<float> local);
    [[nodiscard]] std::span<const Parameter> parameters() const override { return {&lane_, 1}; }
    InnerStep train_step(StepIndex t) override;
    [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }

   private:
    Parameter lane_;
  };

  std::size_t whole_;
  LaneRange range_;
  LocalValues inner_;
  FragmentState state_;
};

}  // namespace isthmus::outer
