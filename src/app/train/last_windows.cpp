// SPDX-License-Identifier: Apache-2.0
#include "app/train/last_windows.h"

#include "app/train/config_to_options.h"
#include "inner/model/model_shape.h"
#include "session/run/run_settings.h"

namespace isthmus::app {

outer::RunEnd run_end_of(const Config& config, const ModelLayout& layout) {
  return run_end_of(config, parameters_without_values(layout));
}

outer::RunEnd run_end_of(const Config& config) {
  return run_end_of(config, ModelLayout(model_shape(config.model, config.train.context)));
}

std::string short_of_inner_warmup(const Config& config) {
  if (by_default(config, "inner.warmup")) return "";
  const std::int64_t total = total_steps(config);
  return short_of_warmup("inner.warmup", config.inner.warmup.resolve(total), total, "inner.lr");
}

}  // namespace isthmus::app
