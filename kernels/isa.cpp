// SPDX-License-Identifier: Apache-2.0
#include "kernels/isa.h"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <string>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "kernels/fast_kernels.h"

namespace isthmus::kernels {
namespace {

bool machine_has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool machine_has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool machine_has_avx512_bf16() {
#if defined(__x86_64__)
  return machine_has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

#if defined(__x86_64__) && defined(__linux__)
/// Whether the processor has AMX for bfloat16 and Linux, which is asked for its tiles, gives them
/// to this process.
bool amx_is_granted() {
  if (!machine_has_avx512_bf16()) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;  // of CPUID leaf 7, EDX
  constexpr long kAskForState = 0x1023, kTileData = 18;   // arch_prctl(2), x86/xstate
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kBf16) == 0 || (d & kTile) == 0) return false;
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
#endif

bool machine_has_avx512_amx() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool granted = amx_is_granted();  // asked once: CPUID is slow in a virtual machine
  return granted;
#else
  return false;
#endif
}

const FastKernels* table_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Amx:
      return machine_has_avx512_amx() ? avx512_amx_kernels() : nullptr;
    case Isa::kAvx512Bf16:
      return machine_has_avx512_bf16() ? avx512_bf16_kernels() : nullptr;
    case Isa::kAvx512:
      return machine_has_avx512() ? avx512_kernels() : nullptr;
    case Isa::kAvx2:
      return machine_has_avx2() ? avx2_kernels() : nullptr;
    case Isa::kOneDnn:
      return onednn_kernels();
    case Isa::kPortable:
      break;
  }
  return portable_kernels();
}

struct Active {
  Isa isa;
  const FastKernels* table;
};

Active best() {
  for (const Isa isa : {Isa::kAvx512Amx, Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2}) {
    if (const FastKernels* table = table_of(isa)) return {isa, table};
  }
  return {Isa::kPortable, portable_kernels()};
}

Active& active() {
  static Active chosen = best();
  return chosen;
}
}  // namespace

std::string_view name_of(Isa isa) {
  constexpr std::array<std::string_view, 6> kNames = {"portable", "onednn",      "avx2",
                                                      "avx512",   "avx512_bf16", "avx512_amx"};
  return kNames[static_cast<std::size_t>(isa)];
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kOneDnn, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                        Isa::kAvx512Amx}) {
    if (table_of(isa) != nullptr) isas.push_back(isa);
  }
  return isas;
}

Isa active_isa() { return active().isa; }

Isa isa_named(std::string_view name) {
  if (name == "auto") return best().isa;
  std::string names;
  for (const Isa isa : available_isas()) {
    if (name_of(isa) == name) return isa;
    names += fmt::format(", {}", name_of(isa));
  }
  throw ConfigError(
      fmt::format("kernels \"{}\": not available; this build on this machine has auto{}{}", name,
                  names, name == "onednn" ? " (oneDNN: configure with -DISTHMUS_ONEDNN=ON)" : ""));
}

void use_isa(Isa isa) {
  const FastKernels* table = table_of(isa);
  ISTHMUS_CHECK(table != nullptr, name_of(isa));
  active() = {isa, table};
}

const FastKernels& own_kernels() { return *best().table; }

const FastKernels& fast_kernels() { return *active().table; }

}  // namespace isthmus::kernels
