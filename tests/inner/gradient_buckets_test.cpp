// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "inner/model/local_values.h"
#include "inner/model/model_layout.h"

namespace isthmus::this_file {
namespace {

/// How often each value is in a bucket, and which rank is left with it.
struct Covered {
  std::vector<int> times, owner;
};

Covered covered(std::int64_t elements, const GradientBucketOptions& options) {
  const GradientBuckets buckets(elements, options);
  const auto n = static_cast<std::size_t>(elements);
  Covered all{std::vector<int>(n), std::vector<int>(n, -1)};
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::vector<std::int64_t> counts = buckets.counts(b);
    std::int64_t place = buckets[b].begin;
    for (int rank = 0; rank < options.ranks; ++rank) {
      const CanonicalRange share = buckets.share(b, rank);
      EXPECT_EQ(share.size(), counts[static_cast<std::size_t>(rank)]);
      EXPECT_TRUE(share.size() == 0 || share.begin == place) << "bucket " << b << ", rank " << rank;
      place += share.size();
      for (std::int64_t i = share.begin; i < share.end; ++i) {
        ++all.times[static_cast<std::size_t>(i)];
        all.owner[static_cast<std::size_t>(i)] = rank;
      }
    }
    EXPECT_EQ(place, buckets[b].end);
  }
  return all;
}

TEST(GradientBuckets, HoldEveryValueOnceInBackwardOrderAndBounded) {
  for (const std::int64_t elements : {1, 5, 99, 100, 101, 1000, 4097}) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const std::int64_t capacity : {1, 7, 100, 5000}) {
        for (const bool slices : {false, true}) {
          const GradientBucketOptions options{
              .ranks = ranks, .slices = slices, .capacity = capacity};
          const GradientBuckets buckets(elements, options);
          std::int64_t end = elements;
          for (std::size_t b = 0; b < buckets.size(); ++b) {
            EXPECT_EQ(buckets[b].end, end);
            EXPECT_GE(buckets[b].size(), 1);
            EXPECT_LE(buckets[b].size(), capacity);
            end = buckets[b].begin;
          }
          EXPECT_EQ(end, 0);
          // None is smaller than it must be.
          EXPECT_EQ(static_cast<std::int64_t>(buckets.size()),
                    (elements + capacity - 1) / capacity);
          const Covered all = covered(elements, options);
          EXPECT_THAT(all.times, testing::Each(1));
        }
      }
    }
  }
}

TEST(GradientBuckets, SplitTensorsThatAreLargerThanWhatIsLeft) {
  ModelConfig model{.arch = "gpt2", .layers = 2, .d_model = 32, .heads = 4, .vocab = 67};
  const ModelLayout layout(model_shape(model, 16));
  const GradientBuckets buckets(layout.elements(), {.ranks = 2, .capacity = 1000});
  std::size_t largest = 0;
  for (const TensorInfo& tensor : layout.tensors()) {
    std::size_t parts = 0;
    std::int64_t values = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const std::int64_t here = common(buckets[b], tensor.elements).size();
      parts += here > 0 ? 1 : 0;
      values += here;
    }
    EXPECT_EQ(values, tensor.elements.size()) << tensor.name;
    EXPECT_GE(static_cast<std::int64_t>(parts) * 1000, tensor.elements.size()) << tensor.name;
    largest = std::max(largest, parts);
  }
  EXPECT_GE(largest, 4U);  // 32 x 128 values
}

TEST(GradientBuckets, LeaveRanksTheirSlicesOrEvenShares) {
  const std::int64_t n = 10'007;
  const int ranks = 3;
  const Covered slices = covered(n, {.ranks = ranks, .slices = true, .capacity = 900});
  for (int rank = 0; rank < ranks; ++rank) {
    const CanonicalRange slice = slice_of(n, ranks, rank);
    for (std::int64_t i = slice.begin; i < slice.end; ++i) {
      ASSERT_EQ(slices.owner[static_cast<std::size_t>(i)], rank) << i;
    }
    const GradientBuckets sliced(n, {.ranks = ranks, .slices = true, .capacity = 900});
    ASSERT_EQ(sliced.shares(rank).size(), 1U);
    EXPECT_EQ(sliced.shares(rank).front().begin, slice.begin);
    EXPECT_EQ(sliced.shares(rank).front().end, slice.end);
  }
  const GradientBuckets even(n, {.ranks = ranks, .capacity = 900});
  for (std::size_t b = 0; b < even.size(); ++b) {
    const std::vector<std::int64_t> counts = even.counts(b);
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    EXPECT_LE(*most - *least, 1) << b;
  }
  std::int64_t all = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t end = 0;
    for (const CanonicalRange& share : even.shares(rank)) {
      EXPECT_GE(share.begin, end);  // ascending
      end = share.end;
      all += share.size();
    }
  }
  EXPECT_EQ(all, n);
}

TEST(GradientBuckets, LeaveOutWhatHasNoGradient) {
  const std::int64_t n = 10'007;
  for (const std::int64_t begin : {0, 1, 64, 3336, 5000, 7000, 10'006, 10'007}) {
    for (const bool slices : {false, true}) {
      for (const std::int64_t tile : {1, 64}) {
        const GradientBucketOptions options{
            .ranks = 3, .slices = slices, .capacity = 900, .tile = tile, .begin = begin};
        const Covered all = covered(n, options);
        for (std::int64_t i = 0; i < n; ++i) {
          const int times = all.times[static_cast<std::size_t>(i)];
          if (i >= begin) {
            ASSERT_EQ(times, 1) << i;
          }
          if (i <= begin - tile) {
            ASSERT_EQ(times, 0) << i;
          }
        }
      }
    }
  }
}

// What is encoded is then cut into the tiles that the ranks' slices are cut into.
TEST(GradientBuckets, CutAtTheBordersOfTheSlicesTiles) {
  const std::int64_t tile = 64;
  for (const std::int64_t elements : {63, 64, 1000, 10'007}) {
    for (const int ranks : {1, 2, 3}) {
      for (const std::int64_t capacity : {64, 100, 900, 1 << 20}) {
        for (const bool slices : {false, true}) {
          const GradientBucketOptions options{
              .ranks = ranks, .slices = slices, .capacity = capacity, .tile = tile};
          EXPECT_THAT(covered(elements, options).times, testing::Each(1));
          const GradientBuckets buckets(elements, options);
          for (std::size_t b = 0; b < buckets.size(); ++b) {
            EXPECT_LE(buckets[b].size(), capacity);
            for (int rank = 0; rank < ranks; ++rank) {
              const CanonicalRange share = buckets.share(b, rank);
              if (share.size() == 0) continue;
              int within = 0;
              for (int r = 0; r < ranks; ++r) {
                const CanonicalRange slice = slice_of(elements, ranks, r);
                if (common(slice, share).size() == 0) continue;
                ++within;
                EXPECT_EQ((share.begin - slice.begin) % tile, 0);
                EXPECT_TRUE(share.end == slice.end || (share.end - slice.begin) % tile == 0);
              }
              EXPECT_EQ(within, 1) << "elements " << elements << ", bucket " << b;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
