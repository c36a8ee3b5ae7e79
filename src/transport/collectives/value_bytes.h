// SPDX-License-Identifier: Apache-2.0
// Values of a dtype as bytes, for the back ends of communicators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/collectives/communicator.h"

namespace isthmus::value_bytes {

[[nodiscard]] inline std::size_t bytes_of(std::int64_t count, Dtype dtype) {
  return static_cast<std::size_t>(count) * dtype_bytes(dtype);
}
[[nodiscard]] inline std::byte* at(void* data, std::int64_t place, Dtype dtype) {
  return static_cast<std::byte*>(data) + bytes_of(place, dtype);
}
[[nodiscard]] inline const std::byte* at(const void* data, std::int64_t place, Dtype dtype) {
  return static_cast<const std::byte*>(data) + bytes_of(place, dtype);
}
/// Ranges may overlap.
inline void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace isthmus::value_bytes
