// SPDX-License-Identifier: Apache-2.0
// Flags of `data tokenize` and `data train-tokenizer`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kTokenizeHelp =
    "FILES are texts, of which each is one document, or .jsonl with a document a line; each also\n"
    ".gz or .zst. Every file becomes a shard of DIR, whole or absent: the same command goes on\n"
    "after a kill. data.source then is \"tokens:DIR/*.bin:u16\" (or u32, as the command says).\n\n"
    "  isthmus data tokenize 'web/*.jsonl.zst' --tokenizer Qwen3-0.6B --out web-tokens";
constexpr std::string_view kTrainHelp =
    "A byte-level BPE, learnt from FILES as `data tokenize` reads them. The same files give the "
    "same\n"
    "tokenizer.json, which Hugging Face `tokenizers` and transformers load.\n\n"
    "  isthmus data train-tokenizer 'corpus/*.txt' --vocab 32k --out my-tokenizer";

void add_document_flags(CLI::App& command, DocumentArguments& arguments) {
  command.add_option("FILES", arguments.files, "texts and .jsonl, plain, .gz or .zst")->required();
  option(command, "--out", "DIR", arguments.out, "folder to write into")->required();
  option(command, "--field", "NAME", arguments.field,
         "field of a JSON line with the text (default: text)");
  command.add_flag("--skip-bad", arguments.skip_bad,
                   "count malformed JSON lines and go on (default: end at the first)");
}

}  // namespace

void add_tokenize_commands(CLI::App& data, Parsed& parsed) {
  CLI::App* tokenize = subcommand(data, "tokenize", "make token files of documents", kTokenizeHelp);
  add_document_flags(*tokenize, parsed.tokenize);
  option(*tokenize, "--tokenizer", "DIR|FILE", parsed.tokenize.tokenizer,
         "a tokenizer.json of Hugging Face, or a folder that has one")
      ->required();
  option(*tokenize, "--eos", "TOKEN", parsed.tokenize.end,
         "token behind each document (default: eos_token of tokenizer_config.json)");
  tokenize->add_option("--jobs", parsed.tokenize.jobs, "cores to use (default: all)")
      ->check(CLI::Range(1, 1024));
  set_action(*tokenize, parsed, command_tokenize, parsed.tokenize);

  CLI::App* train =
      subcommand(data, "train-tokenizer", "learn a tokenizer from documents", kTrainHelp);
  add_document_flags(*train, parsed.train_tokenizer);
  option(*train, "--vocab", "N", parsed.train_tokenizer.vocab,
         "how many tokens: 32k is 32,000 (default: 32k)");
  train
      ->add_option("--pattern", parsed.train_tokenizer.pattern,
                   "whose words: gpt2, llama3, qwen2 or qwen3.5 (default: gpt2)")
      ->check(CLI::IsMember({"gpt2", "llama3", "qwen2", "qwen3.5"}));
  option(*train, "--eos", "TOKEN", parsed.train_tokenizer.end,
         "the special token that ends a text (default: <|endoftext|>)");
  set_action(*train, parsed, command_train_tokenizer, parsed.train_tokenizer);
}

}  // namespace isthmus::app
