// SPDX-License-Identifier: Apache-2.0
// The facts about the modules above config that `load_config` needs.
#include "app/common/commands.h"
#include "app/common/launch_environment.h"
#include "core/base/storage.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hub_cache.h"
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
  context.find_model = [](const std::string& init, const std::filesystem::path& located) {
    const SystemStorage storage;
    if (storage.kind(located) != FileKind::kAbsent || !is_hub_name(init)) {
      return std::filesystem::path(init);
    }
    return hub_model(storage, hub_cache(environment()), init);
  };
  context.read_model = [](const std::filesystem::path& folder) {
    return read_hf_config(SystemStorage(), folder).model;
  };
  return context;
}

}  // namespace isthmus::app
