// SPDX-License-Identifier: Apache-2.0
#include "app/inference/text_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "app/inference/growing_text.h"
#include "core/base/log.h"
#include "data/control_count.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/tokenize/document_blocks.h"
#include "data/tokenize/document_encoder.h"
#include "inner/model/model_source.h"
#include "isthmus/errors.h"
#include "text/unicode.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokens = "tokens:";
constexpr std::size_t kWatched = 1024;     // ids between two reports
constexpr std::int64_t kPiece = 1024;      // ids of a token file that are read at once
constexpr std::int64_t kMapped = 1 << 24;  // ids after which a token file is mapped anew

/// A file and how it is read.
struct Source {
  fs::path file;
  bool tokens = false;
  std::string width = {};  // ":u16" of a token file, or nothing
};

bool names_tokens(const fs::path& file) {
  return file.extension() == ".bin" || file.extension() == ".npy";
}

std::vector<Source> sources_of(const Storage& storage, const std::vector<std::string>& given) {
  std::vector<Source> sources;
  for (const std::string& each : given) {
    std::string pattern = each, width;
    const bool says_tokens = each.starts_with(kTokens);
    if (says_tokens) {
      pattern = each.substr(kTokens.size());
      const std::size_t colon = pattern.rfind(':');
      if (colon != std::string::npos && parse_token_width(pattern.substr(colon + 1))) {
        width = pattern.substr(colon);
        pattern.resize(colon);
      }
    }
    for (const fs::path& file : document_files(storage, pattern)) {
      sources.push_back({file, says_tokens || names_tokens(file), width});
    }
  }
  return sources;
}

/// Bytes of text that a token spells. A part of a character is decoded as U+FFFD; its bytes are
/// those that it is spelt by, one a character of a byte-level token, or "<0xC3>".
std::int64_t bytes_of(const Tokenizer& tokenizer, std::uint32_t id) {
  const std::string text = tokenizer.decode(std::span(&id, 1), false);
  if (text.find("\xEF\xBF\xBD") == std::string::npos) return std::ssize(text);
  const std::string token = tokenizer.token_of(id).value_or("");
  if (token.starts_with("<0x")) return 1;
  return std::ranges::count_if(
      token, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// One call of evaluate_files.
class Evaluation {
 public:
  Evaluation(ModelFolder& model, const EvaluationOptions& options, const EvaluationWatch& watch)
      : options_(options),
        watch_(watch),
        tokenizer_(model.tokenizer),
        encoder_(model.tokenizer),
        folder_(model.folder),
        layout_(shape_of(model, options)),
        parameters_(model.model),
        weights_(layout_, parameters_),
        team_(options.threads),
        losses_(team_, layout_, weights_, options.windows) {}

  std::vector<SourceLoss> run(const Storage& storage);

 private:
  static ModelShape shape_of(const ModelFolder& model, const EvaluationOptions& options) {
    ModelShape shape = model.model.layout.shape();
    shape.longest = options.windows.context;
    return shape;
  }
  void read_text(const fs::path& file, SourceLoss& loss);
  void read_line(const std::string& text, SourceLoss& loss);
  void read_lines(const DocumentBlock& block, const std::string& label, SourceLoss& loss);
  void read_tokens(const Storage& storage, const Source& source, SourceLoss& loss);
  void begin_document(SourceLoss& loss);
  void end_document(SourceLoss& loss);
  void add(std::span<const std::uint32_t> ids, SourceLoss& loss);
  void report(const SourceLoss& loss);

  const EvaluationOptions& options_;
  const EvaluationWatch& watch_;
  const Tokenizer& tokenizer_;
  TextEncoder encoder_;
  const fs::path folder_;
  const ModelLayout layout_;
  const FolderParameters parameters_;
  SourceWeights weights_;
  kernels::ThreadTeam team_;
  WindowedLoss losses_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::int32_t> signed_ids_;
  ControlCount controls_;         // of the texts
  std::int64_t of_document_ = 0;  // ids so far
  std::int64_t of_file_ = 0;      // bytes so far
  std::int64_t bytes_done_ = 0, bytes_ = 0, tokens_done_ = 0;
};

void Evaluation::report(const SourceLoss& loss) {
  if (watch_) watch_({bytes_done_ + of_file_, bytes_, tokens_done_ + loss.tokens});
}

void Evaluation::begin_document(SourceLoss& loss) {
  of_document_ = 0;
  add(tokenizer_.before(), loss);
}

/// An id that no window predicts spells no byte that is counted.
void Evaluation::add(std::span<const std::uint32_t> ids, SourceLoss& loss) {
  if (ids.empty()) return;
  if (of_document_ == 0 && tokenizer_.before().empty()) {
    loss.bytes -= bytes_of(tokenizer_, ids.front());
  }
  of_document_ += std::ssize(ids);
  while (!ids.empty()) {
    const auto piece = ids.first(std::min(kWatched, ids.size()));
    signed_ids_.assign(piece.begin(), piece.end());
    losses_.add(signed_ids_);
    loss.tokens += std::ssize(piece);
    ids = ids.subspan(piece.size());
    report(loss);
  }
}

void Evaluation::end_document(SourceLoss& loss) {
  add(tokenizer_.behind(), loss);
  losses_.end_stream();
  ++loss.documents;
}

void Evaluation::read_line(const std::string& text, SourceLoss& loss) {
  ids_.clear();
  encoder_.encode(text, {}, ids_);
  begin_document(loss);
  loss.bytes += std::ssize(text);
  add(ids_, loss);
  end_document(loss);
}

void Evaluation::read_lines(const DocumentBlock& block, const std::string& label,
                            SourceLoss& loss) {
  std::string_view text = block.text;
  for (std::int64_t number = block.first; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const std::string found = text_of_line(line, options_.field);
      read_line(found, loss);
      controls_.add_line(found, label, number);
    } catch (const SystemError& error) {
      const std::string place = fmt::format("{}:{}: {}", label, number, error.what());
      if (!options_.skip_bad) {
        throw SystemError(place + " (--skip-bad counts such lines and goes on)");
      }
      if (loss.skipped++ == 0) loss.first_skipped = place;
    }
  }
}

void Evaluation::read_text(const fs::path& file, SourceLoss& loss) {
  DocumentBlocks blocks(file, tokenizer_);
  DocumentBlock block;
  if (!blocks.lines()) begin_document(loss);
  while (blocks.next(block)) {
    of_file_ = blocks.stream().bytes_read();
    if (blocks.lines()) {
      read_lines(block, file.string(), loss);
    } else {
      if (const std::size_t wrong = first_invalid_utf8(block.text);
          wrong != std::string_view::npos) {
        throw SystemError(
            fmt::format("{}: byte {} is not UTF-8: convert the text with iconv -t UTF-8",
                        file.string(), block.first + static_cast<std::int64_t>(wrong)));
      }
      ids_.clear();
      encoder_.encode(block.text, {.continues = block.continues}, ids_);
      loss.bytes += std::ssize(block.text);
      add(ids_, loss);
      controls_.add_text(block.text, file.string(), block.first);
    }
  }
  if (!blocks.lines()) end_document(loss);
}

void Evaluation::read_tokens(const Storage& storage, const Source& source, SourceLoss& loss) {
  const DataConfig config{
      .source = fmt::format("{}{}{}", kTokens, source.file.string(), source.width),
      .val_fraction = 0};
  if (const auto of_data = tokenizer_beside(storage, source.file)) {
    const std::string unlike =
        unlike_token(Tokenizer::open(storage, *of_data), tokenizer_, tokenizer_.vocabulary());
    if (!unlike.empty()) {
      throw ConfigError(fmt::format(
          "{}: its ids were made with another tokenizer than the model's ({}): {}; make ids with "
          "the model's, isthmus data tokenize FILES --tokenizer DIR --out DIR",
          source.file.string(), of_data->string(), unlike));
    }
  }
  std::optional<Dataset> data;
  std::vector<std::int32_t> piece;
  GrowingText text(tokenizer_, {}, true);
  const auto size = fs::file_size(source.file);
  std::int64_t all = 1;  // known once the file is open
  for (std::int64_t begin = 0; begin < all; begin += std::ssize(piece)) {
    // Pages of a mapping stay in memory until it goes.
    if (begin % kMapped == 0) data.emplace(Dataset::open(storage, config, {}));
    all = data->tokens();
    piece.resize(static_cast<std::size_t>(std::min(kPiece, all - begin)));
    data->read_checked(begin, piece, {layout_.shape().vocab, folder_.string()});
    losses_.add(piece);
    for (const std::int32_t id : piece) {
      const std::int64_t bytes = std::ssize(text.add(static_cast<std::uint32_t>(id)));
      if (&id != piece.data() || begin > 0) loss.bytes += bytes;
    }
    loss.tokens += std::ssize(piece);
    const double share = static_cast<double>(begin) / static_cast<double>(all);
    of_file_ = static_cast<std::int64_t>(share * static_cast<double>(size));
    report(loss);
  }
  loss.bytes += std::ssize(text.rest());
  losses_.end_stream();
  loss.documents = 1;
}

std::vector<SourceLoss> Evaluation::run(const Storage& storage) {
  const std::vector<Source> sources = sources_of(storage, options_.files);
  std::vector<std::int64_t> sizes;
  for (const Source& source : sources) {
    sizes.push_back(static_cast<std::int64_t>(fs::file_size(source.file)));
    bytes_ += sizes.back();
  }
  std::vector<SourceLoss> losses;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SourceLoss& loss = losses.emplace_back();
    loss.name = sources[i].file.string();
    if (sources[i].tokens) {
      read_tokens(storage, sources[i], loss);
    } else {
      read_text(sources[i].file, loss);
    }
    const LossSum sum = losses_.take();
    loss.loss_sum = sum.loss;
    loss.counted = sum.targets;
    if (loss.counted == 0) {
      throw ConfigError(fmt::format(
          "{}: has {} tokens in {} documents, and nothing to predict: a document needs two tokens",
          loss.name, loss.tokens, loss.documents));
    }
    of_file_ = 0;
    bytes_done_ += sizes[i];
    tokens_done_ += loss.tokens;
  }
  const std::string note = controls_note(controls_, "the loss counts them");
  if (!note.empty()) log_warning("{}", note);
  return losses;
}

}  // namespace

double SourceLoss::perplexity() const { return std::exp(loss()); }

std::optional<double> SourceLoss::bits_per_byte() const {
  if (bytes <= 0) return {};
  return loss_sum / std::numbers::ln2 / static_cast<double>(bytes);
}

SourceLoss& SourceLoss::operator+=(const SourceLoss& other) {
  documents += other.documents;
  tokens += other.tokens;
  counted += other.counted;
  bytes += other.bytes;
  loss_sum += other.loss_sum;
  skipped += other.skipped;
  return *this;
}

std::vector<SourceLoss> evaluate_files(const Storage& storage, ModelFolder& model,
                                       const EvaluationOptions& options,
                                       const EvaluationWatch& watch) {
  return Evaluation(model, options, watch).run(storage);
}

}  // namespace isthmus::app
