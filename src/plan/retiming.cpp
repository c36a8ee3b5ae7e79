// SPDX-License-Identifier: Apache-2.0
#include "plan/retiming.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <numeric>
#include <queue>

#include "core/base/check.h"
#include "plan/replayed_member.h"
#include "sim/link_queue.h"

namespace isthmus {
namespace plan {
namespace {

using ActKind = ProgramAct::Kind;

struct Event {
  TimePoint time;
  std::uint64_t number = 0;  // of events at one time the one made first comes first, as in SimWorld
  std::size_t member = 0;    // whose worker goes on, or who receives `frame`
  std::optional<ReplayedFrame> frame;

  [[nodiscard]] bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

/// Clocks go to 292 years; what ends by here can still send a frame that takes the next.
constexpr TimePoint kFarthest{std::chrono::hours(24) * 365 * 140};
constexpr double kLongestFrameSeconds = 100.0 * 365 * 24 * 3600;
constexpr double kMostBits = 4e18;  // that a link counts

/// Where a worker stands in its program.
struct Worker {
  std::size_t step = 0;  // 0-based
  std::size_t act = 0;
  TimePoint step_begin;
  std::optional<Duration> length;  // of the step; nothing: idle
  std::optional<int> awaits;       // a round
  TimePoint waits_since;
  std::uint64_t payload_bytes = 0;
  std::uint64_t wire_bytes = 0;

  [[nodiscard]] Duration whole() const { return length.value_or(Duration{0}); }
};

Duration share_of(Duration whole, double share) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(whole.count()) * share));
}

class Replay {
 public:
  explicit Replay(const RetimingInput& input)
      : input_(input), count_(static_cast<std::size_t>(input.program.workers)), workers_(count_) {
    const bool free = input.links.empty();
    ISTHMUS_CHECK(free || input.links.size() == count_ * count_, input.links.size(), count_);
    for (std::size_t from = 0; from < count_; ++from) {
      members_.emplace_back(from, count_, input.program.shapes);
      for (std::size_t to = 0; to < count_; ++to) {
        const std::size_t place = from * count_ + to;
        const DirectedLink link = free || from == to ? DirectedLink{} : input.links[place];
        rates_.push_back(static_cast<double>(link.bits_per_s));
        links_.emplace_back(link, input.link, input.seed, static_cast<std::uint32_t>(place));
      }
    }
    sent_bits_.resize(links_.size());
    run_.steps.resize(input.program.steps.size());
    run_.computed.resize(count_);
  }

  RetimedRun run() {
    for (std::size_t w = 0; w < count_; ++w) {
      begin_step(w);
      ready_.push_back(w);
    }
    run_ready();
    while (!events_.empty() && !run_.too_long) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.frame) {
        receive(event.member, *event.frame);
      } else {
        ready_.push_back(event.member);
      }
      run_ready();
    }
    for (const Worker& worker : workers_) {
      if (run_.too_long) break;
      ISTHMUS_CHECK(worker.step == run_.steps.size(), worker.step);  // nobody waits for ever
    }
    return std::move(run_);
  }

 private:
  void run_ready() {
    while (!ready_.empty()) {
      const std::size_t w = ready_.front();
      ready_.pop_front();
      go_on(w);
    }
  }

  void begin_step(std::size_t w) {
    Worker& worker = workers_[w];
    if (worker.step == run_.steps.size()) return;
    worker.act = 0;
    worker.step_begin = now_;
    worker.length = input_.step_time(WorkerId(static_cast<int>(w)),
                                     StepIndex(static_cast<std::int64_t>(worker.step) + 1));
  }

  void go_on(std::size_t w) {
    Worker& worker = workers_[w];
    while (worker.step < run_.steps.size()) {
      const auto& body =
          input_.program.bodies[static_cast<std::size_t>(input_.program.steps[worker.step])];
      while (worker.act < body.size()) {
        if (!does(w, body[worker.act])) return;
      }
      end_step(w);
    }
  }

  /// RETURNS: false when the worker stops here for now; `act` is then where it goes on.
  bool does(std::size_t w, const ProgramAct& act) {
    Worker& worker = workers_[w];
    switch (act.kind) {
      case ActKind::kStep:
        ++worker.act;
        if (!worker.length) return true;
        run_.computed[w] += *worker.length;
        wake_at(w, worker.step_begin + *worker.length);
        return false;
      case ActKind::kCompute:
        ++worker.act;
        if (act.share > 0) run_.computed[w] += worker.whole();  // its rest goes on in sleeps
        wake_at(w, std::max(now_, worker.step_begin + share_of(worker.whole(), act.share)));
        return false;
      case ActKind::kSleep: {
        ++worker.act;
        const TimePoint until = worker.step_begin + share_of(worker.whole(), act.share);
        until > now_ ? wake_at(w, until) : ready_.push_back(w);
        return false;
      }
      case ActKind::kBegin:
        ++worker.act;
        members_[w].begin(act.which, outbox_);
        send_all(w);
        return true;
      case ActKind::kWait:
        return await(w, members_[w].begun() - 1 - act.which);
    }
    return true;
  }

  bool await(std::size_t w, int round) {
    Worker& worker = workers_[w];
    if (!members_[w].closed(round)) {
      if (!worker.awaits) worker.waits_since = now_;
      worker.awaits = round;
      return false;
    }
    if (worker.awaits) {
      run_.longest_wait = std::max(run_.longest_wait, now_ - worker.waits_since);
      worker.awaits.reset();
    }
    members_[w].taken(round);
    ++worker.act;
    return true;
  }

  void end_step(std::size_t w) {
    Worker& worker = workers_[w];
    RetimedStep& step = run_.steps[worker.step];
    step.end = std::max(step.end, now_);
    step.payload_bytes = std::max(step.payload_bytes, worker.payload_bytes);
    step.wire_bytes = std::max(step.wire_bytes, worker.wire_bytes);
    ++worker.step;
    begin_step(w);
    if (worker.step == run_.steps.size()) {
      members_[w].leave(outbox_);
      send_all(w);
    }
  }

  void receive(std::size_t member, const ReplayedFrame& frame) {
    members_[member].receive(frame, outbox_);
    // The worker is woken before the frames leave, and runs after that.
    const std::optional<int>& awaits = workers_[member].awaits;
    if (awaits && members_[member].closed(*awaits)) ready_.push_back(member);
    send_all(member);
  }

  void wake_at(std::size_t w, TimePoint time) { events_.push({time, number_++, w, std::nullopt}); }

  void send_all(std::size_t from) {
    for (const ReplayedFrame& frame : outbox_) {
      workers_[from].payload_bytes += frame.payload;
      workers_[from].wire_bytes += frame.bytes;
      const std::size_t link = from * count_ + frame.to;
      const double bits = static_cast<double>(frame.bytes) * input_.link.byte_scale * 8;
      sent_bits_[link] += bits;
      run_.too_long = run_.too_long || sent_bits_[link] > kMostBits ||
                      (rates_[link] > 0 && bits / rates_[link] > kLongestFrameSeconds);
      if (run_.too_long) break;
      const Passage passage = links_[link].send(now_, frame.bytes);
      run_.too_long = passage.departure > kFarthest;
      events_.push({passage.arrival, number_++, frame.to, frame});
    }
    outbox_.clear();
  }

  const RetimingInput& input_;
  std::size_t count_;
  std::vector<Worker> workers_;
  std::vector<ReplayedMember> members_;
  std::vector<LinkQueue> links_;  // [from][to]
  std::vector<double> rates_;     // of theirs, bits/s
  std::vector<double> sent_bits_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::deque<std::size_t> ready_;  // workers that go on before any further event
  std::vector<ReplayedFrame> outbox_;
  TimePoint now_{};
  std::uint64_t number_ = 0;
  RetimedRun run_;
};

}  // namespace
}  // namespace plan

double RetimedRun::utilisation() const {
  const auto whole = static_cast<double>(end().time_since_epoch().count());
  const double sum = std::accumulate(
      computed.begin(), computed.end(), 0.0,
      [](double total, Duration each) { return total + static_cast<double>(each.count()); });
  return whole > 0 ? sum / whole / static_cast<double>(computed.size()) : 1;
}

RetimedRun retime(const RetimingInput& input) { return plan::Replay(input).run(); }

std::optional<std::string> differs_from_run(const RetimedRun& again, double byte_scale,
                                            const std::vector<RecordedEvaluation>& evaluations,
                                            double tolerance) {
  const auto scaled = [&](std::uint64_t bytes) {
    return std::round(static_cast<double>(bytes) * byte_scale);
  };
  const auto alike = [&](double one, double other) {
    return one == other || std::abs(one - other) <= tolerance * std::abs(other);
  };
  for (const RecordedEvaluation& run : evaluations) {
    if (run.step < 1 || run.step > static_cast<std::int64_t>(again.steps.size())) {
      return fmt::format("it was evaluated after step {}, which is none of its steps", run.step);
    }
    const RetimedStep& step = again.steps[static_cast<std::size_t>(run.step) - 1];
    const double clock_s = in_seconds(step.end.time_since_epoch());
    if (!alike(clock_s, run.clock_s)) {
      return fmt::format(
          "re-timed at its own links, step {} ends at {:.9f} s where the run had "
          "{:.9f} s",
          run.step, clock_s, run.clock_s);
    }
    if (scaled(step.payload_bytes) != run.payload_bytes ||
        !alike(scaled(step.wire_bytes), run.wire_bytes)) {
      return fmt::format("by step {} it had sent {:.0f} bytes where its configuration gives {:.0f}",
                         run.step, run.wire_bytes, scaled(step.wire_bytes));
    }
  }
  return std::nullopt;
}

}  // namespace isthmus
