// SPDX-License-Identifier: Apache-2.0
// Options of a member's exchange. PeerExchange passes the whole struct to the engine and its parts;
// each of them reads the fields that concern it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/events.h"
#include "isthmus/runtime.h"
#include "isthmus/transport.h"
#include "transport/exchange/hub_record.h"
#include "transport/exchange/merges/merge_history.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/round_deadline.h"
#include "transport/wire/epoch.h"

namespace isthmus {

/// A `retry_interval` for links that lose no frame, or retransmit by themselves: a silent peer is
/// slow, so it is never asked for a repeat.
inline constexpr Duration kNothingIsLost = std::chrono::hours(24 * 365);

struct PeerExchangeOptions {
  std::uint32_t epoch = 0;
  /// Timeout of silence: a peer that owes frames is probed after it.
  Duration retry_interval = std::chrono::seconds(2);
  /// Shares of the owners in a reduce, one a member; empty: even. Equal on all members.
  std::vector<std::uint32_t> shares = {};
  /// A reduce in two levels (reduction.h): the group number by member; empty: one level. Equal on
  /// all members.
  std::vector<std::uint32_t> groups = {};
  /// Largest number of encoded bytes in a part; a frame carries one part. Equal on all members.
  std::size_t chunk_bytes = kMaxPartBytes;
  /// Seed of random rounding and random selection, besides the round; see encode_key.
  std::uint64_t run_key = 0;
  EventSink* events = nullptr;  // borrowed; may be null
  /// Members other than member 0 may be lost and return (transport/wire/epoch.h). Uncommitted
  /// rounds then begin again among the remaining members, however few. Every round commits by
  /// itself, unless `takes_back`. A live member is neither excluded, for being slow or for
  /// diverging results, nor released when fewer than `min_members` would be left. Equal on all
  /// members.
  bool elastic = false;
  int min_members = 1;
  /// With `elastic`: Contribution::commit counts. A loss rolls back all uncommitted rounds,
  /// including results that were handed out (Exchange::go_back). Without `deadline`.
  /// Equal on all members.
  bool takes_back = false;
  /// With `elastic`: the timeout of a straggler. A member is excluded that has not begun a round
  /// after another member has waited this long for it, if no member joined or left meanwhile and
  /// enough members are left. In a reduce only owners of a part can notice it.
  Duration straggler = Duration::max();
  /// The timeout after which a member probes the members that it waits for, repeated at the same
  /// interval. Answers are not counted; but a process that hangs does not read the probe, and links
  /// over TCP notice that (MemberOptions::stuck_after), unlike silence of a process that has
  /// nothing to send.
  Duration asks_after = Duration::max();
  /// The transport's last member is a hub: it coordinates in place of member 0, takes part in no
  /// round, and may itself be lost and restarted. With `elastic`. Equal on all members.
  bool hub = false;
  /// At a hub: the decisions of its previous process, if there was one.
  std::optional<std::vector<HubRecord>> history = {};
  /// The members' workers offer contributions to the hub, which merges them (isthmus/merges.h).
  /// With `hub`, equal on all members; members of one process and simulations need no word.
  bool merges = false;
  /// At a hub, with `merges`: what it has merged so far. Borrowed.
  MergeHistory* merge_history = nullptr;
  /// At a hub: logs decisions before any member is told. An exception ends the exchange
  /// (`on_failure`), and no member is told anything any more. Any task, one call at a time.
  std::function<void(std::span<const HubRecord>)> on_records = {};
  /// Keeps the frames of the last result, so that `origin_of` can return its encoded form.
  bool keeps_encoded = false;
  /// The members meet first: until `start` no member is excluded, and only notes are read. With
  /// `elastic`, without `hub`.
  bool gathers = false;
  /// A note from another member's program has arrived; a member is lost, and why. Called by the
  /// exchange's own task, one call at a time, possibly before the constructor returns. May be
  /// empty.
  std::function<void(WorkerId from, std::span<const std::byte> bytes)> on_note = {};
  std::function<void(WorkerId peer, const std::string& why)> on_lost = {};
  /// A new process of a lost member has connected: it has received nothing that was sent before.
  std::function<void(WorkerId peer)> on_back = {};
  /// A member has joined or left; one call each. Called by the task that caused it, so two calls
  /// may overlap at member 0. With `on_records` the calls come in order, one at a time, and none
  /// may wait for another call of this exchange.
  std::function<void(const Epoch& epoch)> on_epoch = {};
  /// The exchange itself cannot continue, for example after an exception in `on_note`.
  std::function<void(const std::exception_ptr&)> on_failure = {};
  /// With `elastic`: a member whose training is late for a round takes part by proxy, without its
  /// values, once two thirds of all members and `min_members` (this one not counted) have begun the
  /// round for longer than the deadline. Its Reduced then excludes its values. At most two rounds
  /// of a fragment run ahead of training. Either all members have a deadline or none; the deadlines
  /// may differ. A fragment's first round, and rounds with an owner's residual, wait for all
  /// members. `begin` may then come after the round is final.
  std::optional<RoundDeadline> deadline = {};
  /// Whether training might now begin a round sent after step `sent`. Any task, within other calls
  /// of this exchange, so it must call none of them. Empty: it always might.
  std::function<bool(StepIndex sent)> may_proxy = {};
  /// The member has taken part by proxy. Called by the task that found it late.
  std::function<void(const ProxyRound& round)> on_proxy_round = {};
  /// A round's result is final here. `took`: the time since this member began it, whether or not
  /// the member has waited for it. Called by the task that made it final; two calls may overlap.
  std::function<void(WorkerId self, const SyncId& id, Duration took)> on_round = {};
  /// Compares a worker's terms with those of the others (Exchange::agree_on_start); empty: no
  /// comparison. Called by the worker's thread.
  std::function<void(WorkerId self, const StartTerms& terms)> on_start = {};
};

/// One member's place in an exchange, and the options of the exchange.
struct EngineOptions {
  WorkerId self;    // a hub: WorkerId(members)
  int members = 1;  // without the hub
  PeerExchangeOptions exchange = {};
  /// Transport::most_unused, asked when a round is made; empty: no bounds.
  std::function<std::size_t(WorkerId peer)> most_unused = {};
};

}  // namespace isthmus
