// SPDX-License-Identifier: Apache-2.0
#include "session/site/note_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

namespace isthmus::app {

using nlohmann::json;

namespace {

json number_or_null(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}
std::optional<double> optional_number(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

json of_round(const RoundReport& r) {
  json fields = {r.fragment.value(),
                 r.sent.value(),
                 r.applied.value(),
                 r.members,
                 r.counted,
                 r.payload_bytes,
                 r.wire_bytes,
                 r.delta_norm,
                 number_or_null(r.codec_error),
                 number_or_null(r.cosine),
                 r.waited.count(),
                 r.closing};
  if (r.merge > 0) {
    fields.push_back(r.merge);
    fields.push_back(r.tokens);
  }
  return fields;
}

RoundReport round_of(const json& r) {
  return {.fragment = FragmentId(whole_number<int>(r.at(0))),
          .sent = StepIndex(whole_number<std::int64_t>(r.at(1))),
          .applied = StepIndex(whole_number<std::int64_t>(r.at(2))),
          .members = whole_number<int>(r.at(3)),
          .counted = r.at(4).get<bool>(),
          .payload_bytes = whole_number<std::uint64_t>(r.at(5)),
          .wire_bytes = whole_number<std::uint64_t>(r.at(6)),
          .delta_norm = r.at(7).get<double>(),
          .codec_error = optional_number(r.at(8)),
          .cosine = optional_number(r.at(9)),
          .waited = Duration(whole_number<std::int64_t>(r.at(10))),
          .closing = r.size() > 11 && r.at(11).get<bool>(),
          .merge = r.size() > 12 ? whole_number<std::int64_t>(r.at(12)) : 0,
          .tokens = r.size() > 12 ? whole_number<std::int64_t>(r.at(13)) : 0};
}

}  // namespace

json of_post(const StepPost& p) {
  json rounds = json::array();
  for (const RoundReport& round : p.report.rounds) {
    rounds.push_back(of_round(round));
  }
  const InnerStep& inner = p.report.inner;
  return {p.report.step.value(),
          inner.loss,
          inner.grad_norm,
          inner.tokens,
          inner.idle,
          p.learning_rate,
          p.now.time_since_epoch().count(),
          p.sent.payload,
          p.sent.wire,
          p.computed.count(),
          std::move(rounds)};
}

StepPost post_of(const json& p) {
  StepPost post{.report = {.step = StepIndex(whole_number<std::int64_t>(p.at(0))),
                           .inner = {.loss = p.at(1).get<double>(),
                                     .grad_norm = p.at(2).get<double>(),
                                     .tokens = whole_number<std::int64_t>(p.at(3)),
                                     .idle = p.at(4).get<bool>()},
                           .rounds = {}},
                .learning_rate = p.at(5).get<double>(),
                .now = TimePoint(Duration(whole_number<std::int64_t>(p.at(6)))),
                .sent = {.payload = whole_number<std::uint64_t>(p.at(7)),
                         .wire = whole_number<std::uint64_t>(p.at(8))},
                .computed = Duration(whole_number<std::int64_t>(p.at(9)))};
  for (const json& round : p.at(10)) {
    post.report.rounds.push_back(round_of(round));
  }
  return post;
}

json of_bytes(const std::vector<std::byte>& bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::binary(std::vector<std::uint8_t>(begin, begin + bytes.size()));
}
std::vector<std::byte> bytes_of(const json& value) {
  const auto view = std::as_bytes(std::span(value.get_binary()));
  return {view.begin(), view.end()};
}

json of_bits(const std::vector<bool>& bits) {
  std::vector<std::byte> bytes((bits.size() + 7) / 8);
  for (std::size_t k = 0; k < bits.size(); ++k) {
    if (bits[k]) bytes[k / 8] |= std::byte{1} << (k % 8);
  }
  return {bits.size(), of_bytes(bytes)};
}
std::vector<bool> bits_of(const json& value) {
  const auto count = whole_number<std::size_t>(value.at(0));
  const std::vector<std::byte> bytes = bytes_of(value.at(1));
  if (count / 8 + (count % 8 != 0) != bytes.size()) {
    throw std::out_of_range(fmt::format("{} bits in {} bytes", count, bytes.size()));
  }
  std::vector<bool> bits(count);
  for (std::size_t k = 0; k < count; ++k) {
    bits[k] = (bytes[k / 8] >> (k % 8) & std::byte{1}) != std::byte{0};
  }
  return bits;
}

}  // namespace isthmus::app
