// SPDX-License-Identifier: Apache-2.0
#include "data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "data/synth.h"
#include "data/tokenized_text.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kText = "text:";
constexpr std::string_view kTokens = "tokens:";
constexpr std::string_view kSynth = "synth:";
constexpr std::string_view kGenerated = "synth";  // a format
constexpr std::int64_t kScanned = 1 << 16;        // tokens read at a time by scans

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

[[noreturn]] void bad_source(const std::string& source, const std::string& cause) {
  throw ConfigError(fmt::format("data.source = \"{}\": {}", source, cause));
}

// The files a source names. A name that exists is taken as it is, wildcard characters and all.
std::vector<Path> files_of(const Storage& storage, const std::string& source, const Path& folder,
                           std::string_view name) {
  if (name.empty()) bad_source(source, "names no file after the colon");
  const Path pattern = folder / Path(name);
  if (storage.kind(pattern) != FileKind::kAbsent) return {pattern};
  std::vector<Path> paths = expand_pattern(storage, Path(name), folder);
  // A pattern gathers files; folders that happen to match are not meant.
  std::erase_if(paths, [&](const Path& path) {
    return storage.kind(path) == FileKind::kAbsent ||
           storage.kind(path / ".") == FileKind::kDirectory;
  });
  if (paths.empty()) {
    throw SystemError(
        fmt::format("data.source = \"{}\": no file matches {}; relative names start "
                    "at the folder of the TOML file",
                    source, pattern.string()));
  }
  return paths;
}

/// The result of `open`; its errors name the source's key.
template <typename Open>
Dataset open_named(const std::string& name, const Open& open) {
  try {
    return open();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("data.sources.{}: {}", name, error.what()));
  } catch (const SystemError& error) {
    throw SystemError(fmt::format("data.sources.{}: {}", name, error.what()));
  }
}

struct TokenSource {
  std::string_view name;           // file or pattern
  std::optional<TokenType> width;  // that the source says
};

/// "FILE:u32" is FILE and its width, unless the whole is a file's name and FILE is none.
TokenSource token_source(const Storage& storage, const std::string& source, const Path& folder,
                         std::string_view name) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return {name, {}};
  const auto there = [&](std::string_view file) {
    return storage.kind(folder / Path(file)) != FileKind::kAbsent;
  };
  const std::string_view suffix = name.substr(colon + 1);
  const std::optional<TokenType> width = parse_token_width(suffix);
  if (there(name) && !(width && there(name.substr(0, colon)))) return {name, {}};
  if (!width) {
    // A path or pattern goes on behind a colon of its own; a word alone was meant as a width.
    if (suffix.find_first_of("/.*?[") != std::string_view::npos) return {name, {}};
    bad_source(source,
               fmt::format("\"{}\" is no width of tokens; u8, u16, u32, i32 and i64 are", suffix));
  }
  return {name.substr(0, colon), width};
}

}  // namespace

Dataset Dataset::open(const Storage& storage, const DataConfig& config, const Path& folder,
                      ReadingRules rules, std::int64_t most_inflated,
                      const OpenConversations& conversations) {
  if (config.sources.empty()) {
    return open_one(storage, config.source, config, folder, rules, most_inflated, conversations);
  }
  double all = 0;
  for (const auto& [name, share] : config.mix) all += share;
  Dataset data;
  for (const auto& named : config.sources) {
    const auto& name = named.first;
    const auto& source = named.second;
    const auto share = std::ranges::find(config.mix, name, &NamedReals::value_type::first);
    ISTHMUS_CHECK(share != config.mix.end(), name);  // config/check
    Dataset one = open_named(name, [&] {
      return open_one(storage, source, config, folder, rules, most_inflated, conversations);
    });
    for (const Segment& segment : one.segments_) {
      most_inflated -= static_cast<std::int64_t>(segment.file.inflated.size());
    }
    data.append(std::move(one), name, share->second / all);
  }
  return data;
}

void Dataset::append(Dataset&& other, std::string name, double share) {
  Source source = std::move(other.sources_.front());
  source.name = std::move(name);
  source.share = share;
  source.begin = tokens_;
  sources_.push_back(std::move(source));
  if (format_.find(other.format_) == std::string::npos) {
    format_ += (format_.empty() ? "" : "+") + other.format_;
  }
  source_ +=
      fmt::format("{}{} = {}", source_.empty() ? "" : ", ", sources_.back().name, other.source_);
  for (Segment& segment : other.segments_) {
    segment.begin += tokens_;
    segments_.push_back(std::move(segment));
  }
  for (auto& values : other.generated_) generated_.push_back(std::move(values));
  rules_ = other.rules_;
  eos_ = other.eos_;
  val_fraction_ = other.val_fraction_;
  tokens_ += other.tokens_;
  train_tokens_ += other.train_tokens_;
  vocab_bound_ = std::max(vocab_bound_, other.vocab_bound_);
}

Dataset Dataset::open_one(const Storage& storage, const std::string& source,
                          const DataConfig& config, const Path& folder, ReadingRules rules,
                          std::int64_t most_inflated, const OpenConversations& conversations) {
  Dataset data;
  data.most_inflated_ = most_inflated;
  data.rules_ = rules;
  data.source_ = source;
  data.eos_ = config.eos;
  std::optional<ConversationFacts> packed;
  if (conversations) {
    packed = data.open_packed(storage, folder, conversations);
  } else if (starts_with(source, kSynth)) {
    data.open_synth();
  } else {
    data.open_files(storage, folder);
  }
  if (data.tokens_ == 0) {
    throw SystemError(fmt::format("data.source = \"{}\": holds no tokens (empty file{})",
                                  data.source_, data.segments_.size() == 1 ? "" : "s"));
  }
  if (!(config.val_fraction >= 0 && config.val_fraction < 1)) {
    throw ConfigError(
        fmt::format("data.val_fraction = {}: must be at least 0 and below 1", config.val_fraction));
  }
  data.val_fraction_ = config.val_fraction;
  Source& own = data.sources_.emplace_back();
  own.text = source;
  own.tokens = data.tokens_;
  own.packed = std::move(packed);
  data.train_tokens_ = data.tokens_ - data.validation_tokens_of(own);
  own.document_end = data.segments_.front().file.document_end;
  for (const Segment& segment : data.segments_) {
    if (segment.file.document_end != own.document_end) own.document_end.reset();
  }
  if (config.eos) own.document_end = static_cast<std::int32_t>(*config.eos);
  return data;
}

void Dataset::check_documents() const {
  for (const Source& source : sources_) {
    if (source.packed) continue;
    const std::string key = source.name.empty() ? "data.source" : "data.sources." + source.name;
    if (!source.document_end) {
      throw ConfigError(fmt::format(
          "data.pack = \"documents\": {} = \"{}\" does not say where its documents end; make token "
          "files of the documents (isthmus data tokenize FILES --tokenizer DIR --out DIR), give a "
          "text its tokenizer (text:FILE:tokenizer=DIR), set data.eos to the id that ends a "
          "document, or leave data.pack out",
          key, source.text));
    }
    for (const Segment& segment : segments_) {
      const std::optional<std::int32_t>& said = segment.file.document_end;
      if (!eos_ || !said || *said == *eos_) continue;
      throw ConfigError(fmt::format(
          "data.eos = {}: the documents of {} end with token {}, as the record of its maker says; "
          "leave data.eos out",
          *eos_, segment.file.path.string(), *said));
    }
  }
}

const Dataset::Source& Dataset::source_of(std::int64_t token) const {
  std::size_t k = sources_.size() - 1;
  while (sources_[k].begin > token) --k;
  return sources_[k];
}

std::int64_t Dataset::validation_tokens_of(std::int64_t tokens) const {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(tokens) * val_fraction_));
}

std::int64_t Dataset::validation_tokens_of(const Source& source) const {
  return source.packed ? source.packed->validation_tokens : validation_tokens_of(source.tokens);
}

std::span<const std::byte> Dataset::bytes_of(const Segment& segment) const {
  if (segment.file.format != kGenerated) return segment.file.file.bytes();
  const TokenSpan& tokens = segment.file.tokens;
  return {tokens.data, static_cast<std::size_t>(tokens.count) * token_bytes(tokens.type)};
}

void Dataset::open_synth() {
  const SynthSpec spec = parse_synth(source_);
  format_ = kGenerated;
  entropy_rate_ = entropy_rate_nats(spec);
  vocab_bound_ = spec.vocab;
  generated_.push_back(generate(spec));
  tokens_ = spec.tokens;
  const TokenSpan span{std::as_bytes(std::span(generated_.back())).data(), TokenType::kU16,
                       tokens_};
  segments_.push_back({0, TokenFile{source_, format_, {}, span, {}}});
}

ConversationFacts Dataset::open_packed(const Storage& storage, const Path& folder,
                                       const OpenConversations& conversations) {
  if (!starts_with(source_, kText) ||
      tokenized_source(std::string_view(source_).substr(kText.size()))) {
    bad_source(source_,
               "train.objective = \"sft\" reads conversations, whose tokenizer and template are "
               "those of model.init: name their files, text:FILE.jsonl");
  }
  const auto name = std::string_view(source_).substr(kText.size());
  PackedConversations packed = conversations(files_of(storage, source_, folder, name), source_);
  vocab_bound_ = packed.facts.vocabulary;
  for (TokenFile& file : packed.files) {
    const std::int64_t begin = tokens_;
    tokens_ += file.tokens.count;
    format_ = file.format;
    segments_.push_back({begin, std::move(file)});
  }
  return packed.facts;
}

void Dataset::open_files(const Storage& storage, const Path& folder) {
  const bool text = starts_with(source_, kText);
  if (!text && !starts_with(source_, kTokens)) {
    bad_source(source_, "must begin with \"text:\", \"tokens:\" or \"synth:\"");
  }
  const auto name = std::string_view(source_).substr(text ? kText.size() : kTokens.size());
  const std::optional<TokenizedSource> tokenized = text ? tokenized_source(name) : std::nullopt;
  const TokenSource source = tokenized ? TokenSource{tokenized->name, {}}
                             : text    ? TokenSource{name, {}}
                                       : token_source(storage, source_, folder, name);
  std::optional<TextTokenizing> tokenizing;
  if (tokenized && tokenized->tokenizer.empty()) {
    throw ConfigError(fmt::format(
        "data.source = \"{}\": names no tokenizer behind :tokenizer=; give a tokenizer.json or its "
        "folder",
        source_));
  }
  if (tokenized) tokenizing.emplace(storage, folder / Path(tokenized->tokenizer));
  std::vector<std::string> formats;
  std::int64_t may_inflate = most_inflated_;
  for (const Path& path : files_of(storage, source_, folder, source.name)) {
    // Of a Megatron pair that a pattern matched whole, the .bin stands for both.
    const Path bin = Path(path).replace_extension(".bin");
    if (!text && path.extension() == ".idx" && !segments_.empty() &&
        segments_.back().file.path == bin) {
      continue;
    }
    TokenFile file = tokenizing ? tokenizing->open(path, may_inflate)
                     : text     ? open_text_file(storage, path, rules_, may_inflate)
                                : open_token_file(storage, path, source.width, rules_);
    if (std::find(formats.begin(), formats.end(), file.format) == formats.end()) {
      if (!format_.empty()) format_ += '+';
      format_ += formats.emplace_back(file.format);
    }
    may_inflate -= static_cast<std::int64_t>(file.inflated.size());
    vocab_bound_ = tokenizing ? tokenizing->vocabulary()
                              : std::max(vocab_bound_, largest_id(file.tokens.type) + 1);
    const std::int64_t begin = tokens_;
    tokens_ += file.tokens.count;
    segments_.push_back({begin, std::move(file)});
  }
}

const Dataset::Segment& Dataset::segment_of(std::int64_t token) const {
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), token,
      [](std::int64_t value, const Segment& segment) { return value < segment.begin; });
  return *(after - 1);
}

std::string Dataset::place(std::int64_t token) const {
  const Segment& segment = segment_of(token);
  return fmt::format("at position {} of {}", token - segment.begin, segment.file.path.string());
}

void Dataset::read(std::int64_t begin, std::span<std::int32_t> out) const {
  ISTHMUS_CHECK(begin >= 0, begin);
  ISTHMUS_CHECK(static_cast<std::int64_t>(out.size()) <= tokens_ - begin, begin, out.size(),
                tokens_);
  while (!out.empty()) {
    const Segment& segment = segment_of(begin);
    const std::int64_t from = begin - segment.begin;
    const std::int64_t count =
        std::min(static_cast<std::int64_t>(out.size()), segment.file.tokens.count - from);
    const std::int64_t wrong =
        segment.file.tokens.read(from, out.first(static_cast<std::size_t>(count)));
    if (wrong >= 0) {
      throw SystemError(fmt::format("data.source = \"{}\": token id {} {} is no id (0 to 2^31 - 1)",
                                    source_, segment.file.tokens.at(from + wrong),
                                    place(begin + wrong)));
    }
    out = out.subspan(static_cast<std::size_t>(count));
    begin += count;
  }
}

void Dataset::read_marks(std::int64_t begin, std::span<std::uint8_t> out) const {
  const Segment& segment = segment_of(begin);  // a source's conversations are in one
  const auto from = static_cast<std::size_t>(begin - segment.begin);
  ISTHMUS_CHECK(from + out.size() <= segment.file.marks.size(), begin, out.size(),
                segment.file.marks.size());
  std::copy_n(segment.file.marks.begin() + static_cast<std::ptrdiff_t>(from), out.size(),
              out.begin());
}

void Dataset::read_checked(std::int64_t begin, std::span<std::int32_t> out,
                           const Vocabulary& vocab) const {
  read(begin, out);
  if (vocab.ids >= vocab_bound_) return;
  const auto wrong =
      std::find_if(out.begin(), out.end(), [&](std::int32_t id) { return id >= vocab.ids; });
  if (wrong == out.end()) return;
  const std::string there = place(begin + (wrong - out.begin()));
  if (vocab.folder.empty()) {
    throw ConfigError(
        fmt::format("model.vocab = {}: token id {} {} is not below it; set model.vocab "
                    "to at least {} or use other data",
                    vocab.ids, *wrong, there, *wrong + 1));
  }
  throw ConfigError(
      fmt::format("{}: vocab_size = {}: token id {} {} is not below it; use ids of that model's "
                  "tokenizer, or a model of at least {} ids",
                  vocab.file(), vocab.ids, *wrong, there, *wrong + 1));
}

void Dataset::check_vocabulary(const Vocabulary& vocab) const {
  if ((is_tokenized(format_) || is_conversations(format_)) && vocab.ids < vocab_bound_) {
    const std::string tokenizer = fmt::format(
        "the tokenizer of data.source = \"{}\" has ids up to {}", source_, vocab_bound_ - 1);
    if (vocab.folder.empty()) {
      throw ConfigError(fmt::format("model.vocab = {}: {}; set model.vocab to at least {}",
                                    vocab.ids, tokenizer, vocab_bound_));
    }
    throw ConfigError(
        fmt::format("{}: vocab_size = {}: {}; use that model's tokenizer, or a model of at least "
                    "{} ids",
                    vocab.file(), vocab.ids, tokenizer, vocab_bound_));
  }
  if (vocab.ids >= vocab_bound_ || tokens_ > kScanTokens) return;
  std::vector<std::int32_t> chunk(static_cast<std::size_t>(std::min(kScanned, tokens_)));
  for (std::int64_t at = 0; at < tokens_; at += kScanned) {
    const auto count = static_cast<std::size_t>(std::min(kScanned, tokens_ - at));
    read_checked(at, std::span(chunk).first(count), vocab);
  }
}

std::vector<DataFile> Dataset::fingerprint() const {
  std::vector<DataFile> files;
  for (const Segment& segment : segments_) {
    const std::span<const std::byte> bytes = bytes_of(segment);
    const std::string& name = source_of(segment.begin).name;
    files.push_back({segment.file.path.string(), bytes.size(), sha256_hex(bytes),
                     reading_of(segment.file) + (name.empty() ? "" : ", of source " + name)});
  }
  return files;
}

}  // namespace isthmus
