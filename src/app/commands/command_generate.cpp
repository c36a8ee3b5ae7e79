// SPDX-License-Identifier: Apache-2.0
// `generate MODEL`: the continuation of a prompt by a model, on the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <iterator>

#include "app/commands/inference_commands.h"
#include "app/common/signals.h"
#include "app/inference/growing_text.h"
#include "app/inference/model_folder.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_generation.h"
#include "inner/loop/generate.h"
#include "record/json_line.h"
#include "record/wall_clock.h"
#include "text/chat/chat_template.h"
#include "text/jinja/json_values.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kMostPromptBytes = std::size_t{16} << 20;

std::string prompt_text(const Storage& storage, const GenerateArguments& arguments) {
  if (arguments.prompt_file.empty()) return arguments.prompt;
  if (arguments.prompt_file != "-") return read_text(storage, arguments.prompt_file);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (text.size() <= kMostPromptBytes &&
         (std::cin.read(buffer.data(), std::ssize(buffer)) || std::cin.gcount() > 0)) {
    text.append(buffer.data(), static_cast<std::size_t>(std::cin.gcount()));
  }
  if (text.size() <= kMostPromptBytes) return text;
  throw UsageError(fmt::format("--prompt-file -: stdin has more than {} bytes", kMostPromptBytes));
}

/// --chat-set NAME=JSON; a value that is no JSON is a text. THROWS: UsageError.
jinja::Items chat_variables(const std::vector<std::string>& given) {
  jinja::Items variables;
  for (const std::string& each : given) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("--chat-set {}: write NAME=VALUE", each));
    }
    const std::string text = each.substr(equals + 1);
    jinja::Value value(text);
    try {
      value = jinja::value_of_json(text, "--chat-set");
    } catch (const SystemError&) {  // a text without quotes
    }
    variables.emplace_back(each.substr(0, equals), std::move(value));
  }
  return variables;
}

jinja::Value message(const char* role, const std::string& content) {
  return jinja::Value::dict({{"role", role}, {"content", content}});
}

/// `prompt` as a user says it, in the folder's chat template, up to where the reply begins.
std::string chat_text(const Storage& storage, const std::filesystem::path& folder,
                      const GenerateArguments& arguments, const std::string& prompt) {
  const auto chat = chat_template_of(storage, folder, arguments.chat_template, false);
  if (!chat) {
    throw ConfigError(
        fmt::format("{}: has no chat template (chat_template.jinja, or chat_template in "
                    "tokenizer_config.json); leave --chat out",
                    folder.string()));
  }
  jinja::Values messages;
  if (!arguments.system.empty()) messages.push_back(message("system", arguments.system));
  messages.push_back(message("user", prompt));
  ChatRequest request{.messages = jinja::Value::list(std::move(messages)),
                      .add_generation_prompt = true,
                      .more = chat_variables(arguments.chat_set)};
  const auto seconds = static_cast<std::time_t>(unix_now());
  localtime_r(&seconds, &request.now);
  return chat->render(request).text;
}

/// The flags count first, then the folder's settings; otherwise the most likely token always.
/// THROWS: UsageError.
Sampling sampling_of(const GenerateArguments& arguments, const HfGeneration& folder) {
  const bool own = arguments.temperature || arguments.top_k || arguments.top_p;
  const bool samples = own || folder.samples;
  Sampling sampling{.temperature = samples ? 1.0 : 0.0, .top_k = 0, .top_p = 1};
  if (samples && folder.samples) {
    sampling.temperature = folder.temperature.value_or(sampling.temperature);
    sampling.top_k = folder.top_k.value_or(sampling.top_k);
    sampling.top_p = folder.top_p.value_or(sampling.top_p);
  }
  sampling.temperature = arguments.temperature.value_or(sampling.temperature);
  sampling.top_k = arguments.top_k.value_or(sampling.top_k);
  sampling.top_p = arguments.top_p.value_or(sampling.top_p);
  if (!(sampling.temperature >= 0 && sampling.temperature <= 1000)) {
    throw UsageError(
        fmt::format("--temperature {}: must be 0 (always the most likely token) to 1000",
                    sampling.temperature));
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    throw UsageError(
        fmt::format("--top-p {}: must be above 0 and at most 1 (all tokens)", sampling.top_p));
  }
  if (sampling.top_k < 0) {
    throw UsageError(fmt::format("--top-k {}: must be 0 (all tokens) or more", sampling.top_k));
  }
  return sampling;
}

const char* end_name(GenerateEnd end) {
  switch (end) {
    case GenerateEnd::kTokens:
      return "tokens";
    case GenerateEnd::kEndToken:
      return "end";
    case GenerateEnd::kPositions:
      return "positions";
    case GenerateEnd::kStopped:
      return "stopped";
  }
  return "";
}

/// The request, and the folder's contents.
struct Generation {
  std::vector<std::uint32_t> prompt;
  HfGeneration folder;
  Sampling sampling;
};

/// The result.
struct Generated {
  std::vector<std::int32_t> tokens;
  std::string text;
  GenerateEnd end = GenerateEnd::kTokens;
  double seconds = 0;
};

template <typename To, typename From>
std::vector<To> as(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

Generated generated(ModelFolder& model, const GenerateArguments& arguments,
                    const Generation& generation, Session& session) {
  Generated result;
  GrowingText text(model.tokenizer, generation.prompt, true);
  const auto show = [&](const std::string& piece) {
    result.text += piece;
    if (!session.json && !piece.empty()) session.out.write(piece);
  };
  ContinueOptions options;
  options.tokens = arguments.tokens;
  options.sampling = generation.sampling;
  options.seed = arguments.seed;
  options.threads = inference_threads(arguments.threads);
  options.cache = arguments.cache;
  if (!arguments.ignore_end) options.end_tokens = generation.folder.end_tokens;
  options.on_token = [&](std::int32_t token) {
    result.tokens.push_back(token);
    show(text.add(static_cast<std::uint32_t>(token)));
    return SignalScope::wish() == StopWish::kNone;
  };
  const double begin = monotonic_now();
  result.end = continue_prompt(model.model.layout.shape(), FolderParameters(model.model),
                               as<std::int32_t>(generation.prompt), options);
  result.seconds = monotonic_now() - begin;
  show(text.rest());
  if (!session.json) session.out.write("\n");
  return result;
}

std::string generated_json(const ModelFolder& model, const Generation& generation,
                           const GenerateArguments& arguments, const Generated& result) {
  const auto ids = [](const auto& values) { return fmt::format("[{}]", fmt::join(values, ",")); };
  return JsonLine()
             .add("model", model.folder.string())
             .add("tokenizer", model.tokenizer_name)
             .add_raw("prompt_ids", ids(generation.prompt))
             .add_raw("ids", ids(result.tokens))
             .add("text", result.text)
             .add("end", end_name(result.end))
             .add("temperature", generation.sampling.temperature)
             .add("top_k", generation.sampling.top_k)
             .add("top_p", generation.sampling.top_p)
             .add("seed", arguments.seed)
             .add("seconds", result.seconds)
             .str() +
         "\n";
}

}  // namespace

int command_generate(const GenerateArguments& arguments, Session& session) {
  check_on_cpu(arguments.device, "generate");
  SystemStorage storage;
  const SignalScope signals;
  Generation generation;
  const std::string prompt = prompt_text(storage, arguments);
  ModelFolder model = open_model_folder(storage, arguments.model, arguments.tokenizer);
  generation.folder = read_hf_generation(storage, model.folder);
  for (const std::string& note :
       ids_outside_vocabulary(storage, model.folder, model.model.layout.shape().vocab)) {
    log_warning("{}", note);
  }
  generation.sampling = sampling_of(arguments, generation.folder);
  const std::string text =
      arguments.chat ? chat_text(storage, model.folder, arguments, prompt) : prompt;
  try {  // a chat template writes the special tokens itself
    TextEncoder(model.tokenizer)
        .encode(text, {.special_tokens = !arguments.chat}, generation.prompt);
  } catch (const SystemError& error) {
    throw UsageError(fmt::format("the prompt: {}", error.what()));
  }
  if (generation.prompt.empty()) {
    throw UsageError(
        "the prompt has no token; give --prompt TEXT or --prompt-file FILE (- for stdin)");
  }
  const Generated result = generated(model, arguments, generation, session);
  if (session.json) {
    session.out.write(generated_json(model, generation, arguments, result));
  } else if (!session.quiet) {
    const double rate = static_cast<double>(result.tokens.size()) / std::max(result.seconds, 1e-9);
    session.err.write(fmt::format("{} tokens after {} of the prompt, {:.1f} tokens a second; {}\n",
                                  result.tokens.size(), generation.prompt.size(), rate,
                                  result.end == GenerateEnd::kEndToken ? "the model ended the text"
                                  : result.end == GenerateEnd::kPositions
                                      ? "the model's positions are full"
                                  : result.end == GenerateEnd::kStopped ? "stopped by a signal"
                                                                        : "--max-tokens reached"));
  }
  stop_at_signal();
  return 0;
}

}  // namespace isthmus::app
