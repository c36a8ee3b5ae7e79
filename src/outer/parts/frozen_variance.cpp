// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/frozen_variance.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/all_elements.h"

namespace isthmus::outer {

void freeze_variance(InnerLoop& inner, double correction, double floor) {
  inner.read_moments(all_elements(inner));
  for (std::size_t i = 0; i < inner.parameters().size(); ++i) {
    const AdamMoments moments = inner.adam_moments(i);
    double sum = 0;
    std::int64_t active = 0;
    for (std::size_t k = 0; k < moments.second.size(); ++k) {
      float& v = moments.second[k];
      v = static_cast<float>(static_cast<double>(v) / correction);
      if (v == 0) moments.first[k] = 0;  // a gradient so small that its square is zero
      sum += static_cast<double>(v);
      active += v > 0 ? 1 : 0;
    }
    const double mean = active > 0 ? sum / static_cast<double>(active) : 0;
    const auto least = static_cast<float>(floor * mean);
    for (float& v : moments.second) {
      if (v > 0) v = std::max(v, least);
    }
  }
  inner.wrote_moments(all_elements(inner));
}

std::vector<Bucket> active_buckets(InnerLoop& inner, std::size_t capacity) {
  inner.read_moments(all_elements(inner));
  std::vector<Bucket> buckets;
  for (const Bucket& all : make_buckets(inner.parameters(), capacity)) {
    Bucket bucket;
    for (const Slice& slice : all.slices) {
      const std::span<const float> v =
          inner.adam_moments(slice.parameter).second.subspan(slice.begin, slice.size);
      const auto has_variance = [](float each) { return each > 0; };
      for (auto at = std::ranges::find_if(v, has_variance); at != v.end();) {
        const auto end = std::find_if_not(at, v.end(), has_variance);
        const auto first = static_cast<std::size_t>(at - v.begin());
        const auto size = static_cast<std::size_t>(end - at);
        bucket.slices.push_back({slice.parameter, slice.begin + first, size});
        bucket.values += size;
        at = std::find_if(end, v.end(), has_variance);
      }
    }
    if (bucket.values > 0) buckets.push_back(std::move(bucket));
  }
  return buckets;
}

std::vector<std::size_t> sizes_of(const std::vector<Bucket>& buckets) {
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : buckets) sizes.push_back(bucket.values);
  return sizes;
}

}  // namespace isthmus::outer
