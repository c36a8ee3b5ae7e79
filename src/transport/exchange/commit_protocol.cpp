// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/commit_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
namespace {

/// Of bytes that an earlier program adds to DONE and COMMIT when its shares of owners move.
constexpr std::string_view kMovingShares =
    "as a member sends whose file has net.shares = \"measured\", which this program does not have";

std::string name_groups(const std::map<WorkerId, Digest128>& digests) {
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

void CommitProtocol::begun(OpenRound& open) {
  if (open.commit) {
    open.covers = std::exchange(uncovered_, {});
  } else {
    uncovered_.push_back(open.round.id());
  }
}

void CommitProtocol::progress(Outbox& out) {
  for (auto& [id, open] : rounds_.all()) {
    if (!open.commit && open.pending() && open.round.complete()) {
      open.closed = true;
      through_.push_back({id, open.begun});
      uncommitted_[id] = open.round.digest();
    }
  }
  for (auto& [id, open] : rounds_.all()) {
    for (const SyncId& covered : open.covers) {
      const OpenRound* found = rounds_.find(covered);
      if (open.pending() && found != nullptr && found->failure) {
        fail(open, *found->failure, out);
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

void CommitProtocol::say_done(OpenRound& open, Outbox& out) {
  open.said_done = true;
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
  if (members_.coordinates()) {
    count_done(members_.self(), open.round.id(), open.digest, out);
  } else {
    repeat_done(open, out);
  }
}

void CommitProtocol::repeat_done(const OpenRound& open, Outbox& out) {
  sender_.send({.kind = FrameKind::kDone, .id = open.round.id()}, members_.coordinator(),
               std::as_bytes(std::span(open.digest.bytes)), out);
}

void CommitProtocol::repeat_all_done(Outbox& out) {
  if (members_.coordinates()) return;
  for (const auto& [id, open] : rounds_.all()) {
    if (open.said_done && open.pending()) repeat_done(open, out);
  }
}

// A frame that has arrived whole and does not fit comes from a member whose configuration differs:
// if it were dropped, the member would repeat it for ever.
void CommitProtocol::take_done(WorkerId from, const Frame& frame, Outbox& out) {
  if (!members_.coordinates()) return;
  const SyncId& id = frame.header.id;
  Digest128 digest;
  if (frame.payload.size() != digest.bytes.size()) {
    refuse_done(from, frame, out);
    return;
  }
  std::memcpy(digest.bytes.data(), frame.payload.data(), digest.bytes.size());
  count_done(from, id, digest, out);
}

/// The round ends with the reason, for all, unless it has ended.
void CommitProtocol::refuse_done(WorkerId from, const Frame& frame, Outbox& out) {
  const SyncId& id = frame.header.id;
  if (const auto verdict = verdicts_.find(id); verdict != verdicts_.end()) {
    tell(from, id, Verdict(verdict->second), out);
  } else if (!through_everywhere(id)) {
    judge(id,
          ExchangeError{
              ExchangeError::Kind::kCorrupt, from,
              fmt::format("worker {} has ended fragment {} of step {} with a DONE of {} bytes, {}",
                          from.value(), id.fragment.value(), id.sent.value(), frame.payload.size(),
                          kMovingShares)},
          out);
  }
}

void CommitProtocol::count_done(WorkerId from, const SyncId& id, const Digest128& digest,
                                Outbox& out) {
  if (verdicts_.contains(id)) {
    tell(from, id, verdict_of(from, id, digest), out);  // it missed it, or DONE came twice
    return;
  }
  if (from != members_.self() && through_everywhere(id)) {
    return;  // a late copy
  }
  std::map<WorkerId, Digest128>& digests = dones_[id];
  digests[from] = digest;
  if (static_cast<std::ptrdiff_t>(digests.size()) <
      std::ranges::count(members_.membership().members_of(id.sent), true)) {
    return;
  }
  const bool agreed = std::ranges::all_of(
      digests, [&](const auto& entry) { return entry.second == digests.begin()->second; });
  if (!agreed && divergent_.single_out(id, digests)) {
    return;  // the round begins again without the member whose digest differs
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
Verdict CommitProtocol::verdict_of(WorkerId from, const SyncId& id, const Digest128& digest) const {
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

void CommitProtocol::judge(const SyncId& id, const Verdict& verdict, Outbox& out) {
  if (!verdicts_.emplace(id, verdict).second) {
    return;  // the first verdict counts
  }
  if (members_.is_hub() && !verdict) {
    committed_[id] = dones_.at(id).begin()->second;
    note_final(id, committed_[id]);
    decisions_.push_back(commit_record(id, committed_[id]));
  }
  dones_.erase(id);
  for (const WorkerId peer : members_.peers()) {
    tell(peer, id, verdict, out);
  }
  take_verdict(id, verdict);
}

void CommitProtocol::fail(OpenRound& open, const ExchangeError& error, Outbox& out) {
  open.failure = error;
  if (members_.coordinates()) {
    judge(open.round.id(), error, out);
  } else {
    tell(members_.coordinator(), open.round.id(), error, out);
  }
}

void CommitProtocol::give_up(const std::string& why, Outbox& out) {
  rounds_.set_given_up(why);
  for (auto& [id, open] : rounds_.all()) {
    if (open.pending()) {
      fail(open, {ExchangeError::Kind::kCorrupt, members_.self(), why}, out);
    }
  }
}

void CommitProtocol::tell(WorkerId to, const SyncId& id, const Verdict& verdict, Outbox& out) {
  if (!verdict) {
    sender_.send({.kind = FrameKind::kCommit, .id = id}, to, {}, out);
    return;
  }
  sender_.send({.kind = FrameKind::kAbort,
                .id = id,
                .part = static_cast<std::uint32_t>(verdict->peer.value()),
                .offset = static_cast<std::uint64_t>(verdict->kind)},
               to, std::as_bytes(std::span(verdict->what)), out);
}

void CommitProtocol::take_commit(const SyncId& id, std::span<const std::byte> payload,
                                 Outbox& out) {
  const OpenRound* found = rounds_.find(id);
  if (found == nullptr || !found->said_done || !found->pending()) {
    return;  // a repeated COMMIT, or one of a round that cannot have been committed
  }
  if (!payload.empty()) {
    give_up(fmt::format("fragment {} of step {} was committed with {} bytes, {}",
                        id.fragment.value(), id.sent.value(), payload.size(), kMovingShares),
            out);
    return;
  }
  take_verdict(id, std::nullopt);
}

void CommitProtocol::take_abort(WorkerId from, const Frame& frame, Outbox& out) {
  const auto kind = static_cast<ExchangeError::Kind>(frame.header.offset);
  const bool known = kind == ExchangeError::Kind::kPeerLost ||
                     kind == ExchangeError::Kind::kDiverged ||
                     kind == ExchangeError::Kind::kCorrupt;
  const ExchangeError error{
      known ? kind : ExchangeError::Kind::kCorrupt, WorkerId(static_cast<int>(frame.header.part)),
      std::string(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size())};
  if (members_.coordinates()) {
    judge(frame.header.id, error, out);
  } else if (from == members_.coordinator()) {
    take_verdict(frame.header.id, error);
  }
}

void CommitProtocol::take_verdict(const SyncId& id, const Verdict& verdict) {
  OpenRound* open = rounds_.find(id);
  if (open == nullptr || !open->pending()) {
    return;
  }
  if (verdict) {
    open->failure = *verdict;
    return;
  }
  if (!open->said_done) {
    return;  // the round cannot have been committed: a stray frame
  }
  close(*open);
}

// Every member has said DONE, so no member will request this round, or the rounds that it covers,
// again.
void CommitProtocol::close(OpenRound& open) {
  open.closed = true;
  committed_after_ = std::max(committed_after_, open.round.id().sent);
  through_.push_back({open.round.id(), open.begun});
  note_final(open.round.id(), open.digest);
  open.retained.reset();
  open.residual = {};
  open.round.drop_frames();
  for (const SyncId& id_covered : open.covers) {
    if (OpenRound* covered = rounds_.find(id_covered); covered != nullptr) {
      covered->round.drop_frames();
      covered->covered = true;
    }
  }
}

bool CommitProtocol::has_digest(const SyncId& id, WorkerId peer) const {
  const auto digests = dones_.find(id);
  return digests != dones_.end() && digests->second.contains(peer);
}

bool CommitProtocol::lacks_digest(const SyncId& id, WorkerId peer) const {
  const auto digests = dones_.find(id);
  return digests != dones_.end() && !digests->second.contains(peer);
}

bool CommitProtocol::waits_for_digest(const OpenRound& open, WorkerId peer, bool wanted) const {
  const SyncId& id = open.round.id();
  return members_.coordinates() && wanted && !open.closed &&
         members_.membership().takes_part(peer, id.sent) && !has_digest(id, peer);
}

/// At the coordinator: a member that still sends frames of that round has already said DONE.
bool CommitProtocol::through_everywhere(const SyncId& id) const {
  return (members_.is_hub() ? members_.all_closed(id.sent) : rounds_.over(id)) &&
         !rounds_.contains(id);
}

std::vector<SyncId> CommitProtocol::committed() const {
  std::vector<SyncId> rounds;
  for (const auto& [id, verdict] : verdicts_) {
    if (!verdict) rounds.push_back(id);
  }
  return rounds;
}

void CommitProtocol::forget_uncovered() {
  uncovered_.clear();
  uncommitted_.clear();
}

void CommitProtocol::forget_closed() {
  rounds_.forget_taken();
  std::erase_if(verdicts_, [&](const auto& each) { return members_.all_closed(each.first.sent); });
  std::erase_if(committed_, [&](const auto& each) { return !verdicts_.contains(each.first); });
}

void CommitProtocol::note_final(const SyncId& id, const Digest128& digest) {
  const auto [last, fresh] = newest_.emplace(id.fragment, std::pair(id.sent, digest));
  if (!fresh && last->second.first < id.sent) last->second = {id.sent, digest};
}

void CommitProtocol::restart() {
  dones_.clear();
  verdicts_.clear();
  committed_.clear();
  newest_.clear();
}

void CommitProtocol::restore(const SyncId& id, const Digest128& digest) {
  verdicts_.emplace(id, std::nullopt);
  committed_.emplace(id, digest);
  note_final(id, digest);
}

// The newest record of each fragment stays even if no member asks for it any more: members tell
// from it whether a log is as new as the decisions that they have been told.
std::vector<HubRecord> CommitProtocol::history() const {
  std::vector<HubRecord> records;
  std::map<SyncId, Digest128> kept = committed_;
  for (const auto& [fragment, last] : newest_) {
    kept.emplace(SyncId{fragment, last.first}, last.second);
  }
  for (const auto& [id, digest] : kept) {
    records.push_back(commit_record(id, digest));
  }
  return records;
}

}  // namespace isthmus
