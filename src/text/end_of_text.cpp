// SPDX-License-Identifier: Apache-2.0
#include "text/end_of_text.h"

#include <fmt/format.h>

#include "core/base/followed_links.h"
#include "isthmus/errors.h"
#include "text/special_tokens.h"

namespace isthmus {

std::filesystem::path tokenizer_file(const Storage& storage, const std::filesystem::path& path) {
  return followed_kind(storage, path) == FileKind::kDirectory ? path / "tokenizer.json" : path;
}

std::string end_of_text(const Storage& storage, const std::filesystem::path& given,
                        const Tokenizer& tokenizer, const std::string& wanted) {
  if (!wanted.empty()) {
    if (tokenizer.id_of(wanted)) return wanted;
    throw ConfigError(fmt::format("--eos {}: is no token of {}", wanted, given.string()));
  }
  const std::string token =
      special_token(storage, tokenizer_file(storage, given).parent_path(), "eos_token");
  if (!token.empty() && tokenizer.id_of(token)) return token;
  for (const char* const usual : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    if (tokenizer.id_of(usual)) return usual;
  }
  throw ConfigError(fmt::format(
      "{}: no end-of-text token is known (eos_token of tokenizer_config.json, <|endoftext|>, "
      "<|end_of_text|>, </s>, <eos>): say eos_token in tokenizer_config.json, or give `isthmus "
      "data "
      "tokenize` --eos TOKEN",
      given.string()));
}

}  // namespace isthmus
