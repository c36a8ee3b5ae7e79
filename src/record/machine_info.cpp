// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>

#include "core/base/trimmed.h"
#include "kernels/thread_team.h"
#include "record/build_info.h"

namespace isthmus::app {
namespace {

/// Value of the first line "name<separator>value" of a file, without quotes; empty when absent.
std::string field_of(const char* file, std::string_view name, char separator) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    const std::size_t at = line.find(separator);
    if (at == std::string::npos || !line.starts_with(name)) {
      continue;
    }
    return std::string(trimmed(std::string_view(line).substr(at + 1), " \t\""));
  }
  return "";
}

std::uint64_t memory_field(std::string_view name) {
  const std::string text = field_of("/proc/meminfo", name, ':');
  std::uint64_t kib = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      break;
    }
    kib = kib * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return kib * 1024;
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = field_of("/proc/cpuinfo", "model name", ':');
  utsname names{};
  if (::uname(&names) == 0) {
    info.os = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
    info.cpu = info.cpu.empty() ? names.machine : info.cpu;
  }
  const std::string system = field_of("/etc/os-release", "PRETTY_NAME", '=');
  if (!system.empty()) {
    info.os += ", " + system;
  }
  info.cores = std::max(1, static_cast<int>(kernels::usable_cores().size()));
  info.memory_bytes = memory_field("MemTotal");
  info.available_bytes = memory_field("MemAvailable");
  return info;
}

}  // namespace isthmus::app
