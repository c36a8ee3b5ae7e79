// SPDX-License-Identifier: Apache-2.0
// `data inspect|verify|synth`: shows the data that training would read.
#include <fmt/format.h>

#include <algorithm>

#include "app/commands/inspect.h"
#include "app/common/commands.h"
#include "app/common/text_table.h"
#include "app/observe/progress.h"
#include "core/base/storage.h"
#include "core/base/units.h"
#include "data/data_report.h"
#include "data/dataset.h"
#include "data/synth.h"
#include "data/token_file.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "session/checks/data_notes.h"

namespace isthmus::app {
namespace {

/// "FILE.txt", "FILE.bin" and "FILE:u32" without a kind are read as their most likely kind.
std::string with_kind(const Storage& storage, const std::string& source) {
  for (const std::string_view kind : {"text:", "tokens:", "synth:"}) {
    if (source.starts_with(kind)) {
      return source;
    }
  }
  const std::filesystem::path path(source);
  if (storage.kind(path) == FileKind::kDirectory) {
    throw SystemError(
        fmt::format("{}: is a folder; name its files, for example text:{}/*.txt", source, source));
  }
  const bool says_width = source.find(':') != std::string::npos &&
                          parse_token_width(source.substr(source.rfind(':') + 1)).has_value();
  const bool tokens = says_width || path.extension() == ".bin" || path.extension() == ".idx" ||
                      path.extension() == ".npy";
  return fmt::format("{}{}", tokens ? "tokens:" : "text:", source);
}

Dataset open_source(const Storage& storage, const std::string& source) {
  DataConfig config;
  config.source = with_kind(storage, source);
  return Dataset::open(storage, config, ".");
}

/// Ids below 256 as text, control characters as '.'; larger ids as numbers.
std::string sample_of(const Dataset& data) {
  constexpr std::int64_t kSample = 64;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kSample, data.tokens())));
  data.read(0, ids);
  const bool bytes = data.format() == "text";
  std::string text;
  for (const std::int32_t id : ids) {
    if (!bytes) {
      text += fmt::format("{}{}", text.empty() ? "" : " ", id);
    } else {
      text += id >= 0x20 && id < 0x7F ? static_cast<char>(id) : '.';
    }
  }
  return text;
}

/// What training would warn of.
std::vector<std::string> warnings_of(const Dataset& data) {
  std::vector<std::string> warnings = {binary_note(data), json_lines_note(data)};
  std::erase(warnings, "");
  return warnings;
}

void print_warnings(const std::vector<std::string>& warnings, Session& session) {
  for (const std::string& warning : warnings) {
    session.out.write(
        fmt::format("{}     {}\n", session.out.paint(Style::kWarn, "warning"), warning));
  }
}

/// Reads every token. THROWS: SystemError at the first that is impossible.
TokenCensus census_with_progress(const Dataset& data, Session& session) {
  Progress progress(session.err, session.progress);
  return take_census(data, [&](std::int64_t done, std::int64_t total) {
    progress.update({.activity = "tokens", .done = done, .total = total});
  });
}

int verify(const DataArguments& arguments, Session& session) {
  const SystemStorage storage;
  const Dataset data = open_source(storage, arguments.source);
  const TokenCensus census = census_with_progress(data, session);
  const std::vector<std::string> warnings = warnings_of(data);
  if (session.json) {
    session.answer(JsonLine()
                       .add("kind", "tokens")
                       .add("source", data.source())
                       .add("tokens", census.tokens)
                       .add("distinct", census.distinct)
                       .add("largest_id", census.largest)
                       .add("unigram_entropy_nats", census.unigram_entropy)
                       .add("warnings", std::span<const std::string>(warnings)));
  } else {
    session.out.write(
        fmt::format("{}: {} tokens are sound; {} distinct ids, the largest {} (model.vocab >= {}); "
                    "unigram entropy {:.4f} nats\n",
                    data.source(), with_commas(census.tokens), census.distinct, census.largest,
                    census.largest + 1, census.unigram_entropy));
    print_warnings(warnings, session);
  }
  return 0;
}

int synthesize(const DataArguments& arguments, Session& session) {
  SynthSpec spec = parse_synth(arguments.source);
  spec.tokens = arguments.tokens.value_or(spec.tokens);
  spec.seed = arguments.seed.value_or(spec.seed);
  if (spec.tokens > kMostLlmcTokens) {
    throw UsageError(fmt::format("data synth: {} tokens do not fit in one llm.c file (at most {})",
                                 spec.tokens, kMostLlmcTokens));
  }
  check_outside_run(arguments.out);
  SystemStorage storage;
  const std::vector<std::uint16_t> tokens = generate(spec);
  write_llmc_tokens(storage, arguments.out, tokens);
  const double entropy = entropy_rate_nats(spec);
  session.wrote(arguments.out);
  if (session.json) {
    session.answer(JsonLine()
                       .add("file", arguments.out.string())
                       .add("tokens", tokens.size())
                       .add("vocab", spec.vocab)
                       .add("entropy_nats", entropy));
  } else {
    session.out.write(fmt::format(
        "wrote {}: {} tokens of {} ids; no model gets below {:.6f} nats\n", arguments.out.string(),
        with_commas(static_cast<std::int64_t>(tokens.size())), spec.vocab, entropy));
  }
  return 0;
}

}  // namespace

int inspect_tokens(const Storage& storage, const std::string& source, Session& session) {
  const Dataset data = open_source(storage, source);
  const std::vector<DataFile> files = data.fingerprint();
  const std::vector<std::string> warnings = warnings_of(data);
  if (session.json) {
    JsonLine line;
    line.add("kind", "tokens").add("source", data.source()).add("format", data.format());
    line.add("tokens", data.tokens()).add("train", data.train_tokens());
    line.add("validation", data.validation_tokens()).add("vocab_bound", data.vocab_bound());
    if (data.entropy_rate()) {
      line.add("entropy_nats", *data.entropy_rate());
    }
    line.add("warnings", std::span<const std::string>(warnings));
    session.answer(line.add_raw("files", data_files_json(files)));
    return 0;
  }
  session.out.write(
      fmt::format("{}   {}\n", session.out.paint(Style::kBold, data.source()), data.format()));
  session.out.write(fmt::format("  tokens      {} ({} to train on, {} to validate on)\n",
                                with_commas(data.tokens()), with_commas(data.train_tokens()),
                                with_commas(data.validation_tokens())));
  session.out.write(fmt::format("  vocabulary  {} is enough for every id\n", data.vocab_bound()));
  if (data.entropy_rate()) {
    session.out.write(fmt::format("  entropy     {:.6f} nats a token\n", *data.entropy_rate()));
  }
  constexpr std::size_t kMostFiles = 8;
  for (std::size_t i = 0; i < std::min(files.size(), kMostFiles); ++i) {
    session.out.write(fmt::format("  file        {}  {}  sha256 {}\n", files[i].path,
                                  human_bytes(static_cast<double>(files[i].bytes)),
                                  files[i].sha256.substr(0, 16)));
  }
  if (files.size() > kMostFiles) {
    session.out.write(fmt::format("              and {} more\n", files.size() - kMostFiles));
  }
  session.out.write(fmt::format("  begins      {}\n", sample_of(data)));
  print_warnings(warnings, session);
  return 0;
}

int command_data(const DataArguments& arguments, Session& session) {
  switch (arguments.action) {
    case DataArguments::Action::kInspect: {
      const SystemStorage storage;
      return inspect_tokens(storage, arguments.source, session);
    }
    case DataArguments::Action::kVerify:
      return verify(arguments, session);
    case DataArguments::Action::kSynth:
      return synthesize(arguments, session);
  }
  return 0;
}

}  // namespace isthmus::app
