// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/state/safetensors.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// The weights last, so that a folder with new weights has everything that goes with them.
void write_files(Storage& storage, const std::filesystem::path& folder, const HfExport& model,
                 const HfCompanions& companions) {
  for (const auto& [name, text] : companions.files) {
    write_atomically(storage, folder / name, text);
  }
  std::vector<TensorToWrite> tensors;
  for (const HfTensor& tensor : model.tensors) {
    tensors.push_back(float_tensor(tensor.name, tensor.shape, tensor.values));
  }
  write_safetensors(storage, folder / "model.safetensors", std::move(tensors));
}

void remove_companions_not_in(const HfCompanions& companions, Storage& storage,
                              const std::filesystem::path& folder) {
  for (const std::string& name : storage.list(folder)) {
    const bool ours =
        std::ranges::any_of(companions.files, [&](const auto& file) { return file.first == name; });
    // A link goes, and what it leads to stays; folders of these names are the user's own.
    const bool stale = !ours && is_written_companion(name) &&
                       storage.kind(folder / name / ".") != FileKind::kDirectory;
    if (stale) storage.remove(folder / name);
  }
}

}  // namespace

std::vector<std::string> write_hf_folder(Storage& storage, const std::filesystem::path& given,
                                         const HfExport& model) {
  // "DIR/" has no file name to put a temporary beside.
  const std::filesystem::path folder = given.has_filename() ? given : given.parent_path();
  HfCompanions companions = hf_companions(storage, model.shape, model.from, model.byte_tokenizer);
  if (storage.kind(folder) != FileKind::kAbsent) {
    storage.create_directories(folder);  // refuses a path that is no folder
    check_no_adapter(storage, folder);
    remove_companions_not_in(companions, storage, folder);
    write_files(storage, folder, model, companions);
    return std::move(companions.left_out);
  }
  const std::filesystem::path temporary = temporary_beside(folder);
  storage.remove_all(temporary);  // of an export that was interrupted
  storage.create_directories(temporary);
  try {
    write_files(storage, temporary, model, companions);
    storage.rename(temporary, folder);
  } catch (...) {
    try {
      storage.remove_all(temporary);
    } catch (const SystemError&) {
      // The first failure is the one to report.
    }
    throw;
  }
  storage.sync_directory(folder.parent_path());
  return std::move(companions.left_out);
}

}  // namespace isthmus
