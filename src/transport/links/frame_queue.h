// SPDX-License-Identifier: Apache-2.0
// Frames that wait for one link, in the order in which they go: first what the protocol says and
// the notes of the program above, in the order in which they came; then the rounds' values, those
// of the round sent first before those of later ones, whose apply steps are later too, results or
// contributions alike. ECHO and BYE stand for "all that I have sent you", so they go after
// everything that came before them. Nobody starves: a round's values wait for those of earlier
// rounds, of which there are finitely many, and for words, which are short but for what is handed
// to a joiner, who has no part in rounds yet. One task.
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
  /// Bytes that are no frame (transport/wire/frame.h) go with what the protocol says.
  void push(FrameBytes frame);
  [[nodiscard]] bool empty() const { return words_.empty() && values_.empty() && last_.empty(); }
  /// What goes next. REQUIRES: !empty().
  [[nodiscard]] const FrameBytes& front() const;
  /// ... and does so. REQUIRES: !empty().
  [[nodiscard]] FrameBytes pop();
  void clear();

 private:
  struct Waiting {
    std::uint64_t number = 0;  // in the order in which they came
    FrameBytes frame;
  };
  using Line = std::deque<Waiting>;
  /// The line whose turn it is.
  template <typename Queue>
  [[nodiscard]] static auto& next_of(Queue& queue);
  [[nodiscard]] bool waits_before(std::uint64_t number) const;

  Line words_;
  std::map<std::int64_t, Line>
      values_;  // by the step after which their round was sent; no empty one
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
