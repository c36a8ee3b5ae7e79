// SPDX-License-Identifier: Apache-2.0
#include "data/appended_data.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "core/base/hash.h"
#include "core/base/units.h"

namespace isthmus {
namespace {

using Segment = Dataset::Segment;

std::string name_of(const Segment& segment) { return segment.file.path.filename().string(); }

/// Tokens of a longer file are those of a shorter one and more of the same, in the same bytes.
bool is_headerless(const Dataset& data, const Segment& segment) {
  const TokenFile& file = segment.file;
  return data.entropy_rate() ||
         (file.inflated.empty() && file.tokens.data == file.file.bytes().data() &&
          file.format != "Megatron");
}

std::string other_reading(const std::string& name, std::string_view now, std::string_view before) {
  return fmt::format("{} is read as {}, and was read as {}: tokens of another width or form", name,
                     now, before);
}

/// `segment` begins with the file `before`, and is longer.
Expected<std::int64_t, std::string> tokens_of_grown(const Dataset& data, const Segment& segment,
                                                    const DataFile& before) {
  const std::string name = name_of(segment);
  if (!is_headerless(data, segment)) {
    return Unexpected<std::string>(fmt::format(
        "{} ({}) has grown, and its header or compression is of the whole file: what is appended "
        "to such data comes in a further file",
        name, segment.file.format));
  }
  const std::size_t width = token_bytes(segment.file.tokens.type);
  TokenFile then{segment.file.path, segment.file.format, {}, segment.file.tokens, {}};
  then.as_it_lies = segment.file.as_it_lies;
  then.tokens.count = static_cast<std::int64_t>(before.bytes / width);
  if (before.bytes % width != 0 || !is_same_reading(reading_of(then), before.reading)) {
    return Unexpected<std::string>(other_reading(name, reading_of(segment.file), before.reading));
  }
  const std::string digest = sha256_hex(data.bytes_of(segment).first(before.bytes));
  if (digest != before.sha256) {
    return Unexpected<std::string>(fmt::format(
        "the first {} bytes of {} have sha256 {}, and the data had {}",
        with_commas(static_cast<std::int64_t>(before.bytes)), name, digest, before.sha256));
  }
  return then.tokens.count;
}

/// `segment` is as long as the file `before`.
Expected<std::int64_t, std::string> tokens_of_same(const Dataset& data, const Segment& segment,
                                                   const DataFile& before) {
  const std::string digest = sha256_hex(data.bytes_of(segment));
  if (digest != before.sha256) {
    return Unexpected<std::string>(fmt::format("{} has sha256 {}, and the data had {} there",
                                               name_of(segment), digest, before.sha256));
  }
  const std::string reading = reading_of(segment.file);
  if (!is_same_reading(reading, before.reading)) {
    return Unexpected<std::string>(other_reading(name_of(segment), reading, before.reading));
  }
  return segment.file.tokens.count;
}

/// Windows of conversations are packed anew where one is added, so such data do not grow.
Expected<std::int64_t, std::string> tokens_of_conversations(const Dataset& data,
                                                            std::span<const DataFile> before) {
  const std::vector<DataFile> now = data.fingerprint();
  const auto same = [](const DataFile& a, const DataFile& b) {
    return a.sha256 == b.sha256 && is_same_reading(a.reading, b.reading);
  };
  if (std::ranges::equal(now, before, same)) return data.tokens();
  return Unexpected<std::string>(
      std::string("conversations, tokenizer, chat template and the keys that decide their windows "
                  "stay what they were in a run: the windows of a changed set are others"));
}

}  // namespace

Expected<std::int64_t, std::string> tokens_of_beginning(const Dataset& data,
                                                        std::span<const DataFile> before) {
  if (before.empty()) {
    return Unexpected<std::string>(std::string("the checkpoint does not say what its data were"));
  }
  const std::span<const Segment> now = data.segments();
  if (is_conversations(data.format())) return tokens_of_conversations(data, before);
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i == now.size()) {
      return Unexpected<std::string>(fmt::format(
          "the data are {} files, and were {}: they are shorter", now.size(), before.size()));
    }
    const std::size_t bytes = data.bytes_of(now[i]).size();
    if (bytes < before[i].bytes) {
      return Unexpected<std::string>(
          fmt::format("{} has {} bytes, and the data had {} there: they are shorter",
                      name_of(now[i]), with_commas(static_cast<std::int64_t>(bytes)),
                      with_commas(static_cast<std::int64_t>(before[i].bytes))));
    }
    const bool longer = bytes > before[i].bytes;
    if (longer && i + 1 < before.size()) {
      return Unexpected<std::string>(fmt::format(
          "{} has {} bytes, and the data had {} there, with further files behind: what is appended "
          "comes after the last one",
          name_of(now[i]), with_commas(static_cast<std::int64_t>(bytes)),
          with_commas(static_cast<std::int64_t>(before[i].bytes))));
    }
    const auto count =
        longer ? tokens_of_grown(data, now[i], before[i]) : tokens_of_same(data, now[i], before[i]);
    if (!count) return count;
    tokens += *count;
  }
  return tokens;
}

}  // namespace isthmus
