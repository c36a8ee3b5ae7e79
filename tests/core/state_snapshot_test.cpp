// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Through the files and back.
class Snapshots : public testing::Test {
 protected:
  std::unique_ptr<StateReader> written(const StateSnapshot& snapshot) {
    write_safetensors(storage_, directory_ / "s.safetensors", snapshot.tensors());
    return make_state_reader(Safetensors::open(storage_, directory_ / "s.safetensors"),
                             nlohmann::json::parse(snapshot.scalars().dump()));
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(Snapshots, KeepEveryBit) {
  const std::vector<float> odd = {-0.0F, std::bit_cast<float>(0x7fc12345U), INFINITY, 0x1p-149F};
  const std::vector<double> reals = {
      0.1, -0.0, 1.0, 0x1p-1074, 1e300, -INFINITY, std::bit_cast<double>(0x7ff8000000abcdefULL)};
  StateSnapshot snapshot;
  snapshot.tensor("t", odd);
  snapshot.tensor("empty", {});
  snapshot.bytes("b", as_bytes(std::string_view("\0\xff", 2)));
  snapshot.integer("i", std::numeric_limits<std::int64_t>::min());
  snapshot.text("s", "naïve \"text\"\n");
  for (std::size_t i = 0; i < reals.size(); ++i) snapshot.real("r" + std::to_string(i), reals[i]);
  const auto reader = written(snapshot);
  std::vector<float> got(4);
  reader->tensor("t", got);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(odd[i]));
  }
  reader->tensor("empty", {});
  EXPECT_EQ(as_text(reader->bytes("b")), std::string("\0\xff", 2));
  EXPECT_EQ(reader->integer("i"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reader->text("s"), "naïve \"text\"\n");
  for (std::size_t i = 0; i < reals.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(reader->real("r" + std::to_string(i))),
              std::bit_cast<std::uint64_t>(reals[i]))
        << i;
  }
}

TEST_F(Snapshots, NameCheckpointEntryAndCauseOfAWrongRead) {
  StateSnapshot snapshot;
  const std::vector<float> two = {1, 2};
  snapshot.tensor("t", two);
  snapshot.integer("i", 3);
  const auto reader = written(snapshot);
  std::vector<float> three(3);
  EXPECT_THAT(message_of<RunError>([&] { reader->tensor("t", three); }),
              AllOf(HasSubstr("s.safetensors"), HasSubstr("\"t\""), HasSubstr("has 2 values; 3")));
  EXPECT_THAT(message_of<RunError>([&] { (void)reader->real("i"); }),
              AllOf(HasSubstr("\"i\""), HasSubstr("not of type real")));
  EXPECT_THAT(message_of<RunError>([&] { (void)reader->text("x"); }), HasSubstr("is absent"));
  EXPECT_THAT(message_of<RunError>([&] { (void)reader->bytes("t"); }), HasSubstr("not of type U8"));
  EXPECT_TRUE(reader->contains("i"));
  EXPECT_FALSE(reader->contains("x"));
}

TEST_F(Snapshots, RefuseScalarsOfAnotherForm) {
  StateSnapshot snapshot;
  write_safetensors(storage_, directory_ / "s.safetensors", snapshot.tensors());
  for (const char* text : {"[]", "{}", R"({"integers":{"a":1.5},"reals":{},"texts":{}})",
                           R"({"integers":{},"reals":{"a":"bits:zz"},"texts":{}})",
                           R"({"integers":{},"reals":{"a":1},"texts":{}})",
                           R"({"integers":{},"reals":{},"texts":{"a":1}})",
                           R"({"integers":{},"reals":{},"texts":{},"more":{}})"}) {
    EXPECT_THROW((void)make_state_reader(Safetensors::open(storage_, directory_ / "s.safetensors"),
                                         nlohmann::json::parse(text)),
                 RunError)
        << text;
  }
}

TEST_F(Snapshots, RefuseATextThatJsonCannotHold) {
  StateSnapshot snapshot;
  EXPECT_THAT(message_of<RunError>([&] { snapshot.text("s", "\xff"); }), HasSubstr("not UTF-8"));
}

TEST_F(Snapshots, ComposeByPrefix) {
  StateSnapshot snapshot;
  PrefixedStateWriter outer(snapshot, "outer/");
  PrefixedStateWriter nested(outer, "fragment-0/");
  nested.integer("round", 4);
  const auto reader = written(snapshot);
  EXPECT_EQ(reader->integer("outer/fragment-0/round"), 4);
  PrefixedStateReader back(*reader, "outer/");
  EXPECT_TRUE(back.contains("fragment-0/round"));
  EXPECT_EQ(back.integer("fragment-0/round"), 4);
}

}  // namespace
}  // namespace isthmus::this_file
