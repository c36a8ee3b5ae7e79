// SPDX-License-Identifier: Apache-2.0
#include "core/base/fresh_id.h"

#include <sodium.h>

#include "isthmus/errors.h"

namespace isthmus {

Digest128 fresh_id() {
  if (sodium_init() < 0) {
    throw SystemError("libsodium cannot start: the system gives no random numbers");
  }
  Digest128 id;
  randombytes_buf(id.bytes.data(), id.bytes.size());
  return id;
}

}  // namespace isthmus
