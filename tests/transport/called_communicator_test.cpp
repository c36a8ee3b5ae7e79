// SPDX-License-Identifier: Apache-2.0
// What a communicator over a caller's collectives asks of them, one rank at a time.
#include "transport/collectives/called_communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace isthmus {
namespace {

/// The calls that a rank makes, and what it receives: bytes of 40, 41, ...
struct Told {
  std::vector<std::string> calls;

  [[nodiscard]] std::unique_ptr<Communicator> rank(int rank, int size) {
    const auto bytes_in_words = [](std::span<const std::byte> bytes) {
      std::string words;
      for (const std::byte each : bytes) words += fmt::format(" {}", static_cast<int>(each));
      return words;
    };
    return make_called_communicator(
        {.rank = rank,
         .size = size,
         .broadcast =
             [=, this](std::span<std::byte> bytes) {
               calls.push_back("broadcast" + bytes_in_words(bytes));
             },
         .send =
             [=, this](std::span<const std::byte> bytes, int to) {
               calls.push_back(fmt::format("to {}:{}", to, bytes_in_words(bytes)));
             },
         .receive =
             [this](std::span<std::byte> bytes, int from) {
               calls.push_back(fmt::format("{} from {}", bytes.size(), from));
               for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(40 + i);
             }});
  }
};

using Counts = std::vector<std::int64_t>;
using Bytes = std::vector<std::uint8_t>;

TEST(CalledCommunicator, TheFirstRankSendsEachOtherOneItsShareAndKeepsItsOwn) {
  Told told;
  const auto ranks = told.rank(0, 4);
  const Bytes whole = {1, 2, 3, 4, 5, 6};
  Bytes own(2);
  ranks->all_to_all({whole.data(), 6, Dtype::kU8}, Counts{2, 3, 0, 1}, {own.data(), 2, Dtype::kU8},
                    Counts{2, 0, 0, 0}, 6);
  EXPECT_EQ(told.calls, (std::vector<std::string>{"to 1: 3 4 5", "to 3: 6"}));
  EXPECT_EQ(own, (Bytes{1, 2}));
}

TEST(CalledCommunicator, TheFirstRankLaysWhatItReceivesInOrderOfRanks) {
  Told told;
  const auto ranks = told.rank(0, 3);
  const Bytes own = {9};
  Bytes whole(4);
  ranks->all_to_all({own.data(), 1, Dtype::kU8}, Counts{1, 0, 0}, {whole.data(), 4, Dtype::kU8},
                    Counts{1, 1, 2}, 4);
  EXPECT_EQ(told.calls, (std::vector<std::string>{"1 from 1", "2 from 2"}));
  EXPECT_EQ(whole, (Bytes{9, 40, 40, 41}));
}

TEST(CalledCommunicator, AnotherRankSpeaksWithTheFirstAlone) {
  Told told;
  const auto ranks = told.rank(2, 3);
  Bytes own = {7, 8};
  ranks->all_to_all({own.data(), 2, Dtype::kU8}, Counts{2, 0, 0}, {}, Counts{0, 0, 0}, 9);
  ranks->all_to_all({}, Counts{0, 0, 0}, {own.data(), 2, Dtype::kU8}, Counts{2, 0, 0}, 9);
  ranks->all_to_all({}, Counts{0, 0, 0}, {}, Counts{0, 0, 0}, 9);  // its share is empty
  EXPECT_EQ(told.calls, (std::vector<std::string>{"to 0: 7 8", "2 from 0"}));
  EXPECT_EQ(own, (Bytes{40, 41}));
}

TEST(CalledCommunicator, ValuesTravelAsTheirBytes) {
  Told told;
  const auto ranks = told.rank(0, 2);
  std::int64_t word = 258;
  ranks->broadcast({&word, 1, Dtype::kI64}, 0);
  EXPECT_EQ(told.calls, (std::vector<std::string>{"broadcast 2 1 0 0 0 0 0 0"}));
}

TEST(CalledCommunicator, OneRankCallsNobody) {
  Told told;
  const auto ranks = told.rank(0, 1);
  std::uint8_t byte = 1;
  ranks->broadcast({&byte, 1, Dtype::kU8}, 0);
  EXPECT_TRUE(told.calls.empty());
}

TEST(CalledCommunicator, OtherOperationsAreRefusedByName) {
  Told told;
  const auto ranks = told.rank(1, 2);
  float value = 0;
  try {
    ranks->all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum);
    FAIL();
  } catch (const CommunicatorError& error) {
    EXPECT_EQ(std::string(error.what()).find("rank 1 of 2, all_reduce:"), 0U) << error.what();
  }
}

}  // namespace
}  // namespace isthmus
