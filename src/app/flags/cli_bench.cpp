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
  command
      .add_option("--listen", site.listen,
                  "where to listen (default: the port of the site's address, on all interfaces)")
      ->type_name("HOST:PORT");
  command
      .add_option("--key", site.key_file,
                  "the site's secret key (default: keys/NAME.key beside CONFIG)")
      ->type_name("FILE");
  repeated(command, "--address", site.addresses, "where a site is reached, instead of the file's")
      ->type_name("NAME=HOST:PORT");
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
  command->add_option("CONFIG", between->config, "TOML file with sites and links")->type_name("");
  const std::vector<CLI::Option*> of_sites = {
      repeated(*command, "--set", between->overrides, "override a key of CONFIG")
          ->type_name("KEY=VALUE"),
      command->add_option("--links", between->links, "links file, as `bench link` writes it")
          ->type_name("FILE")};
  command->add_flag("--inner", arguments->inner, "inside a site: threads, or mpirun's processes");
  const std::vector<CLI::Option*> of_ranks = {
      command->add_option("--ranks", arguments->ranks,
                          "default: one a core; the MPI job's; one a GPU"),
      command
          ->add_option("--backend", arguments->backend,
                       "threads, mpi, shared-memory or nccl (default: under mpirun both that "
                       "processes have, else threads)")
          ->check(CLI::IsMember({"threads", "mpi", "shared-memory", "nccl"})),
      command
          ->add_option("--mix", arguments->mix,
                       "try such a table under mpirun: mixed calls against each back end, in turns")
          ->type_name("FILE"),
      command->add_option("--largest-mib", arguments->largest_mib, "size of the largest call"),
      command->add_option("--seconds", arguments->seconds, "of timed calls, each"),
      command
          ->add_option("--out", arguments->out,
                       "table of back ends to write, or to extend, for parallel.communicators")
          ->type_name("FILE")};
  command->callback([&parsed, arguments, between, of_sites, of_ranks] {
    parsed.action = [arguments, between, of_sites, of_ranks](Session& session) {
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
    };
  });
}

void add_link_command(CLI::App& bench, Parsed& parsed) {
  CLI::App* link =
      subcommand(bench, "link", "rate, round trip and more of the links between sites");
  link->footer(std::string(kLinkHelp));
  BenchLinkArguments& arguments = parsed.bench_link;
  link->add_option("CONFIG", arguments.config, "TOML file whose sites are to be measured")
      ->type_name("");
  repeated(*link, "--set", arguments.overrides, "override a key of CONFIG")->type_name("KEY=VALUE");
  link->add_option("--site", arguments.site.name, "be this [[site]]; without CONFIG: any name")
      ->type_name("NAME");
  link->add_option("--to", arguments.to, "without CONFIG: the machine that listens")
      ->type_name("HOST:PORT");
  add_site_flags(*link, arguments.site);
  link->add_flag("--plaintext", arguments.plaintext,
                 "links without keys beyond this machine, as net.plaintext");
  link->add_option("--seconds", arguments.seconds,
                   "of each direction (default 6); the same at all sites")
      ->type_name("S");
  link->add_option("--streams", arguments.streams,
                   "parallel connections to try, at most (default 16); the same at all sites")
      ->type_name("K");
  link->add_option("--out", arguments.out, "links file to write, for simulate and plan")
      ->type_name("FILE");
  link->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_bench_link(parsed.bench_link, session);
    };
  });
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
  codec->callback([&parsed, on] {
    parsed.action = [&parsed, on](Session& session) {
      return on->device == "cuda" ? command_bench_codec_device(parsed.bench_codec, *on, session)
                                  : command_bench_codec(parsed.bench_codec, session);
    };
  });
  CLI::App* compute = subcommand(*bench, "compute", "training step of reference models");
  repeated(*compute, "--config", parsed.bench_compute.workloads, "one workload (default: four)");
  compute->add_option("--threads", parsed.bench_compute.threads, "default: all cores");
  compute->add_option("--precision", parsed.bench_compute.precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  compute->add_option("--optimizer", parsed.bench_compute.optimizer, "adamw, sgd or muon")
      ->check(CLI::IsMember({"adamw", "sgd", "muon"}));
  compute->add_option("--kernels", parsed.bench_compute.kernels,
                      "auto, or a set of `doctor`'s list");
  compute->add_option("--device", parsed.bench_compute.device, "cpu (default), cuda or cuda:N")
      ->type_name("DEVICE");
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
  compute->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_bench_compute(parsed.bench_compute, session);
    };
  });
  add_collectives_command(*bench, parsed);
  add_link_command(*bench, parsed);
  subcommand(*bench, "sim", "scheduler switches a second")->callback([&parsed] {
    parsed.action = command_bench_sim;
  });
  subcommand(*bench, "utilisation", "points a second of `plan utilisation`")->callback([&parsed] {
    parsed.action = command_bench_utilisation;
  });
}

void add_doctor_command(CLI::App& app, Parsed& parsed) {
  CLI::App* doctor =
      subcommand(app, "doctor", "check this machine, this build, and which sites a site reaches");
  DoctorSiteArguments& arguments = parsed.doctor_site;
  CLI::Option* config =
      doctor->add_option("CONFIG", arguments.config, "TOML file whose sites are to be reached")
          ->type_name("");
  repeated(*doctor, "--set", arguments.overrides, "override a key of CONFIG")
      ->type_name("KEY=VALUE")
      ->needs(config);
  doctor->add_option("--site", arguments.site.name, "be this [[site]]; best at all of them at once")
      ->type_name("NAME")
      ->needs(config);
  add_site_flags(*doctor, arguments.site);
  doctor->add_option("--seconds", arguments.seconds, "for the others to answer (default 10)")
      ->type_name("S");
  doctor->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return parsed.doctor_site.config.empty() ? command_doctor(session)
                                               : command_doctor_site(parsed.doctor_site, session);
    };
  });
}

}  // namespace isthmus::app
