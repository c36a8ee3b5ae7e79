// SPDX-License-Identifier: Apache-2.0
// The progress of a long operation. On a terminal: a status block redrawn in place at most four
// times a second, with a bar, ETA, loss and a line per worker; otherwise a plain line every ten
// seconds; or JSON lines; or nothing. All output goes to stderr. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "app/common/progress_mode.h"
#include "app/common/terminal.h"
#include "record/progress_update.h"

namespace isthmus::app {

class Progress final : public ProgressView {
 public:
  /// Borrows `terminal` (stderr) for its life. Nothing is shown in the first two seconds, so short
  /// work stays silent.
  Progress(Terminal& terminal, ProgressMode mode);
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  [[nodiscard]] bool due() const override;
  void update(const ProgressUpdate& update) override;
  /// Removes the block. The destructor does so too.
  void finish();

 private:
  void show_block(const ProgressUpdate& update);
  void show_line(const ProgressUpdate& update);
  void show_json(const ProgressUpdate& update);
  [[nodiscard]] std::string eta(const ProgressUpdate& update) const;

  Terminal& terminal_;
  ProgressMode mode_;
  StatusBlock block_;
  mutable std::mutex mutex_;
  double next_;                   // monotonic seconds of the next display
  std::int64_t first_done_ = -1;  // of a resumed run's begin, for its own ETA
  double first_fraction_ = 0;
  double first_time_;
};

}  // namespace isthmus::app
