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
  command.add_option("--tp", arguments.tp, "only meshes with N tensor-parallel ranks")
      ->type_name("N");
  command.add_option("--pp", arguments.pp, "only meshes with N pipeline stages")->type_name("N");
  command.add_option("--dp", arguments.dp, "only meshes with N data-parallel ranks")
      ->type_name("N");
  command.add_option("--micro-batches", arguments.micro_batches, "of a rank in a step")
      ->type_name("N");
  command.add_option("--schedule", arguments.schedule, "of the pipeline")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}))
      ->type_name("NAME");
  command.add_option("--virtual", arguments.virtual_stages, "virtual stages of a rank")
      ->type_name("N");
  command
      .add_option("--zero", arguments.zero,
                  "0 .. 3: what data-parallel ranks share out (or CONFIG's)")
      ->check(CLI::Range(0, 3))
      ->type_name("STAGE");
  add_recompute(
      command, arguments.recompute,
      "what the backward pass makes again: none, selective or full (alone: full; default: "
      "as little as fits)");
  command
      .add_option("--sequence-parallel", arguments.sequence_parallel,
                  "whether tensor-parallel ranks split norms and stream too: true or false "
                  "(default: CONFIG's; where the context divides)")
      ->type_name("BOOL");
}

void add_machine_flags(CLI::App& command, PlanMeshArguments& arguments) {
  command.add_option("--nodes", arguments.nodes, "machines the ranks are spread over (default 1)")
      ->type_name("N");
  command.add_option("--memory", arguments.memory, "of a rank: 80GB")->type_name("BYTES");
  command
      .add_option("--compute", arguments.compute,
                  "what a rank really computes (default 400TFLOP/s)")
      ->type_name("RATE");
  command
      .add_option("--attention", arguments.attention,
                  "the same of attention, whose products are small (default: as --compute)")
      ->type_name("RATE");
  command
      .add_option("--memory-rate", arguments.memory_rate,
                  "what a rank reads and writes in its memory: norms, activation functions, logits "
                  "and the optimizer then take time (default: none)")
      ->type_name("RATE");
  command
      .add_option("--node-link", arguments.node_rate,
                  "what a rank sends within its node (default 400GB/s)")
      ->type_name("RATE");
  command.add_option("--node-latency", arguments.node_latency, "there (default 5us)")
      ->type_name("TIME");
  command
      .add_option("--network", arguments.network_rate,
                  "what a rank sends to other nodes (default 50GB/s)")
      ->type_name("RATE");
  command.add_option("--network-latency", arguments.network_latency, "there (default 15us)")
      ->type_name("TIME");
}

}  // namespace

void add_plan_mesh_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command = subcommand(plan, "mesh", "which mesh of ranks trains fastest, and why");
  command->footer(std::string(kMeshHelp));
  PlanMeshArguments& arguments = parsed.plan_mesh;
  command
      ->add_option(
          "CONFIG", arguments.config,
          "a run: its model, batch, precision, method, and what it says of parallel.zero and "
          "sequence_parallel")
      ->type_name("");
  repeated(*command, "--set", arguments.overrides, "override a key of CONFIG")
      ->type_name("KEY=VALUE");
  command
      ->add_option("--model", arguments.model,
                   "llama-8b, llama-70b, gpt2-xl, ...; or sizes: llama:layers=32,d_model=4096")
      ->type_name("MODEL");
  command->add_option("--context", arguments.context, "tokens of a sample (default 4096)")
      ->type_name("T");
  command->add_option("--batch", arguments.batch, "tokens of a step (default 4Mi tok)")
      ->type_name("TOKENS");
  command->add_option("--ranks", arguments.ranks, "of the site")->required()->type_name("N");
  add_machine_flags(*command, arguments);
  command->add_option("--precision", arguments.precision, "fp32 or bf16 (default; or CONFIG's)")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->type_name("NAME");
  command->add_option("--optimizer", arguments.optimizer, "adamw (default), sgd, muon")
      ->check(CLI::IsMember({"adamw", "sgd", "muon"}))
      ->type_name("NAME");
  add_choice_flags(*command, arguments);
  command->add_option("--top", arguments.top, "rows of the table (default 8)")->type_name("N");
  command->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_plan_mesh(parsed.plan_mesh, session);
    };
  });
}

void add_plan_pipeline_command(CLI::App& plan, Parsed& parsed) {
  CLI::App* command = subcommand(plan, "pipeline", "a pipeline schedule, drawn and checked");
  command->footer(std::string(kPipelineHelp));
  PlanPipelineArguments& arguments = parsed.plan_pipeline;
  command->add_option("--stages", arguments.stages, "ranks of the pipeline (default 4)")
      ->type_name("P");
  command->add_option("--micro-batches", arguments.micro_batches, "of a step (default 8)")
      ->type_name("M");
  command->add_option("--virtual", arguments.virtual_stages, "virtual stages of a rank")
      ->type_name("V");
  command
      ->add_option("--schedule", arguments.schedule,
                   "default 1f1b, with virtual stages interleaved-1f1b")
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved-1f1b", "zb-h1"}))
      ->type_name("NAME");
  command->add_option("--forward", arguments.forward, "time of a stage's forward pass (default 1)")
      ->type_name("F");
  command
      ->add_option("--backward", arguments.backward_input,
                   "of its backward pass for inputs (default 1)")
      ->type_name("B");
  command->add_option("--weight", arguments.backward_weight, "and for weights (default 1)")
      ->type_name("W");
  command->add_option("--message", arguments.message, "of a message between stages (default 0)")
      ->type_name("T");
  command->add_flag_callback(
      "--on-receive", [&arguments] { arguments.on_receive = true; },
      "messages begin when they are waited for, as of unbuffered sends");
  command->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_plan_pipeline(parsed.plan_pipeline, session);
    };
  });
}

}  // namespace isthmus::app
