// SPDX-License-Identifier: Apache-2.0
// The sink "tensorboard" of `[log] sinks`: event files in the run's tb/, written line by line
// along with metrics.jsonl. One thread at a time, as for the metrics.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/disk_patience.h"
#include "core/base/storage.h"
#include "isthmus/config.h"
#include "record/tensorboard_scalars.h"

namespace isthmus::app {

class TensorBoardSink {
 public:
  struct Options {
    std::filesystem::path folder;  // the run's
    bool simulated = false;
    std::int64_t resumed_after = 0;
    std::string config;                      // TOML for the text panel
    const DiskPatience* patience = nullptr;  // retries when the disk is full; borrowed, may be null
  };
  /// Begins a new file, named to follow existing ones. If there are some, its start withdraws their
  /// records of steps after `resumed_after`, which are written again. THROWS: SystemError, as every
  /// call, when the disk refuses.
  TensorBoardSink(Storage& storage, const Options& options);

  /// A line of metrics.jsonl.
  void take(std::string_view line);
  /// Blocks until all records are on the disk, including rounds of the last step.
  void finish();

 private:
  void append(std::string_view records);

  const DiskPatience* patience_;
  report::TensorBoardScalars scalars_;
  std::unique_ptr<WritableFile> file_;
};

/// The sink when `config` asks for it, else null.
[[nodiscard]] std::unique_ptr<TensorBoardSink> tensorboard_sink(
    Storage& storage, const Config& config, const std::filesystem::path& folder, bool simulated,
    std::int64_t resumed_after, const DiskPatience* patience);

}  // namespace isthmus::app
