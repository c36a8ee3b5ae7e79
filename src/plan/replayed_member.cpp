// SPDX-License-Identifier: Apache-2.0
#include "plan/replayed_member.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "transport/wire/frame.h"

namespace isthmus::plan {
namespace {

using FrameKind = ReplayedFrame::Kind;

constexpr std::uint64_t kReplayedDoneBytes = kFrameOverheadBytes + sizeof(Digest128::bytes);

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

// The sender's next neighbour first, each destination's parts in order.
void ReplayedMember::begin(int shape_index, Outbox& out) {
  const RoundShape& shape = shapes_[at(shape_index)];
  const int number = begun_++;
  Round& round = rounds_[number];
  round.shape = shape_index;
  round.parts.resize(shape.parts.size());
  round.open_parts = shape.parts.size();
  if (shape.commits) {
    round.covers = std::exchange(uncovered_, {});
    unsettled_.emplace(shape.fragment, number);
  } else {
    uncovered_.push_back(number);
  }
  for (std::size_t hop = 1; hop < members_; ++hop) {
    const std::size_t to = (self_ + hop) % members_;
    for (std::size_t k = 0; k < shape.parts.size(); ++k) {
      const RoundShape::Part& part = shape.parts[k];
      if (shape.all_to_all || part.owner == static_cast<int>(to)) {
        out.push_back({.kind = FrameKind::kContribution,
                       .to = to,
                       .round = number,
                       .shape = shape_index,
                       .part = static_cast<int>(k),
                       .payload = part.bytes,
                       .bytes = kFrameOverheadBytes + part.bytes});
      }
    }
  }
  if (round.open_parts == 0) finish_round(number);
  for (std::size_t k = 0; k < shape.parts.size(); ++k) {
    if (reduces(shape.parts[k])) add_input(number, static_cast<int>(k), out);
  }
  if (const auto early = early_.extract(number)) {
    for (const ReplayedFrame& frame : early.mapped()) feed(number, frame, out);
  }
  say_done_where_whole(out);
}

void ReplayedMember::receive(const ReplayedFrame& frame, Outbox& out) {
  switch (frame.kind) {
    case FrameKind::kContribution:
    case FrameKind::kResult:
      frame.round < begun_ ? feed(frame.round, frame, out) : early_[frame.round].push_back(frame);
      say_done_where_whole(out);
      return;
    case FrameKind::kDone:
      take_done(frame.round, out);
      return;
    case FrameKind::kCommit:
      close(frame.round);
      return;
    case FrameKind::kBye:
      return;
  }
}

void ReplayedMember::leave(Outbox& out) {
  to_peers({.kind = FrameKind::kBye, .bytes = kFrameOverheadBytes}, out);
}

void ReplayedMember::feed(int number, const ReplayedFrame& frame, Outbox& out) {
  frame.kind == FrameKind::kContribution ? add_input(number, frame.part, out)
                                         : finish_part(number, frame.part);
}

void ReplayedMember::add_input(int number, int part, Outbox& out) {
  Round& round = rounds_.at(number);
  if (++round.parts[at(part)].inputs < members_) return;
  const RoundShape& shape = shapes_[at(round.shape)];
  if (!shape.all_to_all) {
    const std::uint64_t payload = shape.parts[at(part)].bytes;
    const std::uint64_t contributor_bits = (members_ + 7) / 8;
    for (std::size_t hop = 1; hop < members_; ++hop) {
      out.push_back({.kind = FrameKind::kResult,
                     .to = (self_ + hop) % members_,
                     .round = number,
                     .shape = round.shape,
                     .part = part,
                     .payload = payload,
                     .bytes = kFrameOverheadBytes + contributor_bits + payload});
    }
  }
  finish_part(number, part);
}

void ReplayedMember::finish_part(int number, int part) {
  Round& round = rounds_.at(number);
  ISTHMUS_CHECK(!round.parts[at(part)].done, number, part);
  round.parts[at(part)].done = true;
  if (--round.open_parts == 0) finish_round(number);
}

// A round that commits is closed by its verdict only.
void ReplayedMember::finish_round(int number) {
  Round& round = rounds_.at(number);
  if (shapes_[at(round.shape)].commits) return;
  round.closed = true;
  uncommitted_.insert(number);
}

void ReplayedMember::say_done_where_whole(Outbox& out) {
  for (auto it = unsettled_.begin(); it != unsettled_.end();) {
    const int number = it->second;
    Round& round = rounds_.at(number);
    const bool whole = round.open_parts == 0 && std::ranges::all_of(round.covers, [&](int covered) {
                         return uncommitted_.contains(covered);
                       });
    if (!whole) {
      ++it;
      continue;
    }
    it = unsettled_.erase(it);
    for (const int covered : round.covers) uncommitted_.erase(covered);
    if (self_ == 0) {
      take_done(number, out);
    } else {
      out.push_back(
          {.kind = FrameKind::kDone, .to = 0, .round = number, .bytes = kReplayedDoneBytes});
    }
  }
}

void ReplayedMember::take_done(int number, Outbox& out) {
  if (++dones_[number] < members_) return;
  dones_.erase(number);
  to_peers({.kind = FrameKind::kCommit, .round = number, .bytes = kFrameOverheadBytes}, out);
  close(number);
}

void ReplayedMember::close(int number) { rounds_.at(number).closed = true; }

void ReplayedMember::to_peers(const ReplayedFrame& frame, Outbox& out) const {
  for (std::size_t to = 0; to < members_; ++to) {
    if (to == self_) continue;
    out.push_back(frame);
    out.back().to = to;
  }
}

}  // namespace isthmus::plan
