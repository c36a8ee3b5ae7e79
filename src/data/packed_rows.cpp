// SPDX-License-Identifier: Apache-2.0
#include "data/packed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "data/documents.h"

namespace isthmus {
namespace {

constexpr std::string_view kConversations = "conversations in windows of ";
constexpr std::size_t kDigitsOfMarks = 16;

bool is_target(std::span<const std::uint8_t> marks, std::size_t t) {
  return t + 1 < marks.size() && (marks[t + 1] & kBeginsConversation) == 0 &&
         (marks[t + 1] & kLearnt) != 0;
}

/// A token that belongs to no window, so that windows have the token behind them that those of a
/// stream read.
void append_with_padding(const PackedRows& rows, std::vector<std::uint32_t>& ids,
                         std::vector<std::uint8_t>& marks) {
  ids.insert(ids.end(), rows.ids.begin(), rows.ids.end());
  marks.insert(marks.end(), rows.marks.begin(), rows.marks.end());
  ids.push_back(0);
  marks.push_back(kBeginsConversation);
}

}  // namespace

std::int64_t mark_conversations(std::span<const std::uint8_t> marks,
                                std::span<std::int32_t> targets, std::span<std::int32_t> starts) {
  ISTHMUS_CHECK(targets.size() == marks.size() && starts.size() == marks.size(), marks.size(),
                targets.size(), starts.size());
  std::int32_t start = 0;
  std::int64_t left = 0;
  for (std::size_t t = 0; t < marks.size(); ++t) {
    if ((marks[t] & kBeginsConversation) != 0) start = static_cast<std::int32_t>(t);
    starts[t] = start;
    if (is_target(marks, t)) {
      ++left;
    } else {
      targets[t] = kNoTarget;
    }
  }
  return left;
}

std::int64_t learnt_targets(std::span<const std::uint8_t> marks) {
  std::int64_t targets = 0;
  for (std::size_t t = 0; t < marks.size(); ++t) targets += is_target(marks, t) ? 1 : 0;
  return targets;
}

PackedRows pack_rows(std::span<const EncodedConversation> conversations, std::int64_t context) {
  std::vector<std::vector<const EncodedConversation*>> rows;
  std::multimap<std::size_t, std::size_t> room;  // what is left in a row; of equals the first
  for (const EncodedConversation& each : conversations) {
    const std::size_t size = each.ids.size();
    ISTHMUS_CHECK(size >= 1 && static_cast<std::int64_t>(size) <= context, size, context);
    std::size_t row = rows.size(), left = static_cast<std::size_t>(context);
    if (const auto found = room.lower_bound(size); found != room.end()) {
      std::tie(left, row) = *found;
      room.erase(found);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(&each);
    if (left > size) room.emplace(left - size, row);
  }
  PackedRows packed;
  packed.rows = std::ssize(rows);
  packed.ids.reserve(rows.size() * static_cast<std::size_t>(context));
  packed.marks.reserve(packed.ids.capacity());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const EncodedConversation* const each : rows[row]) {
      const std::size_t begin = packed.ids.size();
      packed.ids.insert(packed.ids.end(), each->ids.begin(), each->ids.end());
      for (const bool learnt : each->learnt) packed.marks.push_back(learnt ? kLearnt : 0);
      packed.marks[begin] |= kBeginsConversation;
    }
    const std::size_t end = (row + 1) * static_cast<std::size_t>(context);
    const std::size_t padding = packed.ids.size();
    packed.ids.resize(end, 0);
    packed.marks.resize(end, 0);
    if (padding < end) packed.marks[padding] |= kBeginsConversation;
  }
  return packed;
}

PackedConversations pack_conversations(std::vector<TokenFile> files,
                                       std::span<const EncodedConversation> conversations,
                                       std::int64_t context, double val_fraction) {
  ISTHMUS_CHECK(!files.empty());
  PackedConversations packed;
  packed.facts.context = context;
  packed.facts.held_out = static_cast<std::int64_t>(
      std::floor(static_cast<double>(conversations.size()) * val_fraction));
  const auto training = conversations.size() - static_cast<std::size_t>(packed.facts.held_out);
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> marks;
  const PackedRows rows = pack_rows(conversations.first(training), context);
  packed.facts.training_rows = rows.rows;
  append_with_padding(rows, ids, marks);
  if (packed.facts.held_out > 0) {
    const std::size_t before = ids.size();
    const PackedRows held = pack_rows(conversations.subspan(training), context);
    packed.facts.validation_rows = held.rows;
    append_with_padding(held, ids, marks);
    packed.facts.validation_tokens = static_cast<std::int64_t>(ids.size() - before);
  }
  Xxh3Stream digest;
  digest.update(std::as_bytes(std::span(ids)));
  digest.update(std::as_bytes(std::span(marks)));
  const std::string format = fmt::format("{}{}, ids and marks {}", kConversations, context,
                                         digest.digest().hex().substr(0, kDigitsOfMarks));
  TokenFile& last = files.back();
  last.inflated.resize(ids.size() * sizeof(std::uint32_t));
  std::memcpy(last.inflated.data(), ids.data(), last.inflated.size());
  last.marks = std::move(marks);
  for (TokenFile& file : files) {
    file.format = format;
    file.tokens = {file.inflated.data(), TokenType::kU32, std::ssize(file.marks)};
  }
  packed.files = std::move(files);
  return packed;
}

bool is_conversations(std::string_view format) { return format.starts_with(kConversations); }

std::string conversations_text(const ConversationFacts& facts) {
  const ConversationCounts& counts = facts.counts;
  const std::int64_t rows = facts.training_rows + facts.validation_rows;
  const double filled =
      static_cast<double>(counts.tokens) / static_cast<double>(rows * facts.context);
  return fmt::format(
      "{} conversations of {} tokens, of which {} are learnt; {} windows of {} for training, {} of "
      "{} held-out conversations; {:.1f} % of the windows is padding",
      with_commas(counts.conversations), with_commas(counts.tokens), with_commas(counts.learnt),
      with_commas(facts.training_rows), facts.context, with_commas(facts.validation_rows),
      with_commas(facts.held_out), 100 * (1 - filled));
}

std::string conversations_note(const ConversationFacts& facts) {
  const ConversationCounts& counts = facts.counts;
  std::string note;
  const auto add = [&note](std::int64_t count, const std::string& what) {
    if (count == 0) return;
    note += fmt::format("{}{} {}", note.empty() ? "" : "; ", with_commas(count), what);
  };
  add(counts.cut, fmt::format("were cut to train.context = {} tokens", facts.context));
  add(counts.dropped, fmt::format("are longer than train.context = {} tokens and left out "
                                  "(data.over_long = \"drop\")",
                                  facts.context));
  add(counts.without_reply,
      fmt::format("have no token to learn within {} tokens and are left out", facts.context));
  if (counts.skipped > 0) {
    add(counts.skipped, fmt::format("malformed lines are left out (data.skip_bad), the first: {}",
                                    counts.first_skipped));
  }
  if (!note.empty()) note = "of the conversations, " + note;
  const std::string controls = controls_note(counts.controls, "conversations are taken with them");
  return note + (note.empty() || controls.empty() ? "" : "; ") + controls;
}

}  // namespace isthmus
