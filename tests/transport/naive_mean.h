// SPDX-License-Identifier: Apache-2.0
// The definition of a round's result as a plain loop over whole vectors, to hold the exchange
// against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "isthmus/transport.h"

namespace isthmus::testing_support {

/// What member `rank` puts in: the first n of its values, which are drawn once a process.
inline std::vector<float> test_vector(WorkerId rank, std::size_t n) {
  static std::mutex mutex;
  static std::map<WorkerId, std::vector<float>> drawn;
  const std::lock_guard lock(mutex);
  std::vector<float>& x = drawn[rank];
  const Rng rng{static_cast<std::uint64_t>(rank.value()), Stream::kTestData};
  while (x.size() < n) {
    for (const std::uint32_t word : rng.words(x.size())) {
      x.push_back(static_cast<float>(word) * 0x1p-31f - 1.0f);
    }
  }
  return {x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n)};
}

inline Contribution contribution_of(const std::shared_ptr<const Codec>& codec, WorkerId rank,
                                    std::size_t n, SyncId id, ReductionKind kind) {
  return {.id = id,
          .encoded = encode(*codec, test_vector(rank, n),
                            encode_key(id, static_cast<std::uint32_t>(rank.value()))),
          .codec = codec,
          .weight = 1,
          .kind = kind,
          .commit = true};
}

inline std::vector<float> through(const Codec& codec, const std::vector<float>& x,
                                  const EncodeKey& key) {
  std::vector<float> y(x.size());
  ISTHMUS_CHECK(decode(codec, encode(codec, x, key).bytes, y).has_value());
  return y;
}

/// The contributors' mean; of a collect, their decoded vectors one after another. `id` matters to
/// codecs that draw random bits only. `weights`: of the contributors; empty: equal ones.
inline std::vector<float> naive_mean(const Codec& codec, const std::vector<WorkerId>& contributors,
                                     std::size_t n, ReductionKind kind,
                                     const SyncId& id = {FragmentId(0), StepIndex(0)},
                                     const std::vector<double>& weights = {}) {
  std::vector<float> all;
  std::vector<float> mean(n, 0.0f);
  const bool equal =
      std::ranges::adjacent_find(weights, std::ranges::not_equal_to{}) == weights.end();
  double total = 0;
  for (std::size_t k = 0; k < contributors.size(); ++k) {
    const WorkerId m = contributors[k];
    const double weight = equal ? 1.0 : weights[k];
    total += weight;
    const std::vector<float> x =
        through(codec, test_vector(m, n), encode_key(id, static_cast<std::uint32_t>(m.value())));
    for (std::size_t i = 0; i < n; ++i) {
      mean[i] += static_cast<float>(weight) * x[i];
    }
    all.insert(all.end(), x.begin(), x.end());
  }
  if (kind == ReductionKind::kCollect) {
    return all;
  }
  for (float& value : mean) {
    value = contributors.empty() ? 0.0f : value / static_cast<float>(total);
  }
  return kind == ReductionKind::kReduce ? through(codec, mean, encode_key(id, kMeanWorker)) : mean;
}

/// ... of all members.
inline std::vector<float> naive_mean(const Codec& codec, int members, std::size_t n,
                                     ReductionKind kind,
                                     const SyncId& id = {FragmentId(0), StepIndex(0)}) {
  std::vector<WorkerId> all;
  for (int m = 0; m < members; ++m) all.push_back(WorkerId(m));
  return naive_mean(codec, all, n, kind, id);
}

/// ... in two levels: the mean of each group's mean, that encoded once more. group_of: by member.
/// Weights of 1. `present`: who takes part, contributors and others, whose weight is 0.
inline std::vector<float> naive_mean_of_present(const Codec& codec,
                                                const std::vector<WorkerId>& contributors,
                                                const std::vector<std::uint32_t>& group_of,
                                                std::size_t n, const std::vector<WorkerId>& present,
                                                const SyncId& id = {FragmentId(0), StepIndex(0)}) {
  std::vector<std::vector<WorkerId>> groups;
  bool pairs = false;
  for (const WorkerId m : present) {
    const auto same = [&](const std::vector<WorkerId>& group) {
      return group_of[static_cast<std::size_t>(group.front().value())] ==
             group_of[static_cast<std::size_t>(m.value())];
    };
    const auto found = std::ranges::find_if(groups, same);
    pairs = pairs || found != groups.end();
    if (found == groups.end()) {
      groups.push_back({m});
    } else {
      found->push_back(m);
    }
  }
  if (groups.size() < 2 || !pairs) {
    return naive_mean(codec, contributors, n, ReductionKind::kReduce, id);
  }
  std::vector<std::vector<WorkerId>> giving;
  for (std::vector<WorkerId> group : groups) {
    std::erase_if(group, [&](WorkerId m) { return std::ranges::count(contributors, m) == 0; });
    giving.push_back(group);
  }
  std::vector<std::size_t> sizes;
  for (const auto& group : giving) {
    if (!group.empty()) sizes.push_back(group.size());
  }
  const bool equal =
      std::ranges::all_of(sizes, [&](std::size_t size) { return size == sizes.front(); });
  std::vector<float> mean(n, 0.0f);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (giving[g].empty()) continue;
    std::vector<float> of_group = naive_mean(codec, giving[g], n, ReductionKind::kGather, id);
    if (groups[g].size() > 1) {
      const auto first = static_cast<std::uint32_t>(groups[g].front().value());
      of_group = through(codec, of_group, encode_key(id, kMeanWorker - 1 - first));
    }
    for (std::size_t i = 0; i < n; ++i) {
      mean[i] += equal ? of_group[i] : static_cast<float>(giving[g].size()) * of_group[i];
    }
  }
  for (float& value : mean) {
    value /= static_cast<float>(equal ? sizes.size() : contributors.size());
  }
  return through(codec, mean, encode_key(id, kMeanWorker));
}

/// ... where all who take part contribute.
inline std::vector<float> naive_mean_in_groups(const Codec& codec,
                                               const std::vector<WorkerId>& contributors,
                                               const std::vector<std::uint32_t>& group_of,
                                               std::size_t n,
                                               const SyncId& id = {FragmentId(0), StepIndex(0)}) {
  return naive_mean_of_present(codec, contributors, group_of, n, contributors, id);
}

/// What `naive_mean` gives, from an exchange.
inline std::vector<float> result_of(const Codec& codec, const Reduced& reduced) {
  std::vector<float> all = reduced.values;
  for (const Encoded& contribution : reduced.contributions) {
    std::vector<float> x(contribution.values);
    ISTHMUS_CHECK(decode(codec, contribution.bytes, x).has_value());
    all.insert(all.end(), x.begin(), x.end());
  }
  return all;
}

}  // namespace isthmus::testing_support
