// SPDX-License-Identifier: Apache-2.0
#include "data/tokenized_text.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "data/control_count.h"
#include "isthmus/errors.h"
#include "text/end_of_text.h"
#include "text/tokenizer.h"

namespace isthmus {
namespace {

constexpr std::string_view kTokenizerWord = ":tokenizer=";
constexpr std::string_view kTokenizedFormat = "text by tokenizer ";
constexpr std::size_t kDigestDigits = 16;

void refuse_json_lines(const std::filesystem::path& path) {
  std::filesystem::path name = path.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  if (name.extension() != ".jsonl" && name.extension() != ".ndjson") return;
  throw SystemError(fmt::format(
      "{}: holds JSON lines; make token files of them: isthmus data tokenize {} --tokenizer DIR "
      "--out DIR, and name those with tokens:",
      path.string(), path.string()));
}

}  // namespace

std::optional<TokenizedSource> tokenized_source(std::string_view name) {
  const std::size_t at = name.rfind(kTokenizerWord);
  if (at == std::string_view::npos) return {};
  return TokenizedSource{name.substr(0, at), name.substr(at + kTokenizerWord.size())};
}

bool is_tokenized(std::string_view format) { return format.starts_with(kTokenizedFormat); }

struct TextTokenizing::State {
  Tokenizer tokenizer;
  std::string format;
  std::uint32_t end;
};

TextTokenizing::TextTokenizing(const Storage& storage, const std::filesystem::path& tokenizer)
    : storage_(storage) {
  Tokenizer opened = Tokenizer::open(storage, tokenizer);
  const std::string digest = sha256_hex(storage.map(tokenizer_file(storage, tokenizer)).bytes());
  const std::uint32_t end = *opened.id_of(end_of_text(storage, tokenizer, opened, ""));
  state_ = std::make_unique<const State>(
      State{std::move(opened),
            fmt::format("{}{}", kTokenizedFormat, digest.substr(0, kDigestDigits)), end});
}

TextTokenizing::~TextTokenizing() = default;

std::int64_t TextTokenizing::vocabulary() const { return state_->tokenizer.vocabulary(); }

TokenFile TextTokenizing::open(const std::filesystem::path& path,
                               std::int64_t most_inflated) const {
  refuse_json_lines(path);
  TokenFile file = open_text_file(storage_, path, ReadingRules::kOfToday, most_inflated);
  const std::string_view text(reinterpret_cast<const char*>(file.tokens.data),
                              static_cast<std::size_t>(file.tokens.count));
  ControlCount controls;
  controls.add_text(text, path.string(), 0);
  if (const std::string note = controls_note(controls, "they become tokens as they are");
      !note.empty()) {
    log_warning("{}", note);
  }
  std::vector<std::uint32_t> ids;
  try {
    TextEncoder(state_->tokenizer).encode(text, {}, ids);
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("{}: {}", path.string(), error.what()));
  }
  ids.push_back(state_->end);
  std::vector<std::byte> bytes(ids.size() * sizeof(std::uint32_t));
  std::memcpy(bytes.data(), ids.data(), bytes.size());
  file.inflated = std::move(bytes);
  file.format = state_->format;
  file.document_end = static_cast<std::int32_t>(state_->end);
  file.tokens = {file.inflated.data(), TokenType::kU32, std::ssize(ids)};
  return file;
}

}  // namespace isthmus
