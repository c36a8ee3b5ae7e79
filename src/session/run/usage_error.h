// SPDX-License-Identifier: Apache-2.0
// The error for a command line that cannot be obeyed; its text says which flag to change.
#pragma once

#include <string>

#include "isthmus/errors.h"

namespace isthmus::app {

/// An invalid command line: exit 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

}  // namespace isthmus::app
