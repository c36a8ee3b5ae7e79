// SPDX-License-Identifier: Apache-2.0
#include "app/status_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/run_directory.h"
#include "app/run_log.h"
#include "core/units.h"

namespace isthmus::app {
namespace {

// Seconds: tokens a second are those of this window, looked at that often.
constexpr double kSpeedWindow = 10;
constexpr double kSpeedEvery = 0.5;

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
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

StatusBoard::StatusBoard(Options options)
    : options_(std::move(options)), advanced_(options_.now()) {
  status_.steps = options_.total_steps;
  status_.simulated = options_.simulated;
  status_.live = true;
  status_.workers = static_cast<int>(options_.sites.size());
  status_.stalled_after_s = std::chrono::duration<double>(options_.stalled_after).count();
  for (int m = 0; m < status_.workers; ++m) {
    status_.sites.push_back({.name = name(Rank(m))});
    if (options_.self && Rank(m) != *options_.self) {
      Peer peer;
      peer.status.name = name(Rank(m));
      peer.status.cause = "not here yet";
      for (std::size_t i = 0; i < kLinkTroubles; ++i) {
        peer.status.troubles[std::string(trouble_name(static_cast<LinkTrouble>(i)))] = 0;
      }
      peers_.emplace(m, std::move(peer));
    }
  }
}

const std::string& StatusBoard::name(Rank site) const {
  return options_.sites[static_cast<std::size_t>(site.value())];
}

void StatusBoard::waiting(const std::string& for_what) {
  const std::lock_guard lock(mutex_);
  status_.state = "waiting";
  waiting_for_ = for_what;
}

void StatusBoard::begin(const Manifest& manifest, const RunTotals& totals,
                        const std::string& directory) {
  const std::lock_guard lock(mutex_);
  status_.run_id = manifest.run_id;
  status_.name = manifest.name;
  status_.command = manifest.command;
  status_.method = manifest.method;
  status_.version = manifest.version;
  status_.parameters = manifest.parameters;
  status_.directory = directory;
  status_.state = "running";
  status_.step = totals.steps;
  status_.resumed_after = totals.steps;
  status_.tokens = totals.tokens;
  status_.elapsed_s = totals.wall_s;
  advance();
}

void StatusBoard::step(const Step& step, const RunTotals& totals) {
  const std::lock_guard lock(mutex_);
  advance();
  status_.step = step.step;
  status_.tokens = totals.tokens;
  status_.loss = totals.train_loss;
  status_.learning_rate = step.learning_rate;
  status_.gradient_norm = step.gradient_norm;
  status_.elapsed_s = totals.wall_s;
  if (options_.simulated) status_.simulated_s = totals.clock_s;
  for (std::size_t m = 0; m < status_.sites.size(); ++m) {
    status_.sites[m].compute_s = totals.compute_s.at(m);
    status_.sites[m].payload_bytes = totals.payload_bytes.at(m);
    status_.sites[m].wire_bytes = totals.wire_bytes.at(m);
  }
  status_.fragments = fragments_;
  loss_.add(step.step, totals.train_loss);
  step_speed_ = step.tokens_per_s;
  if (!first_step_) first_step_ = {advanced_, step.step};
  if (tokens_.empty() || advanced_ - tokens_.back().first >= kSpeedEvery) {
    tokens_.emplace_back(advanced_, totals.tokens);
    while (tokens_.size() > 2 && advanced_ - tokens_.front().first > kSpeedWindow) {
      tokens_.pop_front();
    }
  }
  // Single steps jump about, and those of other sites come in batches.
  speed_.add(step.step, speed(advanced_).value_or(0));
}

void StatusBoard::round(const RoundReport& round, std::uint64_t payload_bytes,
                        std::uint64_t wire_bytes) {
  const double waited = std::chrono::duration<double>(round.waited).count();
  const std::lock_guard lock(mutex_);
  FragmentStatus& fragment = fragments_[round.fragment.value()];
  ++fragment.rounds;
  fragment.last_step = round.applied.value();
  fragment.members = round.members;
  fragment.payload_bytes += payload_bytes;
  fragment.wire_bytes += wire_bytes;
  fragment.wait_s += waited;
  fragment.last_wait_s = waited;
  wait_.add(round.applied.value(), waited);
}

void StatusBoard::eval(const EvalRecord& eval) {
  const std::lock_guard lock(mutex_);
  advance();
  status_.eval_loss = eval.loss;
  status_.eval_step = eval.step;
  eval_.add(eval.step, eval.loss);
}

void StatusBoard::checkpoint(std::int64_t step, std::uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  advance();
  ++status_.checkpoints;
  status_.checkpoint_step = step;
  status_.checkpoint_bytes = bytes;
  status_.checkpoint_s = seconds;
  checkpoint_at_ = advanced_;
}

void StatusBoard::note_drop(const std::string& peer, LinkTrouble trouble, const std::string& text) {
  Drop drop;
  drop.at = options_.now();
  drop.drop.peer = peer;
  drop.drop.kind = trouble_name(trouble);
  drop.drop.cause = text;
  drops_.push_back(std::move(drop));
  if (drops_.size() > kMostDrops) drops_.pop_front();
}

void StatusBoard::link(Rank self, const LinkEvent& event) {
  const std::lock_guard lock(mutex_);
  const std::optional<LinkTrouble> trouble = trouble_of(event.kind);
  const bool known = event.peer.value() >= 0 && event.peer.value() < status_.workers;
  if (trouble) {
    const std::string who = !known          ? std::string()
                            : options_.self ? name(event.peer)
                                            : name(self) + " to " + name(event.peer);
    note_drop(who, *trouble, event.text);
  }
  const auto found = peers_.find(event.peer.value());
  if (found == peers_.end()) {
    status_.strangers += trouble && !known ? 1 : 0;
    return;
  }
  Peer& peer = found->second;
  const auto stream = static_cast<std::size_t>(std::max(event.stream, 0));
  if (peer.streams.size() <= stream) peer.streams.resize(stream + 1);
  if (event.kind == LinkEvent::Kind::kWelcomed) {
    peer.streams[stream] = true;
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

void StatusBoard::sent(Rank to, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto peer = peers_.find(to.value()); peer != peers_.end()) {
    peer->second.status.sent_bytes += bytes;
  }
}

void StatusBoard::received(Rank from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto peer = peers_.find(from.value()); peer != peers_.end()) {
    peer->second.status.received_bytes += bytes;
    peer->second.heard = options_.now();
  }
}

std::optional<double> StatusBoard::speed(double now) const {
  if (!status_.loss) {
    return std::nullopt;
  }
  // Up to the last step, since the next one takes its time; but a run that stands still slows down.
  const double begin = tokens_.front().first;
  const double spacing = (advanced_ - begin) / static_cast<double>(tokens_.size());
  const double end = now - advanced_ > 1 + 3 * spacing ? now : advanced_;
  return end - begin < 2 * kSpeedEvery
             ? step_speed_
             : static_cast<double>(status_.tokens - tokens_.front().second) / (end - begin);
}

RunStatus StatusBoard::snapshot() const {
  const std::lock_guard lock(mutex_);
  const double now = options_.now();
  RunStatus status = status_;
  status.advanced_s = now - advanced_;
  if (status.state == "running") status.elapsed_s += status.advanced_s;
  status.checkpoint_ago_s = status.checkpoints > 0 ? now - checkpoint_at_ : 0;
  status.tokens_per_s = speed(now);
  if (first_step_ && status.step > first_step_->second) {
    const double each =
        (advanced_ - first_step_->first) / static_cast<double>(status.step - first_step_->second);
    status.eta_s = each * static_cast<double>(status.steps - status.step);
  }
  for (const auto& [rank, peer] : peers_) {
    status.peers.push_back(peer.status);
    status.peers.back().heard_s = peer.heard < 0 ? -1 : now - peer.heard;
  }
  for (const Drop& each : drops_) {
    status.drops.push_back(each.drop);
    status.drops.back().ago_s = now - each.at;
  }
  status.loss_curve = loss_.points();
  status.eval_curve = eval_.points();
  status.speed_curve = speed_.points();
  status.wait_curve = wait_.points();
  judge(status);
  return status;
}

void StatusBoard::judge(RunStatus& status) const {
  for (const PeerStatus& peer : status.peers) {
    if (peer.lost) {
      status.healthy = false;
      status.word = fmt::format("site {} is lost: {}", peer.name, peer.cause);
      return;
    }
  }
  status.healthy = status.advanced_s <= status.stalled_after_s;
  const std::string where =
      status.state == "running"
          ? fmt::format("step {} of {}", with_commas(status.step), with_commas(status.steps))
      : waiting_for_.empty() ? std::string("starting")
                             : fmt::format("waiting for the other sites: {}", waiting_for_);
  if (!status.healthy) {
    status.word =
        fmt::format("nothing has gone on for {}, {} allowed (log.stalled_after): {}",
                    human_time(status.advanced_s), human_time(status.stalled_after_s), where);
    return;
  }
  status.word = where;
  if (status.loss) status.word += fmt::format(", loss {:.4f}", *status.loss);
}

}  // namespace isthmus::app
