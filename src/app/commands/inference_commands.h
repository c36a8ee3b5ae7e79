// SPDX-License-Identifier: Apache-2.0
// `eval` and `generate`: a trained model on the CPU. app/inference does the work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

struct ModelArguments {
  std::filesystem::path model;  // a folder of transformers, a run or a checkpoint
  std::string tokenizer;        // empty: that of the folder; "bytes"; a tokenizer.json or a folder
  int threads = 0;              // 0: all cores
  std::string device = "cpu";   // the only value so far
};
struct EvalArguments : ModelArguments {
  std::vector<std::string> files;
  std::string field = "text";
  std::optional<std::int64_t> context;  // absent: the model's positions, at most 2,048
  std::optional<std::int64_t> stride;   // absent: the context
  bool skip_bad = false;
};
struct GenerateArguments : ModelArguments {
  std::string prompt;                 // --prompt
  std::filesystem::path prompt_file;  // --prompt-file; "-" is stdin
  bool chat = false;                  // the prompt is a user's message in the chat template
  std::string system;                 // with chat: the system's message
  std::string chat_template;          // with chat: the name of one of several; empty: the default
  std::vector<std::string> chat_set;  // with chat: NAME=JSON or =TEXT, variables of the template
  std::int64_t tokens = 200;
  std::optional<double> temperature, top_p;  // absent, also top_k: of generation_config.json
  std::optional<std::int64_t> top_k;
  std::uint64_t seed = 0;
  bool ignore_end = false;  // continue after an end token
  bool cache = true;        // of keys and values
};

/// Results go to `session.out`, progress to `session.err`. RETURNS: 0. THROWS: UsageError for
/// flags; ConfigError and SystemError for models, tokenizers and texts that cannot be used.
int command_eval(const EvalArguments& arguments, Session& session);
int command_generate(const GenerateArguments& arguments, Session& session);

}  // namespace isthmus::app
