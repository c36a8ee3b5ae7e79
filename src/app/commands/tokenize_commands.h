// SPDX-License-Identifier: Apache-2.0
// `data tokenize` and `data train-tokenizer`, declared like the commands in commands.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

/// Arguments of both commands.
struct DocumentArguments {
  std::vector<std::string> files;  // paths and patterns
  std::string field = "text";      // of JSON lines
  bool skip_bad = false;
  std::filesystem::path out;
};
struct TokenizeArguments : DocumentArguments {
  std::filesystem::path tokenizer;
  std::string end;  // the end-of-text token (--eos); empty: the tokenizer's own
  int jobs = 0;     // 0: all cores
};
struct TrainTokenizerArguments : DocumentArguments {
  std::string vocab = "32k";     // number of tokens; 32k is 32,000
  std::string pattern = "gpt2";  // gpt2 | llama3 | qwen2
  std::string end = "<|endoftext|>";
};
int command_tokenize(const TokenizeArguments& arguments, Session& session);
int command_train_tokenizer(const TrainTokenizerArguments& arguments, Session& session);

}  // namespace isthmus::app
