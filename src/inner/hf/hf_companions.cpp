// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_companions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "core/base/followed_links.h"
#include "core/base/git_pointer.h"
#include "core/base/json_input.h"
#include "inner/hf/hf_config.h"
#include "isthmus/errors.h"
#include "text/byte_level_files.h"

namespace isthmus {
namespace {

// Files that a tokenizer of transformers consists of, and settings of generation.
constexpr std::array<std::string_view, 13> kTokenizerFiles = {"tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "vocab.json",
                                                              "merges.txt",
                                                              "vocab.txt",
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "tekken.json",
                                                              "chat_template.json",
                                                              "processor_config.json",
                                                              "preprocessor_config.json",
                                                              "tokenizer.model.v3",
                                                              "generation_config.json"};
// Of those, the ones that a folder has with a tokenizer alone.
constexpr std::array<std::string_view, 7> kShowATokenizer = {
    "tokenizer.json",        "vocab.json",  "merges.txt", "vocab.txt", "tekken.json",
    "tokenizer_config.json", "encoder.json"};
// SentencePiece and tiktoken, chat templates.
constexpr std::array<std::string_view, 3> kTokenizerEndings = {".model", ".tiktoken", ".jinja"};
constexpr std::array<std::string_view, 3> kLegal = {"LICENSE", "NOTICE", "USE_POLICY"};

constexpr std::uintmax_t kMostCompanionBytes = std::uintmax_t{64} << 20;
constexpr std::int64_t kByteTokens = 256;

bool is_any_of(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool ends_with_any(std::string_view name) {
  return std::ranges::any_of(kTokenizerEndings,
                             [name](std::string_view end) { return name.ends_with(end); });
}

bool is_legal(std::string_view name) {
  return std::ranges::any_of(kLegal,
                             [name](std::string_view begin) { return name.starts_with(begin); });
}

/// The files of the folder that are read in another way: config.json, and the weights with their
/// index. Other files of weights, such as adapters, are not among them.
std::set<std::string> files_read(const Storage& storage, const std::filesystem::path& folder) {
  constexpr const char* kIndex = "model.safetensors.index.json";
  std::set<std::string> names = {"config.json", "model.safetensors", kIndex};
  const bool sharded = storage.kind(folder / "model.safetensors") == FileKind::kAbsent &&
                       storage.kind(folder / kIndex) != FileKind::kAbsent;
  if (!sharded) return names;
  const nlohmann::json index =
      parse_json(read_text(storage, folder / kIndex), (folder / kIndex).string());
  const nlohmann::json places =
      index.is_object() && index.contains("weight_map") ? index["weight_map"] : nlohmann::json();
  for (const nlohmann::json& file : places) {
    if (file.is_string()) names.insert(file.get<std::string>());
  }
  return names;
}

/// A download that was cut off, or a page that says why there was none. All of these files are
/// objects; their content is transformers' own.
void check_json_companion(std::string_view text, const std::string& label) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  const std::size_t end = text.find_last_not_of(kSpace);
  if (begin == std::string_view::npos) {
    throw SystemError(fmt::format("{}: is empty: download it again, or remove it", label));
  }
  if (text[begin] != '{' && text[begin] != '[' && text.substr(begin, 3) != "\xEF\xBB\xBF") {
    std::string first(text.substr(begin, 16));
    std::ranges::replace_if(
        first, [](char c) { return c < ' ' || c > '~'; }, '?');
    throw SystemError(fmt::format(
        "{}: is no JSON: it begins with \"{}\": download it again, or remove it", label, first));
  }
  if (text[end] != '}' && text[end] != ']') {
    throw SystemError(
        fmt::format("{}: ends in the middle: download it again, or remove it", label));
  }
}

bool has_entry(const HfCompanions& companions, std::string_view name) {
  return std::ranges::any_of(companions.files,
                             [name](const auto& file) { return file.first == name; });
}

void add_byte_tokenizer(HfCompanions& companions, const ModelShape& shape) {
  if (shape.vocab < kByteTokens) return;
  companions.files.emplace_back("tokenizer.json", byte_tokenizer_text(shape.vocab));
  companions.files.emplace_back("tokenizer_config.json",
                                byte_tokenizer_config_text(shape.vocab, shape.positions));
}

}  // namespace

namespace {

/// What a value that is an id, or a list of them, has that is no id in [0, vocab); null is none.
std::vector<std::string> outside(const nlohmann::json& value, std::int64_t vocab) {
  std::vector<std::string> ids;
  if (value.is_null()) return ids;
  for (const nlohmann::json& each : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!each.is_number_integer()) {
      ids.push_back(each.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      continue;
    }
    const bool too_large =
        each.is_number_unsigned() && each.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab);
    if (too_large || each < 0) ids.push_back(each.dump());
  }
  return ids;
}

bool names_tokens(std::string_view key) {
  return key.ends_with("_token_id") || key.ends_with("_token_ids") ||
         key.ends_with("suppress_tokens");
}

}  // namespace

std::vector<std::string> ids_outside_vocabulary(const Storage& storage,
                                                const std::filesystem::path& folder,
                                                std::int64_t vocab) {
  std::vector<std::string> notes;
  for (const char* const name : {"config.json", "generation_config.json"}) {
    const std::filesystem::path file = folder / name;
    if (followed_kind(storage, file) != FileKind::kFile) continue;
    nlohmann::json settings;
    try {
      settings = parse_json(read_text(storage, file), file.string());
    } catch (const SystemError& error) {  // transformers may read it, or not miss it
      notes.push_back(fmt::format("{} (its token ids were not checked)", error.what()));
      continue;
    }
    if (!settings.is_object()) {
      notes.push_back(fmt::format("{}: is kept as it is, and is no JSON object", file.string()));
      continue;
    }
    for (const auto& [key, value] : settings.items()) {
      const std::vector<std::string> ids = outside(value, vocab);
      if (!names_tokens(key) || ids.empty()) continue;
      notes.push_back(fmt::format(
          "{}: {} names {}, and the model's vocabulary has {} ids (0 to {}): the key is kept as it "
          "is, and the model never gives such a token: mend the key, or set it to null",
          file.string(), key, fmt::join(ids, ", "), vocab, vocab - 1));
    }
  }
  return notes;
}

bool is_written_companion(const std::string& name) {
  // Of the endings, the names that transformers knows; others may be the user's own.
  constexpr std::array<std::string_view, 5> kKnown = {"tokenizer.model", "spiece.model",
                                                      "sentencepiece.bpe.model", "tiktoken.model",
                                                      "chat_template.jinja"};
  return is_any_of(kTokenizerFiles, name) || is_any_of(kKnown, name);
}

HfCompanions tokenizer_files_in(const Storage& storage, const std::filesystem::path& folder) {
  HfCompanions companions;
  for (const std::string& name : storage.list(folder)) {
    const std::filesystem::path path = folder / name;
    if (name == "generation_config.json" || !is_written_companion(name) ||
        followed_kind(storage, path) != FileKind::kFile) {
      continue;
    }
    try {
      const MappedFile file = storage.map(path);
      refuse_git_pointer(as_text(file.bytes()), path.string());
      if (name.ends_with(".json")) check_json_companion(as_text(file.bytes()), path.string());
      if (file.bytes().size() <= kMostCompanionBytes) {
        companions.files.emplace_back(name, as_text(file.bytes()));
      }
    } catch (const SystemError& error) {
      companions.left_out.push_back(fmt::format("{} (left out of the model)", error.what()));
    }
  }
  return companions;
}

HfCompanions companions_in(const Storage& storage, const std::filesystem::path& folder) {
  HfCompanions companions;
  const bool checkpoint = storage.kind(folder / "state.json") == FileKind::kFile;
  const std::set<std::string> read = files_read(storage, folder);
  for (const std::string& name : storage.list(folder)) {
    const std::filesystem::path path = folder / name;
    if (read.contains(name) || name.starts_with('.')) continue;
    const bool is_folder = storage.kind(path / ".") == FileKind::kDirectory;
    if (!is_folder && (is_any_of(kTokenizerFiles, name) || ends_with_any(name) || is_legal(name))) {
      const MappedFile file = storage.map(path);
      refuse_git_pointer(as_text(file.bytes()), path.string());
      if (name.ends_with(".json")) check_json_companion(as_text(file.bytes()), path.string());
      if (file.bytes().size() <= kMostCompanionBytes) {
        companions.files.emplace_back(name, as_text(file.bytes()));
        continue;
      }
    }
    // A checkpoint has its state in further files, and had its companions sorted out before.
    if (!checkpoint) companions.left_out.push_back(name + (is_folder ? "/" : ""));
  }
  return companions;
}

HfCompanions hf_companions(const Storage& storage, const ModelShape& shape,
                           const std::filesystem::path& init, bool bytes) {
  HfCompanions result;
  std::string settings;
  if (!init.empty()) {
    HfConfig config = read_hf_config(storage, init);
    settings = std::move(config.settings);
    result = companions_in(storage, init);
    for (const std::string& key : config.left_out) {
      result.left_out.push_back("config.json: " + key);
    }
  } else if (bytes) {
    add_byte_tokenizer(result, shape);
  }
  const bool has_generation = has_entry(result, "generation_config.json");
  if (!has_generation) {
    result.files.emplace(result.files.begin(), "generation_config.json",
                         hf_generation_config_text(settings));
  }
  result.files.emplace(result.files.begin(), "config.json", hf_config_text(shape, settings));
  return result;
}

std::optional<std::string> own_tokenizer(const Storage& storage,
                                         const std::filesystem::path& folder) {
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  if (storage.kind(tokenizer) != FileKind::kAbsent) {
    const MappedFile file = storage.map(tokenizer);
    if (is_byte_tokenizer(as_text(file.bytes()))) return {};
  }
  for (const std::string_view name : kShowATokenizer) {
    if (storage.kind(folder / name) != FileKind::kAbsent) return std::string(name);
  }
  // Without a vocabulary too: it is elsewhere. A folder "tokenizer" is that of pipelines.
  constexpr std::array<std::string_view, 4> kNames = {"special_tokens_map.json",
                                                      "added_tokens.json", "dict.txt", "tokenizer"};
  // Those of SentencePiece, tiktoken, fairseq, subword-nmt, llm.c; compressed ones too.
  constexpr std::array<std::string_view, 3> kBegin = {"tokenizer.", "vocab.", "bpe."};
  constexpr std::array<std::string_view, 6> kEnd = {".model", ".tiktoken", ".bpe",
                                                    ".spm",   ".codes",    ".vocab"};
  for (const std::string& listed : storage.list(folder)) {
    std::string name = listed;  // in small letters
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
    const auto begins = [&](std::string_view with) { return name.starts_with(with); };
    const auto ends = [&](std::string_view with) { return name.ends_with(with); };
    if (std::ranges::find(kNames, name) != kNames.end() || std::ranges::any_of(kBegin, begins) ||
        std::ranges::any_of(kEnd, ends)) {
      return listed;
    }
  }
  return {};
}

}  // namespace isthmus
