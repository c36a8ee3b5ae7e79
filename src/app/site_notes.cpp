// SPDX-License-Identifier: Apache-2.0
#include "app/site_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/json_input.h"

namespace isthmus::app {
namespace {

using nlohmann::json;

// Places in Note, and so part of the format: append only.
enum Kind : int {
  kHello,
  kPosts,
  kEval,
  kOuter,
  kWish,
  kAsk,
  kHold,
  kAgreed,
  kRunning,
  kTurnedAway,
  kJoin,
  kOffer,
  kGet,
  kPiece,
  kResult,
  kReached,
  kCaughtUp,
  kSeen,
  kRefused,
  kTaken,
  kStart,
  kStanding,
  kServe,
  kPrepare,
  kTable,
  kHolds,
  kEnough
};

json number_or_null(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}
std::optional<double> optional_number(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

json of_round(const RoundReport& r) {
  return {r.fragment.value(),
          r.sent.value(),
          r.applied.value(),
          r.members,
          r.counted,
          r.payload_bytes,
          r.wire_bytes,
          r.delta_norm,
          number_or_null(r.codec_error),
          number_or_null(r.cosine),
          r.waited.count()};
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
          .waited = Duration(whole_number<std::int64_t>(r.at(10)))};
}

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

/// A bit each, the first the lowest of its byte.
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

struct Writer {
  json operator()(const HelloNote& note) const {
    json held = json::array();
    for (const HeldCheckpoint& each : note.held) {
      held.push_back({each.step, each.run_id, each.model});
    }
    json common = json::array();
    for (const auto& [what, value] : note.common) {
      common.push_back({what, value});
    }
    return {kHello, kNotesVersion, note.run_id, note.resumes, std::move(held), std::move(common)};
  }
  json operator()(const PostsNote& note) const {
    json posts = json::array();
    for (const StepPost& post : note.posts) {
      posts.push_back(of_post(post));
    }
    return {kPosts, std::move(posts)};
  }
  json operator()(const EvalNote& note) const {
    json parts = json::array();
    for (const EvalPart& part : note.parts) {
      parts.push_back({part.batch, part.loss_sum, part.tokens});
    }
    return {kEval, note.step.value(), std::move(parts), note.now.time_since_epoch().count()};
  }
  json operator()(const OuterNote& note) const {
    return {kOuter, note.step.value(), note.digest, note.about, note.replayed, note.why};
  }
  json operator()(const WishNote& note) const {
    return {kWish, static_cast<int>(note.purpose), note.joiner, note.linked};
  }
  json operator()(const AskNote& note) const { return {kAsk, note.number}; }
  json operator()(const HoldNote& note) const { return {kHold, note.number, note.step.value()}; }
  json operator()(const AgreedNote& note) const {
    return {kAgreed, note.number, static_cast<int>(note.purpose), note.step.value()};
  }
  json operator()(const RunningNote& note) const {
    return {kRunning, note.run_id, note.live, note.donor, note.session};
  }
  json operator()(const TurnedAwayNote& note) const {
    return {kTurnedAway, note.why, note.configuration, note.again};
  }
  json operator()(const JoinNote& note) const {
    const std::span<const std::uint8_t> table(note.table.bytes);
    return {kJoin, note.linked, json::binary({table.begin(), table.end()}), note.saved};
  }
  json operator()(const OfferNote& note) const {
    return {kOffer, note.step.value(), note.bytes, note.clock_s};
  }
  json operator()(const GetNote& note) const { return {kGet, note.offset, note.bytes}; }
  json operator()(const PieceNote& note) const {
    return {kPiece, note.offset, of_bytes(note.bytes)};
  }
  json operator()(const ResultNote& note) const { return {kResult, of_bytes(note.piece)}; }
  json operator()(const ReachedNote& note) const { return {kReached, note.step.value()}; }
  json operator()(const CaughtUpNote&) const { return json::array({kCaughtUp}); }
  json operator()(const SeenNote&) const { return json::array({kSeen}); }
  json operator()(const RefusedNote& note) const { return {kRefused, note.why}; }
  json operator()(const TakenNote& note) const { return {kTaken, note.bytes}; }
  json operator()(const PrepareNote& note) const {
    return {kPrepare, note.newcomer, note.step.value()};
  }
  json operator()(const TableNote& note) const { return {kTable, of_bytes(note.piece)}; }
  json operator()(const HoldsNote& note) const { return {kHolds, of_bits(note.pieces)}; }
  json operator()(const EnoughNote&) const { return json::array({kEnough}); }
  json operator()(const StartNote& note) const {
    return {kStart, note.run_id, note.session, note.absent,
            note.resume_after ? json(*note.resume_after) : json()};
  }
  json operator()(const StandingNote& note) const {
    json newest = json::array();
    for (const SyncId& each : note.decided.newest)
      newest.push_back({each.fragment.value(), each.sent.value()});
    return {kStanding,          note.run_id,       note.session,
            note.decided.epoch, std::move(newest), kNotesVersion};
  }
  json operator()(const ServeNote&) const { return json::array({kServe}); }
};

Digest128 digest_of(const json& value) {
  const std::vector<std::byte> bytes = bytes_of(value);
  Digest128 digest;
  if (bytes.size() != digest.bytes.size()) {
    throw std::out_of_range(fmt::format("a digest of {} bytes", bytes.size()));
  }
  std::ranges::transform(bytes, digest.bytes.begin(), std::to_integer<std::uint8_t>);
  return digest;
}

std::vector<int> ranks_of(const json& value) {
  if (!value.is_array()) throw std::out_of_range("no list of ranks");
  std::vector<int> ranks;
  for (const json& each : value) ranks.push_back(whole_number<int>(each));
  return ranks;
}

StepIndex step_of(const json& value) { return StepIndex(whole_number<std::int64_t>(value)); }

Purpose purpose_of(const json& value) {
  const int number = whole_number<int>(value);
  if (number < 0 || number > static_cast<int>(Purpose::kWait)) {
    throw std::out_of_range(fmt::format("purpose {}", number));
  }
  return static_cast<Purpose>(number);
}

void check_version(int spoken) {
  if (spoken == kNotesVersion) return;
  throw std::out_of_range(fmt::format("notes of version {}, not {}", spoken, kNotesVersion));
}

Note note_of(const json& n) {
  switch (const int kind = whole_number<int>(n.at(0))) {
    case kHello: {
      check_version(whole_number<int>(n.at(1)));
      HelloNote note{.run_id = n.at(2).get<std::string>(),
                     .resumes = n.at(3).get<bool>(),
                     .held = {},
                     .common = {}};
      for (const json& each : n.at(4)) {
        note.held.push_back({.step = whole_number<std::int64_t>(each.at(0)),
                             .run_id = each.at(1).get<std::string>(),
                             .model = each.at(2).get<std::string>()});
      }
      for (const json& each : n.at(5))
        note.common.emplace_back(each.at(0).get<std::string>(), each.at(1).get<std::string>());
      return note;
    }
    case kPosts: {
      PostsNote note;
      for (const json& post : n.at(1)) {
        note.posts.push_back(post_of(post));
      }
      return note;
    }
    case kEval: {
      EvalNote note{.step = step_of(n.at(1)),
                    .parts = {},
                    .now = TimePoint(Duration(whole_number<std::int64_t>(n.at(3))))};
      for (const json& part : n.at(2)) {
        note.parts.push_back({.batch = whole_number<std::int64_t>(part.at(0)),
                              .loss_sum = part.at(1).get<double>(),
                              .tokens = whole_number<std::int64_t>(part.at(2))});
      }
      return note;
    }
    case kOuter:
      return OuterNote{.step = step_of(n.at(1)),
                       .digest = n.at(2).get<std::string>(),
                       .about = n.at(3).get<std::string>(),
                       .replayed = n.at(4).get<bool>(),
                       .why = n.at(5).get<std::string>()};
    case kWish:
      return WishNote{.purpose = purpose_of(n.at(1)),
                      .joiner = whole_number<int>(n.at(2)),
                      .linked = ranks_of(n.at(3))};
    case kAsk:
      return AskNote{.number = whole_number<std::int64_t>(n.at(1))};
    case kHold:
      return HoldNote{.number = whole_number<std::int64_t>(n.at(1)), .step = step_of(n.at(2))};
    case kAgreed:
      return AgreedNote{.number = whole_number<std::int64_t>(n.at(1)),
                        .purpose = purpose_of(n.at(2)),
                        .step = step_of(n.at(3))};
    case kRunning:
      return RunningNote{.run_id = n.at(1).get<std::string>(),
                         .live = ranks_of(n.at(2)),
                         .donor = whole_number<int>(n.at(3)),
                         .session = n.at(4).get<std::string>()};
    case kTurnedAway:
      return TurnedAwayNote{.why = n.at(1).get<std::string>(),
                            .configuration = n.at(2).get<bool>(),
                            .again = n.at(3).get<bool>()};
    case kJoin:
      return JoinNote{.linked = ranks_of(n.at(1)),
                      .table = digest_of(n.at(2)),
                      .saved = whole_number<std::uint64_t>(n.at(3))};
    case kOffer:
      return OfferNote{.step = step_of(n.at(1)),
                       .bytes = whole_number<std::uint64_t>(n.at(2)),
                       .clock_s = n.at(3).get<double>()};
    case kGet:
      return GetNote{.offset = whole_number<std::uint64_t>(n.at(1)),
                     .bytes = whole_number<std::uint64_t>(n.at(2))};
    case kPiece:
      return PieceNote{.offset = whole_number<std::uint64_t>(n.at(1)), .bytes = bytes_of(n.at(2))};
    case kResult:
      return ResultNote{.piece = bytes_of(n.at(1))};
    case kReached:
      return ReachedNote{.step = step_of(n.at(1))};
    case kCaughtUp:
      return CaughtUpNote{};
    case kSeen:
      return SeenNote{};
    case kRefused:
      return RefusedNote{.why = n.at(1).get<std::string>()};
    case kTaken:
      return TakenNote{.bytes = whole_number<std::uint64_t>(n.at(1))};
    case kStart:
      return StartNote{.run_id = n.at(1).get<std::string>(),
                       .session = n.at(2).get<std::string>(),
                       .absent = ranks_of(n.at(3)),
                       .resume_after = n.at(4).is_null() ? std::nullopt
                                                         : std::optional(step_of(n.at(4)).value())};
    case kStanding: {
      // No HELLO comes before it. Up to version 9 it had no epoch, in 10 at first no version.
      if (n.size() != 5) check_version(n.size() < 5 ? 9 : whole_number<int>(n.at(5)));
      StandingNote note{.run_id = n.at(1).get<std::string>(),
                        .session = n.at(2).get<std::string>(),
                        .decided = {.epoch = whole_number<std::uint32_t>(n.at(3))}};
      for (const json& each : n.at(4)) {
        note.decided.newest.push_back(
            {FragmentId(whole_number<int>(each.at(0))), step_of(each.at(1))});
      }
      return note;
    }
    case kServe:
      return ServeNote{};
    case kPrepare:
      return PrepareNote{.newcomer = whole_number<int>(n.at(1)), .step = step_of(n.at(2))};
    case kTable:
      return TableNote{.piece = bytes_of(n.at(1))};
    case kHolds:
      return HoldsNote{.pieces = bits_of(n.at(1))};
    case kEnough:
      return EnoughNote{};
    default:
      throw std::out_of_range(fmt::format("kind {}", kind));
  }
}

}  // namespace

std::vector<std::byte> write_note(const Note& note) {
  const std::vector<std::uint8_t> bytes = json::to_cbor(std::visit(Writer(), note));
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

Expected<Note, std::string> read_note(std::span<const std::byte> bytes) {
  try {
    return note_of(parse_cbor(bytes, "note"));
  } catch (const std::exception& error) {  // of the parser, or of a field that is not there
    return Unexpected<std::string>(fmt::format("no note: {}", error.what()));
  }
}

}  // namespace isthmus::app
