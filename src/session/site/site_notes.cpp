// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/base/json_input.h"
#include "session/site/note_fields.h"

namespace isthmus::app {
namespace {

using Json = nlohmann::json;

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
  kEnough,
  kGone,
  kDiffer
};

struct Writer {
  Json operator()(const HelloNote& note) const {
    Json held = Json::array();
    for (const HeldCheckpoint& each : note.held) {
      held.push_back({each.step, each.run_id, each.model});
    }
    Json common = Json::array();
    for (const auto& [what, value] : note.common) {
      common.push_back({what, value});
    }
    return {kHello,          kNotesVersion,     note.run_id,    note.resumes,
            std::move(held), std::move(common), note.unreadable};
  }
  Json operator()(const PostsNote& note) const {
    Json posts = Json::array();
    for (const StepPost& post : note.posts) {
      posts.push_back(of_post(post));
    }
    return {kPosts, std::move(posts)};
  }
  Json operator()(const EvalNote& note) const {
    Json parts = Json::array();
    for (const EvalPart& part : note.parts) {
      parts.push_back({part.batch, part.loss_sum, part.tokens});
    }
    return {kEval, note.step.value(), std::move(parts), note.now.time_since_epoch().count()};
  }
  Json operator()(const OuterNote& note) const {
    return {kOuter, note.step.value(), note.digest, note.about, note.replayed, note.why};
  }
  Json operator()(const GoneNote& note) const {
    Json words = Json::array();
    for (const GoneNote::Word& word : note.words) {
      words.push_back({word.epoch, word.site, (*this)(word.note)});
    }
    return {kGone, note.epoch, std::move(words)};
  }
  Json operator()(const DifferNote& note) const { return {kDiffer, note.why}; }
  Json operator()(const WishNote& note) const {
    return {kWish, static_cast<int>(note.purpose), note.joiner, note.linked};
  }
  Json operator()(const AskNote& note) const { return {kAsk, note.number}; }
  Json operator()(const HoldNote& note) const { return {kHold, note.number, note.step.value()}; }
  Json operator()(const AgreedNote& note) const {
    return {kAgreed, note.number, static_cast<int>(note.purpose), note.step.value()};
  }
  Json operator()(const RunningNote& note) const {
    return {kRunning, note.run_id, note.live, note.donor, note.session};
  }
  Json operator()(const TurnedAwayNote& note) const {
    return {kTurnedAway, note.why, note.configuration, note.again};
  }
  Json operator()(const JoinNote& note) const {
    const std::span<const std::uint8_t> table(note.table.bytes);
    return {kJoin, note.linked, Json::binary({table.begin(), table.end()}), note.saved};
  }
  Json operator()(const OfferNote& note) const {
    return {kOffer, note.step.value(), note.bytes, note.clock_s};
  }
  Json operator()(const GetNote& note) const { return {kGet, note.offset, note.bytes}; }
  Json operator()(const PieceNote& note) const {
    return {kPiece, note.offset, of_bytes(note.bytes)};
  }
  Json operator()(const ResultNote& note) const { return {kResult, of_bytes(note.piece)}; }
  Json operator()(const ReachedNote& note) const { return {kReached, note.step.value()}; }
  Json operator()(const CaughtUpNote&) const { return Json::array({kCaughtUp}); }
  Json operator()(const SeenNote&) const { return Json::array({kSeen}); }
  Json operator()(const RefusedNote& note) const { return {kRefused, note.why}; }
  Json operator()(const TakenNote& note) const { return {kTaken, note.bytes}; }
  Json operator()(const PrepareNote& note) const {
    return {kPrepare, note.newcomer, note.step.value()};
  }
  Json operator()(const TableNote& note) const { return {kTable, of_bytes(note.piece)}; }
  Json operator()(const HoldsNote& note) const { return {kHolds, of_bits(note.pieces)}; }
  Json operator()(const EnoughNote&) const { return Json::array({kEnough}); }
  Json operator()(const StartNote& note) const {
    return {kStart,
            note.run_id,
            note.session,
            note.absent,
            note.resume_after ? Json(*note.resume_after) : Json(),
            note.given_up ? Json(*note.given_up) : Json()};
  }
  Json operator()(const StandingNote& note) const {
    Json newest = Json::array();
    for (const SyncId& each : note.decided.newest)
      newest.push_back({each.fragment.value(), each.sent.value()});
    return {kStanding,          note.run_id,       note.session,
            note.decided.epoch, std::move(newest), kNotesVersion};
  }
  Json operator()(const ServeNote&) const { return Json::array({kServe}); }
};

Digest128 digest_of(const Json& value) {
  const std::vector<std::byte> bytes = bytes_of(value);
  Digest128 digest;
  if (bytes.size() != digest.bytes.size()) {
    throw std::out_of_range(fmt::format("a digest of {} bytes", bytes.size()));
  }
  std::ranges::transform(bytes, digest.bytes.begin(), std::to_integer<std::uint8_t>);
  return digest;
}

std::vector<int> ranks_of(const Json& value) {
  if (!value.is_array()) throw std::out_of_range("no list of ranks");
  std::vector<int> ranks;
  for (const Json& each : value) ranks.push_back(whole_number<int>(each));
  return ranks;
}

StepIndex step_of(const Json& value) { return StepIndex(whole_number<std::int64_t>(value)); }

OuterNote outer_of(const Json& n) {
  return {.step = step_of(n.at(1)),
          .digest = n.at(2).get<std::string>(),
          .about = n.at(3).get<std::string>(),
          .replayed = n.at(4).get<bool>(),
          .why = n.at(5).get<std::string>()};
}

Purpose purpose_of(const Json& value) {
  const int number = whole_number<int>(value);
  if (number < 0 || number > static_cast<int>(Purpose::kWait)) {
    throw std::out_of_range(fmt::format("purpose {}", number));
  }
  return static_cast<Purpose>(number);
}

std::optional<std::int64_t> step_or_nothing(const Json& n) {
  return n.is_null() ? std::nullopt : std::optional(step_of(n).value());
}

void check_version(int spoken) {
  if (spoken == kNotesVersion) return;
  throw std::out_of_range(fmt::format("notes of version {}, not {}", spoken, kNotesVersion));
}

Note note_of(const Json& n) {
  switch (const int kind = whole_number<int>(n.at(0))) {
    case kHello: {
      check_version(whole_number<int>(n.at(1)));
      HelloNote note{.run_id = n.at(2).get<std::string>(),
                     .resumes = n.at(3).get<bool>(),
                     .held = {},
                     .common = {}};
      for (const Json& each : n.at(4)) {
        note.held.push_back({.step = whole_number<std::int64_t>(each.at(0)),
                             .run_id = each.at(1).get<std::string>(),
                             .model = each.at(2).get<std::string>()});
      }
      for (const Json& each : n.at(5))
        note.common.emplace_back(each.at(0).get<std::string>(), each.at(1).get<std::string>());
      note.unreadable = n.at(6).get<bool>();
      return note;
    }
    case kPosts: {
      PostsNote note;
      for (const Json& post : n.at(1)) {
        note.posts.push_back(post_of(post));
      }
      return note;
    }
    case kEval: {
      EvalNote note{.step = step_of(n.at(1)),
                    .parts = {},
                    .now = TimePoint(Duration(whole_number<std::int64_t>(n.at(3))))};
      for (const Json& part : n.at(2)) {
        note.parts.push_back({.batch = whole_number<std::int64_t>(part.at(0)),
                              .loss_sum = part.at(1).get<double>(),
                              .tokens = whole_number<std::int64_t>(part.at(2))});
      }
      return note;
    }
    case kOuter:
      return outer_of(n);
    case kGone: {
      GoneNote note{.epoch = whole_number<std::uint32_t>(n.at(1)), .words = {}};
      for (const Json& word : n.at(2)) {
        note.words.push_back({.epoch = whole_number<std::uint32_t>(word.at(0)),
                              .site = whole_number<int>(word.at(1)),
                              .note = outer_of(word.at(2))});
      }
      return note;
    }
    case kDiffer:
      return DifferNote{.why = n.at(1).get<std::string>()};
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
                       .resume_after = step_or_nothing(n.at(4)),
                       .given_up = step_or_nothing(n.at(5))};
    case kStanding: {
      // No HELLO comes before it. Up to version 9 it had no epoch, in 10 at first no version.
      if (n.size() != 5) check_version(n.size() < 5 ? 9 : whole_number<int>(n.at(5)));
      StandingNote note{.run_id = n.at(1).get<std::string>(),
                        .session = n.at(2).get<std::string>(),
                        .decided = {.epoch = whole_number<std::uint32_t>(n.at(3))}};
      for (const Json& each : n.at(4)) {
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
  const std::vector<std::uint8_t> bytes = Json::to_cbor(std::visit(Writer(), note));
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
