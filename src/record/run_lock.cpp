// SPDX-License-Identifier: Apache-2.0
#include "record/run_lock.h"

#include "core/base/log.h"
#include "record/wall_clock.h"

namespace isthmus::app {

RunLock::RunLock(const std::filesystem::path& folder, const Options& options)
    : lock_(runtime_, {.folder = folder,
                       .file = options.file,
                       .since = utc_words(),
                       .remedy = options.remedy,
                       .wait = options.wait,
                       .tell = [](const std::string& what) { log_warning("{}", what); }}) {}

}  // namespace isthmus::app
