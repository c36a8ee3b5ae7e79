// SPDX-License-Identifier: Apache-2.0
#include "app/newcomer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "app/signals.h"
#include "core/state_bytes.h"
#include "isthmus/errors.h"
#include "transport/round_result.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookForSignals = std::chrono::milliseconds(200);
constexpr std::uint64_t kPiece = std::uint64_t{512} * 1024;
constexpr std::uint64_t kUnderWay = 16 * kPiece;  // 8 MiB: the window of a long fast link
constexpr std::uint64_t kLargestState = std::uint64_t{1} << 44;
constexpr std::uint64_t kLargestResult = std::uint64_t{1} << 40;

}  // namespace

Newcomer::Newcomer(Exchange& real, Runtime& runtime, std::string donor,
                   std::function<void(const Note&)> send)
    : real_(real),
      runtime_(runtime),
      donor_(std::move(donor)),
      send_(std::move(send)),
      queue_(runtime.make_wait_queue()),
      results_(kLargestResult) {}

void Newcomer::receive(const Note& note) {
  if (const auto* offer = std::get_if<OfferNote>(&note)) {
    if (exchange_) {
      return;  // said twice
    }
    if (offer->bytes > kLargestState) {
      fail(Rank(0), fmt::format("site {} offers a state of {} bytes", donor_, offer->bytes));
      return;
    }
    exchange_ = std::make_unique<JoiningExchange>(real_, runtime_, offer->step);
    queue_->update([&] { offer_ = *offer; });
    ask();
  } else if (const auto* piece = std::get_if<PieceNote>(&note)) {
    queue_->update([&] {
      if (!offer_ || piece->offset != state_.size() || piece->bytes.empty() ||
          state_.size() + piece->bytes.size() > asked_) {
        failure_ =
            fmt::format("site {} sent another piece of its state than was asked for", donor_);
        return;
      }
      state_.insert(state_.end(), piece->bytes.begin(), piece->bytes.end());
    });
    ask();
  } else if (const auto* result = std::get_if<ResultNote>(&note)) {
    deliver(*result);
  } else if (const auto* reached = std::get_if<ReachedNote>(&note)) {
    if (exchange_) exchange_->reached(reached->step);
    queue_->update([&] { reached_ = reached->step; });
  }
}

/// Keeps pieces under way until the whole state has been asked for.
void Newcomer::ask() {
  std::vector<GetNote> wanted;
  queue_->update([&] {
    while (offer_ && !failure_ && asked_ < offer_->bytes && asked_ - state_.size() < kUnderWay) {
      const std::uint64_t bytes = std::min(kPiece, offer_->bytes - asked_);
      wanted.push_back({.offset = asked_, .bytes = bytes});
      asked_ += bytes;
    }
  });
  for (const GetNote& get : wanted) send_(get);
}

void Newcomer::deliver(const ResultNote& note) {
  if (!exchange_) {
    return;  // before the offer: not of this join
  }
  auto stream = results_.take(note.piece);
  if (!stream) {
    exchange_->fail(Rank(0), stream.error());
    return;
  }
  if (!*stream) {
    return;
  }
  taken_ += (*stream)->bytes.size();
  send_(TakenNote{taken_});
  auto result = read_result((*stream)->bytes, real_.members());
  if (!result) {
    exchange_->fail(Rank(0), result.error());
    return;
  }
  exchange_->deliver(result->id, std::move(result->reduced), std::move(result->encoded));
}

void Newcomer::admitted(std::int64_t after) {
  if (exchange_) exchange_->become_member(StepIndex(after));
}

void Newcomer::fail(Rank who, const std::string& why) {
  if (exchange_) exchange_->fail(who, why);
  queue_->update([&] {
    if (!failure_) failure_ = why;
  });
}

bool Newcomer::fetch(TimePoint deadline) {
  std::optional<std::string> failure;
  const bool settled = queue_->wait(
      [&] {
        failure = failure_;
        return failure_ || (offer_ && state_.size() == offer_->bytes);
      },
      deadline);
  if (failure) {
    throw PeerError(fmt::format("the state of the run could not be fetched: {}", *failure));
  }
  return settled;
}

std::string Newcomer::progress() const {
  std::string text = fmt::format("site {} has not offered its state yet", donor_);
  queue_->update([&] {
    if (offer_) {
      text = fmt::format("{} of {} bytes of the state after step {} are here", state_.size(),
                         offer_->bytes, offer_->step.value());
    }
  });
  return text;
}

std::unique_ptr<StateReader> Newcomer::take_state() {
  std::vector<std::byte> bytes;
  queue_->update([&] { bytes = std::exchange(state_, {}); });
  auto reader = read_state(std::move(bytes));
  if (!reader) {
    throw PeerError(fmt::format("site {} sent a state that is none: {}", donor_, reader.error()));
  }
  return *std::move(reader);
}

bool Newcomer::may_replay(StepIndex t, Duration patience) {
  bool all_replayed = false;
  queue_->update(
      [&] { all_replayed = t > std::max(offer_->step, reached_.value_or(StepIndex(0))); });
  if (all_replayed && !std::exchange(said_caught_up_, true)) {
    send_(CaughtUpNote{});
  }
  const TimePoint end =
      patience >= kNever - runtime_.clock().now() ? kNever : runtime_.clock().now() + patience;
  while (true) {
    const auto ready = exchange_->await_step(t, std::min(patience, kLookForSignals));
    if (ready) {
      break;
    }
    if (SignalScope::wish() != StopWish::kNone) {  // the others go on
      throw Error(ExitCode::kInterrupted, "stopped before this site took part in the run");
    }
    if (ready.error().kind != ExchangeError::Kind::kDeadlineExceeded ||
        runtime_.clock().now() >= end) {
      throw PeerError(fmt::format("joining: {}", ready.error().what));
    }
  }
  const std::optional<StepIndex> last = exchange_->member_after();
  return !last || t <= *last;
}

}  // namespace isthmus::app
