// SPDX-License-Identifier: Apache-2.0
// How a round becomes final: DONE with a digest to the coordinator, its verdict to all.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "transport/peer_exchange_engine.h"

namespace isthmus {
namespace {

std::string name_groups(const std::map<Rank, Digest128>& digests) {
  std::map<Digest128, std::vector<int>> groups;
  for (const auto& [rank, digest] : digests) {
    groups[digest].push_back(rank.value());
  }
  std::string text;
  for (const auto& [digest, ranks] : groups) {
    text += text.empty() ? "" : "; ";
    for (const int rank : ranks) {
      text += fmt::format("worker {}, ", rank);
    }
    text += fmt::format("digest {}", digest.hex());
  }
  return text;
}

}  // namespace

void ExchangeEngine::progress(Outbox& out) {
  for (auto& [id, open] : rounds_) {
    if (!open.commit && !open.closed && !open.failure && open.round.complete()) {
      open.closed = true;
      through_.push_back({id, open.begun});
      uncommitted_[id] = open.round.digest();
    }
  }
  for (auto& [id, open] : rounds_) {
    for (const SyncId& covered : open.covers) {
      const auto found = rounds_.find(covered);
      if (!open.closed && !open.failure && found != rounds_.end() && found->second.failure) {
        fail(open, *found->second.failure, out);
      }
    }
    const bool whole = open.commit && !open.said_done && !open.failure && open.round.complete() &&
                       std::ranges::all_of(open.covers, [&](const SyncId& covered) {
                         return uncommitted_.contains(covered);
                       });
    if (whole) {
      say_done(open, out);
    }
  }
}

void ExchangeEngine::say_done(OpenRound& open, Outbox& out) {
  open.said_done = true;
  report_rates(open);
  open.digest = open.round.digest();
  if (!open.covers.empty()) {
    Xxh3Stream chain;
    chain.update(std::as_bytes(std::span(open.digest.bytes)));
    for (const SyncId& covered : open.covers) {
      const auto digest = uncommitted_.extract(covered);
      chain.update(std::as_bytes(std::span(digest.mapped().bytes)));
    }
    open.digest = chain.digest();
  }
  if (coordinates()) {
    take_done(options_.self, open.round.id(), open.digest, out);
  } else {
    repeat_done(open, out);
  }
}

void ExchangeEngine::repeat_done(const OpenRound& open, Outbox& out) {
  const std::span<const std::byte> digest = std::as_bytes(std::span(open.digest.bytes));
  std::vector<std::byte> payload(digest.begin(), digest.end());
  payload.insert(payload.end(), open.report.begin(), open.report.end());
  send({.kind = FrameKind::kDone, .id = open.round.id()}, coordinator(), payload, out);
}

void ExchangeEngine::take_done(Rank from, const SyncId& id, const Digest128& digest, Outbox& out) {
  if (verdicts_.contains(id)) {
    tell(from, id, verdict_of(from, id, digest), out);  // it missed it, or DONE came twice
    return;
  }
  if (from != options_.self && through_everywhere(id)) {
    return;  // a late copy
  }
  std::map<Rank, Digest128>& digests = dones_[id];
  digests[from] = digest;
  if (static_cast<std::ptrdiff_t>(digests.size()) <
      std::ranges::count(membership_.members_of(id.sent), true)) {
    return;
  }
  const bool agreed = std::ranges::all_of(
      digests, [&](const auto& entry) { return entry.second == digests.begin()->second; });
  if (!agreed && single_out(id, digests)) {
    return;  // it begins again without who differs
  }
  Verdict verdict;
  if (!agreed) {
    verdict =
        ExchangeError{ExchangeError::Kind::kDiverged, from,
                      fmt::format("results of fragment {} of step {} differ: {}",
                                  id.fragment.value(), id.sent.value(), name_groups(digests))};
  }
  judge(id, verdict, out);
}

/// Of a round that has been judged.
ExchangeEngine::Verdict ExchangeEngine::verdict_of(Rank from, const SyncId& id,
                                                   const Digest128& digest) const {
  const auto committed = committed_.find(id);
  if (committed == committed_.end() || committed->second == digest) {
    return verdicts_.at(id);
  }
  return ExchangeError{
      ExchangeError::Kind::kDiverged, from,
      fmt::format("the result of fragment {} of step {} was committed with digest {}, and worker "
                  "{} has digest {}",
                  id.fragment.value(), id.sent.value(), committed->second.hex(), from.value(),
                  digest.hex())};
}

void ExchangeEngine::judge(const SyncId& id, const Verdict& verdict, Outbox& out) {
  if (!verdicts_.emplace(id, verdict).second) {
    return;  // the first word stands
  }
  if (!verdict) choose_next_shares(id);
  if (is_hub() && !verdict) {
    committed_[id] = dones_.at(id).begin()->second;
    note_final(id, committed_[id]);
    records_.push_back(commit_record(id, committed_[id], shares_told(id)));
  }
  dones_.erase(id);
  for (const Rank peer : peers()) {
    tell(peer, id, verdict, out);
  }
  take_verdict(id, verdict);
}

// The failure stands here at once; what it means for the others is the coordinator's word.
void ExchangeEngine::fail(OpenRound& open, const ExchangeError& error, Outbox& out) {
  open.failure = error;
  if (coordinates()) {
    judge(open.round.id(), error, out);
  } else {
    tell(coordinator(), open.round.id(), error, out);
  }
}

void ExchangeEngine::tell(Rank to, const SyncId& id, const Verdict& verdict, Outbox& out) {
  if (!verdict) {
    send({.kind = FrameKind::kCommit, .id = id}, to, shares_told(id), out);
    return;
  }
  send({.kind = FrameKind::kAbort,
        .id = id,
        .part = static_cast<std::uint32_t>(verdict->peer.value()),
        .offset = static_cast<std::uint64_t>(verdict->kind)},
       to, std::as_bytes(std::span(verdict->what)), out);
}

void ExchangeEngine::take_abort(Rank from, const Frame& frame, Outbox& out) {
  const auto kind = static_cast<ExchangeError::Kind>(frame.header.offset);
  const bool known = kind == ExchangeError::Kind::kPeerLost ||
                     kind == ExchangeError::Kind::kDiverged ||
                     kind == ExchangeError::Kind::kCorrupt;
  const ExchangeError error{
      known ? kind : ExchangeError::Kind::kCorrupt, Rank(static_cast<int>(frame.header.part)),
      std::string(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size())};
  if (coordinates()) {
    judge(frame.header.id, error, out);
  } else if (from == coordinator()) {
    take_verdict(frame.header.id, error);
  }
}

void ExchangeEngine::take_verdict(const SyncId& id, const Verdict& verdict) {
  const auto found = rounds_.find(id);
  if (found == rounds_.end() || found->second.closed || found->second.failure) {
    return;
  }
  OpenRound& open = found->second;
  if (verdict) {
    open.failure = *verdict;
    return;
  }
  if (!open.said_done) {
    return;  // nobody can have committed it: a stray frame
  }
  close(open);
}

// Every member has said DONE, so nobody will ask for this round or the ones it covers again.
void ExchangeEngine::close(OpenRound& open) {
  open.closed = true;
  committed_after_ = std::max(committed_after_, open.round.id().sent);
  through_.push_back({open.round.id(), open.begun});
  note_final(open.round.id(), open.digest);
  adopt_shares(open);
  open.retained.reset();
  open.residual = {};
  open.round.drop_frames();
  for (const SyncId& id_covered : open.covers) {
    if (const auto covered = rounds_.find(id_covered); covered != rounds_.end()) {
      covered->second.round.drop_frames();
      covered->second.covered = true;
    }
  }
}

/// At the coordinator: a round that has no verdict waits for that member too, from which this one
/// may want nothing else. It may have missed the news of who takes part, as it may where a later
/// round's verdict is to cover this one.
bool ExchangeEngine::lacks_digest(const OpenRound& open, Rank peer) const {
  const SyncId& id = open.round.id();
  const auto digests = dones_.find(id);
  const bool wanted = open.commit || options_.takes_back;
  return coordinates() && wanted && !open.closed && membership_.takes_part(peer, id.sent) &&
         (digests == dones_.end() || !digests->second.contains(peer));
}

/// Who joined later has no part in rounds sent then, and has yet to say how far it is: counted with
/// the others, it would have a hub take late copies of DONE for a round that is still to be judged.
bool ExchangeEngine::all_peers_closed(StepIndex sent) const {
  return std::ranges::all_of(peers(), [&](Rank rank) {
    const Peer& peer = peer_[static_cast<std::size_t>(rank.value())];
    return !membership_.takes_part(rank, sent) || (peer.lost && !is_hub()) || peer.left ||
           peer.closed_before > sent.value();
  });
}

/// At the coordinator: whoever still speaks of that round has said so before.
bool ExchangeEngine::through_everywhere(const SyncId& id) const {
  return (is_hub() ? all_peers_closed(id.sent) : over(id)) && !rounds_.contains(id);
}

std::optional<std::pair<Digest128, EncodedResult>> ExchangeEngine::origin_of(
    const SyncId& id) const {
  return taken_last_ == id ? std::optional(origin_) : std::nullopt;
}

void ExchangeEngine::forget_closed() {
  std::erase_if(rounds_, [&](const auto& entry) {
    const auto& [id, open] = entry;
    const bool unneeded = open.commit || open.covered || all_peers_closed(id.sent);
    if (!open.taken || !open.closed || !unneeded) {
      return false;
    }
    if (id.sent == last_begun_) {
      finished_.insert(id);
    }
    return true;
  });
  std::erase_if(verdicts_, [&](const auto& entry) { return all_peers_closed(entry.first.sent); });
  std::erase_if(committed_, [&](const auto& entry) { return !verdicts_.contains(entry.first); });
  forget_shares();
}

}  // namespace isthmus
