// SPDX-License-Identifier: Apache-2.0
// A world as a member sees it whose clock is ahead of the others', and goes faster or slower.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "isthmus/runtime.h"
#include "transport/wire/transport.h"

namespace isthmus::testing_support {

class SkewedRuntime final : public Runtime {
 public:
  /// `ppm`: millionths of a second that the clock gains in each; above -1,000,000.
  SkewedRuntime(Runtime& world, Duration ahead, std::int64_t ppm = 0)
      : world_(world), clock_(world.clock(), ahead, ppm) {}

  [[nodiscard]] const Clock& clock() const override { return clock_; }
  void sleep_until(TimePoint time) override { world_.sleep_until(true_time(time)); }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override {
    return world_.spawn(std::move(name), std::move(body));
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return std::make_unique<Queue>(world_.make_wait_queue(), clock_);
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    world_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return true; }
  /// The first time of the world at which the clock shows `shown` or more.
  [[nodiscard]] TimePoint true_time(TimePoint shown) const { return clock_.true_time(shown); }

 private:
  static constexpr std::int64_t kMillion = 1'000'000;
  class SkewedClock final : public Clock {
   public:
    SkewedClock(const Clock& clock, Duration ahead, std::int64_t ppm)
        : clock_(clock), ahead_(ahead), ppm_(ppm) {}
    [[nodiscard]] TimePoint now() const override { return shown_at(clock_.now()); }
    [[nodiscard]] TimePoint true_time(TimePoint shown) const {
      if (shown == kNever) return kNever;
      const std::int64_t s = (shown - ahead_).time_since_epoch().count();
      const std::int64_t pace = kMillion + ppm_;
      TimePoint time(Duration(s / pace * kMillion + s % pace * kMillion / pace));
      while (shown_at(time) < shown) time += Duration(1);  // what was cut off: once or twice
      return time;
    }

   private:
    [[nodiscard]] TimePoint shown_at(TimePoint time) const {
      const std::int64_t t = time.time_since_epoch().count();
      return TimePoint(Duration(t + t / kMillion * ppm_ + t % kMillion * ppm_ / kMillion) + ahead_);
    }
    const Clock& clock_;
    const Duration ahead_;
    const std::int64_t ppm_;
  };
  class Queue final : public WaitQueue {
   public:
    Queue(std::unique_ptr<WaitQueue> queue, const SkewedClock& clock)
        : queue_(std::move(queue)), clock_(clock) {}
    void update(const std::function<void()>& change) override { queue_->update(change); }
    bool wait(const std::function<bool()>& ready, TimePoint deadline) override {
      return queue_->wait(ready, clock_.true_time(deadline));
    }

   private:
    std::unique_ptr<WaitQueue> queue_;
    const SkewedClock& clock_;
  };
  Runtime& world_;
  SkewedClock clock_;
};

/// An endpoint whose deadlines are of such a clock.
class SkewedTransport final : public Transport {
 public:
  SkewedTransport(Transport& below, const SkewedRuntime& runtime)
      : below_(below), runtime_(runtime) {}
  [[nodiscard]] WorkerId self() const override { return below_.self(); }
  [[nodiscard]] int size() const override { return below_.size(); }
  void send(WorkerId to, FrameBytes frame) override { below_.send(to, std::move(frame)); }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    return below_.receive(runtime_.true_time(deadline));
  }
  [[nodiscard]] std::size_t most_unused(WorkerId peer) const override {
    return below_.most_unused(peer);
  }
  void close() override { below_.close(); }

 private:
  Transport& below_;
  const SkewedRuntime& runtime_;
};

}  // namespace isthmus::testing_support
