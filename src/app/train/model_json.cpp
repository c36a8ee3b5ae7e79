// SPDX-License-Identifier: Apache-2.0
#include "app/train/model_json.h"

#include "record/json_line.h"

namespace isthmus::app {

std::string model_json(const Config& config, std::int64_t parameters) {
  const ModelConfig& model = config.model;
  JsonLine line;
  line.add("arch", model.arch).add("layers", model.layers).add("d_model", model.d_model);
  line.add("heads", model.heads).add("kv_heads", model.kv_heads > 0 ? model.kv_heads : model.heads);
  line.add("vocab", model.vocab)
      .add("context", model.context == 0 ? config.train.context : model.context)
      .add("parameters", parameters);
  return line.str();
}

}  // namespace isthmus::app
