// SPDX-License-Identifier: Apache-2.0
// `import` and `export`: models between the folders of other tools and our runs. Both sides are the
// Hugging Face layout, so each is a checked copy.
#include <fmt/format.h>

#include <optional>

#include "app/common/commands.h"
#include "app/train/config_to_options.h"
#include "app/train/hf_model.h"
#include "app/train/model_steps.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "inner/model/model_shape.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

void check_apart(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) {
    throw UsageError(
        fmt::format("'{}' is also where it comes from; name another folder", to.string()));
  }
}

/// The family by its model_type, or the plain architecture.
std::string_view family_of(const ModelConfig& model) {
  return model.family.name.empty() ? model.arch : model.family.name;
}

void tell(Session& session, const std::filesystem::path& folder, const HfModel& model,
          std::string_view arch, const std::string& from, const ModelNotes& notes,
          const std::optional<outer::UnappliedSteps>& missing = std::nullopt) {
  const std::int64_t parameters = model.layout.elements();
  session.wrote(folder);
  if (session.json) {
    JsonLine line;
    line.add("folder", folder.string())
        .add("from", from)
        .add("arch", arch)
        .add("parameters", parameters)
        .add("left_out", std::span<const std::string>(notes.left_out))
        .add("notes", std::span<const std::string>(notes.odd));
    if (missing) {
      line.add("first_step_missing", missing->first).add("last_step_missing", missing->last);
    }
    session.answer(line);
  } else {
    session.out.write(fmt::format("wrote {}: {}, {} parameters, from {}\n", folder.string(), arch,
                                  with_commas(parameters), from));
    notes.tell(session);
    if (missing) session.out.write("  " + outer::unapplied_text(*missing) + "\n");
  }
}

}  // namespace

int command_import(const ImportArguments& arguments, Session& session) {
  SystemStorage storage;
  check_model_target(storage, arguments.to);
  check_apart(arguments.from, arguments.to);
  const HfConfig config = read_hf_config(storage, arguments.from);
  HfModel model(model_shape(config.model, config.model.context));
  std::vector<std::string> not_read = load_hf_weights(storage, arguments.from, model.parameters());
  const ModelNotes notes = model.write(storage, arguments.to, arguments.from, std::move(not_read));
  tell(session, arguments.to, model, family_of(config.model), arguments.from.string(), notes);
  return 0;
}

namespace {

/// The shape of a checkpoint's adapters, beside the model of its config.json.
ModelShape adapter_shape(const HfConfig& config, const LoraConfig& lora) {
  ModelConfig model = config.model;
  model.lora = lora;
  return model_shape(model, model.context);
}

/// Fills `model` from a checkpoint. THROWS: RunError.
void read_model(const Checkpoint& checkpoint, HfModel& model) {
  for (const TensorInfo& info : model.layout.tensors()) {
    checkpoint.read_model(info.name, info.shape, model.tensor(info));
  }
}

/// Of the weights that a checkpoint's adapters were trained beside; empty where it keeps none.
std::string kept_base_digest(const Checkpoint& checkpoint) {
  for (const auto& [key, value] : checkpoint.info().settings) {
    if (key.ends_with(kFrozenWeights)) return value;
  }
  return "";
}

/// THROWS: SystemError where the folder's weights are not those that the adapters were trained
/// beside.
void check_base(const Storage& storage, const Checkpoint& checkpoint,
                const std::filesystem::path& base, const ModelShape& shape) {
  const std::string now = base_digest(storage, base, without_lora(shape));
  const std::string kept = kept_base_digest(checkpoint);
  if (kept.empty() || kept == now) return;
  throw SystemError(fmt::format(
      "'{}': its weights (digest {}) are not those that the adapters of '{}' were trained beside "
      "({}): name that model with --base",
      base.string(), now, checkpoint.folder().string(), kept));
}

void export_adapted(const ExportArguments& arguments, Session& session, SystemStorage& storage,
                    const Checkpoint& checkpoint, const HfConfig& config) {
  const PeftAdapter adapter = read_adapter_config(storage, checkpoint.folder());
  HfModel adapters(adapter_shape(config, adapter.lora));
  read_model(checkpoint, adapters);
  const ModelShape& shape = adapters.layout.shape();
  const std::filesystem::path base =
      arguments.base.empty() ? std::filesystem::path(adapter.base) : arguments.base;
  check_apart(base, arguments.to);
  const std::string from =
      fmt::format("{} (step {})", checkpoint.folder().string(), checkpoint.info().step);
  const auto missing = unapplied_steps_of(checkpoint);
  if (arguments.format == "peft") {
    const ModelFolderLock lock(arguments.to);
    std::vector<HfTensor> tensors;
    for (const TensorInfo& info : adapters.layout.tensors()) {
      tensors.push_back({info.name, info.shape, adapters.tensor(info)});
    }
    write_adapter_folder(storage, arguments.to, shape, base.string(), kept_base_digest(checkpoint),
                         tensors);
    tell(session, arguments.to, adapters, family_of(config.model),
         fmt::format("adapters of rank {} of {}, beside {}", shape.lora.rank, from, base.string()),
         {}, missing);
    return;
  }
  check_base(storage, checkpoint, base, shape);
  HfModel model(without_lora(shape));
  std::vector<std::string> not_read = load_hf_weights(storage, base, model.parameters());
  merge_adapters(model, adapters);
  const ModelNotes notes = model.write(storage, arguments.to, base, std::move(not_read));
  tell(session, arguments.to, model, family_of(config.model),
       fmt::format("{} merged into {}", from, base.string()), notes, missing);
}

void export_checkpoint(const ExportArguments& arguments, Session& session, SystemStorage& storage,
                       const std::filesystem::path& folder) {
  const bool adapters = arguments.format == "peft";
  check_model_target(storage, arguments.to, adapters ? ModelFiles::kAdapters : ModelFiles::kWhole);
  check_apart(folder, arguments.to);
  const Checkpoint checkpoint = Checkpoint::open(storage, folder);
  const HfConfig config = read_hf_config(storage, folder);
  if (storage.kind(folder / kAdapterConfig) != FileKind::kAbsent) {
    export_adapted(arguments, session, storage, checkpoint, config);
    return;
  }
  if (adapters) {
    throw UsageError(fmt::format(
        "--to peft: '{}' holds a whole model and no adapters (the run had no [lora]): use --to hf",
        folder.string()));
  }
  HfModel model(model_shape(config.model, config.model.context));
  read_model(checkpoint, model);
  const ModelNotes notes = model.write(storage, arguments.to, folder);
  tell(session, arguments.to, model, family_of(config.model),
       fmt::format("{} (step {})", folder.string(), checkpoint.info().step), notes,
       unapplied_steps_of(checkpoint));
}

}  // namespace

int command_export(const ExportArguments& arguments, Session& session) {
  SystemStorage storage;
  std::filesystem::path folder;
  read_newest(
      [&] {
        folder = find_checkpoint(storage, arguments.from);
        return std::vector{folder};
      },
      [&] { export_checkpoint(arguments, session, storage, folder); });
  return 0;
}

}  // namespace isthmus::app
