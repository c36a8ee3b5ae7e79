// SPDX-License-Identifier: Apache-2.0
// The input as a model's config.json. Checked: no crash, and a configuration that is accepted and
// fits together says the same after it is written and read again.
#include <cstdint>
#include <cstdlib>

#include "inner/hf/hf_config.h"
#include "isthmus/errors.h"

namespace {

using namespace isthmus;

void use(const HfConfig& config) {
  const ModelShape shape = model_shape(config.model, config.model.context);
  const HfConfig again = parse_hf_config(hf_config_text(shape, config.settings), "written again");
  const ModelShape back = model_shape(again.model, again.model.context);
  const bool same = back.architecture == shape.architecture && back.layers == shape.layers &&
                    back.d_model == shape.d_model && back.heads == shape.heads &&
                    back.kv_heads == shape.kv_heads && back.head_dim == shape.head_dim &&
                    back.d_ff == shape.d_ff && back.vocab == shape.vocab &&
                    back.positions == shape.positions && back.tied == shape.tied &&
                    back.qk_norm == shape.qk_norm && back.rope_theta == shape.rope_theta &&
                    back.norm_eps == shape.norm_eps && back.family == shape.family &&
                    again.settings == config.settings;
  if (!same) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(parse_hf_config({reinterpret_cast<const char*>(data), size}, "input"));
  } catch (const Error&) {
    // Refused, as most inputs must be.
  }
  return 0;
}
