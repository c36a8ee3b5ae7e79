// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/exchange_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "transport/wire/contributor_bits.h"

namespace isthmus {
namespace {

std::shared_ptr<const RoundRoutes> routes_of(const Contribution& contribution,
                                             const RoundPlace& place) {
  const ReductionKind kind =
      resolve_reduction(contribution.kind, *contribution.codec, place.members);
  return std::make_shared<const RoundRoutes>(place, *contribution.codec,
                                             contribution.encoded.values, kind);
}

}  // namespace

SharedContribution share(Contribution contribution) {
  auto bytes =
      std::make_shared<const std::vector<std::byte>>(std::move(contribution.encoded.bytes));
  contribution.encoded.bytes.clear();
  return {.form = std::move(contribution), .bytes = std::move(bytes)};
}

Round::Round(SharedContribution contribution, const RoundPlace& place)
    : id_(contribution.form.id),
      epoch_(place.epoch),
      closed_before_(place.closed_before),
      routes_(routes_of(contribution.form, place)),
      sending_(routes_, place),
      result_(routes_, {.id = contribution.form.id,
                        .codec = contribution.form.codec,
                        .owner_residual = contribution.form.owner_residual,
                        .values = contribution.form.encoded.values,
                        .run_key = place.run_key,
                        .keeps_encoded = place.keeps_encoded}),
      answers_again_(contribution.form.codec->lossless() && contribution.form.commit &&
                     contribution.form.owner_residual == nullptr && !place.keeps_encoded),
      parts_(routes_->parts()),
      group_weights_(routes_->plan().groups.size()) {
  const auto members = static_cast<std::size_t>(place.members);
  weights_.resize(members);
  for (std::size_t m = 0; m < members; ++m) {
    if (!routes_->takes_part(m)) weights_[m] = 0;
  }
  weights_[index(place.self)] = contribution.form.weight;
  frame_contribution(contribution);
}

void Round::frame_contribution(const SharedContribution& contribution) {
  const std::size_t members = weights_.size();
  const FrameBytes nothing =
      make_frame(header(FrameKind::kContribution));  // of a member that takes no part
  const double weight = contribution.form.weight;
  // Put together once and lent to all, where each would have a copy made of the pieces.
  const bool goes_to_several = routes_->plan().all_to_all() && members > 2;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const Part& part = routes_->part(k);
    FrameHeader head = header_of_part(FrameKind::kContribution, k);
    head.weight = weight;
    const std::span<const std::byte> bytes = *contribution.bytes;
    const bool gives = weight > 0;  // else it need not have bytes
    const std::span<const std::byte> payload =
        gives ? bytes.subspan(part.offset, part.bytes) : bytes.first(0);
    const FrameBytes own = goes_to_several ? make_frame(head, payload)
                                           : make_frame_around(head, payload, contribution.bytes);
    sending_.set_contribution(k, own);
    if (routes_->gathers(k)) {
      parts_[k].inputs.resize(members);
      for (std::size_t m = 0; m < members; ++m) {
        if (!routes_->feeds(m)) parts_[k].inputs[m] = nothing;
      }
      parts_[k].inputs[index(routes_->self())] = own;
    }
    if (routes_->owns(k)) parts_[k].partials.resize(routes_->plan().groups.size());
  }
}

FrameHeader Round::header(FrameKind kind) const {
  return {.kind = kind,
          .epoch = epoch_,
          .id = id_,
          .parts = static_cast<std::uint32_t>(routes_->parts()),
          .layout = routes_->plan().layout,
          .closed_before = closed_before_};
}

FrameHeader Round::header_of_part(FrameKind kind, std::size_t k) const {
  FrameHeader head = header(kind);
  head.part = static_cast<std::uint32_t>(k);
  head.offset = routes_->part(k).offset;
  return head;
}

Expected<void, ExchangeError> Round::launch(Outbox& out) {
  sending_.send_contributions(out);
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    if (routes_->gathers(k)) {
      if (auto ok = reduce_if_ready(k, out); !ok) {
        return ok;
      }
    }
  }
  return {};
}

Expected<void, ExchangeError> Round::receive(WorkerId from, const Frame& frame, FrameBytes bytes,
                                             bool& fresh, Outbox& out) {
  fresh = false;
  const FrameHeader& head = frame.header;
  if (head.layout != routes_->plan().layout || head.parts != routes_->parts()) {
    return fault(ExchangeError::Kind::kDiverged, from,
                 "sent it in another layout: codec, number of values, members, exchange or size "
                 "of chunks (of a configuration file: net.chunk) differ");
  }
  if (head.part >= parts_.size() || head.offset != routes_->part(head.part).offset) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a part that the round does not have");
  }
  switch (head.kind) {
    case FrameKind::kContribution:
      return take_contribution(from, frame, std::move(bytes), fresh, out);
    case FrameKind::kPartial:
      return take_partial(from, frame, std::move(bytes), fresh, out);
    default:
      return take_result(from, frame, std::move(bytes), fresh, out);
  }
}

Expected<void, ExchangeError> Round::take_contribution(WorkerId from, const Frame& frame,
                                                       FrameBytes bytes, bool& fresh, Outbox& out) {
  const std::size_t k = frame.header.part;
  const double weight = frame.header.weight;
  const std::size_t expected = weight > 0 ? routes_->part(k).bytes : 0;
  if (!routes_->gathers(k) || !routes_->feeds(index(from)) || frame.payload.size() != expected) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a part of the wrong size or owner");
  }
  if (weights_[index(from)].value_or(weight) != weight) {
    return fault(ExchangeError::Kind::kCorrupt, from, "changed its weight within the round");
  }
  weights_[index(from)] = weight;
  std::vector<FrameBytes>& inputs = parts_[k].inputs;
  if (result_.done(k) || inputs.empty() || inputs[index(from)] != nullptr) {
    return {};
  }
  fresh = true;
  inputs[index(from)] = std::move(bytes);
  return reduce_if_ready(k, out);
}

Expected<void, ExchangeError> Round::take_result(WorkerId from, const Frame& frame,
                                                 FrameBytes bytes, bool& fresh, Outbox& out) {
  const std::size_t k = frame.header.part;
  const ReductionPlan& plan = routes_->plan();
  const std::size_t prefix = bitmap_bytes(routes_->members());
  if (plan.all_to_all() || routes_->source(k) != from ||
      frame.payload.size() != prefix + routes_->part(k).bytes) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a result of the wrong size or owner");
  }
  if (result_.done(k)) {
    return {};
  }
  if (!result_.agree_on(read_bitmap(frame.payload.first(prefix), routes_->members()))) {
    return fault(ExchangeError::Kind::kDiverged, from, "counted other contributors");
  }
  if (auto ok = result_.decode_part(k, frame.payload.subspan(prefix)); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, from, ok.error());
  }
  fresh = true;
  if (result_.keeps_encoded()) result_.keep_encoded(k, {std::move(bytes)});
  sending_.drop_inputs_of(k);  // the owner answered, so it has every contribution to this part
  if (plan.two_levels() && routes_->gathers(k)) {
    // The owner's answer is passed on to the own group as frames of this member: the fields beside
    // the result are the sender's.
    parts_[k].inputs.clear();
    sending_.send_result(k, make_frame(header_of_part(FrameKind::kResult, k), frame.payload),
                         !answers_again_, out);
  }
  result_.finish(k);
  sending_.part_done(k, out);
  return {};
}

Expected<void, ExchangeError> Round::reduce_if_ready(std::size_t k, Outbox& out) {
  PartInputs& part = parts_[k];
  if (result_.done(k) || std::ranges::find(part.inputs, nullptr) != part.inputs.end()) {
    return {};
  }
  const ReductionPlan& plan = routes_->plan();
  if (plan.two_levels()) return close_group(k, out);
  std::vector<bool> contributes;
  for (std::size_t m = 0; m < part.inputs.size(); ++m) {
    contributes.push_back(weights_[m].value() > 0);
  }
  if (!result_.agree_on(contributes)) {
    return fault(ExchangeError::Kind::kDiverged, routes_->self(), "counts other contributors");
  }
  if (plan.kind == ReductionKind::kCollect) {
    result_.collect(k, part.inputs);
  } else if (auto ok = reduce_part(k); !ok) {
    return ok;
  }
  if (result_.keeps_encoded() && plan.kind == ReductionKind::kGather) {
    result_.keep_encoded(k, std::move(part.inputs));
  }
  part.inputs.clear();
  if (plan.kind == ReductionKind::kReduce) {
    if (auto ok = answer(k, out); !ok) {
      return ok;
    }
  }
  result_.finish(k);
  sending_.part_done(k, out);
  return {};
}

Expected<void, ExchangeError> Round::reduce_part(std::size_t k) {
  std::vector<WeightedBytes> members;
  for (std::size_t m = 0; m < parts_[k].inputs.size(); ++m) {
    members.push_back({payload_of(parts_[k].inputs[m]), weights_[m].value()});
  }
  if (auto ok = result_.reduce(k, members); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, WorkerId(static_cast<int>(ok.error().member)),
                 ok.error().what);
  }
  return {};
}

/// This member owns the part and has its mean: all get it encoded.
Expected<void, ExchangeError> Round::answer(std::size_t k, Outbox& out) {
  const std::size_t prefix = bitmap_bytes(routes_->members());
  FrameBuilder builder(header_of_part(FrameKind::kResult, k), prefix + routes_->part(k).bytes);
  write_bitmap(result_.contributes(), builder.payload().first(prefix));
  if (auto ok = result_.encode_mean(k, builder.payload().subspan(prefix)); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, routes_->self(), ok.error());
  }
  sending_.drop_inputs_of(k);
  const FrameBytes frame = std::move(builder).finish();
  if (result_.keeps_encoded()) result_.keep_encoded(k, {frame});
  sending_.send_result(k, frame, !answers_again_, out);
  return {};
}

FrameBytes Round::answer_again(std::size_t k) {
  const std::size_t prefix = bitmap_bytes(routes_->members());
  FrameBuilder builder(header_of_part(FrameKind::kResult, k), prefix + routes_->part(k).bytes);
  write_bitmap(result_.contributes(), builder.payload().first(prefix));
  result_.encode_part(k, kMeanWorker, builder.payload().subspan(prefix));
  return std::move(builder).finish();
}

void Round::send_again(WorkerId to, std::span<const RequestEntry> entries, std::uint32_t echo,
                       Outbox& out) {
  sending_.send_again(
      to, entries, echo, [this](std::size_t k) { return answer_again(k); }, out);
}

void Round::send_anew(WorkerId to, Outbox& out) {
  sending_.send_anew(
      to, [this](std::size_t k) { return answer_again(k); }, out);
}

/// All contributions of the own group are here.
Expected<void, ExchangeError> Round::close_group(std::size_t k, Outbox& out) {
  PartInputs& state = parts_[k];
  if (state.inputs.empty()) return {};
  const Part& part = routes_->part(k);
  const std::vector<WorkerId>& group = routes_->plan().groups[routes_->own_group()];
  std::vector<WeightedBytes> inputs;
  std::vector<bool> contributes(static_cast<std::size_t>(routes_->members()));
  FrameHeader head = header_of_part(FrameKind::kPartial, k);
  for (const WorkerId member : group) {
    const double weight = weights_[index(member)].value();
    inputs.push_back({payload_of(state.inputs[index(member)]), weight});
    contributes[index(member)] = weight > 0;
    head.weight += weight;
  }
  const std::size_t prefix = bitmap_bytes(routes_->members());
  FrameBuilder builder(head, prefix + (head.weight > 0 ? part.bytes : 0));
  write_bitmap(contributes, builder.payload().first(prefix));
  const std::span<std::byte> bytes = builder.payload().subspan(prefix);
  if (group.size() == 1) {
    std::ranges::copy(inputs.front().bytes, bytes.begin());
  } else if (head.weight > 0) {
    if (auto ok = result_.reduce(k, inputs); !ok) {
      return fault(ExchangeError::Kind::kCorrupt, group[ok.error().member], ok.error().what);
    }
    // Random roundings of one group are not those of another, nor those of the mean.
    const auto first = static_cast<std::uint32_t>(group.front().value());
    result_.encode_part(k, kMeanWorker - 1 - first, bytes);
  }
  state.inputs.clear();
  FrameBytes partial = std::move(builder).finish();
  if (!routes_->owns(k)) {
    sending_.send_partial(k, std::move(partial), out);
    return {};
  }
  group_weights_[routes_->own_group()] = head.weight;
  state.partials[routes_->own_group()] = std::move(partial);
  return mean_of_groups(k, out);
}

Expected<void, ExchangeError> Round::take_partial(WorkerId from, const Frame& frame,
                                                  FrameBytes bytes, bool& fresh, Outbox& out) {
  const std::size_t k = frame.header.part;
  const double weight = frame.header.weight;
  const std::size_t prefix = bitmap_bytes(routes_->members());
  const std::size_t expected = prefix + (weight > 0 ? routes_->part(k).bytes : 0);
  if (!routes_->collects_for_own_part(k, from) || frame.payload.size() != expected) {
    return fault(ExchangeError::Kind::kCorrupt, from, "sent a partial of the wrong size or owner");
  }
  std::vector<FrameBytes>& partials = parts_[k].partials;
  const std::size_t group = routes_->group_of(from);
  if (result_.done(k) || partials[group] != nullptr) {
    return {};
  }
  const std::vector<bool> bits = read_bitmap(frame.payload.first(prefix), routes_->members());
  bool of_group = (std::ranges::find(bits, true) != bits.end()) == (weight > 0);
  for (std::size_t m = 0; m < bits.size(); ++m) {
    of_group = of_group && (!bits[m] || routes_->group_of(WorkerId(static_cast<int>(m))) == group);
  }
  if (!of_group) {
    return fault(ExchangeError::Kind::kCorrupt, from, "counted contributors beyond its group");
  }
  if (group_weights_[group].value_or(weight) != weight) {
    return fault(ExchangeError::Kind::kCorrupt, from,
                 "changed the weight of its group within the round");
  }
  group_weights_[group] = weight;
  fresh = true;
  partials[group] = std::move(bytes);
  return mean_of_groups(k, out);
}

Expected<void, ExchangeError> Round::mean_of_groups(std::size_t k, Outbox& out) {
  std::vector<FrameBytes>& partials = parts_[k].partials;
  if (result_.done(k) || std::ranges::find(partials, nullptr) != partials.end()) {
    return {};
  }
  const ReductionPlan& plan = routes_->plan();
  const std::size_t prefix = bitmap_bytes(routes_->members());
  std::vector<WeightedBytes> means;
  std::vector<bool> contributes(static_cast<std::size_t>(routes_->members()));
  for (std::size_t g = 0; g < partials.size(); ++g) {
    const std::span<const std::byte> payload = payload_of(partials[g]);
    const std::vector<bool> bits = read_bitmap(payload.first(prefix), routes_->members());
    for (const WorkerId member : plan.groups[g]) contributes[index(member)] = bits[index(member)];
    means.push_back({payload.subspan(prefix), group_weights_[g].value()});
  }
  if (!result_.agree_on(contributes)) {
    return fault(ExchangeError::Kind::kDiverged, routes_->self(), "counts other contributors");
  }
  if (auto ok = result_.reduce(k, means); !ok) {
    return fault(ExchangeError::Kind::kCorrupt, plan.collector(k, ok.error().member),
                 ok.error().what);
  }
  partials.clear();
  if (auto ok = answer(k, out); !ok) {
    return ok;
  }
  result_.finish(k);
  sending_.part_done(k, out);
  return {};
}

bool Round::misses_partial(std::size_t k, WorkerId peer) const {
  const std::size_t group = routes_->group_of(peer);
  const std::vector<FrameBytes>& partials = parts_[k].partials;
  return group < partials.size() && routes_->plan().collector(k, group) == peer && !partials[group];
}

std::vector<RequestEntry> Round::missing_from(WorkerId peer) const {
  std::vector<RequestEntry> entries;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const std::vector<FrameBytes>& inputs = parts_[k].inputs;
    const bool done = result_.done(k);
    const bool contribution = !done && !inputs.empty() && !inputs[index(peer)];
    const bool result = !done && !routes_->plan().all_to_all() && routes_->source(k) == peer;
    const bool partial = !done && misses_partial(k, peer);
    if (!contribution && !result && !partial) {
      continue;
    }
    const FrameKind kind = contribution ? FrameKind::kContribution
                           : partial    ? FrameKind::kPartial
                                        : FrameKind::kResult;
    const auto part = static_cast<std::uint32_t>(k);
    if (!entries.empty() && entries.back().kind == kind &&
        entries.back().first + entries.back().count == part) {
      ++entries.back().count;
    } else if (entries.size() < kMaxRequestEntries) {
      entries.push_back({kind, part, 1});
    } else {
      break;
    }
  }
  return entries;
}

bool Round::nothing_from(WorkerId peer) const {
  bool waits = false;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    const std::vector<FrameBytes>& inputs = parts_[k].inputs;
    const bool sums = routes_->gathers(k) && routes_->feeds(index(peer));
    if (sums && (inputs.empty() || inputs[index(peer)] != nullptr)) return false;
    // Of a group of one, its partial is its contribution.
    const ReductionPlan& plan = routes_->plan();
    const bool alone = !sums && plan.two_levels() && routes_->owns(k) &&
                       plan.groups[routes_->group_of(peer)].size() == 1;
    if (alone && (result_.done(k) || !misses_partial(k, peer))) return false;
    waits = waits || sums || alone;
  }
  return waits;
}

bool Round::no_partial_from(WorkerId peer) const {
  bool waits = false;
  for (std::size_t k = 0; k < parts_.size() && routes_->plan().two_levels(); ++k) {
    if (!routes_->owns(k) || routes_->feeds(index(peer)) ||
        routes_->plan().collector(k, routes_->group_of(peer)) != peer) {
      continue;
    }
    if (result_.done(k) || !misses_partial(k, peer)) return false;
    waits = true;
  }
  return waits;
}

void Round::drop_frames() {
  for (PartInputs& part : parts_) part = {};
  sending_.drop_frames();
}

Reduced Round::take() {
  Reduced reduced = result_.take();
  reduced.payload_bytes = sending_.payload_bytes();
  reduced.wire_bytes = sending_.wire_bytes();
  return reduced;
}

Unexpected<ExchangeError> Round::fault(ExchangeError::Kind kind, WorkerId peer,
                                       const std::string& what) const {
  return Unexpected<ExchangeError>(
      ExchangeError{kind, peer,
                    fmt::format("fragment {} of step {}: worker {} {}", id_.fragment.value(),
                                id_.sent.value(), peer.value(), what)});
}

}  // namespace isthmus
