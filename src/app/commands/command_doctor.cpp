// SPDX-License-Identifier: Apache-2.0
// `doctor`: the abilities of this machine and this build, and the obstacles to a run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "app/commands/bench/exchange_cost.h"
#include "app/common/commands.h"
#include "app/common/launch_environment.h"
#include "app/common/text_table.h"
#include "app/train/device_choice.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "inner/cuda/device_product.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/isa.h"
#include "record/build_info.h"
#include "record/json_line.h"
#include "transport/collectives/nccl_communicator.h"
#include "transport/links/mpi_transport.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  std::string name;
  std::string value;
  Verdict verdict = Verdict::kGood;
  std::string advice;
};

std::string first_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string isa_text() {
  std::vector<std::string> names;
  for (const kernels::Isa isa : kernels::available_isas()) {
    names.emplace_back(kernels::name_of(isa));
  }
  return fmt::format("{} (of {})", kernels::name_of(kernels::active_isa()), join(names));
}

Finding device(const cuda::DeviceInfo& device) {
  Finding finding{fmt::format("cuda:{}", device.ordinal),
                  fmt::format("{}, compute capability {}.{}", device.name, device.compute_major,
                              device.compute_minor),
                  Verdict::kGood, ""};
  try {
    cuda::use_device(device.ordinal);
    const cuda::DeviceMemory memory = cuda::device_memory();
    finding.value +=
        fmt::format(", {} free of {}", human_bytes(static_cast<double>(memory.free_bytes)),
                    human_bytes(static_cast<double>(memory.total_bytes)));
  } catch (const SystemError& error) {
    finding.verdict = Verdict::kBad;
    finding.advice = error.what();
  }
  return finding;
}

/// Between GPUs; a note only where there is something to join.
Finding nccl(std::size_t devices) {
  try {
    return {"NCCL", fmt::format("found, sees {} device(s)", nccl_devices()), Verdict::kGood,
            devices > 1 ? "sums gradients of parallel.dp ranks on them" : ""};
  } catch (const SystemError& error) {
    return {"NCCL", "cannot be used; ranks on devices sum by way of host memory",
            devices > 1 ? Verdict::kNote : Verdict::kGood, error.what()};
  }
}

/// Optional: required by train.attention = "cudnn".
Finding cudnn() {
  const std::string missing = cuda::cudnn_missing();
  return {"cuDNN", missing.empty() ? cuda::cudnn_version() + " found" : "cannot be used",
          Verdict::kGood, missing.empty() ? "attention with train.attention = \"cudnn\"" : missing};
}

/// Devices, their requirements, and the device that a run without train.device would compute on.
std::vector<Finding> devices() {
  if (const std::string why_not = cuda::unavailable(); !why_not.empty()) {
    const bool fault = !cuda::driver_fault().empty();
    return {{"CUDA", why_not, fault ? Verdict::kNote : Verdict::kGood, ""},
            {"runs compute", "on the CPU", Verdict::kGood, ""}};
  }
  std::vector<Finding> findings = {{"CUDA", cuda::versions(), Verdict::kGood, ""}};
  const std::vector<cuda::DeviceInfo> found = cuda::devices();
  for (const cuda::DeviceInfo& each : found) findings.push_back(device(each));
  const std::string no_products = device_products_missing();
  findings.push_back({"cuBLASLt",
                      no_products.empty() ? device_products_version() + " found" : "cannot be used",
                      no_products.empty() ? Verdict::kGood : Verdict::kBad, no_products});
  findings.push_back(cudnn());
  findings.push_back(nccl(found.size()));
  Finding runs{
      "runs compute",
      found.size() > 1 ? "on these devices, one a rank of a worker, worker after worker"
                       : "on cuda:0",
      Verdict::kGood,
      "train.device = \"auto\": where devices compute their settings (parallel.dp: as many of "
      "them a worker)"};
  if (const std::string why_not = no_device_here(); !why_not.empty()) {
    runs = {"runs compute", "on the CPU", Verdict::kNote, why_not};
  }
  findings.push_back(runs);
  return findings;
}

/// A library that carries links between sites, or how to get it.
Finding links_over(const std::string& name, const std::string& version,
                   const std::string& packages) {
  return version.empty() ? Finding{name, "not in this build", Verdict::kNote,
                                   "apt install " + packages + ", then configure and build again"}
                         : Finding{name, version, Verdict::kGood, ""};
}

/// The library that runs, beside the library whose headers were compiled in: they may differ.
Finding mpi() {
  Finding finding = links_over("MPI", mpi_version(), "libopenmpi-dev openmpi-bin");
  const std::string built_with = mpi_built_with();
  if (built_with.empty()) return finding;
  std::string running = finding.value;  // MPICH's words have tabs and lines
  std::ranges::replace_if(
      running, [](char c) { return c == '\t' || c == '\n'; }, ' ');
  finding.value = fmt::format("{} runs, built with {}", running, built_with);
  const std::string number = built_with.substr(built_with.rfind('v') + 1);
  if (running.find(number) == std::string::npos) {
    finding.verdict = Verdict::kNote;
    finding.advice =
        "another library runs than this was built with: mend LD_LIBRARY_PATH, or build again";
  }
  return finding;
}

Finding memory(const MachineInfo& machine) {
  constexpr double kLittle = 1 << 30;
  const auto available = static_cast<double>(machine.available_bytes);
  Finding finding{"memory",
                  fmt::format("{} free of {}", human_bytes(available),
                              human_bytes(static_cast<double>(machine.memory_bytes))),
                  Verdict::kGood, ""};
  if (available < kLittle) {
    finding.verdict = Verdict::kBad;
    finding.advice = "less than 1 GiB is free; use small models and few workers, or train.offload";
  }
  return finding;
}

/// As flags take it: "5.2Gbit/s".
std::string compact_rate(double bits_per_s) {
  std::string text = human_rate(bits_per_s);
  std::erase(text, ' ');
  return text;
}

Finding disk() {
  constexpr double kLittle = 1 << 30;
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  if (error) {
    return {"disk", error.message(), Verdict::kBad, "the current folder cannot be asked"};
  }
  const auto available = static_cast<double>(space.available);
  const bool little = available < kLittle;
  return {"disk", fmt::format("{} free in the current folder", human_bytes(available)),
          little ? Verdict::kBad : Verdict::kGood,
          little ? "checkpoints may not fit; --out names another disk" : ""};
}

/// Socket buffers bound the rate of one stream: rate <= buffer / round trip.
Finding socket_buffers() {
  const std::string rmem = first_line("/proc/sys/net/core/rmem_max");
  if (rmem.empty()) {
    return {"socket buffers", "unknown", Verdict::kNote, "/proc/sys is not readable here"};
  }
  constexpr double kEnough = 16e6;  // 1.3 Gbit/s at 100 ms on one stream
  double bytes = 0;
  for (const char c : rmem) {
    bytes = c >= '0' && c <= '9' ? bytes * 10 + (c - '0') : bytes;
  }
  Finding finding{"socket buffers", fmt::format("{} at most", human_bytes(bytes)), Verdict::kGood,
                  ""};
  if (bytes < kEnough) {
    finding.verdict = Verdict::kNote;
    finding.advice = "long fat links want more: sysctl net.core.rmem_max=67108864 and wmem_max";
  }
  return finding;
}

/// How fast a line this machine can fill before its processor is the bound: measured.
Finding line_filled(const MachineInfo& machine) {
  // Smaller vectors have smaller frames, which cost more.
  constexpr std::size_t kBytes = 64'000'000;
  constexpr Duration kBudget = std::chrono::milliseconds(600);
  constexpr int kMembers = 3;            // the fewest that reduce by parts
  constexpr double kEnough = 3LL << 29;  // of memory: a measurement must not be what is in the way
  Finding finding{"exchanges", "not measured", Verdict::kNote, ""};
  if (zmq_version().empty() || static_cast<double>(machine.available_bytes) < kEnough) {
    finding.advice = "needs ZeroMQ and 1.5 GiB of free memory";
    return finding;
  }
  try {
    ExchangeTrial trial{
        .codec = "fp32", .members = kMembers, .bytes = kBytes, .cores = machine.cores};
    const ExchangeCost fp32 = measure_exchange(trial, kBudget);
    trial.codec = "int8";
    const ExchangeCost int8 = measure_exchange(trial, kBudget);
    finding.verdict = Verdict::kGood;
    finding.value = fmt::format(
        "fill a line of {} in fp32, of {} in int8 ({} of fp32 values a core, {} in int8)",
        human_rate(fp32.line_bits_per_s()), human_rate(int8.line_bits_per_s()),
        human_rate(fp32.bits_a_core()), human_rate(int8.bits_a_core()));
    finding.advice = fmt::format(
        "measured between three members that share the cores; on faster lines the processor bounds "
        "a round: `isthmus plan sync --way reduce --processor {}`",
        compact_rate(fp32.bits_per_s()));
  } catch (const Error& error) {
    finding.advice = error.what();
  }
  return finding;
}

Finding started_by() {
  try {
    const auto found = find_launch_environment(environment());
    return {
        "started by",
        found ? fmt::format("{}: process {}{} ({})", found->by, found->rank,
                            found->size ? fmt::format(" of {}", *found->size) : "", found->variable)
              : "hand: no rank in the environment",
        Verdict::kGood, ""};
  } catch (const ConfigError& error) {
    return {"started by", error.what(), Verdict::kNote, "--site auto cannot be used"};
  }
}

std::vector<Finding> examine() {
  const BuildInfo build = build_info();
  const MachineInfo machine = machine_info();
  std::vector<Finding> findings;
  findings.push_back(
      {"isthmus", fmt::format("{} ({})", build.version, build.git), Verdict::kGood, ""});
  findings.push_back(
      {"compiler", fmt::format("{}, {}", build.compiler, build.flags), Verdict::kGood, ""});
  if (build.build_type != "Release" && build.build_type != "RelWithDebInfo") {
    findings.back().verdict = Verdict::kNote;
    findings.back().advice =
        "not an optimised build; -DCMAKE_BUILD_TYPE=Release is many times faster";
  }
  findings.push_back({"system", machine.os, Verdict::kGood, ""});
  findings.push_back({"processor",
                      fmt::format("{}, {} cores for this process", machine.cpu, machine.cores),
                      Verdict::kGood, ""});
  findings.push_back(started_by());
  findings.push_back({"kernels", isa_text(), Verdict::kGood, ""});
  for (const Finding& finding : devices()) findings.push_back(finding);
  findings.push_back(memory(machine));
  findings.push_back(disk());
  const std::string congestion = first_line("/proc/sys/net/ipv4/tcp_congestion_control");
  const bool cubic = congestion == "cubic";
  findings.push_back({"TCP", congestion.empty() ? "unknown" : congestion,
                      cubic ? Verdict::kNote : Verdict::kGood,
                      cubic ? "bbr keeps its rate on links that lose packets" : ""});
  findings.push_back(socket_buffers());
  findings.push_back(line_filled(machine));
  std::vector<std::string> names;
  for (const MethodInfo& method : methods()) {
    names.push_back(method.name);
  }
  findings.push_back({"methods", join(names), Verdict::kGood, ""});
  names.clear();
  for (const CodecInfo& codec : codecs()) {
    names.push_back(codec.name);
  }
  findings.push_back({"codecs", join(names), Verdict::kGood, ""});
  findings.push_back(links_over("ZeroMQ", zmq_version(), "libzmq3-dev cppzmq-dev"));
  findings.push_back(mpi());
  return findings;
}

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"good", "note", "bad"};
  return kNames[static_cast<std::size_t>(verdict)];
}

}  // namespace

int command_doctor(Session& session) {
  const std::vector<Finding> findings = examine();
  if (session.json) {
    const auto json_of = [](const Finding& finding) {
      return JsonLine()
          .add("name", finding.name)
          .add("value", finding.value)
          .add("verdict", verdict_name(finding.verdict))
          .add("advice", finding.advice);
    };
    session.answer(JsonLine().add_list("findings", findings, json_of));
    return 0;
  }
  constexpr Style kStyles[] = {Style::kGood, Style::kWarn, Style::kBad};
  constexpr std::string_view kMarks[] = {"ok", "--", "!!"};
  for (const Finding& finding : findings) {
    const auto index = static_cast<std::size_t>(finding.verdict);
    session.out.write(fmt::format("{}  {:15} {}\n",
                                  session.out.paint(kStyles[index], kMarks[index]), finding.name,
                                  finding.value));
    if (!finding.advice.empty()) {
      session.out.write(
          fmt::format("    {:15} {}\n", "", session.out.paint(Style::kDim, finding.advice)));
    }
  }
  return 0;
}

}  // namespace isthmus::app
