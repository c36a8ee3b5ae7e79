// SPDX-License-Identifier: Apache-2.0
// Flags of `plan mesh` and `plan pipeline`.
#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kMeshHelp =
    "Which tensor x pipeline x data mesh of --ranks ranks trains a model fastest; nothing runs.\n"
    "Memory, operations and traffic are those of docs/internals/mesh.md. Micro-batches, schedule,\n"
    "ZeRO and recomputation are chosen where they are not given.\n\n"
    "  isthmus plan mesh --model llama-8b --ranks 64 --nodes 8 --memory 80GB\n"
    "  isthmus plan mesh --model llama:layers=24,d_model=2048,heads=16 --context 2048 \\\n"
    "    --batch \"512Ki tok\" --ranks 16 --compute 150TFLOP/s --network 12GB/s --nodes 4\n"
    "  isthmus plan mesh run.toml --ranks 8";

constexpr std::string_view kPipelineHelp =
    "Draws a pipeline schedule, checks it on all ranks and compares it with the others.\n\n"
    "  isthmus plan pipeline --stages 4 --micro-batches 8\n"
    "  isthmus plan pipeline --stages 4 --micro-batches 8 --virtual 2\n"
    "  isthmus plan pipeline --schedule zb-h1 --backward 1.2 --weight 0.8 --message 0.1";

void add_choice_flags(CLI::App& command, PlanMeshArguments& arguments) {
  option(command, "--tp", "N", arguments.tp, "only meshes with N tensor-parallel ranks");
  option(command, "--pp", "N", arguments.pp, "only meshes with N pipeline stages");
  option(command, "--dp", "N", arguments.dp, "only meshes with N data-parallel ranks");
  option(command, "--micro-batches", "N", arguments.micro_batches, "of a rank in a step");
  option(command, "--schedule", "NAME", arguments.schedule, "of the pipeline")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}));
  option(command, "--virtual", "N", arguments.virtual_stages, "virtual stages of a rank");
  option(command, "--zero", "STAGE", arguments.zero,
         "0 .. 3: what data-parallel ranks share out (or CONFIG's)")
      ->check(CLI::Range(0, 3));
  add_recompute(
      command, arguments.recompute,
      "what the backward pass makes again: none, selective or full (alone: full; default: "
      "as little as fits)");
  option(command, "--sequence-parallel", "BOOL", arguments.sequence_parallel,
         "whether tensor-parallel ranks split norms and stream too: true or false "
         "(default: CONFIG's; where the context divides)");
}

void add_machine_flags(CLI::App& command, PlanMeshArguments& arguments) {
  option(command, "--nodes", "N", arguments.nodes,
         "machines the ranks are spread over (default 1)");
  option(command, "--memory", "BYTES", arguments.memory, "of a rank: 80GB");
  option(command, "--compute", "RATE", arguments.compute,
         "what a rank really computes (default 400TFLOP/s)");
  option(command, "--attention", "RATE", arguments.attention,
         "the same of attention, whose products are small (default: as --compute)");
  option(command, "--memory-rate", "RATE", arguments.memory_rate,
         "what a rank reads and writes in its memory: norms, activation functions, logits "
         "and the optimizer then take time (default: none)");
  option(command, "--node-link", "RATE", arguments.node_rate,
         "what a rank sends within its node (default 400GB/s)");
  option(command, "--node-latency", "TIME", arguments.node_latency, "there (default 5us)");
  option(command, "--network", "RATE", arguments.network_rate,
         "what a rank sends to other nodes (default 50GB/s)");
  option(command, "--network-latency", "TIME", arguments.network_latency, "there (default 15us)");
}

}  // namespace

void add_plan_mesh_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command =
      subcommand(plan, "mesh", "which mesh of ranks trains fastest, and why", kMeshHelp);
  PlanMeshArguments& arguments = parsed.plan_mesh;
  option(*command, "CONFIG", "", arguments.config,
         "a run: its model, batch, precision, method, and what it says of parallel.zero and "
         "sequence_parallel");
  repeated(*command, "--set", "KEY=VALUE", arguments.overrides, "override a key of CONFIG");
  option(*command, "--model", "MODEL", arguments.model,
         "llama-8b, llama-70b, gpt2-xl, ...; or sizes: llama:layers=32,d_model=4096");
  option(*command, "--context", "T", arguments.context, "tokens of a sample (default 4096)");
  option(*command, "--batch", "TOKENS", arguments.batch, "tokens of a step (default 4Mi tok)");
  option(*command, "--ranks", "N", arguments.ranks, "of the site")->required();
  add_machine_flags(*command, arguments);
  option(*command, "--precision", "NAME", arguments.precision,
         "fp32 or bf16 (default; or CONFIG's)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  option(*command, "--optimizer", "NAME", arguments.optimizer, "adamw (default), sgd, muon")
      ->check(CLI::IsMember({"adamw", "sgd", "muon"}));
  add_choice_flags(*command, arguments);
  option(*command, "--top", "N", arguments.top, "rows of the table (default 8)");
  set_action(*command, parsed, command_plan_mesh, parsed.plan_mesh);
}

void add_plan_pipeline_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command =
      subcommand(plan, "pipeline", "a pipeline schedule, drawn and checked", kPipelineHelp);
  PlanPipelineArguments& arguments = parsed.plan_pipeline;
  option(*command, "--stages", "P", arguments.stages, "ranks of the pipeline (default 4)");
  option(*command, "--micro-batches", "M", arguments.micro_batches, "of a step (default 8)");
  option(*command, "--virtual", "V", arguments.virtual_stages, "virtual stages of a rank");
  option(*command, "--schedule", "NAME", arguments.schedule,
         "default 1f1b, with virtual stages interleaved-1f1b")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}));
  option(*command, "--forward", "F", arguments.forward,
         "time of a stage's forward pass (default 1)");
  option(*command, "--backward", "B", arguments.backward_input,
         "of its backward pass for inputs (default 1)");
  option(*command, "--weight", "W", arguments.backward_weight, "and for weights (default 1)");
  option(*command, "--message", "T", arguments.message, "of a message between stages (default 0)");
  command->add_flag_callback(
      "--on-receive", [&arguments] { arguments.on_receive = true; },
      "messages begin when they are waited for, as of unbuffered sends");
  set_action(*command, parsed, command_plan_pipeline, parsed.plan_pipeline);
}

}  // namespace isthmus::app
