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
  command.add_option("--out", arguments.out, "folder to write into")->type_name("DIR")->required();
  command
      .add_option("--field", arguments.field, "field of a JSON line with the text (default: text)")
      ->type_name("NAME");
  command.add_flag("--skip-bad", arguments.skip_bad,
                   "count malformed JSON lines and go on (default: end at the first)");
}

}  // namespace

void add_tokenize_commands(CLI::App& data, Parsed& parsed) {
  CLI::App* tokenize = subcommand(data, "tokenize", "make token files of documents");
  tokenize->footer(std::string(kTokenizeHelp));
  add_document_flags(*tokenize, parsed.tokenize);
  tokenize
      ->add_option("--tokenizer", parsed.tokenize.tokenizer,
                   "a tokenizer.json of Hugging Face, or a folder that has one")
      ->type_name("DIR|FILE")
      ->required();
  tokenize
      ->add_option("--eos", parsed.tokenize.end,
                   "token behind each document (default: eos_token of tokenizer_config.json)")
      ->type_name("TOKEN");
  tokenize->add_option("--jobs", parsed.tokenize.jobs, "cores to use (default: all)")
      ->check(CLI::Range(1, 1024));
  tokenize->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_tokenize(parsed.tokenize, session);
    };
  });

  CLI::App* train = subcommand(data, "train-tokenizer", "learn a tokenizer from documents");
  train->footer(std::string(kTrainHelp));
  add_document_flags(*train, parsed.train_tokenizer);
  train
      ->add_option("--vocab", parsed.train_tokenizer.vocab,
                   "how many tokens: 32k is 32,000 (default: 32k)")
      ->type_name("N");
  train
      ->add_option("--pattern", parsed.train_tokenizer.pattern,
                   "whose words: gpt2, llama3, qwen2 or qwen3.5 (default: gpt2)")
      ->check(CLI::IsMember({"gpt2", "llama3", "qwen2", "qwen3.5"}));
  train
      ->add_option("--eos", parsed.train_tokenizer.end,
                   "the special token that ends a text (default: <|endoftext|>)")
      ->type_name("TOKEN");
  train->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_train_tokenizer(parsed.train_tokenizer, session);
    };
  });
}

}  // namespace isthmus::app
