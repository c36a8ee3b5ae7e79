// SPDX-License-Identifier: Apache-2.0
// `eval MODEL FILES`: loss, perplexity and bits a byte, by file.
#include <fmt/format.h>

#include <algorithm>

#include "app/commands/inference_commands.h"
#include "app/common/signals.h"
#include "app/common/text_table.h"
#include "app/inference/text_evaluation.h"
#include "app/observe/progress.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "record/json_line.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kLongestByDefault = 2048;

/// --context and --stride. THROWS: UsageError.
WindowSizes window_sizes(const EvalArguments& arguments, std::int64_t positions) {
  WindowSizes sizes;
  sizes.context = arguments.context.value_or(std::min(positions, kLongestByDefault));
  if (sizes.context < 1 || sizes.context > positions) {
    throw UsageError(fmt::format("--context {}: the model has {} positions; give 1 to {}",
                                 sizes.context, positions, positions));
  }
  sizes.stride = arguments.stride.value_or(sizes.context);
  if (sizes.stride < 1 || sizes.stride > sizes.context) {
    throw UsageError(fmt::format(
        "--stride {}: must be 1 to the context, {}; a larger one would leave out tokens",
        sizes.stride, sizes.context));
  }
  return sizes;
}

JsonLine loss_json(const SourceLoss& loss) {
  return JsonLine()
      .add("source", loss.name)
      .add("documents", loss.documents)
      .add("tokens", loss.tokens)
      .add("counted", loss.counted)
      .add("bytes", std::max<std::int64_t>(loss.bytes, 0))
      .add("skipped", loss.skipped)
      .add("loss", loss.loss())
      .add("perplexity", loss.perplexity())
      .add_or_null("bits_per_byte", loss.bits_per_byte());
}

std::string report_json(const ModelFolder& model, const WindowSizes& sizes,
                        const std::vector<SourceLoss>& losses, const SourceLoss& all,
                        double seconds) {
  return JsonLine()
             .add("model", model.folder.string())
             .add("parameters", model.model.layout.elements())
             .add("tokenizer", model.tokenizer_name)
             .add("context", sizes.context)
             .add("stride", sizes.stride)
             .add_list("sources", losses, loss_json)
             .add("all", loss_json(all))
             .add("seconds", seconds)
             .str() +
         "\n";
}

/// The tokens that a window reads and counts, in words.
std::string windows_text(const WindowSizes& sizes) {
  const std::string first =
      "each token is counted once, but the first of a document, which follows nothing";
  if (sizes.stride == sizes.context) {
    return fmt::format(
        "{} tokens, one behind the other; {}; a window's first prediction follows "
        "one token",
        with_commas(sizes.context), first);
  }
  return fmt::format(
      "{} tokens, {} apart; {}; behind a document's first window a prediction follows {} tokens at "
      "least",
      with_commas(sizes.context), with_commas(sizes.stride), first,
      with_commas(sizes.context - sizes.stride + 1));
}

std::string report_text(const Terminal& terminal, const ModelFolder& model,
                        const WindowSizes& sizes, const std::vector<SourceLoss>& losses,
                        const SourceLoss& all) {
  TextTable table(
      {"source", "documents", "tokens", "counted", "loss", "perplexity", "bits a byte"});
  const auto add = [&](const SourceLoss& loss) {
    const auto bits = loss.bits_per_byte();
    table.add({loss.name, with_commas(loss.documents), with_commas(loss.tokens),
               with_commas(loss.counted), fmt::format("{:.4f}", loss.loss()),
               fmt::format("{:.4g}", loss.perplexity()),
               bits ? fmt::format("{:.4f}", *bits) : "no text"});
  };
  for (const SourceLoss& loss : losses) add(loss);
  if (losses.size() > 1) add(all);
  return fmt::format("model      {}: {}\ntokenizer  {}\nwindows    {}\n\n{}", model.folder.string(),
                     model.description(), model.tokenizer_name, windows_text(sizes),
                     table.text(terminal));
}

}  // namespace

int command_eval(const EvalArguments& arguments, Session& session) {
  check_on_cpu(arguments.device, "eval");
  SystemStorage storage;
  const SignalScope signals;
  ModelFolder model = open_model_folder(storage, arguments.model, arguments.tokenizer);
  const EvaluationOptions options{
      .files = arguments.files,
      .field = arguments.field,
      .skip_bad = arguments.skip_bad,
      .windows = window_sizes(arguments, model.model.layout.shape().positions),
      .threads = inference_threads(arguments.threads)};
  const double begin = monotonic_now();
  Progress progress(session.err, session.progress);
  const std::vector<SourceLoss> losses =
      evaluate_files(storage, model, options, [&](const EvaluationProgress& now) {
        stop_at_signal();
        progress.update(
            {.activity = "evaluating",
             .done = now.bytes,
             .total = now.of_bytes,
             .tokens_per_s = static_cast<double>(now.tokens) / (monotonic_now() - begin)});
      });
  progress.finish();
  SourceLoss all{.name = "all"};
  for (const SourceLoss& loss : losses) {
    all += loss;
    if (loss.skipped > 0) {
      log_warning("{}: {} malformed lines were left out; the first: {}", loss.name,
                  with_commas(loss.skipped), loss.first_skipped);
    }
  }
  session.out.write(session.json
                        ? report_json(model, options.windows, losses, all, monotonic_now() - begin)
                        : report_text(session.out, model, options.windows, losses, all));
  return 0;
}

}  // namespace isthmus::app
