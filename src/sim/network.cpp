// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "sim/link_queue.h"
#include "transport/wire/mailbox.h"

namespace isthmus {
namespace {

/// Kinds of actions in the world's trace.
enum ActionKind : std::uint64_t {
  kFrameArrives = 1,
  kNewsArrives = 2,
  kRankCrashes = 3,
  kPartitionBegins = 4,
  kPartitionShows = 5,
  kProcessesMeet = 6,
};

std::uint64_t trace_word(ActionKind kind, std::uint32_t link, std::size_t bytes) {
  return static_cast<std::uint64_t>(kind) << 60 | static_cast<std::uint64_t>(link) << 36 | bytes;
}

FrameBytes with_flipped_bit(const FrameBytes& frame, std::uint64_t word) {
  if (frame->empty()) return frame;
  auto copy = std::make_shared<std::vector<std::byte>>((*frame).begin(), (*frame).end());
  const std::uint64_t bit = word % (copy->size() * 8);
  (*copy)[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  return copy;
}

}  // namespace

// One thread at a time runs in a world, so nothing here is locked.
class SimNetwork::State : public std::enable_shared_from_this<SimNetwork::State> {
 public:
  State(SimWorld& world, int members, const std::vector<DirectedLink>& links,
        NetworkOptions options)
      : world_(world),
        members_(members),
        options_(std::move(options)),
        rng_(world.seed(), Stream::kSim),
        processes_(static_cast<std::size_t>(members)),
        met_(links.size(), true),
        coming_(links.size()),
        frames_sent_(links.size(), 0),
        traffic_(static_cast<std::size_t>(members),
                 std::vector<std::uint64_t>(static_cast<std::size_t>(members), 0)) {
    for (int from = 0; from < members; ++from) {
      processes_[static_cast<std::size_t>(from)].group = from;
      add_box(WorkerId(from));
      for (int to = 0; to < members; ++to) {
        const std::uint32_t number = link_number(WorkerId(from), WorkerId(to));
        const DirectedLink link = from == to ? DirectedLink{} : links[number];
        check_link(link, fmt::format("link {} -> {}", from, to));
        links_.push_back(std::make_unique<LinkQueue>(link, options_.link, world.seed(), number));
        const auto profile = options_.profiles.find({from, to});
        if (profile != options_.profiles.end()) links_.back()->set_profile(profile->second);
      }
    }
  }

  void schedule_faults() {
    for (const FaultPlan::Crash& crash : options_.faults.crashes) {
      world_.at(crash.time, trace_word(kRankCrashes, 0, index(crash.rank)),
                [self = shared_from_this(), rank = crash.rank] { self->crash(rank); });
    }
    for (const FaultPlan::Partition& cut : options_.faults.partitions) {
      if (cut.end - cut.begin <= options_.faults.dead_after) continue;
      world_.at(cut.begin, trace_word(kPartitionBegins, link_number(cut.a, cut.b), 0),
                [self = shared_from_this(), a = cut.a, b = cut.b] { self->part(a, b); });
    }
  }

  [[nodiscard]] int members() const { return members_; }
  [[nodiscard]] Mailbox& box(WorkerId rank) { return *process(rank).boxes.back(); }
  /// Grows with every restart.
  [[nodiscard]] std::size_t life(WorkerId rank) const {
    return processes_[index(rank)].boxes.size();
  }
  [[nodiscard]] const std::vector<std::vector<std::uint64_t>>& traffic() const { return traffic_; }
  [[nodiscard]] const FaultCounts& counts() const { return counts_; }

  void send(WorkerId from, WorkerId to, const FrameBytes& frame) {
    ISTHMUS_CHECK(from != to, to.value());
    if (process(from).gone) return;
    const std::uint32_t number = link_number(from, to);
    LinkQueue& link = *links_.at(number);
    const TimePoint now = world_.clock().now();
    Passage passage = link.send(now, frame->size());
    const std::uint64_t bytes = link.modelled_bytes(frame->size());
    traffic_[index(from)][index(to)] += bytes;
    record(EventKind::kSend, from, to, passage.begin, passage.departure, bytes, frame);

    const FrameFate fate =
        decide_fate(options_.faults, rng_, number, frames_sent_[number]++, from, to, now);
    if (fate.drop) {
      ++counts_.dropped;
      return;
    }
    if (!met_[number]) return;
    if (fate.hold_up > Duration::zero()) {
      ++counts_.delayed;
      passage.arrival += fate.hold_up;
      link.delay_arrivals_to(passage.arrival);
    }
    if (fate.fall_behind > Duration::zero()) ++counts_.reordered;
    if (fate.corrupt) ++counts_.corrupted;
    const FrameBytes arriving = fate.corrupt ? with_flipped_bit(frame, fate.chosen_bit) : frame;
    passage.arrival += fate.fall_behind;
    deliver(from, to, arriving, passage);
    if (fate.repeat_after > Duration::zero()) {
      ++counts_.duplicated;
      passage.arrival += fate.repeat_after;
      deliver(from, to, arriving, passage);
    }
  }

  void close(WorkerId rank) {
    box(rank).close();
    if (process(rank).gone) return;
    process(rank).gone = true;
    for (int peer = 0; peer < members_; ++peer) {
      if (WorkerId(peer) == rank) continue;
      // The news queues behind the frames sent before.
      const std::uint32_t number = link_number(rank, WorkerId(peer));
      tell_lost(rank, WorkerId(peer), links_.at(number)->send(world_.clock().now(), 0).arrival);
    }
  }

  void crash(WorkerId rank) {
    if (process(rank).gone) return;  // It has closed before.
    process(rank).gone = true;
    const TimePoint now = world_.clock().now();
    process(rank).crashed_at = now;
    box(rank).close();
    for (int peer = 0; peer < members_; ++peer) {
      if (WorkerId(peer) == rank) continue;
      const DirectedLink& link = links_.at(link_number(rank, WorkerId(peer)))->link();
      // Later than any frame that has left.
      tell_lost(rank, WorkerId(peer), now + link.one_way + link.jitter);
    }
    world_.stop_group(process(rank).group, std::make_exception_ptr(RankCrashed{rank}));
  }

  void restart(WorkerId rank, int group) {
    ISTHMUS_CHECK(process(rank).gone, rank.value());
    Process& next = process(rank);
    add_box(rank);
    next.gone = false;
    next.crashed_at = kNever;
    next.group = group;
    for (int m = 0; m < members_; ++m) {
      const WorkerId peer(m);
      if (peer == rank) continue;
      met_[link_number(rank, peer)] = met_[link_number(peer, rank)] = false;
      coming_[link_number(rank, peer)].clear();
      box(rank).expect(peer);
      if (!process(peer).gone) meet_later(rank, peer);
    }
  }

  /// Frames that `receive` has delivered to `self` count from then on.
  void took(WorkerId self, const Expected<ReceivedFrame, TransportError>& received) {
    if (received || received.error().kind != TransportError::Kind::kPeerBack) return;
    const WorkerId peer = received.error().peer;
    std::deque<std::size_t>& coming = coming_[link_number(self, peer)];
    ISTHMUS_CHECK(!coming.empty(), self.value(), peer.value());
    met_[link_number(self, peer)] = coming.front() == life(peer);
    coming.pop_front();
  }

 private:
  struct Process {
    std::vector<std::unique_ptr<Mailbox>> boxes;  // of all that have stood here; the last counts
    bool gone = false;                            // closed or crashed
    TimePoint crashed_at = kNever;
    int group = 0;  // of the world's tasks
  };
  [[nodiscard]] Process& process(WorkerId rank) { return processes_.at(index(rank)); }
  void add_box(WorkerId rank) {
    process(rank).boxes.push_back(std::make_unique<Mailbox>(world_, members_));
    world_.name_queue(box(rank).queue(), fmt::format("inbox of rank {}", rank.value()));
  }
  static std::size_t index(WorkerId rank) { return static_cast<std::size_t>(rank.value()); }
  [[nodiscard]] std::uint32_t link_number(WorkerId from, WorkerId to) const {
    return static_cast<std::uint32_t>(from.value() * members_ + to.value());
  }

  void record(EventKind kind, WorkerId worker, WorkerId peer, TimePoint begin, TimePoint end,
              std::uint64_t bytes, const FrameBytes& frame) {
    if (options_.events == nullptr) return;
    const FrameLabel label = options_.label ? options_.label(frame) : FrameLabel{};
    options_.events->record({.kind = kind,
                             .worker = worker,
                             .peer = peer,
                             .begin = begin,
                             .end = end,
                             .bytes = bytes,
                             .fragment = label.fragment,
                             .step = label.step});
  }

  void deliver(WorkerId from, WorkerId to, const FrameBytes& frame, const Passage& passage) {
    world_.at(passage.arrival, trace_word(kFrameArrives, link_number(from, to), frame->size()),
              [self = shared_from_this(), from, to, frame, passage, of_from = life(from),
               of_to = life(to)] {
                if (self->life(from) != of_from || self->life(to) != of_to) return;
                self->arrive(from, to, frame, passage);
              });
  }

  void arrive(WorkerId from, WorkerId to, const FrameBytes& frame, const Passage& passage) {
    // Bytes that a crashed rank had not sent have never left.
    if (passage.departure > process(from).crashed_at) return;
    const LinkQueue& link = *links_.at(link_number(from, to));
    record(EventKind::kReceive, to, from, passage.begin + link.link().one_way, passage.arrival,
           link.modelled_bytes(frame->size()), frame);
    box(to).deliver(from, frame);
  }

  void tell_lost(WorkerId rank, WorkerId peer, TimePoint time) {
    world_.at(time, trace_word(kNewsArrives, link_number(rank, peer), 0),
              [self = shared_from_this(), rank, peer, of_rank = life(rank), of_peer = life(peer)] {
                const bool same = self->life(rank) == of_rank && self->life(peer) == of_peer;
                if (same) self->box(peer).mark_lost(rank);
              });
  }

  /// A partition begins between two members that are connected: in time each counts the other as
  /// lost.
  void part(WorkerId a, WorkerId b) {
    if (process(a).gone || process(b).gone) return;
    world_.at(world_.clock().now() + options_.faults.dead_after,
              trace_word(kPartitionShows, link_number(a, b), 0),
              [self = shared_from_this(), a, b, of_a = life(a), of_b = life(b)] {
                if (self->life(a) != of_a || self->life(b) != of_b) return;
                if (!self->process(a).gone) self->box(a).mark_lost(b);
                if (!self->process(b).gone) self->box(b).mark_lost(a);
              });
  }

  void meet_later(WorkerId a, WorkerId b) {
    const Duration round_trip =
        links_[link_number(a, b)]->link().one_way + links_[link_number(b, a)]->link().one_way;
    TimePoint time = world_.clock().now() + round_trip;
    for (const FaultPlan::Partition& cut : options_.faults.partitions) {
      const bool between = (cut.a == a && cut.b == b) || (cut.a == b && cut.b == a);
      if (between && time >= cut.begin && time < cut.end) time = cut.end + round_trip;
    }
    world_.at(time, trace_word(kProcessesMeet, link_number(a, b), 0),
              [self = shared_from_this(), a, b, of_a = life(a), of_b = life(b)] {
                const bool same = self->life(a) == of_a && self->life(b) == of_b;
                if (!same || self->process(a).gone || self->process(b).gone) return;
                self->coming_[self->link_number(a, b)].push_back(of_b);
                self->box(a).mark_back(b);
                self->coming_[self->link_number(b, a)].push_back(of_a);
                self->box(b).mark_back(a);
              });
  }

  SimWorld& world_;
  const int members_;
  const NetworkOptions options_;
  const Rng rng_;
  std::vector<Process> processes_;
  // [from * members + to]:
  std::vector<bool> met_;                          // whether bytes from `from` reach `to`
  std::vector<std::deque<std::size_t>> coming_;    // lives of `to` in news that `from` has to take
  std::vector<std::unique_ptr<LinkQueue>> links_;  // [from * members + to]
  std::vector<std::uint64_t> frames_sent_;         // by link
  std::vector<std::vector<std::uint64_t>> traffic_;
  FaultCounts counts_;
};

namespace {

class SimTransport final : public Transport {
 public:
  SimTransport(WorkerId self, std::shared_ptr<SimNetwork::State> network)
      : self_(self),
        network_(std::move(network)),
        box_(network_->box(self)),
        life_(network_->life(self)) {}
  ~SimTransport() override { close_own(); }

  [[nodiscard]] WorkerId self() const override { return self_; }
  [[nodiscard]] int size() const override { return network_->members(); }
  void send(WorkerId to, FrameBytes frame) override {
    if (stands()) network_->send(self_, to, frame);
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    auto received = box_.receive(deadline);
    if (stands()) network_->took(self_, received);
    return received;
  }
  void close() override { close_own(); }

 private:
  /// No later process has its place.
  [[nodiscard]] bool stands() const { return network_->life(self_) == life_; }
  void close_own() {
    if (stands()) network_->close(self_);
  }

  WorkerId self_;
  std::shared_ptr<SimNetwork::State> network_;  // co-owned by the network and frames in flight
  Mailbox& box_;
  const std::size_t life_;
};

}  // namespace

SimNetwork::SimNetwork(SimWorld& world, int members, const std::vector<DirectedLink>& links,
                       NetworkOptions options) {
  ISTHMUS_CHECK(members >= 1, members);
  const auto count = static_cast<std::size_t>(members);
  ISTHMUS_CHECK(links.size() == count * count, links.size(), members);
  check_faults(options.faults, members);
  state_ = std::make_shared<State>(world, members, links, std::move(options));
  state_->schedule_faults();
}

SimNetwork::~SimNetwork() = default;

std::vector<std::unique_ptr<Transport>> SimNetwork::endpoints() {
  std::vector<std::unique_ptr<Transport>> endpoints;
  endpoints.reserve(static_cast<std::size_t>(state_->members()));
  for (int rank = 0; rank < state_->members(); ++rank) {
    endpoints.push_back(std::make_unique<SimTransport>(WorkerId(rank), state_));
  }
  return endpoints;
}

void SimNetwork::crash(WorkerId rank) { state_->crash(rank); }

std::unique_ptr<Transport> SimNetwork::restart(WorkerId rank, int group) {
  state_->restart(rank, group);
  return std::make_unique<SimTransport>(rank, state_);
}

const std::vector<std::vector<std::uint64_t>>& SimNetwork::traffic() const {
  return state_->traffic();
}
const FaultCounts& SimNetwork::fault_counts() const { return state_->counts(); }

std::vector<DirectedLink> uniform_links(int members, const DirectedLink& link) {
  return std::vector<DirectedLink>(
      static_cast<std::size_t>(members) * static_cast<std::size_t>(members), link);
}

}  // namespace isthmus
