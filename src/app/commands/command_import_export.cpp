// SPDX-License-Identifier: Apache-2.0
// `import` and `export`: models between the folders of other tools and our runs. Both sides are the
// Hugging Face layout, so each is a checked copy.
#include <fmt/format.h>

#include <optional>

#include "app/common/commands.h"
#include "app/train/hf_model.h"
#include "app/train/model_steps.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_weights.h"
#include "inner/model/model_shape.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

/// A folder may be written into that is neither the source nor held by a run.
void check_target(const std::filesystem::path& from, const std::filesystem::path& to) {
  check_model_target(to);
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) {
    throw UsageError(
        fmt::format("'{}' is also where it comes from; name another folder", to.string()));
  }
}

void tell(Session& session, const std::filesystem::path& folder, const HfModel& model,
          std::string_view arch, const std::string& from, const std::vector<std::string>& left_out,
          const std::optional<outer::UnappliedSteps>& missing = std::nullopt) {
  const std::int64_t parameters = model.layout.elements();
  if (session.json) {
    JsonLine line;
    line.add("folder", folder.string())
        .add("from", from)
        .add("arch", arch)
        .add("parameters", parameters)
        .add("left_out", std::span<const std::string>(left_out));
    if (missing) {
      line.add("first_step_missing", missing->first).add("last_step_missing", missing->last);
    }
    session.out.write(line.str() + "\n");
  } else {
    session.out.write(fmt::format("wrote {}: {}, {} parameters, from {}\n", folder.string(), arch,
                                  with_commas(parameters), from));
    tell_left_out(session, left_out);
    if (missing) session.out.write("  " + outer::unapplied_text(*missing) + "\n");
  }
}

}  // namespace

int command_import(const ImportArguments& arguments, Session& session) {
  SystemStorage storage;
  check_target(arguments.from, arguments.to);
  const HfConfig config = read_hf_config(storage, arguments.from);
  HfModel model(model_shape(config.model, config.model.context));
  load_hf_weights(storage, arguments.from, model.parameters());
  const std::vector<std::string> left_out = model.write(storage, arguments.to, arguments.from);
  tell(session, arguments.to, model, config.model.arch, arguments.from.string(), left_out);
  return 0;
}

int command_export(const ExportArguments& arguments, Session& session) {
  SystemStorage storage;
  const std::filesystem::path folder = find_checkpoint(storage, arguments.from);
  check_target(folder, arguments.to);
  const Checkpoint checkpoint = Checkpoint::open(storage, folder);
  const HfConfig config = read_hf_config(storage, folder);
  HfModel model(model_shape(config.model, config.model.context));
  for (const TensorInfo& info : model.layout.tensors()) {
    checkpoint.read_model(info.name, info.shape, model.tensor(info));
  }
  const std::vector<std::string> left_out = model.write(storage, arguments.to, folder);
  tell(session, arguments.to, model, config.model.arch,
       fmt::format("{} (step {})", folder.string(), checkpoint.info().step), left_out,
       unapplied_steps_of(checkpoint));
  return 0;
}

}  // namespace isthmus::app
