// SPDX-License-Identifier: Apache-2.0
#include "data/control_count.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

TEST(ControlCount, SaysNothingOfTexts) {
  ControlCount count;
  count.add_text("Tabs\tand\r\nlines\fand pages, \xC3\xA4\xF0\x9F\x99\x82", "a.txt", 0);
  count.add_text("one \x1b[1mbold\x1b[0m word in a long log" + std::string(200, '.'), "a.txt", 99);
  EXPECT_EQ(controls_note(count, "use"), "");
  EXPECT_EQ(controls_note({}, "use"), "");
}

TEST(ControlCount, NamesTheFirstNul) {
  ControlCount count;
  count.add_text(std::string(1000, 'x'), "a.txt", 0);
  ControlCount later;
  later.add_text("12\0004\0006"s, "a.txt", 1000);
  later.add_line("\0"s, "b.jsonl", 7);
  count += later;
  EXPECT_EQ(count.nuls, 3);
  EXPECT_THAT(controls_note(count, "they are learnt"),
              StartsWith("a.txt: byte 1002: a NUL character, the first of 3: "));
  ControlCount line;
  line.add_line(std::string(1000, 'x') + "\0"s, "b.jsonl", 7);
  EXPECT_THAT(controls_note(line, "they are learnt"), StartsWith("b.jsonl:7: a NUL character"));
  EXPECT_THAT(controls_note(line, "they are learnt"), HasSubstr("they are learnt"));
}

TEST(ControlCount, NamesAFileOfManyControlCharacters) {
  ControlCount count;
  count.add_text(std::string(480, 'x'), "a.txt", 0);
  count.add_text(std::string(10, '\x01'), "b.txt", 0);
  EXPECT_THAT(
      controls_note(count, "use"),
      StartsWith("10 of the 490 bytes looked at are control characters, the first in b.txt"));
}

}  // namespace
}  // namespace isthmus::this_file
