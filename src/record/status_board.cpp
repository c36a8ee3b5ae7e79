// SPDX-License-Identifier: Apache-2.0
#include "record/status_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/base/units.h"
#include "record/run_directory.h"
#include "record/run_log.h"

namespace isthmus::app {
namespace {

// Seconds: tokens a second are those of this window, looked at that often.
constexpr double kSpeedWindow = 10;
constexpr double kSpeedEvery = 0.5;
constexpr double kBurst = 0.05;  // steps of several processes come in bursts

std::optional<LinkTrouble> trouble_of(LinkEvent::Kind kind) {
  switch (kind) {
    case LinkEvent::Kind::kDisconnected:
      return LinkTrouble::kDisconnected;
    case LinkEvent::Kind::kLost:
      return LinkTrouble::kLost;
    case LinkEvent::Kind::kLeft:
      return LinkTrouble::kLeft;
    case LinkEvent::Kind::kHandshakeFailed:
      return LinkTrouble::kHandshakeFailed;
    case LinkEvent::Kind::kRefused:
      return LinkTrouble::kRefused;
    case LinkEvent::Kind::kStranger:
      return LinkTrouble::kStranger;
    case LinkEvent::Kind::kConnected:
    case LinkEvent::Kind::kWelcomed:
    case LinkEvent::Kind::kRetried:
    case LinkEvent::Kind::kUnresolved:
    case LinkEvent::Kind::kAdapted:
    case LinkEvent::Kind::kRerouted:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

StatusBoard::StatusBoard(Options options) : options_(std::move(options)) {
  advance();
  state_.status.steps = options_.total_steps;
  state_.status.simulated = options_.simulated;
  state_.status.live = true;
  state_.status.workers = static_cast<int>(options_.sites.size());
  state_.status.members = state_.status.workers;
  state_.status.stalled_after_s = in_seconds(options_.stalled_after);
  const int peers = state_.status.workers + (options_.hub ? 1 : 0);
  for (int m = 0; m < peers; ++m) {
    if (m < state_.status.workers) state_.status.sites.push_back({.name = name(WorkerId(m))});
    if (options_.self && WorkerId(m) != *options_.self) {
      Peer peer;
      peer.status.name = name(WorkerId(m));
      peer.status.cause = "not here yet";
      for (std::size_t i = 0; i < kLinkTroubles; ++i) {
        peer.status.troubles[std::string(trouble_name(static_cast<LinkTrouble>(i)))] = 0;
      }
      state_.peers.emplace(m, std::move(peer));
    }
  }
}

const std::string& StatusBoard::name(WorkerId site) const {
  static const std::string kHub = "hub";
  if (options_.hub && site.value() == static_cast<int>(options_.sites.size())) return kHub;
  return options_.sites[static_cast<std::size_t>(site.value())];
}

void StatusBoard::waiting(const std::string& for_what) {
  const std::lock_guard lock(mutex_);
  state_.status.state = "waiting";
  state_.waiting_for = for_what;
}

void StatusBoard::stands_still(const std::string& why) {
  const std::lock_guard lock(mutex_);
  state_.status.state = why.empty() ? "running" : "waiting";
  state_.waiting_for = why;
  advance();
}

void StatusBoard::begin(const Manifest& manifest, const RunTotals& totals,
                        const std::string& directory) {
  const std::lock_guard lock(mutex_);
  state_.status.run_id = manifest.run_id;
  state_.status.name = manifest.name;
  state_.status.command = manifest.command;
  state_.status.method = manifest.method;
  state_.status.version = manifest.version;
  state_.status.device = manifest.device;
  state_.status.parameters = manifest.parameters;
  state_.status.directory = directory;
  state_.status.state = "running";
  state_.status.resumed_after = totals.steps;
  state_.status.elapsed_s = totals.wall_s;
  take(totals);
  advance();
  state_.begun = state_.advanced;
}

void StatusBoard::take(const RunTotals& totals) {
  state_.status.step = totals.steps;
  state_.status.tokens = totals.tokens;
  if (options_.simulated) state_.status.simulated_s = totals.clock_s;
  for (std::size_t m = 0; m < state_.status.sites.size(); ++m) {
    state_.status.sites[m].compute_s = totals.compute_s.at(m);
    state_.status.sites[m].payload_bytes = totals.payload_bytes.at(m);
    state_.status.sites[m].wire_bytes = totals.wire_bytes.at(m);
  }
}

void StatusBoard::step(const Step& step, const RunTotals& totals) {
  const std::lock_guard lock(mutex_);
  advance();
  take(totals);
  state_.status.loss = totals.train_loss;
  state_.status.learning_rate = step.learning_rate;
  state_.status.gradient_norm = step.gradient_norm;
  state_.status.fragments = fragments_;
  state_.loss.add(step.step, totals.train_loss);
  state_.speed.add(step.step, step.tokens_per_s);
  state_.step_speed = step.tokens_per_s;
  if (!state_.first_step) state_.first_step = {state_.advanced, step.step};
  const double now = state_.advanced;
  std::deque<Mark>& marks = state_.marks;
  const double since = marks.empty() ? kSpeedEvery : now - marks.back().first;
  if (since < kSpeedEvery && now - marks.back().last < kBurst) {
    marks.back().last = now;
    marks.back().tokens = totals.tokens;
  } else if (since >= kSpeedEvery) {
    marks.push_back({.first = now, .last = now, .tokens = totals.tokens});
    while (marks.size() > 2 && now - marks.front().last > kSpeedWindow) marks.pop_front();
  }
}

void StatusBoard::round(const RoundReport& round, std::uint64_t payload_bytes,
                        std::uint64_t wire_bytes) {
  const double waited = in_seconds(round.waited);
  const std::lock_guard lock(mutex_);
  FragmentStatus& fragment = fragments_[round.fragment.value()];
  ++fragment.rounds;
  fragment.last_step = round.applied.value();
  fragment.members = round.members;
  fragment.payload_bytes += payload_bytes;
  fragment.wire_bytes += wire_bytes;
  fragment.wait_s += waited;
  fragment.last_wait_s = waited;
  state_.wait.add(round.applied.value(), waited);
}

void StatusBoard::eval(const EvalRecord& eval) {
  const std::lock_guard lock(mutex_);
  advance();
  state_.status.eval_loss = eval.loss;
  state_.status.eval_step = eval.step;
  state_.eval.add(eval.step, eval.loss);
}

void StatusBoard::membership(WorkerId worker, bool joined) {
  const std::lock_guard lock(mutex_);
  if (joined) {
    state_.gone.erase(worker.value());
  } else {
    state_.gone.insert(worker.value());
  }
  state_.status.members = state_.status.workers - static_cast<int>(state_.gone.size());
}

void StatusBoard::checkpoint(std::int64_t step, std::uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  advance();
  ++state_.status.checkpoints;
  state_.status.checkpoint_step = step;
  state_.status.checkpoint_bytes = bytes;
  state_.status.checkpoint_s = seconds;
  state_.checkpoint_at = state_.advanced;
}

void StatusBoard::rank(const RankFinding& finding) {
  const std::lock_guard lock(mutex_);
  const std::string what(trouble_verb(finding.trouble));
  std::vector<SlowRank>& slow = state_.status.slow_ranks;
  std::erase_if(
      slow, [&](const SlowRank& each) { return each.rank == finding.rank && each.what == what; });
  if (!finding.over) slow.push_back({finding.rank, what, finding.factor, finding.since});
}

void StatusBoard::late(const LateStatus& late) {
  const std::lock_guard lock(mutex_);
  state_.status.late = late;
}

void StatusBoard::note_drop(const std::string& peer, LinkTrouble trouble, const std::string& text) {
  Drop drop;
  drop.at = options_.now();
  drop.drop.peer = peer;
  drop.drop.kind = trouble_name(trouble);
  drop.drop.cause = text;
  state_.drops.push_back(std::move(drop));
  if (state_.drops.size() > kMostDrops) state_.drops.pop_front();
}

void StatusBoard::link(WorkerId self, const LinkEvent& event) {
  const std::lock_guard lock(mutex_);
  if (event.kind == LinkEvent::Kind::kAdapted || event.kind == LinkEvent::Kind::kRerouted) {
    return;  // the link's state is as before, or is reported elsewhere
  }
  const std::optional<LinkTrouble> trouble = trouble_of(event.kind);
  const int peers = state_.status.workers + (options_.hub ? 1 : 0);
  const bool known = event.peer.value() >= 0 && event.peer.value() < peers;
  if (trouble) {
    const std::string who = !known          ? std::string()
                            : options_.self ? name(event.peer)
                                            : name(self) + " to " + name(event.peer);
    note_drop(who, *trouble, event.text);
  }
  const auto found = state_.peers.find(event.peer.value());
  if (found == state_.peers.end()) {
    state_.status.strangers += trouble && !known ? 1 : 0;
    return;
  }
  Peer& peer = found->second;
  const auto stream = static_cast<std::size_t>(std::max(event.stream, 0));
  if (peer.streams.size() <= stream) peer.streams.resize(stream + 1);
  if (event.kind == LinkEvent::Kind::kWelcomed) {
    peer.streams[stream] = true;
    peer.status.lost = false;
  } else if (event.kind == LinkEvent::Kind::kLost || event.kind == LinkEvent::Kind::kLeft) {
    peer.streams.assign(peer.streams.size(), false);
    peer.status.lost = peer.status.lost || event.kind == LinkEvent::Kind::kLost;
  } else if (event.kind != LinkEvent::Kind::kConnected) {
    peer.streams[stream] = false;
  }
  peer.status.connected =
      std::ranges::any_of(peer.streams, [](bool stands) { return stands; }) && !peer.status.lost;
  if (peer.status.connected) {
    peer.status.cause.clear();
  } else if (event.kind != LinkEvent::Kind::kConnected) {
    peer.status.cause = event.text;
  }
  if (trouble) ++peer.status.troubles[std::string(trouble_name(*trouble))];
}

void StatusBoard::reading(WorkerId peer, const LinkReading& reading) {
  const std::lock_guard lock(mutex_);
  const auto found = state_.peers.find(peer.value());
  if (found == state_.peers.end()) return;
  LinkHealth& health = found->second.status.tcp.emplace();
  health.connections = reading.connections;
  if (reading.rtt) health.rtt_s = in_seconds(*reading.rtt);
  health.segments = reading.segments;
  health.resent_segments = reading.retransmits;
  health.goodput_bits_per_s = reading.goodput_bits_per_s;
  health.around = reading.around;
}

void StatusBoard::sent(WorkerId to, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto peer = state_.peers.find(to.value()); peer != state_.peers.end()) {
    peer->second.status.sent_bytes += bytes;
  }
}

void StatusBoard::received(WorkerId from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto peer = state_.peers.find(from.value()); peer != state_.peers.end()) {
    peer->second.status.received_bytes += bytes;
    peer->second.heard = options_.now();
    if (!options_.links_tell) {
      peer->second.status.connected = true;
      peer->second.status.cause.clear();
    }
  }
}

void StatusBoard::gone(WorkerId peer, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = state_.peers.find(peer.value());
  if (options_.links_tell || found == state_.peers.end()) {
    return;
  }
  found->second.status.connected = false;
  found->second.status.cause = why;
}

std::optional<double> StatusBoard::speed(const State& state, double now) {
  if (state.marks.empty()) {
    return std::nullopt;
  }
  // Up to the last step, since the next one takes its time; but the rate of a run that stands still
  // falls.
  const Mark& front = state.marks.front();
  const double spacing = (state.advanced - front.last) / static_cast<double>(state.marks.size());
  const double end = now - state.advanced > 1 + 3 * spacing ? now : state.advanced;
  return end - front.last < 2 * kSpeedEvery
             ? state.step_speed
             : static_cast<double>(state.status.tokens - front.tokens) / (end - front.last);
}

RunStatus StatusBoard::snapshot() const {
  std::unique_lock lock(mutex_);
  const double now = options_.now();
  const State state = state_;
  lock.unlock();
  RunStatus status = state.status;
  status.advanced_s = now - state.advanced;
  if (status.state == "running") status.elapsed_s += now - state.begun;
  status.checkpoint_ago_s = status.checkpoints > 0 ? now - state.checkpoint_at : 0;
  status.tokens_per_s = speed(state, now);
  if (state.first_step && status.step > state.first_step->second) {
    const double each = (state.advanced - state.first_step->first) /
                        static_cast<double>(status.step - state.first_step->second);
    status.eta_s = each * static_cast<double>(status.steps - status.step);
  }
  for (const auto& [rank, peer] : state.peers) {
    status.peers.push_back(peer.status);
    status.peers.back().heard_s = peer.heard < 0 ? -1 : now - peer.heard;
  }
  for (const Drop& each : state.drops) {
    status.drops.push_back(each.drop);
    status.drops.back().ago_s = now - each.at;
  }
  status.loss_curve = state.loss.points();
  status.eval_curve = state.eval.points();
  status.speed_curve = state.speed.points();
  status.wait_curve = state.wait.points();
  judge(state, status);
  return status;
}

void StatusBoard::judge(const State& state, RunStatus& status) {
  for (const auto& [rank, known] : state.peers) {
    const PeerStatus& peer = known.status;
    if (peer.lost && !state.gone.contains(rank)) {
      status.healthy = false;
      status.word = fmt::format("site {} is lost: {}", peer.name, peer.cause);
      return;
    }
  }
  // How long to wait for the other sites is net.gather's affair.
  status.healthy = status.state == "waiting" || status.advanced_s <= status.stalled_after_s;
  const std::string where =
      status.state == "running"
          ? fmt::format("step {} of {}", with_commas(status.step), with_commas(status.steps))
      : state.waiting_for.empty()
          ? std::string("starting")
          : fmt::format("waiting for the other sites: {}", state.waiting_for);
  if (!status.healthy) {
    status.word =
        fmt::format("nothing has gone on for {}, {} allowed (log.stalled_after): {}",
                    human_time(status.advanced_s), human_time(status.stalled_after_s), where);
    return;
  }
  status.word = where;
  if (status.members < status.workers) {
    status.word += fmt::format(", {} of {} sites", status.members, status.workers);
  }
  if (status.loss) status.word += fmt::format(", loss {:.4f}", *status.loss);
}

}  // namespace isthmus::app
