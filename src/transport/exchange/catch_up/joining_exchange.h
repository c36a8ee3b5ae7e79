// SPDX-License-Identifier: Apache-2.0
// How a member of a running run takes in a joiner. The donor sends the joiner its state after some
// step, then the result of every later round, and a mark for every step that it ends. The joiner
// takes the same steps without training, on these results, up to a step K that all members have
// agreed on; in rounds sent after K it takes part like any member. So no member waits for the
// joiner, and it repeats no round.
//   donor:   ForwardingExchange, a sink that sends `write_result` (round_result.h), and a mark
//            for each step that the donor ends
//   joiner:  JoiningExchange, whose `deliver`, `reached` and `become_member` follow what arrives
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/runtime.h"
#include "isthmus/transport.h"
#include "transport/exchange/catch_up/wrapped_exchange.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/round_result.h"

namespace isthmus {

/// The donor's exchange: `real`, whose results are also forwarded; every call blocks, and fails, as
/// that of `real`. One thread.
class ForwardingExchange final : public WrappedExchange {
 public:
  using Encoded = std::vector<EncodedShare>;
  /// `encoded`: the frames that the result was decoded from; empty: forward the result itself.
  using Sink = std::function<void(const SyncId& id, const Reduced& result, const Encoded& encoded)>;
  /// Borrows `real`. `encoded`: of the result that `real` has just returned; may be empty.
  explicit ForwardingExchange(Exchange& real, std::function<Encoded(const SyncId&)> encoded = {})
      : WrappedExchange(real), encoded_(std::move(encoded)) {}

  /// From now on `sink` gets every result that `wait` returns, before it is returned, except
  /// results of rounds without values, which only commit others. An empty `sink` ends that.
  void forward_to(Sink sink) { sink_ = std::move(sink); }

  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  void agree_on_start(const std::function<StartTerms()>& terms) override {
    real_.agree_on_start(terms);
  }

 private:
  const std::function<Encoded(const SyncId&)> encoded_;
  Sink sink_;
  std::set<SyncId> bare_;  // begun, without values
};

/// The joiner's exchange. The worker's thread calls `begin`, `poll`, `wait` and `await_step`; the
/// calls that bring news may come from any task and never block. News come from another machine:
/// invalid news end the join (`fail`) and break no invariant.
class JoiningExchange final : public WrappedExchange {
 public:
  /// `from`: the step of the donor's state. Borrows both; `real` gets no round before this member
  /// is admitted. `replayed`: called by the worker for each result that it has received.
  JoiningExchange(Exchange& real, Runtime& runtime, StepIndex from,
                  std::function<void(const SyncId&)> replayed = {});

  /// The donor's result of a round sent by step K; a later round is ignored. `encoded`, if not
  /// empty, replaces its values.
  void deliver(const SyncId& id, Reduced result, std::vector<EncodedShare> encoded = {});
  /// The donor has ended step t, and all of its results in that step have been delivered.
  void reached(StepIndex t);
  /// K: rounds sent after `last` use the real exchange. The first call counts.
  void become_member(StepIndex last);
  /// The join has failed: waits for the donor end with the cause, as for a lost peer `who`. The
  /// first call counts; rounds of the real exchange continue.
  void fail(WorkerId who, const std::string& why);

  /// Blocks until step t may be taken: the donor has ended it, or K is known. RETURNS:
  /// DeadlineExceeded after `patience`, PeerLost when the join has failed.
  [[nodiscard]] Expected<void, ExchangeError> await_step(StepIndex t, Duration patience);
  /// Blocks until the donor has ended step t, whether or not K is known. RETURNS: as await_step.
  [[nodiscard]] Expected<void, ExchangeError> await_end(StepIndex t, Duration patience);
  /// K, once it is known.
  [[nodiscard]] std::optional<StepIndex> member_after() const;

  /// For a round sent by K, or while K is unknown: sends nothing to any member.
  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override;
  /// For such a round: blocks until its result has been delivered. RETURNS: as await_step; Corrupt
  /// when its size differs from the contribution's.
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;

 private:
  struct Delivered {
    Reduced result;
    std::vector<EncodedShare> encoded;
  };
  // Call these two with the lock held.
  [[nodiscard]] bool replays(const SyncId& id) const { return !last_ || id.sent <= *last_; }
  void set_failure(WorkerId who, std::string why);
  /// Blocks until `ready()` or a failure. RETURNS: the error, as await_step; `what` is awaited.
  [[nodiscard]] Expected<void, ExchangeError> await(const std::function<bool()>& ready,
                                                    Duration patience, const std::string& what);

  Runtime& runtime_;
  const std::function<void(const SyncId&)> replayed_;
  std::unique_ptr<WaitQueue> queue_;  // guards what follows
  std::map<SyncId, Delivered> delivered_;
  std::map<SyncId, AskedRound> begun_;  // replayed and not yet handed out
  StepIndex begun_last_;                // the newest send step of a replayed round
  StepIndex donor_;                     // the last step that the donor has ended
  std::optional<StepIndex> last_;
  std::optional<ExchangeError> failure_;
};

}  // namespace isthmus
