// SPDX-License-Identifier: Apache-2.0
// Options of a member's exchange. The whole struct goes from PeerExchange to the engine and its
// parts; each of them reads the fields that concern it.
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
#include "transport/exchange/measured_shares.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/round_deadline.h"
#include "transport/wire/epoch.h"

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
  /// Members other than member 0 may be lost, and come back (transport/wire/epoch.h): what is not
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
  std::function<void(WorkerId from, std::span<const std::byte> bytes)> on_note = {};
  std::function<void(WorkerId peer, const std::string& why)> on_lost = {};
  /// A new process of a member that was lost has come: nothing sent to it before has reached it.
  std::function<void(WorkerId peer)> on_back = {};
  /// Somebody has come or gone; one call each. By whatever task of this member has brought it
  /// about, so at member 0 two calls may come at once; with `on_records` in order, one at a time,
  /// and none may wait for another call of this exchange.
  std::function<void(const Epoch& epoch)> on_epoch = {};
  /// That the exchange itself cannot go on: what `on_note`, for example, has thrown.
  std::function<void(const std::exception_ptr&)> on_failure = {};
  /// Shares move while the run goes on, as links turn out (measured_shares.h); `shares` are those
  /// at the start. A fragment's round is begun once the result of the one before has been taken.
  /// Without `groups`. Equal on all members.
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
  std::function<bool(StepIndex sent)> may_proxy = {};
  /// It has taken part without its work. By whatever task has found it late.
  std::function<void(const ProxyRound& round)> on_proxy_round = {};
  /// A round's result is final here: how long after this member has begun it, whether or not it
  /// has been waited for. By whatever task has brought that about, two perhaps at once.
  std::function<void(WorkerId self, const SyncId& id, Duration took)> on_round = {};
  /// Compares a worker's terms with the others' (Exchange::agree_on_start); empty: nobody does. The
  /// worker's thread.
  std::function<void(WorkerId self, const StartTerms& terms)> on_start = {};
};

/// One member's place in an exchange, and the options of the exchange.
struct EngineOptions {
  WorkerId self;    // a hub: WorkerId(members)
  int members = 1;  // a hub is not among them
  PeerExchangeOptions exchange = {};
  /// The shares that the coordinator sends with a commit, instead of those it has measured; for
  /// tests.
  std::function<std::vector<std::uint32_t>(const SyncId& id)> choose_shares = {};
};

}  // namespace isthmus
