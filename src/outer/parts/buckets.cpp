// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/buckets.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus::outer {

std::vector<Bucket> make_buckets(std::span<const Parameter> parameters, std::size_t capacity) {
  ISTHMUS_CHECK(capacity >= 1);
  std::vector<Bucket> buckets;
  for (std::size_t left = parameters.size(); left > 0; --left) {
    const std::size_t parameter = left - 1;
    const std::size_t size = parameters[parameter].values.size();
    std::size_t begin = 0;
    while (begin < size) {
      if (buckets.empty() || buckets.back().values == capacity) {
        buckets.emplace_back();
      }
      Bucket& bucket = buckets.back();
      const std::size_t count = std::min(size - begin, capacity - bucket.values);
      bucket.slices.push_back({parameter, begin, count});
      bucket.values += count;
      begin += count;
    }
  }
  return buckets;
}

}  // namespace isthmus::outer
