// SPDX-License-Identifier: Apache-2.0
// What `load_config` must know of the modules above config.
#include "app/common/commands.h"
#include "core/base/storage.h"
#include "inner/hf/hf_config.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"

namespace isthmus::app {

SchemaContext schema_context() {
  SchemaContext context;
  context.methods = methods();
  context.codecs = codecs();
  context.check_codec = [](const std::string& spelling) {
    [[maybe_unused]] const auto codec = make_codec(spelling);
  };
  context.read_model = [](const std::filesystem::path& folder) {
    return read_hf_config(SystemStorage(), folder).model;
  };
  return context;
}

}  // namespace isthmus::app
