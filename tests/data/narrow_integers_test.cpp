// SPDX-License-Identifier: Apache-2.0
// Integers of 8 and 24 bits without a header are refused, whatever vocabulary the model has, and
// sound u16 files of every kind pass. The symbols of the files are drawn here, from distributions
// that are known: the naive answer to what a file holds.
#include "data/narrow_integers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/rng.h"
#include "core/temporary_directory.h"
#include "data/dataset.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

/// Ids from 0 to vocab - 2; id r has a frequency of about one in r + 1.
Ids zipf(std::uint64_t seed, std::size_t count, std::int64_t vocab) {
  const Rng rng{seed, Stream::kTestData};
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int64_t>(std::pow(static_cast<double>(vocab), rng.uniform(i))) - 1;
  }
  return ids;
}

Ids uniform(std::uint64_t seed, std::size_t count, std::int64_t vocab) {
  const Rng rng{seed, Stream::kTestData};
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int64_t>(rng.uniform(i) * static_cast<double>(vocab));
  }
  return ids;
}

/// Other numbers for the ids, without regard to anything.
Ids renumbered(const Ids& ids, std::uint64_t seed, std::int64_t vocab) {
  Ids numbers(static_cast<std::size_t>(vocab));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Rng rng{seed, Stream::kTestData};
  for (std::size_t i = numbers.size(); i > 1; --i) {
    std::swap(numbers[i - 1],
              numbers[static_cast<std::size_t>(rng.uniform(i) * static_cast<double>(i))]);
  }
  Ids result;
  for (const std::int64_t id : ids) result.push_back(numbers[static_cast<std::size_t>(id)]);
  return result;
}

/// Integers of `width` bytes.
std::vector<std::byte> bytes_of(const Ids& ids, int width, bool big_endian = false) {
  std::vector<std::byte> bytes;
  for (const std::int64_t id : ids) {
    for (int i = 0; i < width; ++i) {
      bytes.push_back(static_cast<std::byte>(id >> (8 * (big_endian ? width - 1 - i : i)) & 0xFF));
    }
  }
  return bytes;
}

/// What is said of the bytes as a token file; empty: they are read.
std::string seen_as(const std::vector<std::byte>& bytes) {
  const std::optional<ForeignFormat> found = not_u16_tokens(bytes);
  return found ? found->what : "";
}

TEST(NarrowIntegers, OfEightBitsAreNamedWhateverTheirRange) {
  for (const std::int64_t vocab : {4, 20, 128, 250, 256}) {
    for (const std::size_t count : {2000, 40000, 1200000}) {
      const Ids ids = zipf(count, count, vocab);
      EXPECT_THAT(seen_as(bytes_of(ids, 1)), HasSubstr("8-bit")) << count << " of " << vocab;
      // A few bytes of any value may be letters of some encoding, which is refused too.
      const std::string seen = seen_as(bytes_of(renumbered(ids, 3, 256), 1));
      EXPECT_NE(seen, "") << count << " of " << vocab << ", renumbered";
      EXPECT_TRUE(vocab < 100 || seen.starts_with("8-bit")) << seen << " of " << vocab;
    }
  }
  EXPECT_THAT(seen_as(bytes_of(uniform(5, 40000, 250), 1)), HasSubstr("8-bit"))
      << "six values that never occur";
}

TEST(NarrowIntegers, OfEightBitsHaveNoSignWhereAllPairsAreAlikeOrTooFew) {
  EXPECT_EQ(seen_as(bytes_of(uniform(6, 400000, 256), 1)), "") << "these are random u16 ids too";
  EXPECT_EQ(seen_as(bytes_of(uniform(7, 40000, 2), 1)), "") << "four ids prove nothing";
  EXPECT_EQ(seen_as(bytes_of(zipf(8, 20, 256), 1)), "");
}

TEST(NarrowIntegers, OfThreeBytesAreNamedInBothByteOrders) {
  for (const std::int64_t vocab : {300, 32000, 65536, 128256, 1 << 20}) {
    for (const std::size_t count : {200, 20000, 400000}) {
      for (const Ids& ids : {zipf(count, count, vocab), uniform(count, count, vocab)}) {
        EXPECT_THAT(seen_as(bytes_of(ids, 3)), testing::StartsWith("24-bit integers"))
            << count << " of " << vocab;
        EXPECT_THAT(seen_as(bytes_of(ids, 3, true)), testing::StartsWith("big-endian 24-bit"))
            << count << " of " << vocab;
      }
    }
  }
  EXPECT_EQ(seen_as(bytes_of(zipf(9, 12, 32000), 3)), "") << "few prove nothing";
}

/// A third of the places for each of three kinds of ids, whose ranges lie apart.
Ids in_turn(const Ids& a, const Ids& b, const Ids& c) {
  Ids ids;
  for (std::size_t i = 0; i < a.size(); ++i) ids.insert(ids.end(), {a[i], b[i], c[i]});
  return ids;
}

Ids shifted(Ids ids, std::int64_t by) {
  for (std::int64_t& id : ids) id += by;
  return ids;
}

TEST(NarrowIntegers, SoundU16FilesPass) {
  const auto passes = [](const Ids& ids, const std::string& what) {
    EXPECT_EQ(seen_as(bytes_of(ids, 2)), "") << what << " " << ids.size();
  };
  for (const std::size_t count : {3, 33, 60, 99, 300, 3000, 30000, 300000}) {
    for (const std::int64_t vocab : {3, 64, 300, 1024, 32000, 65536}) {
      const std::uint64_t seed = count + static_cast<std::uint64_t>(vocab);
      passes(zipf(seed, count, vocab), fmt::format("zipf of {}", vocab));
      passes(uniform(seed, count, vocab), fmt::format("uniform of {}", vocab));
      passes(renumbered(zipf(seed, count, vocab), seed, 65536), fmt::format("any of {}", vocab));
    }
    const std::size_t third = count / 3;
    passes(in_turn(zipf(1, third, 128), shifted(zipf(2, third, 32), 128),
                   shifted(zipf(3, third, 1000), 160)),
           "pitch, velocity and time");
    passes(in_turn(uniform(4, third, 50000), shifted(uniform(5, third, 16), 50176),
                   uniform(6, third, 4000)),
           "a small low byte in every third");
    passes(in_turn(uniform(7, third, 256), shifted(uniform(8, third, 256), 256),
                   shifted(uniform(9, third, 256), 512)),
           "red, green and blue");
    Ids rising(count);
    std::iota(rising.begin(), rising.end(), 0);
    passes(rising, "rising");
    Ids books = zipf(10, count, 1024);
    for (std::size_t i = 0; i < count; ++i) books[i] += static_cast<std::int64_t>(i % 8) * 1024;
    passes(books, "eight codebooks");
    Ids padded = zipf(11, count / 3 + 1, 50257);
    padded.resize(count);
    passes(padded, "padding");
  }
}

TEST(NarrowIntegers, TheWidthOfTheSourceOverrulesTheGuess) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  const std::vector<std::byte> bytes = bytes_of(zipf(12, 6000, 256), 1);
  write_atomically(storage, directory.path() / "x.bin",
                   {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto tokens = [&](const char* source) {
    DataConfig config;
    config.source = source;
    return Dataset::open(storage, config, directory.path()).tokens();
  };
  EXPECT_THAT(message_of<SystemError>([&] { (void)tokens("tokens:x.bin"); }),
              testing::AllOf(HasSubstr("x.bin"), HasSubstr("looks like 8-bit integers"),
                             HasSubstr("say the width, tokens:FILE:u8"),
                             HasSubstr("tokens:FILE:u16 takes its bytes as they are")));
  EXPECT_EQ(tokens("tokens:x.bin:u16"), 3000);
  EXPECT_EQ(tokens("tokens:x.bin:u8"), 6000);
}

// Of 40 trials of one in two at most 8 hits: the exact chance is the sum of C(40, k) / 2^40.
TEST(NarrowIntegers, ABoundOfATailIsAboveTheTail) {
  const std::vector<double> chances(40, 0.5);
  double exact = 0;
  for (std::int64_t k = 0; k <= 8; ++k) exact += std::exp(log_choose(40, k) - 40 * std::log(2.0));
  const double bound = log_tail_of_trials(chances, 8, true);
  EXPECT_GE(bound, std::log(exact));
  EXPECT_LE(bound, std::log(exact) + 3) << "and not far above";
  EXPECT_NEAR(log_tail_of_trials(chances, 32, false), bound, 1e-9) << "the same from above";
  EXPECT_NEAR(log_tail_of_trials(chances, 0, true), -40 * std::log(2.0), 1e-6);
  EXPECT_NEAR(log_tail_of_trials(chances, 20, true), 0, 1e-9);
}

}  // namespace
}  // namespace isthmus::this_file
