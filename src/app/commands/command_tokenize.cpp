// SPDX-License-Identifier: Apache-2.0
// `data tokenize` and `data train-tokenizer`: from documents to token files and tokenizers.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "app/commands/tokenize_commands.h"
#include "app/common/signals.h"
#include "app/observe/progress.h"
#include "core/base/log.h"
#include "core/base/system_runtime.h"
#include "core/base/units.h"
#include "data/tokenize/document_blocks.h"
#include "data/tokenize/tokenize_files.h"
#include "data/tokenize/train_on_files.h"
#include "kernels/thread_team.h"
#include "record/json_line.h"
#include "record/run_lock.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

/// The files of paths and patterns, in the order in which they were given.
std::vector<std::filesystem::path> documents_of(const Storage& storage,
                                                const std::vector<std::string>& given) {
  std::vector<std::filesystem::path> files;
  for (const std::string& each : given) {
    std::ranges::copy(document_files(storage, each), std::back_inserter(files));
  }
  return files;
}

void warn_of_skipped(std::int64_t skipped, const std::string& first) {
  if (skipped > 0 && !first.empty()) {
    log_warning("{} malformed lines were left out; the first of this run: {}", with_commas(skipped),
                first);
  }
}

void warn_of_controls(const ControlCount& controls) {
  const std::string note = controls_note(controls, "they become tokens as they are");
  if (!note.empty()) log_warning("{}", note);
}

/// --vocab. THROWS: UsageError.
std::int64_t vocabulary_size(const std::string& text) {
  const auto quantity = parse_quantity(text, Dimension::kTokens);
  if (!quantity) {
    throw UsageError(fmt::format("--vocab {}: {}; write {}", text, quantity.error().text,
                                 quantity.error().hint));
  }
  return static_cast<std::int64_t>(quantity->value);
}

std::string tokenize_json(const TokenizeSummary& summary, double seconds) {
  return JsonLine()
             .add("source", summary.source)
             .add("tokens", summary.tokens)
             .add("documents", summary.documents)
             .add("skipped", summary.skipped)
             .add("shards", summary.shards)
             .add("kept", summary.kept)
             .add("nuls", summary.controls.nuls)
             .add("vocab", summary.vocabulary)
             .add("end", summary.end)
             .add("end_token", summary.end_token)
             .add("seconds", seconds)
             .str() +
         "\n";
}

std::string tokenize_text(const TokenizeSummary& summary, const std::filesystem::path& out) {
  std::string text = fmt::format(
      "wrote {}: {} tokens of {} documents in {} shards, \"{}\" (id {}) behind each document\n",
      out.string(), with_commas(summary.tokens), with_commas(summary.documents), summary.shards,
      summary.end_token, summary.end);
  if (summary.kept > 0) text += fmt::format("  {} shards were there before\n", summary.kept);
  if (summary.skipped > 0) {
    text += fmt::format("  {} malformed lines were left out\n", with_commas(summary.skipped));
  }
  return text + fmt::format("  [data]\n  source = \"{}\"   # model.vocab = {}\n", summary.source,
                            summary.vocabulary);
}

}  // namespace

int command_tokenize(const TokenizeArguments& arguments, Session& session) {
  SystemStorage storage;
  SystemRuntime runtime;
  const TokenizeOptions options{.files = documents_of(storage, arguments.files),
                                .tokenizer = arguments.tokenizer,
                                .out = arguments.out,
                                .field = arguments.field,
                                .end = arguments.end,
                                .jobs = arguments.jobs > 0
                                            ? arguments.jobs
                                            : static_cast<int>(kernels::usable_cores().size()),
                                .skip_bad = arguments.skip_bad};
  const RunLock lock(arguments.out);
  const SignalScope signals;
  const double begin = monotonic_now();
  std::int64_t first_tokens = -1;
  Progress progress(session.err, session.progress);
  const TokenizeSummary summary =
      tokenize_files(storage, runtime, options, [&](const TokenizeProgress& now) {
        if (SignalScope::wish() != StopWish::kNone) {
          throw Error(
              exit_code_of(SignalScope::wish()),
              "stopped by a signal; finished shards are kept, and the same command goes on");
        }
        if (first_tokens < 0) first_tokens = now.tokens;
        const double seconds = monotonic_now() - begin;
        progress.update({.activity = "tokenizing",
                         .done = now.bytes,
                         .total = now.of_bytes,
                         .tokens_per_s = static_cast<double>(now.tokens - first_tokens) / seconds});
      });
  progress.finish();
  warn_of_skipped(summary.skipped, summary.first_skipped);
  warn_of_controls(summary.controls);
  if (summary.documents == 0) log_warning("the files hold no document, so the shards are empty");
  session.saved = fmt::format("the shards in '{}' are written whole", arguments.out.string());
  session.out.write(session.json ? tokenize_json(summary, monotonic_now() - begin)
                                 : tokenize_text(summary, arguments.out));
  return 0;
}

int command_train_tokenizer(const TrainTokenizerArguments& arguments, Session& session) {
  SystemStorage storage;
  const SignalScope signals;
  Progress progress(session.err, session.progress);
  const TrainTokenizerOptions options{.files = documents_of(storage, arguments.files),
                                      .out = arguments.out,
                                      .field = arguments.field,
                                      .vocabulary = vocabulary_size(arguments.vocab),
                                      .pattern = arguments.pattern,
                                      .end = arguments.end,
                                      .skip_bad = arguments.skip_bad};
  const RunLock lock(arguments.out);
  const TrainTokenizerSummary summary =
      train_tokenizer_on_files(storage, options, [&](const TrainTokenizerProgress& now) {
        stop_at_signal();
        progress.update({.activity = now.merging ? "merges" : "bytes read",
                         .done = now.done,
                         .total = now.total});
      });
  progress.finish();
  warn_of_skipped(summary.skipped, summary.first_skipped);
  warn_of_controls(summary.controls);
  session.saved = fmt::format("the tokenizer in '{}' is written whole", arguments.out.string());
  if (session.json) {
    session.answer(JsonLine()
                       .add("tokenizer", (arguments.out / "tokenizer.json").string())
                       .add("vocab", summary.vocabulary)
                       .add("merges", summary.merges)
                       .add("words", summary.words)
                       .add("documents", summary.documents)
                       .add("skipped", summary.skipped));
    return 0;
  }
  session.out.write(fmt::format(
      "wrote {}: {} tokens, {} merges learnt from {} different words of {} documents\n",
      (arguments.out / "tokenizer.json").string(), with_commas(summary.vocabulary),
      with_commas(summary.merges), with_commas(summary.words), with_commas(summary.documents)));
  if (summary.vocabulary < options.vocabulary) {
    log_warning(
        "--vocab {}: the text has only {} tokens; it repeats no further pair of tokens: give more "
        "text or a smaller vocabulary",
        arguments.vocab, summary.vocabulary);
  }
  return 0;
}

}  // namespace isthmus::app
