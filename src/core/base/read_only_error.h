// SPDX-License-Identifier: Apache-2.0
// Why a folder cannot be held: the disk is mounted for reading only, or the folder's owner lets
// this process write nothing. LockFile throws it; who has nothing to write can go on.
#pragma once

#include "isthmus/errors.h"

namespace isthmus {

class ReadOnlyError : public SystemError {
 public:
  using SystemError::SystemError;
};

}  // namespace isthmus
