// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "text/byte_alphabet.h"

namespace isthmus {
namespace {

using nlohmann::ordered_json;

constexpr int kByteIds = 256;
constexpr const char* kEndOfText = "<|endoftext|>";

std::string token_of_byte(int byte) {
  return token_of_bytes(std::string(1, static_cast<char>(byte)));
}

ordered_json byte_level_component(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

ordered_json pre_tokenizer_of(WordPattern pattern) {
  if (pattern == WordPattern::kGpt2) return byte_level_component(true);
  const ordered_json split = {{"type", "Split"},
                              {"pattern", {{"Regex", regular_expression_of(pattern)}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level_component(false)}}};
}

ordered_json special_token_json(std::size_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

/// The parts of a byte-level BPE that differ from one to another.
struct BpeParts {
  ordered_json vocab = ordered_json::object();
  ordered_json merges = ordered_json::array();
  ordered_json added = ordered_json::array();
  ordered_json pre_tokenizer, decoder;
};

ordered_json tokenizer_file_of(const BpeParts& parts) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", parts.added},
          {"normalizer", nullptr},
          {"pre_tokenizer", parts.pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", parts.decoder},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", parts.vocab},
            {"merges", parts.merges}}}};
}

}  // namespace

std::string tokenizer_json_of(const TrainedBpe& trained, WordPattern pattern,
                              const std::vector<std::string>& special) {
  BpeParts parts{.pre_tokenizer = pre_tokenizer_of(pattern), .decoder = byte_level_component(true)};
  for (std::size_t id = 0; id < trained.tokens.size(); ++id) {
    parts.vocab.push_back({trained.tokens[id], id});
    if (id < special.size()) parts.added.push_back(special_token_json(id, trained.tokens[id]));
  }
  for (const auto& [left, right] : trained.merges) parts.merges.push_back(left + " " + right);
  return tokenizer_file_of(parts).dump(1) + "\n";
}

std::string byte_tokenizer_text(std::int64_t vocab) {
  BpeParts parts{.pre_tokenizer = byte_level_component(false),
                 .decoder = byte_level_component(false)};
  for (int byte = 0; byte < kByteIds; ++byte) parts.vocab[token_of_byte(byte)] = byte;
  if (vocab > kByteIds) {
    parts.vocab[kEndOfText] = kByteIds;
    parts.added.push_back(special_token_json(kByteIds, kEndOfText));
  }
  return tokenizer_file_of(parts).dump(2) + "\n";
}

std::string byte_tokenizer_config_text(std::int64_t vocab, std::int64_t positions) {
  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false},
                         {"model_max_length", positions}};
  if (vocab > kByteIds) config["eos_token"] = kEndOfText;
  return config.dump(2) + "\n";
}

bool is_byte_tokenizer(std::string_view tokenizer_json) {
  constexpr std::size_t kMostBytes = 1 << 20;  // ours has 10 KiB, those with merges have megabytes
  if (tokenizer_json.size() > kMostBytes) return false;
  nlohmann::json file;
  try {
    file = parse_json(tokenizer_json, "tokenizer.json");
  } catch (const SystemError&) {
    return false;  // anybody may have written it
  }
  if (!file.is_object() || !file.contains("model") || !file["model"].is_object()) return false;
  const nlohmann::json& model = file["model"];
  const auto is = [](const nlohmann::json& object, const char* key, const nlohmann::json& value) {
    return object.contains(key) ? object[key] == value : value.is_null();
  };
  const nlohmann::json none = nlohmann::json::array();
  if (!is(model, "type", "BPE") || !is(model, "merges", none) || !is(file, "normalizer", nullptr)) {
    return false;
  }
  const nlohmann::json splits = file.value("pre_tokenizer", nlohmann::json());
  if (!splits.is_object() || !is(splits, "type", "ByteLevel") ||
      !is(splits, "add_prefix_space", false) || !model.contains("vocab")) {
    return false;
  }
  const nlohmann::json& vocab = model["vocab"];
  for (int byte = 0; byte < kByteIds; ++byte) {
    const std::string key = token_of_byte(byte);
    if (!vocab.is_object() || !vocab.contains(key) || vocab[key] != byte) return false;
  }
  const nlohmann::json added = file.value("added_tokens", none);
  return std::all_of(added.begin(), added.end(), [](const nlohmann::json& token) {
    return token.is_object() && token.contains("id") && token["id"].is_number_integer() &&
           token["id"] >= kByteIds;
  });
}

}  // namespace isthmus
