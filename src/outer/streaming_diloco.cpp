// SPDX-License-Identifier: Apache-2.0
#include "outer/streaming_diloco.h"

#include <fmt/format.h>

#include <utility>

#include "core/check.h"
#include "isthmus/errors.h"

namespace isthmus::outer {
namespace {

std::size_t index(FragmentId id) { return static_cast<std::size_t>(id.value()); }

}  // namespace

StreamingDiLoCo::StreamingDiLoCo(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange)
    : settings_(std::move(settings)),
      inner_(inner),
      exchange_(exchange),
      places_(inner.parameters().size()),
      last_sent_(settings_.fragments.size()) {
  for (const Fragment& fragment : settings_.fragments) {
    std::size_t begin = 0;
    for (const std::size_t i : fragment.parameters) {
      places_[i] = {index(fragment.id), begin, inner.parameters()[i].values.size()};
      begin += places_[i].size;
    }
    fragments_.emplace_back(fragment, inner.parameters(), settings_.has_momentum());
  }
}

StepReport StreamingDiLoCo::step() {
  const StepIndex t(steps_.value() + 1);
  StepReport report{.step = t, .inner = inner_.train_step(t), .rounds = {}};
  for (const Sync& sync : settings_.schedule.due_to_send(t)) {
    send(sync);
  }
  report.rounds = apply_due(t);
  steps_ = t;
  return report;
}

void StreamingDiLoCo::send(const Sync& sync) {
  const EncodeKey key =
      encode_key({sync.fragment, sync.sent}, static_cast<std::uint32_t>(exchange_.self().value()));
  launch(sync, state(sync.fragment).encode_outer_gradient(*settings_.codec, key));
}

void StreamingDiLoCo::launch(const Sync& sync, Encoded encoded) {
  const bool may_be_saved = sync.apply > sync.sent;
  Encoded copy = may_be_saved ? encoded : Encoded{};
  const Ticket ticket = exchange_.begin({.id = {sync.fragment, sync.sent},
                                         .encoded = std::move(encoded),
                                         .codec = settings_.codec,
                                         .weight = 1,
                                         .kind = settings_.exchange,
                                         .commit = true});
  in_flight_.push_back({sync, ticket, std::move(copy)});
  last_sent_[index(sync.fragment)] = sync.sent;
}

std::vector<RoundReport> StreamingDiLoCo::apply_due(StepIndex step) {
  std::vector<RoundReport> reports;
  while (!in_flight_.empty() && in_flight_.front().sync.apply <= step) {
    reports.push_back(settle_and_apply(in_flight_.front()));
    reports.back().applied = step;
    in_flight_.erase(in_flight_.begin());
  }
  return reports;
}

RoundReport StreamingDiLoCo::settle_and_apply(const InFlight& round) {
  const Expected<Reduced, ExchangeError> mean = exchange_.wait(round.ticket, settings_.patience);
  if (!mean) {
    throw round_failure(exchange_.self(), "outer sync", mean.error());
  }
  // Nobody contributed: no outer step, its momentum included, and the local work goes on.
  if (!mean->contributors.empty()) {
    FragmentState& fragment = state(round.sync.fragment);
    fragment.step(settings_.optimizer, mean->values);
    fragment.merge(settings_.alpha);
  }
  return {.fragment = round.sync.fragment,
          .sent = round.sync.sent,
          .applied = {},
          .members = static_cast<int>(mean->contributors.size()),
          .payload_bytes = mean->payload_bytes,
          .wire_bytes = mean->wire_bytes,
          .delta_norm = l2_norm(mean->values),
          .waited = mean->waited};
}

// A fragment sent at the last step has nothing newer to give, so a full sync leaves it out.
std::vector<RoundReport> StreamingDiLoCo::finish() {
  if (settings_.final_sync == FinalSync::kNone) {
    in_flight_.clear();
    return {};
  }
  for (InFlight& round : in_flight_) {
    round.sync.apply = steps_;
  }
  std::vector<RoundReport> reports = apply_due(steps_);
  if (settings_.final_sync == FinalSync::kFull) {
    for (const Fragment& fragment : settings_.fragments) {
      if (last_sent_[index(fragment.id)] != steps_) {
        send({fragment.id, steps_, steps_});
      }
    }
    const std::vector<RoundReport> last = apply_due(steps_);
    reports.insert(reports.end(), last.begin(), last.end());
  }
  return reports;
}

std::span<const float> StreamingDiLoCo::values(std::size_t parameter) const {
  const Place& place = places_.at(parameter);
  return fragments_[place.fragment].anchor().subspan(place.begin, place.size);
}

FragmentState& StreamingDiLoCo::state(FragmentId id) { return fragments_.at(index(id)); }

void StreamingDiLoCo::save(StateWriter& writer) const {
  save_identity(identity_of(settings_, inner_.parameters()), writer);
  writer.integer("step", steps_.value());
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    writer.tensor(fmt::format("anchor/{}", p), fragments_[p].anchor());
    writer.integer(fmt::format("last_sent/{}", p), last_sent_[p].value());
    if (settings_.has_momentum()) {
      writer.tensor(fmt::format("momentum/{}", p), fragments_[p].momentum());
    }
  }
  writer.integer("in_flight", static_cast<std::int64_t>(in_flight_.size()));
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    writer.integer(fmt::format("in_flight/{}/fragment", i), in_flight_[i].sync.fragment.value());
    writer.integer(fmt::format("in_flight/{}/sent", i), in_flight_[i].sync.sent.value());
    writer.bytes(fmt::format("in_flight/{}/encoded", i), in_flight_[i].encoded.bytes);
  }
}

void StreamingDiLoCo::load(StateReader& reader) {
  ISTHMUS_CHECK(in_flight_.empty(), in_flight_.size());
  check_identity(identity_of(settings_, inner_.parameters()), reader);
  steps_ = StepIndex(reader.integer("step"));
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    reader.tensor(fmt::format("anchor/{}", p), fragments_[p].anchor());
    last_sent_[p] = StepIndex(reader.integer(fmt::format("last_sent/{}", p)));
    if (settings_.has_momentum()) {
      const std::string name = fmt::format("momentum/{}", p);
      if (reader.contains(name)) {
        reader.tensor(name, fragments_[p].momentum());
      }
    }
  }
  const std::int64_t rounds = reader.integer("in_flight");
  for (std::int64_t i = 0; i < rounds; ++i) {
    const FragmentId id(static_cast<int>(reader.integer(fmt::format("in_flight/{}/fragment", i))));
    const StepIndex sent(reader.integer(fmt::format("in_flight/{}/sent", i)));
    Encoded encoded{.values = state(id).size(),
                    .bytes = reader.bytes(fmt::format("in_flight/{}/encoded", i))};
    if (encoded.bytes.size() != encoded_bytes(*settings_.codec, encoded.values)) {
      throw RunError(
          fmt::format("checkpoint: the sync in flight of fragment {} has {} bytes; {} "
                      "values in {} take {}",
                      id.value(), encoded.bytes.size(), encoded.values, settings_.codec->name(),
                      encoded_bytes(*settings_.codec, encoded.values)));
    }
    launch({id, sent, StepIndex(sent.value() + settings_.schedule.overlap())}, std::move(encoded));
  }
}

}  // namespace isthmus::outer
