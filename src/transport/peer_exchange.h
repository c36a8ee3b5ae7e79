// SPDX-License-Identifier: Apache-2.0
// PeerExchange: the Exchange of one member over a Transport. One spawned task takes in frames, so
// rounds go on while the worker computes; the worker's own calls send and, while it waits, repair.
//
// The worker's thread calls begin, poll, wait, leave; everything the two share is the
// ExchangeEngine, touched under the wait queue's lock. Results: see transport/reduction.h for the
// arithmetic. Payload bytes count each encoded value sent once; wire bytes count every frame,
// repetitions too.
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

#include "core/events.h"
#include "isthmus/runtime.h"
#include "isthmus/transport.h"
#include "transport/peer_exchange_engine.h"
#include "transport/reduction.h"
#include "transport/round_result.h"
#include "transport/transport.h"

namespace isthmus {

/// A `retry_interval` over links that lose no frame, or repeat what breaks by themselves: a silent
/// peer is slow, never to be asked again.
inline constexpr Duration kNothingIsLost = std::chrono::hours(24 * 365);

struct PeerExchangeOptions {
  std::uint32_t epoch = 0;
  /// Silence after which a peer that owes something is asked whether it was lost.
  Duration retry_interval = std::chrono::seconds(2);
  /// Shares of the owners in a reduce, one a member; empty: even. Equal on all members.
  std::vector<std::uint32_t> shares = {};
  /// In the place of `shares`, by how large the vector is (shares_of_size); sizes rise. Without
  /// `groups` and `moves_shares`. Equal on all members.
  std::vector<SharesOfSize> table = {};
  /// A reduce goes in two levels (reduction.h): by member, equal numbers are one group; empty: in
  /// one. Equal on all members.
  std::vector<std::uint32_t> groups = {};
  /// Encoded bytes of a part, which goes in a frame, at most. Equal on all members.
  std::size_t chunk_bytes = kMaxPartBytes;
  /// What random roundings and choices of values are drawn from, besides the round; see encode_key.
  std::uint64_t run_key = 0;
  EventSink* events = nullptr;  // borrowed; may be null
  /// Members other than member 0 may be lost, and come back (transport/epoch.h): what is not
  /// committed is then begun again among those that are left, however few. Every round commits by
  /// itself, unless `takes_back`. Equal on all members. Who lives is not left out, for being slow
  /// or for what it computes, nor released, where fewer than `min_members` would be left.
  bool elastic = false;
  int min_members = 1;
  /// With `elastic`: Contribution::commit counts. A loss takes back what is not committed, results
  /// that were handed out too (Exchange::go_back). Without `moves_shares` and `deadline`. Equal on
  /// all members.
  bool takes_back = false;
  /// With `elastic`: who has not begun a round after a member has waited so long for it, and nobody
  /// else has come or gone meanwhile, is left out, if enough are left. Of a reduce those can tell
  /// who own a part of it.
  Duration straggler = Duration::max();
  /// A member that has waited so long for a round asks those it waits for whether they are there,
  /// and again after as long. No answer is counted; but a process that hangs leaves the question
  /// untaken, by which links over TCP tell it from one that has nothing to say yet
  /// (MemberOptions::stuck_after).
  Duration asks_after = Duration::max();
  /// The transport's last member is a hub: it coordinates in the place of member 0, takes part in
  /// no round and may itself be lost and come back. With `elastic`. Equal on all.
  bool hub = false;
  /// At a hub: what its process before has decided, if there was one.
  std::optional<std::vector<HubRecord>> history = {};
  /// At a hub: writes down what has been decided, before anybody is told. What it throws ends the
  /// exchange (`on_failure`), and nobody is told anything any more. Any task, one call at a time.
  std::function<void(std::span<const HubRecord>)> on_records = {};
  /// Results can be had as they were encoded (`origin_of`): their frames are kept until the next.
  bool keeps_encoded = false;
  /// The members meet first: until `start` nobody is left out, and only notes are taken. With
  /// `elastic`, without `hub`.
  bool gathers = false;
  /// What another member's program has sent with `note`; and that a member is lost, and why. Called
  /// by the exchange's own task, one call at a time, from before the constructor returns. May be
  /// empty.
  std::function<void(Rank from, std::span<const std::byte> bytes)> on_note = {};
  std::function<void(Rank peer, const std::string& why)> on_lost = {};
  /// A new process of a member that was lost has come: nothing sent to it before has reached it.
  std::function<void(Rank peer)> on_back = {};
  /// Somebody has come or gone; one call each. By whatever task of this member has brought it
  /// about, so at member 0 two calls may come at once; with `on_records` in order, one at a time,
  /// and none may wait for another call of this exchange.
  std::function<void(const Epoch& epoch)> on_epoch = {};
  /// That the exchange itself cannot go on: what `on_note`, for example, has thrown.
  std::function<void(const std::exception_ptr&)> on_failure = {};
  /// Shares move while the run goes on, as links turn out (measured_shares.h); `shares` are those
  /// at the start. Without `groups`. Equal on all members.
  bool moves_shares = false;
  /// At the coordinator: they have. By whatever task of it has brought that about.
  std::function<void(const ShareMove& move)> on_shares = {};
  int connections = 1;  // of a link, at most, where shares move
  /// With `elastic`: a member whose training is late for a round takes part in it without its work,
  /// once two thirds of all, and `min_members`, have begun it for so long, this one not among them;
  /// its Reduced is then without it. At most two rounds of a fragment before its training. Of all
  /// members or of none; not alike. A fragment's first round, and those with an owner's residual,
  /// wait for all. With it `begin` may be late: after the round is through.
  std::optional<RoundDeadline> deadline = {};
  /// Whether the member's training might begin a round sent after that step now. Any task, within
  /// other calls of this exchange: calls none. Empty: it might.
  std::function<bool(StepIndex sent)> may_stand_in = {};
  /// It has taken part without its work. By whatever task has found it late.
  std::function<void(const StoodIn& round)> on_stood_in = {};
  /// A round's result is final here: how long after this member has begun it, whether or not it
  /// has been waited for. By whatever task has brought that about, two perhaps at once.
  std::function<void(Rank self, const SyncId& id, Duration took)> on_round = {};
};

class PeerExchange final : public Exchange {
 public:
  /// Borrows both for its lifetime; the transport is this exchange's alone.
  PeerExchange(Transport& transport, Runtime& runtime, PeerExchangeOptions options = {});
  /// Closes the transport: the others see this member as lost unless all have left in order.
  ~PeerExchange() override;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  [[nodiscard]] Rank self() const override { return transport_.self(); }
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
  void note(Rank to, std::span<const std::byte> bytes);

  /// At the coordinator, with `elastic`: `joiner` takes part in rounds sent after step `after`; no
  /// member may have begun one, and none may do so before its EPOCH has come. Each member's
  /// transport has told that member of the joiner's process. Any task. RETURNS: false when it is a
  /// member, or lost.
  bool admit(Rank joiner, std::int64_t after);
  /// At the coordinator, with `elastic`: rounds sent after step `after` are without `member`, under
  /// the same rule; those sent by then end with it. Any task. RETURNS: false when it is no member,
  /// leaves already, or too few would be left.
  bool release(Rank member, std::int64_t after);

  /// With `gathers`: the members have met. `met`: how often `on_back` had told of each when it was
  /// met; who has been lost since, or started anew, counts as lost. Before the first round.
  void start(std::span<const std::uint64_t> met);

  // At a hub; any task.
  /// A member of before is there and of the same run: from now on it is heard.
  void stands(Rank member);
  /// A run begins: nothing has been decided, all are members, none has been heard.
  void begin_anew();
  /// A member is gone. Nothing where it is none.
  void exclude(Rank member, const std::string& why);
  [[nodiscard]] bool has_left(Rank member) const;
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
