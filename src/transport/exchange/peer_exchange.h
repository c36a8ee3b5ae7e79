// SPDX-License-Identifier: Apache-2.0
// PeerExchange: the Exchange of one member over a Transport. One spawned task takes in frames, so
// rounds go on while the worker computes; the worker's own calls send and, while it waits, repair.
//
// The worker's thread calls begin, poll, wait, leave; everything the two share is the
// ExchangeEngine, touched under the wait queue's lock. Results: see transport/exchange/reduction.h
// for the arithmetic. Payload bytes count each encoded value sent once; wire bytes count every
// frame, repetitions too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/events.h"
#include "isthmus/runtime.h"
#include "isthmus/transport.h"
#include "transport/exchange/exchange_engine.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/round_result.h"
#include "transport/wire/transport.h"

namespace isthmus {

class PeerExchange final : public Exchange {
 public:
  /// Borrows both for its lifetime; the transport is this exchange's alone.
  PeerExchange(Transport& transport, Runtime& runtime, PeerExchangeOptions options = {});
  /// Closes the transport: the others see this member as lost unless all have left in order.
  ~PeerExchange() override;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  [[nodiscard]] WorkerId self() const override { return transport_.self(); }
  [[nodiscard]] int members() const override { return transport_.size() - (options_.hub ? 1 : 0); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override {
    return encode_key(id, static_cast<std::uint32_t>(self().value()), options_.run_key);
  }
  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override;
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  [[nodiscard]] ByteCounts bytes() const override;
  [[nodiscard]] bool uncommitted() const override;
  StepIndex go_back() override;
  void agree_on_start(const std::function<StartTerms()>& terms) override;
  /// Whether a round has begun here and is not through. Any task.
  [[nodiscard]] bool round_open() const;
  /// With a deadline: the last step after which a round was sent that was begun in this member's
  /// name and that its training has not begun. What it trains until there is late for it. Any task.
  [[nodiscard]] std::optional<StepIndex> begun_ahead() const;
  /// With a deadline: how many rounds of a fragment, in a row, this member's training was late for,
  /// up to the last one; of the fragment of which it is most. Any task.
  [[nodiscard]] int missed_in_a_row() const;
  /// After `wait` has handed out that round's result, and before it hands out another: what it
  /// comes from. Without what EncodedResult::shares says where the fp32 result is as small, or
  /// nothing is kept.
  [[nodiscard]] ResultOrigin origin_of(const SyncId& id) const;

  /// Sends bytes to the program of member `to`, after everything sent to it before. At most
  /// kMaxFramePayload. For transports that lose nothing: it is not repeated. Any task.
  void note(WorkerId to, std::span<const std::byte> bytes);

  /// At the coordinator, with `elastic`: `joiner` takes part in rounds sent after step `after`; no
  /// member may have begun one, and none may do so before its EPOCH has come. Each member's
  /// transport has told that member of the joiner's process. Any task. RETURNS: false when it is a
  /// member, or lost.
  bool admit(WorkerId joiner, std::int64_t after);
  /// At the coordinator, with `elastic`: rounds sent after step `after` are without `member`, under
  /// the same rule; those sent by then end with it. Any task. RETURNS: false when it is no member,
  /// leaves already, or too few would be left.
  bool release(WorkerId member, std::int64_t after);

  /// With `gathers`: the members have met. `met`: how often `on_back` had told of each when it was
  /// met; who has been lost since, or started anew, counts as lost. Before the first round.
  void start(std::span<const std::uint64_t> met);

  // At a hub; any task.
  /// A member of before is there and of the same run: from now on it is heard.
  void stands(WorkerId member);
  /// A run begins: nothing has been decided, all are members, none has been heard.
  void begin_anew();
  /// A member is gone. Nothing where it is none.
  void exclude(WorkerId member, const std::string& why);
  [[nodiscard]] bool has_left(WorkerId member) const;
  /// Whether all who are there have said goodbye.
  [[nodiscard]] bool all_left() const;
  /// At a member too: what it knows of that. Any task.
  [[nodiscard]] Decided decided() const;
  /// `take` gets all that a next process needs; nothing new is decided meanwhile.
  void with_history(const std::function<void(std::span<const HubRecord>)>& take);

  /// At a member: the hub's next process knows this run. Says again what was said to the last one.
  void tell_hub_again();

  /// This member takes part only once the coordinator admits it; until then only notes go either
  /// way. Before the first round.
  void stand_aside();

  /// Ends in order: says goodbye and serves the others until all have done so or are lost, for at
  /// most `patience`. A member that was released ends its open rounds first, and then waits for
  /// member 0 to take note instead. Nothing may be begun or waited for afterwards.
  void leave(Duration patience);

 private:
  /// RETURNS: `read(engine)`, under the lock.
  template <typename Read>
  [[nodiscard]] auto locked(const Read& read) const;
  /// Runs `step(engine, now, outbox)` under the lock, then sends what it queued.
  /// RETURNS: when the engine wants its next tick.
  template <typename Step>
  TimePoint drive(const Step& step);
  void take_in_frames();
  void give_up_quietly(const std::string& why);
  void record_wait(TimePoint begin, const SyncId& id);

  Transport& transport_;
  Runtime& runtime_;
  PeerExchangeOptions options_;
  std::unique_ptr<WaitQueue> queue_;
  std::mutex decisions_;   // at a hub: held while it decides, writes that down and tells of it
  bool mute_ = false;      // under decisions_: what was decided could not be written down
  ExchangeEngine engine_;  // under queue_'s lock
  ByteCounts bytes_;       // under queue_'s lock
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
