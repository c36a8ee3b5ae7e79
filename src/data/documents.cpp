// SPDX-License-Identifier: Apache-2.0
#include "data/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "core/base/followed_links.h"
#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "text/tokenizer.h"

namespace isthmus {
namespace {

std::filesystem::path record_path(const std::filesystem::path& bin) {
  return std::filesystem::path(bin).replace_extension(".json");
}

}  // namespace

bool parse_data_pack(std::string_view text) {
  if (text == "documents") return true;
  if (text == "stream") return false;
  throw ConfigError(fmt::format("data.pack = \"{}\": must be \"stream\" or \"documents\"", text));
}

std::int64_t mark_documents(std::int32_t end, std::span<const std::int32_t> inputs,
                            std::span<std::int32_t> targets, std::span<std::int32_t> starts) {
  ISTHMUS_CHECK(targets.size() == inputs.size() && starts.size() == inputs.size(), inputs.size(),
                targets.size(), starts.size());
  std::int32_t start = 0;
  std::int64_t left = 0;
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    starts[t] = start;
    if (inputs[t] == end) {
      targets[t] = kNoTarget;
      start = static_cast<std::int32_t>(t) + 1;
    } else {
      ++left;
    }
  }
  return left;
}

std::int64_t targets_inside_documents(std::int32_t end, std::span<const std::int32_t> inputs) {
  return std::ssize(inputs) - std::ranges::count(inputs, end);
}

namespace {

/// What `isthmus data tokenize` wrote of the token file `bin`; null without such a record.
nlohmann::json record_of(const Storage& storage, const std::filesystem::path& bin) {
  const std::filesystem::path record = record_path(bin);
  if (record == bin || followed_kind(storage, record) != FileKind::kFile) return {};
  nlohmann::json found = parse_json(read_text(storage, record), record.string());
  // A .json of another kind may lie beside a token file.
  if (!found.is_object() || !found.contains("end") || !found.contains("tokenizer_sha256")) {
    return {};
  }
  return found;
}

}  // namespace

std::optional<std::filesystem::path> tokenizer_beside(const Storage& storage,
                                                      const std::filesystem::path& bin) {
  const nlohmann::json found = record_of(storage, bin);
  std::filesystem::path tokenizer = bin.parent_path() / "tokenizer.json";
  if (found.is_null() || followed_kind(storage, tokenizer) != FileKind::kFile) return {};
  if (found["tokenizer_sha256"] != sha256_hex(storage.map(tokenizer).bytes())) return {};
  return tokenizer;
}

std::string unlike_token(const Tokenizer& ours, const Tokenizer& theirs, std::int64_t vocab) {
  const std::int64_t end =
      std::min({vocab, std::int64_t{ours.vocabulary()}, std::int64_t{theirs.vocabulary()}});
  for (std::int64_t at = 0; at < end; ++at) {
    const auto id = static_cast<std::uint32_t>(at);
    const std::optional<std::string> here = ours.token_of(id), there = theirs.token_of(id);
    if (!here || !there || here == there) continue;
    return fmt::format("id {} is \"{}\" here and \"{}\" there", id, *here, *there);
  }
  return {};
}

std::optional<std::uint32_t> further_token(const Tokenizer& ours, const Tokenizer& theirs,
                                           std::int64_t vocab) {
  const std::int64_t end = std::min(vocab, std::int64_t{ours.vocabulary()});
  for (std::int64_t at = 0; at < end; ++at) {
    const auto id = static_cast<std::uint32_t>(at);
    if (ours.token_of(id) && !theirs.token_of(id)) return id;
  }
  return {};
}

std::optional<std::int32_t> document_end_beside(const Storage& storage,
                                                const std::filesystem::path& bin) {
  const nlohmann::json found = record_of(storage, bin);
  if (found.is_null()) return {};
  const std::filesystem::path record = record_path(bin);
  const nlohmann::json& end = found["end"];
  if (!end.is_number_integer() || end.get<std::int64_t>() < 0 ||
      end.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
    throw SystemError(fmt::format(
        "{}: \"end\" = {} is no token id: the record is damaged; make the token files again, "
        "isthmus data tokenize",
        record.string(), end.dump()));
  }
  return static_cast<std::int32_t>(end.get<std::int64_t>());
}

}  // namespace isthmus
