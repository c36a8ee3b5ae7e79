// SPDX-License-Identifier: Apache-2.0
#include "sim/emulated_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "sim/link_queue.h"

namespace isthmus {
namespace {

constexpr Duration kLastWords = std::chrono::seconds(5);

class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(Runtime& runtime, std::unique_ptr<Transport> below,
                    const EmulationOptions& options)
      : runtime_(runtime),
        below_(std::move(below)),
        events_(options.events),
        queue_(runtime.make_wait_queue()),
        held_(static_cast<std::size_t>(below_->size())) {
    for (int to = 0; to < size(); ++to) {
      const DirectedLink link =
          WorkerId(to) == self() ? DirectedLink{} : options.links.at(static_cast<std::size_t>(to));
      check_link(link, fmt::format("link {} -> {}", self().value(), to));
      const auto number = static_cast<std::uint32_t>(self().value() * size() + to);
      links_.push_back(std::make_unique<LinkQueue>(link, options.link, options.seed, number));
    }
    task_ = runtime_.spawn(fmt::format("links of member {}", self().value()), [this] { serve(); });
  }
  ~EmulatedTransport() override {
    close();
    task_.reset();
  }

  [[nodiscard]] WorkerId self() const override { return below_->self(); }
  [[nodiscard]] int size() const override { return below_->size(); }

  void send(WorkerId to, FrameBytes frame) override {
    queue_->update([&] {
      if (end_) return;
      const auto place = static_cast<std::size_t>(to.value());
      const Passage passage = links_[place]->send(runtime_.clock().now(), frame->size());
      if (events_ != nullptr) {
        events_->record({.kind = EventKind::kSend,
                         .worker = self(),
                         .peer = to,
                         .begin = passage.begin,
                         .end = passage.departure,
                         .bytes = links_[place]->modelled_bytes(frame->size())});
      }
      held_[place].emplace_back(passage.arrival, std::move(frame));
    });
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    return below_->receive(deadline);
  }
  void close() override {
    queue_->update([&] {
      if (!end_) end_ = runtime_.clock().now() + kLastWords;
    });
  }

 private:
  void serve() {
    while (true) {
      std::vector<std::pair<WorkerId, FrameBytes>> due;
      TimePoint next = kNever;
      TimePoint last = kNever;
      bool over = false;
      queue_->update([&] {
        const TimePoint now = runtime_.clock().now();
        for (std::size_t to = 0; to < held_.size(); ++to) {
          for (; !held_[to].empty() && held_[to].front().first <= now; held_[to].pop_front()) {
            due.emplace_back(WorkerId(static_cast<int>(to)), std::move(held_[to].front().second));
          }
          if (!held_[to].empty()) next = std::min(next, held_[to].front().first);
        }
        last = end_.value_or(kNever);
        over = end_ && (next == kNever || now >= last);
      });
      for (auto& [to, frame] : due) {
        below_->send(to, std::move(frame));
      }
      if (over) {
        below_->close();
        return;
      }
      const bool closing = last != kNever;
      (void)queue_->wait([&] { return earliest() < next || (end_ && !closing); },
                         std::min(next, last));
    }
  }

  [[nodiscard]] TimePoint earliest() const {
    TimePoint first = kNever;
    for (const auto& frames : held_) {
      if (!frames.empty()) first = std::min(first, frames.front().first);
    }
    return first;
  }

  Runtime& runtime_;
  std::unique_ptr<Transport> below_;
  EventSink* events_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::vector<std::unique_ptr<LinkQueue>> links_;                   // by receiver
  std::vector<std::deque<std::pair<TimePoint, FrameBytes>>> held_;  // by receiver, by arrival
  std::optional<TimePoint> end_;                                    // closed; not later than this
  std::unique_ptr<Task> task_;
};

}  // namespace

std::unique_ptr<Transport> emulate_links(Runtime& runtime, std::unique_ptr<Transport> below,
                                         const EmulationOptions& options) {
  return std::make_unique<EmulatedTransport>(runtime, std::move(below), options);
}

}  // namespace isthmus
