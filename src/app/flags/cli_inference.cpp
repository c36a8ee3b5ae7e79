// SPDX-License-Identifier: Apache-2.0
// Flags of `eval` and `generate`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kEvalHelp =
    "FILES are texts, of which each is one document, .jsonl with a document a line (both also .gz\n"
    "and .zst), or token files: .bin, .npy, or tokens:FILE[:WIDTH]. Every token but the first of "
    "a\n"
    "document is predicted once, in windows of --context tokens that begin --stride apart.\n\n"
    "  isthmus eval Qwen3-0.6B wiki.txt 'code/*.jsonl.zst' --context 1024\n"
    "  isthmus eval runs/NAME held-out.txt --stride 64 --json";
constexpr std::string_view kGenerateHelp =
    "The text appears as it is made, without the prompt. It ends at an eos_token_id of\n"
    "generation_config.json or config.json, after --max-tokens, or where the model's positions "
    "end.\n"
    "Temperature, top-k and top-p are those of generation_config.json where it says do_sample;\n"
    "without that, and without such a flag, each token is the most likely one.\n\n"
    "  isthmus generate Qwen3-0.6B --prompt 'Once upon a time' --temperature 0.8 --seed 7\n"
    "  isthmus generate Qwen3-0.6B --chat --prompt 'Why is the sky blue?'";

void add_model_flags(CLI::App& command, ModelArguments& arguments) {
  command
      .add_option("MODEL", arguments.model,
                  "model folder of transformers, a run, or a checkpoint (the newest of a run)")
      ->required();
  option(command, "--tokenizer", "DIR|FILE|bytes", arguments.tokenizer,
         "a tokenizer.json, or a folder that has one; bytes (default: that of MODEL)");
  command.add_option("--threads", arguments.threads, "cores to use (default: all)")
      ->check(CLI::Range(1, 1024));
  option(command, "--device", "cpu", arguments.device, "cpu is the only one (default: cpu)");
}

}  // namespace

void add_inference_commands(CLI::App& app, Parsed& parsed) {
  CLI::App* eval = subcommand(app, "eval", "loss, perplexity and bits a byte of texts", kEvalHelp);
  add_model_flags(*eval, parsed.eval);
  eval->add_option("FILES", parsed.eval.files, "texts, .jsonl and token files")->required();
  option(*eval, "--context", "N", parsed.eval.context,
         "tokens of a window (default: the model's positions, at most 2048)");
  option(*eval, "--stride", "N", parsed.eval.stride,
         "tokens from one window to the next (default: the context)");
  option(*eval, "--field", "NAME", parsed.eval.field,
         "field of a JSON line with the text (default: text)");
  eval->add_flag("--skip-bad", parsed.eval.skip_bad,
                 "count malformed JSON lines and go on (default: end at the first)");
  set_action(*eval, parsed, command_eval, parsed.eval);

  CLI::App* generate = subcommand(
      app, "generate", "continue a prompt with text that a model generates", kGenerateHelp);
  GenerateArguments& arguments = parsed.generate;
  add_model_flags(*generate, arguments);
  CLI::Option* prompt =
      option(*generate, "--prompt", "TEXT", arguments.prompt, "the text to go on from");
  option(*generate, "--prompt-file", "FILE", arguments.prompt_file,
         "the same from a file; -: stdin")
      ->excludes(prompt);
  CLI::Option* chat = generate->add_flag("--chat", arguments.chat,
                                         "the prompt is what a user says, in the folder's chat "
                                         "template; the reply follows");
  option(*generate, "--system", "TEXT", arguments.system, "the system's message before it")
      ->needs(chat);
  option(*generate, "--chat-template", "NAME", arguments.chat_template,
         "which of the folder's templates (default: default)")
      ->needs(chat);
  repeated(*generate, "--chat-set", "NAME=JSON", arguments.chat_set,
           "a variable of the template: --chat-set enable_thinking=false")
      ->needs(chat);
  option(*generate, "--max-tokens", "N", arguments.tokens, "tokens at most (default: 200)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  generate->add_option("--temperature", arguments.temperature,
                       "divides the logits; 0: always the most likely token");
  option(*generate, "--top-k", "K", arguments.top_k, "draw among the K most likely tokens; 0: all");
  option(*generate, "--top-p", "P", arguments.top_p,
         "draw among the most likely tokens that together have probability P");
  generate->add_option("--seed", arguments.seed, "seed of the draws (default: 0)");
  generate->add_flag("--ignore-eos", arguments.ignore_end, "go on at an end token");
  generate->add_flag("!--no-cache", arguments.cache, "compute the whole text anew for each token");
  set_action(*generate, parsed, command_generate, parsed.generate);
}

}  // namespace isthmus::app
