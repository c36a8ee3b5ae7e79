// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/tree/tree_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
struct TreeExchange::Round {
  /// The children's sums to one part, in member order; null until they are here.
  struct Sum {
    std::vector<FrameBytes> of_child;
    std::size_t missing = 0;
  };

  SyncId id;
  std::shared_ptr<const Codec> codec;  // with whoever made the contribution
  Encoded own;
  bool commits = true;
  TreePlan plan;
  std::vector<Sum> sums;       // by part
  std::vector<bool> has_mean;  // by part
  std::size_t parts_missing = 0;
  Reduced result;
  ByteCounts sent_before;
  std::map<WorkerId, Digest128> dones;  // at member 0
  bool committed = false;
  std::optional<ExchangeError> error;

  [[nodiscard]] bool complete() const { return parts_missing == 0 && (committed || !commits); }
  [[nodiscard]] std::span<const std::byte> own_bytes(const Part& part) const {
    return std::span(own.bytes).subspan(part.offset, part.bytes);
  }
  [[nodiscard]] std::span<float> mean_of(const Part& part) {
    return std::span(result.values).subspan(part.first_value, part.values);
  }
};

TreeExchange::TreeExchange(Transport& transport, const Runtime& runtime, TreeShape shape)
    : transport_(transport), clock_(runtime.clock()), shape_(std::move(shape)) {}

TreeExchange::~TreeExchange() { transport_.close(); }

EncodeKey TreeExchange::key(const SyncId& id) const {
  return encode_key(id, static_cast<std::uint32_t>(self().value()));
}

void TreeExchange::send(WorkerId to, FrameBytes frame) {
  sent_.wire += frame->size();
  const FrameOrder order = *order_of(frame);
  if (is_values(order.kind)) sent_.payload += payload_of(frame).size();
  transport_.send(to, std::move(frame));
}

Ticket TreeExchange::begin(Contribution contribution) {
  ISTHMUS_CHECK(round_ == nullptr);
  ISTHMUS_CHECK(contribution.weight == 1, contribution.weight);
  ISTHMUS_CHECK(contribution.owner_residual == nullptr);
  round_ = std::make_unique<Round>();
  Round& round = *round_;
  round.id = contribution.id;
  round.codec = std::move(contribution.codec);
  round.own = std::move(contribution.encoded);
  round.commits = contribution.commit;
  round.plan = make_tree_plan(*round.codec, round.own.values, members(), shape_);
  round.sent_before = sent_;
  const std::vector<Part>& parts = round.plan.cut.parts;
  round.sums.resize(parts.size());
  round.has_mean.resize(parts.size());
  round.parts_missing = parts.size();
  round.result.values.resize(round.own.values);
  for (int m = 0; m < members(); ++m) round.result.contributors.emplace_back(m);
  for (std::size_t k = 0; k < parts.size(); ++k) {
    Round::Sum& sum = round.sums[k];
    sum.missing = round.plan.tree(k).children(self().value()).size();
    sum.of_child.resize(sum.missing);
    if (sum.missing == 0) pass_on(k);
  }
  if (parts.empty()) finish_part();
  for (const WorkerId peer : std::exchange(lost_, {})) take_loss(peer);
  for (const ReceivedFrame& frame : std::exchange(early_, {})) take(frame);
  return {round.id};
}

bool TreeExchange::poll(const Ticket& ticket) {
  ISTHMUS_CHECK(round_ != nullptr && round_->id == ticket.id);
  take_frames(clock_.now());
  return round_->error || round_->complete();
}

Expected<Reduced, ExchangeError> TreeExchange::wait(const Ticket& ticket, Duration patience) {
  ISTHMUS_CHECK(round_ != nullptr && round_->id == ticket.id);
  const TimePoint begin = clock_.now();
  take_frames(begin + patience);
  if (!round_->error && !round_->complete()) {
    return Unexpected<ExchangeError>(
        ExchangeError{ExchangeError::Kind::kDeadlineExceeded, self(),
                      fmt::format("{} of {} parts, and the commit, are missing",
                                  round_->parts_missing, round_->plan.cut.parts.size())});
  }
  const std::unique_ptr<Round> round = std::move(round_);
  if (round->error) return Unexpected<ExchangeError>(*round->error);
  round->result.payload_bytes = sent_.payload - round->sent_before.payload;
  round->result.wire_bytes = sent_.wire - round->sent_before.wire;
  round->result.waited = clock_.now() - begin;
  return std::move(round->result);
}

void TreeExchange::take_frames(TimePoint deadline) {
  while (!round_->error && !round_->complete()) {
    const Expected<ReceivedFrame, TransportError> received = transport_.receive(deadline);
    if (received) {
      take(*received);
    } else if (received.error().kind == TransportError::Kind::kPeerLost) {
      take_loss(received.error().peer);
    } else if (received.error().kind == TransportError::Kind::kDeadlineExceeded) {
      return;
    } else {
      fail(ExchangeError::Kind::kPeerLost, self(), "the links are closed");
    }
  }
}

void TreeExchange::take(const ReceivedFrame& received) {
  const Expected<Frame, FrameError> frame = parse_frame(*received.bytes);
  if (!frame) return fail(ExchangeError::Kind::kCorrupt, received.from, frame.error().what);
  const FrameHeader& header = frame->header;
  if (header.id != round_->id) {
    early_.push_back(received);
    return;
  }
  if (header.layout != round_->plan.cut.layout) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a frame of another cut or tree");
  }
  switch (header.kind) {
    case FrameKind::kDone: {
      Digest128 digest;
      if (frame->payload.size() != digest.bytes.size() || self() != WorkerId(0)) break;
      std::ranges::copy(frame->payload, std::as_writable_bytes(std::span(digest.bytes)).begin());
      return take_done(received.from, digest);
    }
    case FrameKind::kCommit:
      round_->committed = true;
      return;
    case FrameKind::kAbort:
      return fail(ExchangeError::Kind::kDiverged, received.from, "results differ");
    case FrameKind::kContribution:
    case FrameKind::kPartial:
    case FrameKind::kResult: {
      const std::vector<Part>& parts = round_->plan.cut.parts;
      if (header.part >= parts.size() || frame->payload.size() != parts[header.part].bytes) break;
      return header.kind == FrameKind::kResult ? take_mean(header.part, received)
                                               : take_sum(header.part, received);
    }
    default:
      break;
  }
  fail(ExchangeError::Kind::kCorrupt, received.from, "a frame that says nothing here");
}

void TreeExchange::take_sum(std::size_t part, const ReceivedFrame& received) {
  const std::vector<int> children = round_->plan.tree(part).children(self().value());
  const auto child = std::ranges::find(children, received.from.value());
  Round::Sum& sum = round_->sums[part];
  const auto place = static_cast<std::size_t>(child - children.begin());
  if (child == children.end() || sum.of_child[place] != nullptr) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a sum that nobody waits for");
  }
  sum.of_child[place] = received.bytes;
  if (--sum.missing == 0) pass_on(part);
}

void TreeExchange::pass_on(std::size_t part) {
  Round& round = *round_;
  const SumTree& tree = round.plan.tree(part);
  const Part& cut = round.plan.cut.parts[part];
  Round::Sum& sum = round.sums[part];
  const WorkerId above(tree.up[static_cast<std::size_t>(self().value())]);
  if (sum.of_child.empty() && !tree.root(self().value())) {
    return send(above, frame_of(FrameKind::kContribution, part, round.own_bytes(cut)));
  }
  std::vector<float> values(cut.values);
  for (std::size_t i = 0; i < sum.of_child.size(); ++i) {
    if (!decode_add(*round.codec, payload_of(sum.of_child[i]), values)) {
      return fail(ExchangeError::Kind::kCorrupt, WorkerId(tree.children(self().value())[i]),
                  "a sum that does not decode");
    }
  }
  sum.of_child.clear();
  ISTHMUS_CHECK(decode_add(*round.codec, round.own_bytes(cut), values).has_value());
  const bool root = tree.root(self().value());
  if (root) {
    for (float& value : values) value /= static_cast<float>(members());
  }
  // No two encodings of a part draw the same random bits.
  EncodeKey key = encode_key(
      round.id, root ? kMeanWorker : kMeanWorker - 1 - static_cast<std::uint32_t>(self().value()));
  key.tile = cut.first_value / kTileValues;
  const Encoded encoded = encode(*round.codec, values, key);
  if (!root) return send(above, frame_of(FrameKind::kPartial, part, encoded.bytes));
  take_mean(part, {self(), frame_of(FrameKind::kResult, part, encoded.bytes)});
}

void TreeExchange::take_mean(std::size_t part, const ReceivedFrame& received) {
  Round& round = *round_;
  const SumTree& tree = round.plan.tree(part);
  const int from = tree.down[static_cast<std::size_t>(self().value())];
  if (round.has_mean[part] || received.from.value() != (from < 0 ? self().value() : from)) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a mean that nobody waits for");
  }
  if (!decode(*round.codec, payload_of(received.bytes),
              round.mean_of(round.plan.cut.parts[part]))) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a mean that does not decode");
  }
  for (const int to : tree.followers(self().value())) send(WorkerId(to), received.bytes);
  round.has_mean[part] = true;
  --round.parts_missing;
  finish_part();
}

void TreeExchange::finish_part() {
  Round& round = *round_;
  if (round.parts_missing > 0 || !round.commits) return;
  const Digest128 digest = xxh3_128(std::as_bytes(std::span(round.result.values)));
  if (self() == WorkerId(0)) return take_done(self(), digest);
  send(WorkerId(0), frame_of(FrameKind::kDone, 0, std::as_bytes(std::span(digest.bytes))));
}

void TreeExchange::take_done(WorkerId from, const Digest128& digest) {
  Round& round = *round_;
  round.dones[from] = digest;
  if (static_cast<int>(round.dones.size()) < members()) return;
  const bool agreed = std::ranges::all_of(
      round.dones, [&](const auto& done) { return done.second == round.dones.begin()->second; });
  for (int to = 1; to < members(); ++to) {
    send(WorkerId(to), frame_of(agreed ? FrameKind::kCommit : FrameKind::kAbort, 0, {}));
  }
  round.committed = agreed;
  if (!agreed) fail(ExchangeError::Kind::kDiverged, self(), "results differ");
}

// Who is through with a round may leave at once, so not every loss is one for this round.
void TreeExchange::take_loss(WorkerId peer) {
  const Round& round = *round_;
  const bool needed = round.parts_missing > 0 ||
                      (self() == WorkerId(0) ? !round.dones.contains(peer) : peer == WorkerId(0));
  if (needed && !round.complete()) {
    fail(ExchangeError::Kind::kPeerLost, peer, fmt::format("member {} is lost", peer.value()));
  } else {
    lost_.push_back(peer);
  }
}

FrameBytes TreeExchange::frame_of(FrameKind kind, std::size_t part,
                                  std::span<const std::byte> payload) const {
  const ReductionPlan& cut = round_->plan.cut;
  return make_frame({.kind = kind,
                     .id = round_->id,
                     .part = static_cast<std::uint32_t>(part),
                     .parts = static_cast<std::uint32_t>(cut.parts.size()),
                     .offset = cut.parts.empty() ? 0 : cut.parts[part].offset,
                     .layout = cut.layout,
                     .weight = 1},
                    payload);
}

void TreeExchange::fail(ExchangeError::Kind kind, WorkerId peer, std::string what) {
  if (!round_->error) round_->error = ExchangeError{kind, peer, std::move(what)};
}

}  // namespace isthmus
