// SPDX-License-Identifier: Apache-2.0
#include "app/train/last_windows.h"

#include "app/train/config_to_options.h"
#include "inner/model/model_shape.h"

namespace isthmus::app {

outer::RunEnd run_end_of(const Config& config, const ModelLayout& layout) {
  return run_end_of(config, parameters_without_values(layout));
}

outer::RunEnd run_end_of(const Config& config) {
  return run_end_of(config, ModelLayout(model_shape(config.model, config.train.context)));
}

}  // namespace isthmus::app
