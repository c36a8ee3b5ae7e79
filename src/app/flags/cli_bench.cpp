// SPDX-License-Identifier: Apache-2.0
// Flags of `bench` and of its commands, and of `doctor`.
#include <fmt/format.h>

#include <memory>

#include "app/commands/bench/command_bench_codec_device.h"
#include "app/commands/bench/command_bench_collectives.h"
#include "app/commands/bench/command_bench_exchange.h"
#include "app/flags/cli_parser.h"
#include "config/schema/recompute.h"

namespace isthmus::app {
namespace {

constexpr std::string_view kLinkHelp =
    "At every site of a file, with the keys and addresses that `train --site` uses:\n\n"
    "  isthmus bench link run.toml --site east --out links.toml\n"
    "  isthmus bench link run.toml --site west\n\n"
    "Or between two machines, each of which reaches the other:\n\n"
    "  isthmus bench link --listen 0.0.0.0:48200 --plaintext\n"
    "  isthmus bench link --to first.example.org:48200 --plaintext --out links.toml\n\n"
    "Then: isthmus simulate run.toml --links links.toml";

/// Flags of commands that open the links of a site without training.
void add_site_flags(CLI::App& command, SiteArguments& site) {
  option(command, "--listen", "HOST:PORT", site.listen,
         "where to listen (default: the port of the site's address, on all interfaces)");
  option(command, "--key", "FILE", site.key_file,
         "the site's secret key (default: keys/NAME.key beside CONFIG)");
  repeated(command, "--address", "NAME=HOST:PORT", site.addresses,
           "where a site is reached, instead of the file's");
}

/// The two kinds of `bench collectives` share no flag.
void refuse_given(const std::vector<CLI::Option*>& options, const std::string& with) {
  for (const CLI::Option* each : options) {
    if (each->count() == 0) continue;
    throw UsageError(fmt::format("bench collectives: {} belongs to the form with {}; remove it",
                                 each->get_name(), with));
  }
}

void add_collectives_command(CLI::App& bench, Parsed& parsed) {
  const auto arguments =
      std::make_shared<BenchCollectivesArguments>();  // with the flags' callbacks
  const auto between = std::make_shared<BenchExchangeArguments>();
  CLI::App* command =
      subcommand(bench, "collectives",
                 "means over a file's links in virtual time, or inside a site (--inner)");
  option(*command, "CONFIG", "", between->config, "TOML file with sites and links");
  const std::vector<CLI::Option*> of_sites = {
      repeated(*command, "--set", "KEY=VALUE", between->overrides, "override a key of CONFIG"),
      option(*command, "--links", "FILE", between->links, "links file, as `bench link` writes it")};
  command->add_flag("--inner", arguments->inner, "inside a site: threads, or mpirun's processes");
  const std::vector<CLI::Option*> of_ranks = {
      command->add_option("--ranks", arguments->ranks,
                          "default: one a core; the MPI job's; one a GPU"),
      command
          ->add_option("--backend", arguments->backend,
                       "threads, mpi, shared-memory or nccl (default: under mpirun both that "
                       "processes have, else threads)")
          ->check(CLI::IsMember({"threads", "mpi", "shared-memory", "nccl"})),
      option(*command, "--mix", "FILE", arguments->mix,
             "try such a table under mpirun: mixed calls against each back end, in turns"),
      command->add_option("--largest-mib", arguments->largest_mib, "size of the largest call"),
      command->add_option("--seconds", arguments->seconds, "of timed calls, each"),
      option(*command, "--out", "FILE", arguments->out,
             "table of back ends to write, or to extend, for parallel.communicators")};
  set_action(*command, parsed, [arguments, between, of_sites, of_ranks](Session& session) {
    if (arguments->inner == !between->config.empty()) {
      throw UsageError(
          "bench collectives: give CONFIG, for those between its sites, or --inner, for those "
          "inside one");
    }
    refuse_given(arguments->inner ? of_sites : of_ranks, arguments->inner ? "CONFIG" : "--inner");
    if (!arguments->mix.empty() && (!arguments->out.empty() || !arguments->backend.empty())) {
      throw UsageError(
          "bench collectives: --mix tries the back ends of its table and writes none; leave "
          "--out and --backend out");
    }
    return arguments->inner ? command_bench_collectives(*arguments, session)
                            : command_bench_exchange(*between, session);
  });
}

void add_link_command(CLI::App& bench, Parsed& parsed) {
  CLI::App* link =
      subcommand(bench, "link", "rate, round trip and more of the links between sites", kLinkHelp);
  BenchLinkArguments& arguments = parsed.bench_link;
  option(*link, "CONFIG", "", arguments.config, "TOML file whose sites are to be measured");
  repeated(*link, "--set", "KEY=VALUE", arguments.overrides, "override a key of CONFIG");
  option(*link, "--site", "NAME", arguments.site.name,
         "be this [[site]]; without CONFIG: any name");
  option(*link, "--to", "HOST:PORT", arguments.to, "without CONFIG: the machine that listens");
  add_site_flags(*link, arguments.site);
  link->add_flag("--plaintext", arguments.plaintext,
                 "links without keys beyond this machine, as net.plaintext");
  option(*link, "--seconds", "S", arguments.seconds,
         "of each direction (default 6); the same at all sites");
  option(*link, "--streams", "K", arguments.streams,
         "parallel connections to try, at most (default 16); the same at all sites");
  option(*link, "--out", "FILE", arguments.out, "links file to write, for simulate and plan");
  set_action(*link, parsed, command_bench_link, parsed.bench_link);
}

}  // namespace

void add_recompute(CLI::App& command, std::string& target, const std::string& text) {
  command
      .add_option_function<std::string>(
          "--recompute",
          [&target](const std::string& word) { target = word.empty() ? "full" : word; }, text)
      ->expected(0, 1)
      ->check(CLI::IsMember({"none", "selective", "full", "false", "true"}))
      ->type_name("[none|selective|full]");
}

std::vector<std::string> recompute_alone_is_full(std::vector<std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i] != "--recompute") continue;
    const bool says = i + 1 < arguments.size() && parse_recompute(arguments[i + 1]).has_value();
    if (!says) arguments[i] += "=full";
  }
  return arguments;
}

void add_bench_command(CLI::App& app, Parsed& parsed) {
  CLI::App* bench = subcommand(app, "bench", "measure this machine, or the links between sites");
  bench->require_subcommand(1);
  CLI::App* codec = subcommand(*bench, "codec", "speed, size and error of the codecs");
  codec->add_option("--codec", parsed.bench_codec.codec, "one codec (default: all)");
  CLI::Option* in =
      codec->add_option("--in", parsed.bench_codec.in, "raw little-endian fp32 file to encode");
  codec->add_option("--out", parsed.bench_codec.out, "where to write it decoded")->needs(in);
  codec->add_option("--bytes", parsed.bench_codec.bytes, "where to write it encoded")->needs(in);
  const auto on = std::make_shared<BenchCodecDeviceArguments>();  // with the flags' callbacks
  CLI::Option* device = codec->add_option("--device", on->device, "cpu or cuda")
                            ->check(CLI::IsMember({"cpu", "cuda"}));
  device->excludes(in);
  codec->add_option("--values", on->values, "of a vector on a CUDA device (default: 2^28)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->needs(device);
  set_action(*codec, parsed, [&parsed, on](Session& session) {
    return on->device == "cuda" ? command_bench_codec_device(parsed.bench_codec, *on, session)
                                : command_bench_codec(parsed.bench_codec, session);
  });
  CLI::App* compute = subcommand(*bench, "compute", "training step of reference models");
  repeated(*compute, "--config", "TEXT", parsed.bench_compute.workloads,
           "one workload (default: four)");
  compute->add_option("--threads", parsed.bench_compute.threads, "default: all cores");
  compute->add_option("--precision", parsed.bench_compute.precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  compute->add_option("--optimizer", parsed.bench_compute.optimizer, "adamw, sgd or muon")
      ->check(CLI::IsMember({"adamw", "sgd", "muon"}));
  compute->add_option("--kernels", parsed.bench_compute.kernels,
                      "auto, or a set of `doctor`'s list");
  option(*compute, "--device", "DEVICE", parsed.bench_compute.device,
         "cpu (default), cuda or cuda:N");
  compute
      ->add_option("--attention", parsed.bench_compute.attention, "on a device: own, cudnn or auto")
      ->check(CLI::IsMember({"auto", "own", "cudnn"}));
  compute->add_option("--micro-batches", parsed.bench_compute.micro_batches, "parts of the batch");
  add_recompute(*compute, parsed.bench_compute.recompute,
                "as train.recompute: none, selective or full (alone: full)");
  compute->add_option("--tp", parsed.bench_compute.tp,
                      "tensor-parallel ranks, threads as all ranks");
  compute->add_option("--pp", parsed.bench_compute.pp, "pipeline stages");
  compute->add_option("--dp", parsed.bench_compute.dp, "data-parallel ranks");
  compute->add_option("--schedule", parsed.bench_compute.schedule, "of a pipeline");
  compute->add_option("--virtual-stages", parsed.bench_compute.virtual_stages,
                      "of a pipeline rank, for interleaved-1f1b");
  compute->add_flag("--sequence-parallel", parsed.bench_compute.sequence_parallel,
                    "tensor-parallel ranks split norms and stream too");
  compute->add_option("--zero", parsed.bench_compute.zero, "what data-parallel ranks share out")
      ->check(CLI::Range(0, 3));
  compute->add_option("--seconds", parsed.bench_compute.seconds, "of timed steps, each");
  compute->add_option("--batch", parsed.bench_compute.sequences, "sequences in a step");
  set_action(*compute, parsed, command_bench_compute, parsed.bench_compute);
  add_collectives_command(*bench, parsed);
  add_link_command(*bench, parsed);
  set_action(*subcommand(*bench, "sim", "scheduler switches a second"), parsed, command_bench_sim);
  set_action(*subcommand(*bench, "utilisation", "points a second of `plan utilisation`"), parsed,
             command_bench_utilisation);
}

void add_doctor_command(CLI::App& app, Parsed& parsed) {
  CLI::App* doctor =
      subcommand(app, "doctor", "check this machine, this build, and which sites a site reaches");
  DoctorSiteArguments& arguments = parsed.doctor_site;
  CLI::Option* config =
      option(*doctor, "CONFIG", "", arguments.config, "TOML file whose sites are to be reached");
  repeated(*doctor, "--set", "KEY=VALUE", arguments.overrides, "override a key of CONFIG")
      ->needs(config);
  option(*doctor, "--site", "NAME", arguments.site.name,
         "be this [[site]]; best at all of them at once")
      ->needs(config);
  add_site_flags(*doctor, arguments.site);
  option(*doctor, "--seconds", "S", arguments.seconds, "for the others to answer (default 10)");
  set_action(*doctor, parsed, [&parsed](Session& session) {
    return parsed.doctor_site.config.empty() ? command_doctor(session)
                                             : command_doctor_site(parsed.doctor_site, session);
  });
}

}  // namespace isthmus::app
