// SPDX-License-Identifier: Apache-2.0
// The inputs of a cell's result besides its configuration: the bytes of its data and initial
// weights, and the kernels (their rounding differs). Each source is opened and hashed once. One
// thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/compare/cell_program.h"
#include "app/train/training.h"
#include "core/base/storage.h"
#include "isthmus/config.h"

namespace isthmus::app {

class CellInputs {
 public:
  /// Borrows `storage`. `program`: the trainer; none: the built-in one.
  explicit CellInputs(const Storage& storage, const CellProgram& program = {});

  /// A text that is equal for equal inputs. THROWS: ConfigError, SystemError.
  [[nodiscard]] std::string of(const Config& config);

  /// The data of a configuration, opened once. Valid as long as this object.
  [[nodiscard]] const OpenData& data(const Config& config);
  /// Every data file seen so far.
  [[nodiscard]] std::vector<DataFile> files() const;

 private:
  [[nodiscard]] const std::string& weights(const std::filesystem::path& folder);

  const Storage& storage_;
  std::string program_;                                   // its digest; empty: the built-in trainer
  std::map<std::string, OpenData> sources_;               // by located source and validation share
  std::map<std::filesystem::path, std::string> weights_;  // by folder
};

}  // namespace isthmus::app
