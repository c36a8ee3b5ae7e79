// SPDX-License-Identifier: Apache-2.0
// `import` and `export`: models between the folders of other tools and our runs. Both sides are the
// Hugging Face layout, so each is a checked copy.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/json_line.h"
#include "core/checkpoint.h"
#include "core/units.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_weights.h"
#include "inner/model_layout.h"
#include "inner/model_shape.h"

namespace isthmus::app {
namespace {

/// A model's parameters in memory, in the canonical layout.
struct Model {
  explicit Model(const ModelShape& shape)
      : layout(shape), values(static_cast<std::size_t>(layout.elements())) {}

  [[nodiscard]] std::span<float> tensor(const TensorInfo& info) {
    return std::span(values).subspan(static_cast<std::size_t>(info.elements.begin),
                                     static_cast<std::size_t>(info.elements.size()));
  }

  ModelLayout layout;
  std::vector<float> values;
};

void write(Storage& storage, const std::filesystem::path& folder, Model& model,
           const HfTokens& tokens, const std::filesystem::path& tokenizer_from) {
  HfExport out;
  out.shape = model.layout.shape();
  out.tokens = tokens;
  out.tokenizer_from = tokenizer_from;
  for (const TensorInfo& info : model.layout.tensors()) {
    out.tensors.push_back({info.name, info.shape, model.tensor(info)});
  }
  write_hf_folder(storage, folder, out);
}

void refuse_same_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) {
    throw UsageError(
        fmt::format("'{}' is also where it comes from; name another folder", to.string()));
  }
}

void tell(Session& session, const std::filesystem::path& folder, const Model& model,
          std::string_view arch, const std::string& from) {
  const std::int64_t parameters = model.layout.elements();
  if (session.json) {
    session.out.write(JsonLine()
                          .add("folder", folder.string())
                          .add("from", from)
                          .add("arch", arch)
                          .add("parameters", parameters)
                          .str() +
                      "\n");
  } else {
    session.out.write(fmt::format("wrote {}: {}, {} parameters, from {}\n", folder.string(), arch,
                                  with_commas(parameters), from));
  }
}

}  // namespace

int command_import(const ImportArguments& arguments, Session& session) {
  SystemStorage storage;
  refuse_same_folder(arguments.from, arguments.to);
  const HfConfig config = read_hf_config(storage, arguments.from);
  Model model(model_shape(config.model, config.model.context));
  std::vector<Parameter> parameters;
  for (const TensorInfo& info : model.layout.tensors()) {
    parameters.push_back(
        {info.name, info.layer, info.shape, info.elements, model.tensor(info), info.decay()});
  }
  load_hf_weights(storage, arguments.from, parameters);
  write(storage, arguments.to, model, config.tokens, arguments.from);
  tell(session, arguments.to, model, config.model.arch, arguments.from.string());
  return 0;
}

int command_export(const ExportArguments& arguments, Session& session) {
  SystemStorage storage;
  const std::filesystem::path folder = find_checkpoint(storage, arguments.from);
  refuse_same_folder(folder, arguments.to);
  const Checkpoint checkpoint = Checkpoint::open(storage, folder);
  const HfConfig config = read_hf_config(storage, folder);
  Model model(model_shape(config.model, config.model.context));
  for (const TensorInfo& info : model.layout.tensors()) {
    checkpoint.read_model(info.name, info.shape, model.tensor(info));
  }
  write(storage, arguments.to, model, config.tokens, folder);
  tell(session, arguments.to, model, config.model.arch,
       fmt::format("{} (step {})", folder.string(), checkpoint.info().step));
  return 0;
}

}  // namespace isthmus::app
