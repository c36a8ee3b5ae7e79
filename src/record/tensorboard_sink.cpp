// SPDX-License-Identifier: Apache-2.0
#include "record/tensorboard_sink.h"

#include <algorithm>

#include "core/base/check.h"
#include "record/tensorboard_event.h"
#include "record/wall_clock.h"

namespace isthmus::app {

TensorBoardSink::TensorBoardSink(Storage& storage, const Options& options)
    : patience_(options.patience), scalars_(options.simulated) {
  const std::filesystem::path folder = options.folder / "tb";
  storage.create_directories(folder);
  const double now = unix_now();
  auto stamp = static_cast<std::int64_t>(now);
  bool first = true;
  for (const std::string& name : storage.list(folder)) {
    const std::int64_t time = report::event_file_time(name);
    first = first && time < 0;
    stamp = std::max(stamp, time + 1);
  }
  file_ = storage.create(folder / report::event_file_name(stamp));
  const double wall_s = options.simulated ? 0 : now;
  append(first ? report::tensorboard_opening(wall_s, options.simulated, options.config)
               : report::tensorboard_reopening(wall_s, options.resumed_after));
}

void TensorBoardSink::append(std::string_view records) {
  append_patiently(*file_, as_bytes(records), patience_, "the TensorBoard file");
}

void TensorBoardSink::take(std::string_view line) {
  std::string records;
  ISTHMUS_CHECK(scalars_.take(line, records), line);
  if (!records.empty()) append(records);
}

void TensorBoardSink::finish() {
  std::string records;
  scalars_.finish(records);
  append(records);
  file_->sync();
}

std::unique_ptr<TensorBoardSink> tensorboard_sink(Storage& storage, const Config& config,
                                                  const std::filesystem::path& folder,
                                                  bool simulated, std::int64_t resumed_after,
                                                  const DiskPatience* patience) {
  if (!config.log.has("tensorboard")) {
    return nullptr;
  }
  return std::make_unique<TensorBoardSink>(storage,
                                           TensorBoardSink::Options{.folder = folder,
                                                                    .simulated = simulated,
                                                                    .resumed_after = resumed_after,
                                                                    .config = resolved_toml(config),
                                                                    .patience = patience});
}

}  // namespace isthmus::app
