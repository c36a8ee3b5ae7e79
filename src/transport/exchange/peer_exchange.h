// SPDX-License-Identifier: Apache-2.0
// PeerExchange: the Exchange of one member over a Transport. One spawned task receives frames, so
// rounds progress while the worker computes; the worker's own calls send frames and, while they
// wait, repair lost ones.
//
// The worker's thread calls begin, poll, wait and leave. Both threads share the ExchangeEngine,
// which they use under the wait queue's lock. Arithmetic of results:
// transport/exchange/reduction.h. Payload bytes count each encoded value sent once; wire bytes
// count every frame, repeated ones too.
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
#include "transport/exchange/merge_server.h"
#include "transport/exchange/merging.h"
#include "transport/exchange/peer_exchange_options.h"
#include "transport/exchange/round_result.h"
#include "transport/wire/transport.h"

namespace isthmus {

class PeerExchange final : public Exchange {
 public:
  /// Borrows both for its lifetime; no other object uses the transport.
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
  /// Null at a hub, and where notes are the program's, unless `merges` is set.
  [[nodiscard]] Merges* merges() override;
  /// Whether a round has begun here and is not final. Any task.
  [[nodiscard]] bool round_open() const;
  /// With a deadline: the newest send step of a round that was begun by proxy and that training has
  /// not reached. Values trained up to that step come too late for the round. Any task.
  [[nodiscard]] std::optional<StepIndex> begun_ahead() const;
  /// With a deadline: the number of consecutive rounds of a fragment, up to its last one, that were
  /// begun by proxy; the largest number over the fragments. Any task.
  [[nodiscard]] int missed_in_a_row() const;
  /// The origin of the round's result, after `wait` has returned it and before `wait` returns
  /// another. `encoded` is empty when the fp32 result is as small, or when encoded results are not
  /// kept.
  [[nodiscard]] ResultOrigin origin_of(const SyncId& id) const;
  /// Nobody will ask for the origin of the last result: what was kept of it is freed, up to all
  /// encoded contributions, which would stay in memory until the next round.
  void drop_origin();

  /// Sends a note: bytes for the program of member `to`, ordered after everything sent to it
  /// before. Never repeated, so only for transports that lose nothing. Any task. THROWS: RunError
  /// for more than kMaxFramePayload bytes.
  void note(WorkerId to, std::span<const std::byte> bytes);

  /// At the coordinator, with `elastic`: `joiner` takes part in rounds sent after step `after`. No
  /// member may have begun such a round, or begin one before its EPOCH has arrived. Each member's
  /// transport has reported the joiner's process. Any task. RETURNS: false when it is a member
  /// already, or lost.
  bool admit(WorkerId joiner, std::int64_t after);
  /// At the coordinator, with `elastic`: `member` takes no part in rounds sent after step `after`,
  /// under the same rule; earlier rounds end with it. Any task. RETURNS: false when it is no
  /// member, is leaving already, or too few members would be left.
  bool release(WorkerId member, std::int64_t after);

  /// With `gathers`: all members have met. `met`: by process, how often `on_back` had reported the
  /// peer when this member met it; a peer lost or restarted since then counts as lost. Call before
  /// the first round.
  void start(std::span<const std::uint64_t> met);

  // At a hub; any task.
  /// A previous member has reconnected and belongs to the same run: the hub hears it from now on.
  void stands(WorkerId member);
  /// A run begins: no decisions yet, all members are live, none has been heard.
  void begin_anew();
  /// Excludes a member. No effect when it is none.
  void exclude(WorkerId member, const std::string& why);
  [[nodiscard]] bool has_left(WorkerId member) const;
  /// Whether all present members have said goodbye.
  [[nodiscard]] bool all_left() const;
  /// At a hub all decisions, at a member those that it knows. Any task.
  [[nodiscard]] Decided decided() const;
  /// Calls `take` with the records that the next process needs; no decision is made meanwhile.
  void with_history(const std::function<void(std::span<const HubRecord>)>& take);

  /// At a member: the hub's next process knows this run. Sends again all that the previous process
  /// was told.
  void tell_hub_again();

  /// Waits to be admitted: this member takes part only once the coordinator admits it; until then
  /// only notes are sent and received. Call before the first round.
  void stand_aside();

  /// Ends in order: says goodbye and serves the others. Blocks until all have said goodbye or are
  /// lost, for at most `patience`; a timeout is no error. A released member ends its open rounds
  /// first, and then waits for the coordinator's acknowledgement instead. No round may be begun or
  /// waited for afterwards.
  void leave(Duration patience);

 private:
  /// RETURNS: `read(engine)`, under the lock.
  template <typename Read>
  [[nodiscard]] auto locked(const Read& read) const;
  /// Runs `step(engine, now, outbox)` under the lock, then sends the queued frames. RETURNS: the
  /// time of the engine's next useful tick.
  template <typename Step>
  TimePoint drive(const Step& step);
  void take_in_frames();
  void give_up_quietly(const std::string& why);
  void record_wait(TimePoint begin, const SyncId& id);
  void make_merging();
  /// Another membership has begun, or this member's rounds have ended.
  void tell_merges(const EngineNews& news, const std::optional<ExchangeError>& ended);

  Transport& transport_;
  Runtime& runtime_;
  PeerExchangeOptions options_;
  std::unique_ptr<WaitQueue> queue_;
  std::mutex decisions_;   // at a hub: held from a decision until it is logged and sent
  bool mute_ = false;      // under decisions_: a decision could not be logged
  ExchangeEngine engine_;  // under queue_'s lock
  ByteCounts bytes_;       // under queue_'s lock
  // Null where nothing is merged:
  std::unique_ptr<MergeServer> merge_server_;  // at the coordinator of merges
  std::unique_ptr<Merging> merging_;           // not at a hub
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
