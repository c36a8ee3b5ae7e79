// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/document_encoder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

/// Why a line does not parse, in the parser's words, without the line's own text, which may be long
/// and no UTF-8.
std::string parse_failure(std::string_view line) {
  constexpr std::string_view kPlace = "parse error at line 1, ";
  try {
    (void)parse_json(line, "");
  } catch (const SystemError& error) {
    std::string_view text = error.what();
    if (const std::size_t at = text.find(kPlace); at != text.npos) {
      text.remove_prefix(at + kPlace.size());
      return fmt::format(": {}", text.substr(0, text.find("; last read")));
    }
  }
  return "";
}

}  // namespace

std::string text_of_line(std::string_view line, const std::string& field) {
  const nlohmann::json value = read_json(line);
  if (value.is_discarded()) throw SystemError("is no JSON" + parse_failure(line));
  if (!value.is_object()) throw SystemError("is no JSON object");
  const auto found = value.find(field);
  if (found == value.end()) {
    std::vector<std::string> fields;
    for (const auto& item : value.items()) fields.push_back(item.key());
    throw SystemError(fmt::format("has no field \"{}\" (fields: {}); give --field NAME", field,
                                  fmt::join(fields, ", ")));
  }
  if (!found->is_string()) {
    throw SystemError(
        fmt::format("the field \"{}\" is a {} and no text", field, found->type_name()));
  }
  return found->get<std::string>();
}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, DocumentOptions options)
    : options_(std::move(options)), encoder_(tokenizer) {}

std::string DocumentEncoder::encode_line(std::string_view line, EncodedBlock& encoded) {
  const std::size_t before = encoded.ids.size();
  std::string text = text_of_line(line, options_.field);
  try {
    encoder_.encode(text, {}, encoded.ids);
  } catch (const SystemError&) {
    encoded.ids.resize(before);
    throw;
  }
  encoded.ids.push_back(options_.end);
  ++encoded.documents;
  return text;
}

EncodedBlock DocumentEncoder::encode(const DocumentBlock& block, bool lines,
                                     const std::string& label) {
  EncodedBlock encoded;
  std::string_view text = block.text;
  if (!lines) {
    if (const std::size_t wrong = first_invalid_utf8(text); wrong != std::string_view::npos) {
      throw SystemError(
          fmt::format("{}: byte {} is not UTF-8: convert the text with iconv -t UTF-8", label,
                      block.first + static_cast<std::int64_t>(wrong)));
    }
    encoder_.encode(text, {.continues = block.continues}, encoded.ids);
    encoded.controls.add_text(text, label, block.first);
    if (block.last) {
      encoded.ids.push_back(options_.end);
      encoded.documents = 1;
    }
    return encoded;
  }
  for (std::int64_t number = block.first; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      encoded.controls.add_line(encode_line(line, encoded), label, number);
    } catch (const SystemError& error) {
      const std::string place = fmt::format("{}:{}: {}", label, number, error.what());
      if (!options_.skip_bad) {
        throw SystemError(place + " (--skip-bad counts such lines and goes on)");
      }
      if (encoded.skipped++ == 0) encoded.first_skipped = place;
    }
  }
  return encoded;
}

}  // namespace isthmus
