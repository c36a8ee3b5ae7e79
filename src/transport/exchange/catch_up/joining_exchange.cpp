// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/catch_up/joining_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/deadline.h"

namespace isthmus {

Ticket ForwardingExchange::begin(Contribution contribution) {
  if (contribution.encoded.values == 0) bare_.insert(contribution.id);
  return real_.begin(std::move(contribution));
}

Expected<Reduced, ExchangeError> ForwardingExchange::wait(const Ticket& ticket, Duration patience) {
  Expected<Reduced, ExchangeError> result = real_.wait(ticket, patience);
  const bool bare = bare_.erase(ticket.id) > 0;
  if (result && !bare && sink_)
    sink_(ticket.id, *result, encoded_ ? encoded_(ticket.id) : Encoded());
  return result;
}

JoiningExchange::JoiningExchange(Exchange& real, Runtime& runtime, StepIndex from,
                                 std::function<void(const SyncId&)> replayed)
    : WrappedExchange(real),
      runtime_(runtime),
      replayed_(std::move(replayed)),
      queue_(runtime.make_wait_queue()),
      donor_(from) {}

void JoiningExchange::deliver(const SyncId& id, Reduced result, std::vector<EncodedShare> encoded) {
  queue_->update([&] {
    if (!replays(id)) return;
    if (!delivered_.emplace(id, Delivered{std::move(result), std::move(encoded)}).second) {
      set_failure(self(), fmt::format("the {} has been delivered twice", round_name(id)));
    }
  });
}

void JoiningExchange::reached(StepIndex t) {
  queue_->update([&] { donor_ = std::max(donor_, t); });
}

void JoiningExchange::become_member(StepIndex last) {
  queue_->update([&] {
    if (last_) return;
    if (begun_last_ > last) {
      set_failure(self(), fmt::format("is to be a member after step {}, but has replayed step {}",
                                      last.value(), begun_last_.value()));
      return;
    }
    last_ = last;
    std::erase_if(delivered_, [&](const auto& entry) { return entry.first.sent > last; });
  });
}

void JoiningExchange::fail(WorkerId who, const std::string& why) {
  queue_->update([&] { set_failure(who, why); });
}

void JoiningExchange::set_failure(WorkerId who, std::string why) {
  if (!failure_) {
    failure_ = ExchangeError{ExchangeError::Kind::kPeerLost, who, std::move(why)};
  }
}

std::optional<StepIndex> JoiningExchange::member_after() const {
  std::optional<StepIndex> last;
  (void)queue_->wait(
      [&] {
        last = last_;
        return true;
      },
      kNever);
  return last;
}

Expected<void, ExchangeError> JoiningExchange::await(const std::function<bool()>& ready,
                                                     Duration patience, const std::string& what) {
  std::optional<ExchangeError> failure;
  const bool over = queue_->wait(
      [&] {
        const bool here = ready();
        failure = here ? std::nullopt : failure_;
        return here || failure;
      },
      deadline_after(runtime_.clock().now(), patience));
  if (failure) return Unexpected<ExchangeError>(*failure);
  if (!over) {
    return Unexpected<ExchangeError>(
        ExchangeError{ExchangeError::Kind::kDeadlineExceeded, self(),
                      fmt::format("joining: no {} within {:.1f} s", what, in_seconds(patience))});
  }
  return {};
}

Expected<void, ExchangeError> JoiningExchange::await_step(StepIndex t, Duration patience) {
  return await([&] { return last_ || donor_ >= t; }, patience,
               fmt::format("word that step {} is over", t.value()));
}

Expected<void, ExchangeError> JoiningExchange::await_end(StepIndex t, Duration patience) {
  return await([&] { return donor_ >= t; }, patience,
               fmt::format("word that step {} is over", t.value()));
}

Ticket JoiningExchange::begin(Contribution contribution) {
  const SyncId id = contribution.id;
  bool replayed = false;
  queue_->update([&] {
    replayed = replays(id);
    if (!replayed) return;
    ISTHMUS_CHECK(!begun_.contains(id), id.sent.value(), id.fragment.value());
    begun_[id] = asked_of(contribution);
    begun_last_ = std::max(begun_last_, id.sent);
  });
  return replayed ? Ticket{id} : real_.begin(std::move(contribution));
}

bool JoiningExchange::poll(const Ticket& ticket) {
  bool replayed = false;
  bool ready = false;
  (void)queue_->wait(
      [&] {
        replayed = begun_.contains(ticket.id);
        ready = delivered_.contains(ticket.id) || failure_;
        return true;
      },
      kNever);
  return replayed ? ready : real_.poll(ticket);
}

Expected<Reduced, ExchangeError> JoiningExchange::wait(const Ticket& ticket, Duration patience) {
  const TimePoint begin = runtime_.clock().now();
  std::optional<AskedRound> asked;
  Delivered delivered;
  const Expected<void, ExchangeError> waited = await(
      [&] {
        const auto begun = begun_.find(ticket.id);
        if (begun == begun_.end()) return true;  // one of the real exchange
        const auto found = delivered_.find(ticket.id);
        if (found == delivered_.end()) return false;
        asked = begun->second;
        delivered = std::move(found->second);
        begun_.erase(begun);
        delivered_.erase(found);
        return true;
      },
      patience, "result of the " + round_name(ticket.id));
  if (!waited) return Unexpected<ExchangeError>(waited.error());
  if (!asked) return real_.wait(ticket, patience);
  if (replayed_) replayed_(ticket.id);
  auto result =
      as_a_member_has_it(std::move(delivered.result), delivered.encoded, *asked, members());
  if (!result) {
    return Unexpected<ExchangeError>(
        ExchangeError{ExchangeError::Kind::kCorrupt, self(),
                      fmt::format("joining: the {} {}: unlike models or settings",
                                  round_name(ticket.id), result.error())});
  }
  result->waited = runtime_.clock().now() - begin;
  return *std::move(result);
}

}  // namespace isthmus
