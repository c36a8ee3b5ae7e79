// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/ring/ring_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
struct RingExchange::Round {
  SyncId id;
  std::shared_ptr<const Codec> codec;  // with whoever made the contribution
  Encoded own;
  bool commits = true;
  RingPlan plan;
  std::vector<bool> has_sum;   // by part: the predecessor's sum is here, or none comes
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

RingExchange::RingExchange(Transport& transport, const Runtime& runtime, std::vector<int> order)
    : transport_(transport), clock_(runtime.clock()), order_(std::move(order)) {}

RingExchange::~RingExchange() { transport_.close(); }

EncodeKey RingExchange::key(const SyncId& id) const {
  return encode_key(id, static_cast<std::uint32_t>(self().value()));
}

void RingExchange::send(WorkerId to, FrameBytes frame) {
  sent_.wire += frame->size();
  const FrameOrder order = *order_of(frame);
  if (is_values(order.kind)) sent_.payload += payload_of(frame).size();
  transport_.send(to, std::move(frame));
}

Ticket RingExchange::begin(Contribution contribution) {
  ISTHMUS_CHECK(round_ == nullptr);
  ISTHMUS_CHECK(contribution.weight == 1, contribution.weight);
  ISTHMUS_CHECK(contribution.owner_residual == nullptr);
  round_ = std::make_unique<Round>();
  Round& round = *round_;
  round.id = contribution.id;
  round.codec = std::move(contribution.codec);
  round.own = std::move(contribution.encoded);
  round.commits = contribution.commit;
  round.plan = make_ring_plan(*round.codec, round.own.values, members(), order_);
  round.sent_before = sent_;
  const std::vector<Part>& parts = round.plan.cut.parts;
  round.has_sum.resize(parts.size());
  round.has_mean.resize(parts.size());
  round.parts_missing = parts.size();
  round.result.values.resize(round.own.values);
  for (int m = 0; m < members(); ++m) round.result.contributors.emplace_back(m);
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (!round.plan.begins_sum(k, self().value())) continue;
    round.has_sum[k] = true;
    pass_on(k, nullptr);
  }
  if (parts.empty()) finish_part();
  for (const WorkerId peer : std::exchange(lost_, {})) take_loss(peer);
  for (const ReceivedFrame& frame : std::exchange(early_, {})) take(frame);
  return {round.id};
}

bool RingExchange::poll(const Ticket& ticket) {
  ISTHMUS_CHECK(round_ != nullptr && round_->id == ticket.id);
  take_frames(clock_.now());
  return round_->error || round_->complete();
}

Expected<Reduced, ExchangeError> RingExchange::wait(const Ticket& ticket, Duration patience) {
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

void RingExchange::take_frames(TimePoint deadline) {
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

void RingExchange::take(const ReceivedFrame& received) {
  const Expected<Frame, FrameError> frame = parse_frame(*received.bytes);
  if (!frame) return fail(ExchangeError::Kind::kCorrupt, received.from, frame.error().what);
  const FrameHeader& header = frame->header;
  if (header.id != round_->id) {
    early_.push_back(received);
    return;
  }
  if (header.layout != round_->plan.cut.layout) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a frame of another cut or ring");
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

void RingExchange::take_sum(std::size_t part, const ReceivedFrame& received) {
  Round& round = *round_;
  if (round.has_sum[part] || received.from.value() != round.plan.before_of(self().value())) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a sum that nobody waits for");
  }
  round.has_sum[part] = true;
  pass_on(part, received.bytes);
}

void RingExchange::pass_on(std::size_t part, const FrameBytes& sum) {
  Round& round = *round_;
  const Part& cut = round.plan.cut.parts[part];
  const WorkerId next(round.plan.next_of(self().value()));
  if (sum == nullptr) {
    return send(next, frame_of(FrameKind::kContribution, part, round.own_bytes(cut)));
  }
  std::vector<float> values(cut.values);
  if (!decode_add(*round.codec, payload_of(sum), values)) {
    return fail(ExchangeError::Kind::kCorrupt, WorkerId(round.plan.before_of(self().value())),
                "a sum that does not decode");
  }
  ISTHMUS_CHECK(decode_add(*round.codec, round.own_bytes(cut), values).has_value());
  const bool root = round.plan.root(part) == self().value();
  if (root) {
    for (float& value : values) value /= static_cast<float>(members());
  }
  // No two encodings of a part draw the same random bits.
  EncodeKey key = encode_key(
      round.id, root ? kMeanWorker : kMeanWorker - 1 - static_cast<std::uint32_t>(self().value()));
  key.tile = cut.first_value / kTileValues;
  const Encoded encoded = encode(*round.codec, values, key);
  if (!root) return send(next, frame_of(FrameKind::kPartial, part, encoded.bytes));
  take_mean(part, {self(), frame_of(FrameKind::kResult, part, encoded.bytes)});
}

void RingExchange::take_mean(std::size_t part, const ReceivedFrame& received) {
  Round& round = *round_;
  const int own = self().value();
  const int from = round.plan.root(part) == own ? own : round.plan.before_of(own);
  if (round.has_mean[part] || received.from.value() != from) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a mean that nobody waits for");
  }
  if (!decode(*round.codec, payload_of(received.bytes),
              round.mean_of(round.plan.cut.parts[part]))) {
    return fail(ExchangeError::Kind::kCorrupt, received.from, "a mean that does not decode");
  }
  if (round.plan.passes_mean(part, own)) {
    send(WorkerId(round.plan.next_of(own)), received.bytes);
  }
  round.has_mean[part] = true;
  --round.parts_missing;
  finish_part();
}

void RingExchange::finish_part() {
  Round& round = *round_;
  if (round.parts_missing > 0 || !round.commits) return;
  const Digest128 digest = xxh3_128(std::as_bytes(std::span(round.result.values)));
  if (self() == WorkerId(0)) return take_done(self(), digest);
  send(WorkerId(0), frame_of(FrameKind::kDone, 0, std::as_bytes(std::span(digest.bytes))));
}

void RingExchange::take_done(WorkerId from, const Digest128& digest) {
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
void RingExchange::take_loss(WorkerId peer) {
  const Round& round = *round_;
  const bool needed = round.parts_missing > 0 ||
                      (self() == WorkerId(0) ? !round.dones.contains(peer) : peer == WorkerId(0));
  if (needed && !round.complete()) {
    fail(ExchangeError::Kind::kPeerLost, peer, fmt::format("member {} is lost", peer.value()));
  } else {
    lost_.push_back(peer);
  }
}

FrameBytes RingExchange::frame_of(FrameKind kind, std::size_t part,
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

void RingExchange::fail(ExchangeError::Kind kind, WorkerId peer, std::string what) {
  if (!round_->error) round_->error = ExchangeError{kind, peer, std::move(what)};
}

}  // namespace isthmus
