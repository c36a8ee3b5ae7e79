// SPDX-License-Identifier: Apache-2.0
// Frames that wait for one link, in sending order. Control frames and the notes of the program go
// first, in order of arrival. Then the rounds' values, results and contributions alike: an earlier
// round goes before a later one, whose result is applied later too. ECHO and BYE mean "all frames
// that I have sent you", so they go after everything that was pushed before them. No frame starves:
// values wait for those of earlier rounds, of which there are finitely many, and for control
// frames, which are short except for the state that is sent to a joiner, and a joiner has no part
// in rounds yet. One task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "core/base/check.h"
#include "transport/wire/transport.h"

namespace isthmus {

class FrameQueue {
 public:
  /// Bytes that are no frame (transport/wire/frame.h) are queued as control frames.
  void push(FrameBytes frame);
  [[nodiscard]] bool empty() const { return words_.empty() && values_.empty() && last_.empty(); }
  /// The next frame to send. REQUIRES: !empty().
  [[nodiscard]] const FrameBytes& front() const;
  /// Removes it. REQUIRES: !empty().
  [[nodiscard]] FrameBytes pop();
  void clear();

 private:
  struct Waiting {
    std::uint64_t number = 0;  // in order of arrival
    FrameBytes frame;
  };
  using Line = std::deque<Waiting>;
  /// The line of the next frame.
  template <typename Queue>
  [[nodiscard]] static auto& next_of(Queue& queue);
  [[nodiscard]] bool waits_before(std::uint64_t number) const;

  Line words_;
  std::map<std::int64_t, Line>
      values_;  // by the step after which their round was sent; none is empty
  Line last_;   // ECHO, BYE
  std::uint64_t pushed_ = 0;
};

template <typename Queue>
auto& FrameQueue::next_of(Queue& queue) {
  ISTHMUS_CHECK(!queue.empty());
  if (!queue.last_.empty() && !queue.waits_before(queue.last_.front().number)) return queue.last_;
  return queue.words_.empty() ? queue.values_.begin()->second : queue.words_;
}

inline const FrameBytes& FrameQueue::front() const { return next_of(*this).front().frame; }

}  // namespace isthmus
