// SPDX-License-Identifier: Apache-2.0
// How a member of a run that goes on takes in one that comes back. The donor gives the joiner its
// state after some step, then the result of every round that it takes after that and a mark for
// every step it ends. The joiner takes the same steps without training, on these results, until a
// step K that all have agreed on; rounds sent after K it shares like anybody. So nobody waits for
// the joiner, and it asks nobody for a round again.
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
#include "transport/exchange/reduction.h"
#include "transport/exchange/round_result.h"

namespace isthmus {

/// The donor's exchange: `real`, whose results somebody else may be given too. One thread.
class ForwardingExchange final : public Exchange {
 public:
  using Encoded = std::vector<EncodedShare>;
  /// `encoded`: what the result was decoded from; none: the result itself is to be handed on.
  using Sink = std::function<void(const SyncId& id, const Reduced& result, const Encoded& encoded)>;
  /// Borrows `real`. `encoded`: of a result that `real` has just handed out; may be empty.
  explicit ForwardingExchange(Exchange& real, std::function<Encoded(const SyncId&)> encoded = {})
      : real_(real), encoded_(std::move(encoded)) {}

  /// `sink` sees every result that `wait` hands out from now on, before it is handed out, but those
  /// of rounds without values, which only commit others; an empty one ends that.
  void forward_to(Sink sink) { sink_ = std::move(sink); }

  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }
  [[nodiscard]] bool uncommitted() const override { return real_.uncommitted(); }
  void agree_on_start(const std::function<StartTerms()>& terms) override {
    real_.agree_on_start(terms);
  }
  StepIndex go_back() override { return real_.go_back(); }

 private:
  Exchange& real_;
  const std::function<Encoded(const SyncId&)> encoded_;
  Sink sink_;
  std::set<SyncId> bare_;  // begun, without values
};

/// The joiner's exchange. `begin`, `poll`, `wait` and `await_step` are for the worker's thread; the
/// calls that tell it something may come from any task and never block. What it is told comes from
/// another machine: what does not fit ends the joining (`fail`), it breaks no invariant.
class JoiningExchange final : public Exchange {
 public:
  /// The donor's state is that after step `from`. Borrows both; `real` is asked for no round before
  /// this is a member.
  /// `replayed`: called by the worker when it has been handed the result of a round.
  JoiningExchange(Exchange& real, Runtime& runtime, StepIndex from,
                  std::function<void(const SyncId&)> replayed = {});

  /// The donor's result of a round sent by K; one sent after it is left aside. `encoded`, where
  /// there is any, stands for its values.
  void deliver(const SyncId& id, Reduced result, std::vector<EncodedShare> encoded = {});
  /// The donor has ended step t, and all results that it took in it have been delivered.
  void reached(StepIndex t);
  /// K: rounds sent after `last` are the real exchange's. The first word stands.
  void become_member(StepIndex last);
  /// The joining is over: whoever waits for the donor is told why, as for a lost peer `who`. The
  /// first word stands; rounds of the real exchange go on.
  void fail(WorkerId who, const std::string& why);

  /// Blocks until step t may be taken: the donor has ended it, or K is known. RETURNS:
  /// DeadlineExceeded after `patience`, PeerLost when the joining has failed.
  [[nodiscard]] Expected<void, ExchangeError> await_step(StepIndex t, Duration patience);
  /// Blocks until the donor has ended step t, whether or not K is known. RETURNS: as await_step.
  [[nodiscard]] Expected<void, ExchangeError> await_end(StepIndex t, Duration patience);
  /// K, once it is known.
  [[nodiscard]] std::optional<StepIndex> member_after() const;

  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  /// Of a round sent by K, or while K is not known: gives nothing to anybody.
  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override;
  /// Of such a round: blocks until its result has been delivered. RETURNS: as await_step;
  /// Corrupt when it is of another size than what was begun.
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }
  [[nodiscard]] bool uncommitted() const override { return real_.uncommitted(); }
  StepIndex go_back() override { return real_.go_back(); }

 private:
  struct Delivered {
    Reduced result;
    std::vector<EncodedShare> encoded;
  };
  // These two with the lock held.
  [[nodiscard]] bool replays(const SyncId& id) const { return !last_ || id.sent <= *last_; }
  void set_failure(WorkerId who, std::string why);
  /// Blocks until `ready()` or a failure. RETURNS: what hinders, as await_step; `what` is awaited.
  [[nodiscard]] Expected<void, ExchangeError> await(const std::function<bool()>& ready,
                                                    Duration patience, const std::string& what);

  Exchange& real_;
  Runtime& runtime_;
  const std::function<void(const SyncId&)> replayed_;
  std::unique_ptr<WaitQueue> queue_;  // guards what follows
  std::map<SyncId, Delivered> delivered_;
  std::map<SyncId, AskedRound> begun_;  // replayed and not yet handed out
  StepIndex begun_last_;                // the latest step after which a replayed round was sent
  StepIndex donor_;                     // the last step that the donor has ended
  std::optional<StepIndex> last_;
  std::optional<ExchangeError> failure_;
};

}  // namespace isthmus
