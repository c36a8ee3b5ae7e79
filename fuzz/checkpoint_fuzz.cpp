// SPDX-License-Identifier: Apache-2.0
// The input as a checkpoint's state.json, once as it is and once with its digest put right, so that
// the fields are reached; each part of its states is then read as a component's. Checked: no crash.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "core/state/checkpoint.h"
#include "isthmus/errors.h"

namespace {

using namespace isthmus;

// A safetensors file without tensors.
constexpr std::string_view kNoTensors("\x08\0\0\0\0\0\0\0{}      ", 16);

std::string with_digest(std::string_view text) {
  nlohmann::json document = parse_json(text, "input");
  if (!document.is_object()) return {};
  document.erase("sha256");
  document["sha256"] = sha256_hex(as_bytes(document.dump()));
  return document.dump();
}

void read_states(const nlohmann::json& states) {
  for (const auto& item : states.items()) {
    try {
      const auto reader =
          make_state_reader(Safetensors::parse(as_bytes(kNoTensors), "input"), item.value());
      (void)reader->contains("x");
      (void)reader->real("x");
    } catch (const RunError&) {
      // Refused.
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    (void)parse_checkpoint_state(text, "input");
  } catch (const SystemError&) {
    // Refused: nearly no input states its own digest.
  }
  try {
    read_states(parse_checkpoint_state(with_digest(text), "input").at("states"));
  } catch (const SystemError&) {
    // Refused.
  }
  return 0;
}
