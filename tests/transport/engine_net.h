// SPDX-License-Identifier: Apache-2.0
// Engines joined by a seeded event queue that drops, repeats, delays, reorders and damages frames;
// members can be killed and come back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "transport/exchange/exchange_engine.h"

namespace isthmus::testing_support {

using namespace std::chrono_literals;

struct Faults {
  double drop = 0;
  double repeat = 0;
  double damage = 0;
  Duration delay = 1ms;
  Duration jitter = 0ms;        // more than `delay` apart: frames overtake one another
  Duration per_kilobyte = 0ms;  // a link carries one frame at a time and takes this long for it
};

class EngineNet {
 public:
  EngineNet(int members, std::uint64_t seed, const Faults& faults, bool elastic = false,
            int min_members = 1, Duration retry_interval = 100ms, bool hub = false,
            std::vector<std::uint32_t> groups = {}, std::vector<std::uint32_t> shares = {},
            std::optional<RoundDeadline> deadline = {}, bool takes_back = false,
            std::size_t most_unused = kNoBound)
      : rng_(seed, Stream::kTestData),
        faults_(faults),
        retry_interval_(retry_interval),
        elastic_(elastic),
        min_members_(min_members),
        hub_(hub ? members : -1),
        groups_(std::move(groups)),
        shares_(std::move(shares)),
        deadline_(std::move(deadline)),
        takes_back_(takes_back),
        most_unused_(most_unused) {
    for (int m = 0; m < members + (hub ? 1 : 0); ++m) {
      engines_.push_back(std::make_unique<ExchangeEngine>(options(WorkerId(m), members)));
    }
    lives_.resize(engines_.size());
  }

  [[nodiscard]] ExchangeEngine& engine(int m) { return *engines_[static_cast<std::size_t>(m)]; }
  [[nodiscard]] int members() const { return static_cast<int>(engines_.size()); }
  [[nodiscard]] TimePoint now() const { return now_; }
  /// Whether anything is under way.
  [[nodiscard]] bool busy() const { return !events_.empty(); }
  /// When something happens next, as far as is known.
  [[nodiscard]] TimePoint next() {
    TimePoint next = events_.empty() ? kNever : events_.begin()->first.first;
    for (int m = 0; m < members(); ++m) {
      if (!dead(m)) next = std::min(next, engine(m).next_tick());
    }
    return next;
  }

  void begin(int m, Contribution contribution) {
    Outbox out;
    const bool commit = contribution.commit;
    const SharedContribution shared = share(std::move(contribution));
    std::optional<SharedContribution> retained;
    if (elastic_) retained = shared;
    Round round(shared, engine(m).rounds().place(shared.form.id));
    engine(m).begin(std::move(round), commit, std::move(retained), now_, out);
    transmit(m, out);
  }
  /// Delivers the next frame or ticks whose time has come. False when nothing can happen any more.
  bool advance() {
    const TimePoint next = this->next();
    if (next == kNever) {
      return false;
    }
    now_ = std::max(now_, next);
    if (!events_.empty() && events_.begin()->first.first <= now_) {
      const Event event = events_.begin()->second;
      events_.erase(events_.begin());
      if (event.bytes == nullptr) {
        if (event.from_life == life(event.from) && event.to_life == life(event.to)) {
          if (event.from == hub_ && !dead(hub_)) {
            meet_hub(event.to);
          } else if (dead(event.from)) {
            notice(event.to, event.from, event.to_life);
          } else {
            meet(event.to, event.from);
          }
        }
      } else if (event.to_life == life(event.to) && event.from_life == life(event.from) &&
                 !dead(event.to)) {
        deliver(event.from, event.to, event.bytes);
      }
    }
    for (int m = 0; m < members(); ++m) {
      if (dead(m)) continue;
      Outbox out;
      engine(m).tick(now_, out);
      transmit(m, out);
    }
    return true;
  }
  void deliver(int from, int to, const FrameBytes& frame) {
    Outbox out;
    engine(to).receive(WorkerId(from), frame, now_, out);
    transmit(to, out);
  }
  /// `member` sees `gone` as lost, whatever is true.
  void lose(int member, int gone) { notice(member, gone, life(member)); }
  /// `from` gives `to` up, as it gets no values to it or for another `cause`; which `to` is told,
  /// and has lost `from` by that, before anybody hears of either.
  void give_up(int from, int to, LossCause cause = LossCause::kStalled) {
    for (const auto& [member, other, why] :
         {std::tuple(to, from, LossCause::kGivenUp), std::tuple(from, to, cause)}) {
      if (dead(member) || dead(other)) continue;
      away_.insert({member, other});
      Outbox out;
      engine(member).lose(WorkerId(other), "it gave up", now_, out, why);
      transmit(member, out);
    }
  }
  /// From now on frames of that link take so much longer.
  void slow(int from, int to, Duration extra) { slower_[{from, to}] = extra; }
  /// Everybody else notices within `notice_within`, each at a time of its own.
  void kill(int member, Duration notice_within = 0ms) {
    ++lives_[static_cast<std::size_t>(member)];
    std::erase_if(away_, [&](const auto& pair) { return pair.second == member; });
    for (int m = 0; m < members(); ++m) {
      if (m == member || dead(m)) continue;
      if (notice_within == 0ms) {
        notice(m, member, life(m));
      } else {
        events_[{now_ + part_of(notice_within), sequence_++}] = {member, m, nullptr, life(member),
                                                                 life(m)};
      }
    }
  }
  [[nodiscard]] bool dead(int member) const { return life(member) % 2 == 1; }
  /// A new process of a member that all have lost: to be admitted.
  void revive(int member) {
    ++lives_[static_cast<std::size_t>(member)];
    engines_[static_cast<std::size_t>(member)] =
        std::make_unique<ExchangeEngine>(options(WorkerId(member), members() - (hub_ < 0 ? 0 : 1)));
    engine(member).stand_aside();
    for (int m = 0; m < members(); ++m) {
      if (m == member || dead(m)) continue;
      if (m == std::max(0, hub_)) {
        meet(m, member);
      } else {  // what it sends before is dropped
        away_.insert({m, member});
        events_[{now_ + part_of(60ms), sequence_++}] = {member, m, nullptr, life(member), life(m)};
      }
    }
  }
  void admit(int member, std::int64_t after) {
    const int coordinator = std::max(0, hub_);
    Outbox out;
    EXPECT_TRUE(engine(coordinator).admit(WorkerId(member), after, now_, out));
    transmit(coordinator, out);
  }
  [[nodiscard]] int hub() const { return hub_; }
  /// The hub dies when it has written down so many decisions, before anybody hears of the last.
  void kill_hub_at_record(std::size_t count) { hub_dies_at_ = count; }
  /// What the hub's processes have decided.
  [[nodiscard]] const std::vector<HubRecord>& hub_log() const { return hub_log_; }
  /// Its next process, which knows what the last one had written down.
  void revive_hub() {
    ++lives_[static_cast<std::size_t>(hub_)];
    engines_[static_cast<std::size_t>(hub_)] =
        std::make_unique<ExchangeEngine>(options(WorkerId(hub_), members() - 1));
    engine(hub_).hub().restore(hub_log_);
    for (int m = 0; m < hub_; ++m) {
      if (dead(m)) {
        notice(hub_, m, life(hub_));
      } else {
        away_.insert({m, hub_});
        events_[{now_ + part_of(60ms), sequence_++}] = {hub_, m, nullptr, life(hub_), life(m)};
      }
    }
  }
  void release(int member, std::int64_t after) {
    Outbox out;
    EXPECT_TRUE(engine(0).release(WorkerId(member), after, now_, out));
    transmit(0, out);
  }
  /// It says goodbye.
  void leave(int member) {
    Outbox out;
    engine(member).leave(out);
    transmit(member, out);
  }
  /// How often each distinct data frame was sent over each link.
  [[nodiscard]] int most_repeated_data_frame() const {
    int most = 0;
    for (const auto& [key, count] : sent_) {
      most = std::max(most, count);
    }
    return most;
  }
  double uniform() { return rng_.uniform(draws_++); }
  /// Whether rounds sent after that step may be begun in a member's name.
  std::function<bool(int member, StepIndex sent)> may_proxy = {};
  /// What a member sends instead of what its engine would.
  std::function<FrameBytes(int from, const FrameBytes& frame)> forge = {};
  void leave_behind(int member, const SyncId& id, bool groups = false) {
    Outbox out;
    engine(member).leave_behind(id, groups, now_, out);
    transmit(member, out);
  }

 private:
  static constexpr std::size_t kTile = kTileValues * sizeof(float);  // so that rounds have parts
  struct Event {
    int from, to;
    FrameBytes bytes;  // null: `to` notices that `from` is gone
    int from_life = 0, to_life = 0;
  };

  [[nodiscard]] EngineOptions options(WorkerId self, int members) {
    return {.self = self,
            .members = members,
            .exchange = {.retry_interval = retry_interval_,
                         .shares = shares_,
                         .groups = groups_,
                         .chunk_bytes = most_unused_ == kNoBound ? kMaxPartBytes : kTile,
                         .elastic = elastic_,
                         .min_members = min_members_,
                         .takes_back = takes_back_ && self.value() != hub_,
                         .hub = hub_ >= 0,
                         .deadline = self.value() == hub_ ? std::nullopt : deadline_,
                         .may_proxy =
                             [this, self](StepIndex sent) {
                               return !may_proxy || may_proxy(self.value(), sent);
                             }},
            .most_unused = [this](WorkerId) { return most_unused_; }};
  }
  /// Even while it lives: how often it was killed or revived.
  [[nodiscard]] int life(int member) const { return lives_[static_cast<std::size_t>(member)]; }
  void notice(int member, int gone, int member_life) {
    if (life(member) != member_life || dead(member)) return;
    Outbox out;
    engine(member).lose(WorkerId(gone), "killed", now_, out);
    if (member == hub_) engine(member).exclude(WorkerId(gone), "killed", now_, out);
    transmit(member, out);
  }
  void meet_hub(int member) {
    away_.erase({member, hub_});
    Outbox of_hub;
    engine(hub_).welcome_back(WorkerId(member), now_, of_hub);
    engine(hub_).hub().stands(WorkerId(member), now_, of_hub);
    transmit(hub_, of_hub);
    Outbox of_member;
    engine(member).welcome_back(WorkerId(hub_), now_, of_member);
    engine(member).hub().tell_again(now_, of_member);
    transmit(member, of_member);
  }
  void meet(int member, int newcomer) {
    away_.erase({member, newcomer});
    Outbox out;
    engine(member).welcome_back(WorkerId(newcomer), now_, out);
    transmit(member, out);
  }
  Duration part_of(Duration whole) {
    return Duration(static_cast<Duration::rep>(uniform() * static_cast<double>(whole.count())));
  }

  void transmit(int from, const Outbox& out) {
    if (from == hub_) {
      for (HubRecord& record : engine(hub_).hub().take_records())
        hub_log_.push_back(std::move(record));
      if (hub_dies_at_ && hub_log_.size() >= *hub_dies_at_) {
        hub_dies_at_.reset();
        kill(hub_, 200ms);
        return;
      }
    }
    for (const Outgoing& frame : out) {
      const FrameHeader head = parse_frame(*frame.frame)->header;
      if (head.kind == FrameKind::kContribution || head.kind == FrameKind::kResult ||
          head.kind == FrameKind::kPartial) {
        ++sent_[{from, frame.to.value(), head.id, head.part, static_cast<int>(head.kind)}];
      }
      const int copies = uniform() < faults_.repeat ? 2 : 1;
      for (int copy = 0; copy < copies; ++copy) {
        if (uniform() >= faults_.drop && !away_.contains({from, frame.to.value()})) {
          post(from, frame);
        }
      }
    }
  }
  void post(int from, const Outgoing& frame) {
    FrameBytes bytes = forge ? forge(from, frame.frame) : frame.frame;
    if (uniform() < faults_.damage) {
      std::vector<std::byte> damaged((*bytes).begin(), (*bytes).end());
      damaged[static_cast<std::size_t>(uniform() * static_cast<double>(damaged.size()))] ^=
          std::byte{16};
      bytes = std::make_shared<const std::vector<std::byte>>(std::move(damaged));
    }
    TimePoint& free = link_free_[{from, frame.to.value()}];
    free = std::max(free, now_) + static_cast<int>(bytes->size()) * faults_.per_kilobyte / 1024;
    const TimePoint arrival =
        free + faults_.delay + slower_[{from, frame.to.value()}] + part_of(faults_.jitter);
    events_[{arrival, sequence_++}] = {from, frame.to.value(), bytes, life(from),
                                       life(frame.to.value())};
  }

  Rng rng_;
  Faults faults_;
  Duration retry_interval_;
  std::set<std::pair<int, int>> away_;  // (who, newcomer): who has not been told of it yet
  std::uint64_t draws_ = 0;
  std::uint64_t sequence_ = 0;
  TimePoint now_{};
  std::vector<std::unique_ptr<ExchangeEngine>> engines_;
  std::map<std::pair<TimePoint, std::uint64_t>, Event> events_;
  std::map<std::pair<int, int>, TimePoint> link_free_;
  std::map<std::pair<int, int>, Duration> slower_;
  std::map<std::tuple<int, int, SyncId, std::uint32_t, int>, int> sent_;
  std::vector<int> lives_;  // by member
  bool elastic_;
  int min_members_;
  int hub_;  // -1: none
  std::vector<std::uint32_t> groups_;
  std::vector<std::uint32_t> shares_;
  std::optional<RoundDeadline> deadline_;
  bool takes_back_;
  std::size_t most_unused_;         // Transport::most_unused of all
  std::vector<HubRecord> hub_log_;  // what outlives its processes
  std::optional<std::size_t> hub_dies_at_;
};

}  // namespace isthmus::testing_support
