// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/byte_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::ordered_json;

constexpr int kBytes = 256;
constexpr const char* kEndOfText = "<|endoftext|>";

std::string utf8(int code_point) {  // below U+0800
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

ordered_json byte_vocabulary() {
  ordered_json vocab = ordered_json::object();
  int next = 0x100;
  for (int byte = 0; byte < kBytes; ++byte) {
    vocab[utf8(stands_for_itself(byte) ? byte : next++)] = byte;
  }
  return vocab;
}

ordered_json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

}  // namespace

std::string byte_tokenizer_text(std::int64_t vocab) {
  ordered_json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", byte_vocabulary()},
                        {"merges", ordered_json::array()}};
  ordered_json added = ordered_json::array();
  if (vocab > kBytes) {
    model["vocab"][kEndOfText] = kBytes;
    added.push_back({{"id", kBytes},
                     {"content", kEndOfText},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const ordered_json tokenizer = {
      {"version", "1.0"},          {"truncation", nullptr},   {"padding", nullptr},
      {"added_tokens", added},     {"normalizer", nullptr},   {"pre_tokenizer", byte_level()},
      {"post_processor", nullptr}, {"decoder", byte_level()}, {"model", model}};
  return tokenizer.dump(2) + "\n";
}

std::string byte_tokenizer_config_text(std::int64_t vocab, std::int64_t positions) {
  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false},
                         {"model_max_length", positions}};
  if (vocab > kBytes) config["eos_token"] = kEndOfText;
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
  const ordered_json bytes = byte_vocabulary();
  for (const auto& item : bytes.items()) {
    const std::string& key = item.key();
    if (!vocab.is_object() || !vocab.contains(key) || vocab[key] != item.value().get<int>()) {
      return false;
    }
  }
  const nlohmann::json added = file.value("added_tokens", none);
  return std::all_of(added.begin(), added.end(), [](const nlohmann::json& token) {
    return token.is_object() && token.contains("id") && token["id"].is_number_integer() &&
           token["id"] >= kBytes;
  });
}

}  // namespace isthmus
