// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/tokenize_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "data/tokenize/block_pipeline.h"
#include "isthmus/errors.h"
#include "text/end_of_text.h"

namespace isthmus {
namespace {

using nlohmann::ordered_json;
using std::filesystem::path;

constexpr std::array<std::string_view, 4> kTokenizerCompanions = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};

std::vector<std::byte> narrowed(const std::vector<std::uint32_t>& ids, bool narrow) {
  std::vector<std::byte> bytes;
  bytes.reserve(ids.size() * (narrow ? 2 : 4));
  for (std::uint32_t id : ids) {
    for (int byte = 0; byte < (narrow ? 2 : 4); ++byte) {
      bytes.push_back(static_cast<std::byte>(id & 0xFFU));
      id >>= 8;
    }
  }
  return bytes;
}

/// One call of tokenize_files.
class FilesTokenizer {
 public:
  FilesTokenizer(Storage& storage, Runtime& runtime, const TokenizeOptions& options,
                 const TokenizeWatch& watch);
  TokenizeSummary run();

 private:
  [[nodiscard]] path shard(std::size_t index, const char* ending) const;
  [[nodiscard]] ordered_json settings(std::size_t index) const;
  [[nodiscard]] std::optional<ordered_json> finished_shard(std::size_t index) const;
  void check_other_shards() const;
  void check_content(const ordered_json& record, std::size_t index) const;
  ordered_json make_shard(BlockPipeline& pipeline, std::size_t index);
  void add(const ordered_json& record);
  void copy_tokenizer();
  void write_manifest(const std::vector<ordered_json>& records);
  void report(std::int64_t bytes_of_file, std::int64_t tokens_of_file);

  Storage& storage_;
  Runtime& runtime_;
  const TokenizeOptions& options_;
  const TokenizeWatch& watch_;
  const path tokenizer_file_;
  const Tokenizer tokenizer_;
  const std::string tokenizer_sha256_;
  bool narrow_;
  std::vector<std::int64_t> sizes_;
  std::int64_t bytes_done_ = 0, bytes_ = 0;  // of whole files
  bool copies_tokenizer_ = true;             // with the first shard: a refused call leaves nothing
  TokenizeSummary summary_;
};

FilesTokenizer::FilesTokenizer(Storage& storage, Runtime& runtime, const TokenizeOptions& options,
                               const TokenizeWatch& watch)
    : storage_(storage),
      runtime_(runtime),
      options_(options),
      watch_(watch),
      tokenizer_file_(tokenizer_file(storage, options.tokenizer)),
      tokenizer_(Tokenizer::open(storage, options.tokenizer)),
      tokenizer_sha256_(sha256_hex(storage.map(tokenizer_file_).bytes())),
      narrow_(tokenizer_.vocabulary() <= std::numeric_limits<std::uint16_t>::max() + 1U) {
  summary_.vocabulary = tokenizer_.vocabulary();
  summary_.end_token = end_of_text(storage, options.tokenizer, tokenizer_, options.end);
  summary_.end = *tokenizer_.id_of(summary_.end_token);
  summary_.shards = options.files.size();
  summary_.source =
      fmt::format("tokens:{}:{}", (options.out / "*.bin").string(), narrow_ ? "u16" : "u32");
  std::set<path> seen;
  for (const path& file : options.files) {
    std::error_code error;
    sizes_.push_back(static_cast<std::int64_t>(std::filesystem::file_size(file, error)));
    if (error) {
      throw SystemError(fmt::format("{}: cannot be read: {}", file.string(), error.message()));
    }
    const path meant = std::filesystem::canonical(file, error);
    if (!seen.insert(error ? file : meant).second) {
      throw ConfigError(fmt::format("{}: is named twice", file.string()));
    }
    bytes_ += sizes_.back();
  }
}

path FilesTokenizer::shard(std::size_t index, const char* ending) const {
  return options_.out / fmt::format("shard-{:05}.{}", index, ending);
}

ordered_json FilesTokenizer::settings(std::size_t index) const {
  return {{"source", options_.files[index].string()}, {"source_bytes", sizes_[index]},
          {"tokenizer_sha256", tokenizer_sha256_},    {"end", summary_.end},
          {"width", narrow_ ? "u16" : "u32"},         {"field", options_.field}};
}

/// The record of a shard that is there and was made of the same.
std::optional<ordered_json> FilesTokenizer::finished_shard(std::size_t index) const {
  const path file = shard(index, "json");
  if (storage_.kind(file) == FileKind::kAbsent) return {};
  const std::string text = read_text(storage_, file);
  const nlohmann::json found = parse_json(text, file.string());
  const ordered_json wanted = settings(index);
  for (const auto& item : wanted.items()) {
    const nlohmann::json value =
        found.is_object() && found.contains(item.key()) ? found[item.key()] : nlohmann::json();
    if (value == nlohmann::json(item.value())) continue;
    throw ConfigError(fmt::format(
        "{}: the shard was made with {} = {}, and now it is {}: give another --out, or remove the "
        "folder",
        file.string(), item.key(), value.dump(), item.value().dump()));
  }
  const path bin = shard(index, "bin");
  const std::size_t width = narrow_ ? 2 : 4;
  if (!found.contains("tokens") || !found["tokens"].is_number_integer() ||
      storage_.kind(bin) != FileKind::kFile ||
      storage_.map(bin).bytes().size() != found["tokens"].get<std::size_t>() * width) {
    return {};
  }
  return ordered_json::parse(text);  // in the order in which it was written
}

/// Shards of other files would be read with these: by the pattern that the summary gives.
void FilesTokenizer::check_other_shards() const {
  if (storage_.kind(options_.out) == FileKind::kAbsent) return;
  std::set<std::string> own;
  for (std::size_t i = 0; i < options_.files.size(); ++i) {
    own.insert(shard(i, "bin").filename().string());
  }
  for (const std::string& name : storage_.list(options_.out)) {
    if (!name.ends_with(".bin") || name.starts_with('.') || own.contains(name)) continue;
    throw ConfigError(fmt::format(
        "{}: is no shard of the {} named files, but {} would match it too: give another --out, or "
        "remove it",
        (options_.out / name).string(), options_.files.size(), summary_.source));
  }
}

/// A file may have been replaced by one of the same size since its shard was made.
void FilesTokenizer::check_content(const ordered_json& record, std::size_t index) const {
  const path& file = options_.files[index];
  const std::string before = record.value("source_sha256", "");
  const std::string now = sha256_hex(storage_.map(file).bytes());
  if (before == now) return;
  throw ConfigError(
      fmt::format("{}: the shard was made when {} had another content (SHA-256 {}, now {}): give "
                  "another --out, or remove the shard",
                  shard(index, "json").string(), file.string(), before, now));
}

void FilesTokenizer::add(const ordered_json& record) {
  summary_.tokens += record.at("tokens").get<std::int64_t>();
  summary_.documents += record.at("documents").get<std::int64_t>();
  summary_.skipped += record.at("skipped").get<std::int64_t>();
}

void FilesTokenizer::report(std::int64_t bytes_of_file, std::int64_t tokens_of_file) {
  if (watch_) watch_({bytes_done_ + bytes_of_file, bytes_, summary_.tokens + tokens_of_file});
}

ordered_json FilesTokenizer::make_shard(BlockPipeline& pipeline, std::size_t index) {
  std::int64_t tokens = 0, documents = 0, skipped = 0;
  Sha256 digest;
  FinishedBlock block;
  write_atomically(storage_, shard(index, "bin"), [&](WritableFile& file) {
    do {
      block = pipeline.next();
      const auto& ids = block.encoded.ids;
      ISTHMUS_CHECK(
          std::ranges::all_of(ids, [&](std::uint32_t id) { return id < tokenizer_.vocabulary(); }));
      const std::vector<std::byte> bytes = narrowed(ids, narrow_);
      file.append(bytes);
      digest.update(bytes);
      tokens += std::ssize(ids);
      documents += block.encoded.documents;
      skipped += block.encoded.skipped;
      summary_.controls += block.encoded.controls;
      if (summary_.first_skipped.empty()) summary_.first_skipped = block.encoded.first_skipped;
      report(block.bytes_read, tokens);
    } while (!block.last);
    // A shard of that name without a tokenizer beside it would be read as ids of any tokenizer.
    if (std::exchange(copies_tokenizer_, false)) copy_tokenizer();
  });
  ordered_json record = settings(index);
  record["source_bytes"] = block.bytes_read;
  record["source_sha256"] = block.sha256;
  record["file"] = shard(index, "bin").filename().string();
  record["sha256"] = digest.hex();
  record["tokens"] = tokens;
  record["documents"] = documents;
  record["skipped"] = skipped;
  write_atomically(storage_, shard(index, "json"), record.dump(2) + "\n");
  return record;
}

void FilesTokenizer::copy_tokenizer() {
  write_atomically(storage_, options_.out / "tokenizer.json",
                   storage_.map(tokenizer_file_).bytes());
  for (const std::string_view name : kTokenizerCompanions) {
    const path file = tokenizer_file_.parent_path() / name;
    if (storage_.kind(file) == FileKind::kAbsent) continue;
    write_atomically(storage_, options_.out / name, storage_.map(file).bytes());
  }
}

void FilesTokenizer::write_manifest(const std::vector<ordered_json>& records) {
  const ordered_json manifest = {{"format", "isthmus tokens 1"},
                                 {"tokenizer", "tokenizer.json"},
                                 {"tokenizer_sha256", tokenizer_sha256_},
                                 {"vocab", summary_.vocabulary},
                                 {"width", narrow_ ? "u16" : "u32"},
                                 {"end", {{"id", summary_.end}, {"token", summary_.end_token}}},
                                 {"tokens", summary_.tokens},
                                 {"documents", summary_.documents},
                                 {"skipped", summary_.skipped},
                                 {"shards", records}};
  write_atomically(storage_, options_.out / "manifest.json", manifest.dump(2) + "\n");
}

TokenizeSummary FilesTokenizer::run() {
  std::vector<std::optional<ordered_json>> records;
  std::vector<path> missing;
  check_other_shards();
  for (std::size_t i = 0; i < options_.files.size(); ++i) {
    records.push_back(finished_shard(i));
    if (records.back()) {
      check_content(*records.back(), i);
      add(*records.back());
      bytes_done_ += sizes_[i];
      ++summary_.kept;
    } else {
      missing.push_back(options_.files[i]);
    }
  }
  storage_.create_directories(options_.out);
  if (missing.empty()) copy_tokenizer();
  BlockPipeline pipeline(
      runtime_, tokenizer_,
      {.files = missing,
       .documents = {.field = options_.field, .end = summary_.end, .skip_bad = options_.skip_bad},
       .jobs = options_.jobs});
  std::vector<ordered_json> all;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!records[i]) {
      records[i] = make_shard(pipeline, i);
      add(*records[i]);
      bytes_done_ += sizes_[i];
    }
    all.push_back(*std::move(records[i]));
  }
  write_manifest(all);
  return summary_;
}

}  // namespace

TokenizeSummary tokenize_files(Storage& storage, Runtime& runtime, const TokenizeOptions& options,
                               const TokenizeWatch& watch) {
  return FilesTokenizer(storage, runtime, options, watch).run();
}

}  // namespace isthmus
