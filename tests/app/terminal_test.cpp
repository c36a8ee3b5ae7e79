// SPDX-License-Identifier: Apache-2.0
#include "app/common/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "app/common/text_table.h"
#include "core/temporary_directory.h"

namespace isthmus::app::this_file {
namespace {

/// A file as a descriptor: no terminal, and what was written can be read.
class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    descriptor = ::open((folder / "out").c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_GE(descriptor, 0);
  }
  void TearDown() override { ::close(descriptor); }
  std::string written() {
    std::ifstream stream(folder / "out");
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  TemporaryDirectory folder;
  int descriptor = -1;
};

TEST_F(TerminalTest, AFileIsNoTerminalAndGetsNoColour) {
  const Terminal terminal(descriptor, ColorMode::kAuto);
  EXPECT_FALSE(terminal.interactive());
  EXPECT_EQ(terminal.paint(Style::kBad, "x"), "x");
  EXPECT_EQ(terminal.width(), 80U);
}

TEST_F(TerminalTest, ColourCanBeForced) {
  const Terminal terminal(descriptor, ColorMode::kAlways);
  EXPECT_EQ(terminal.paint(Style::kBad, "x"), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(terminal.paint(Style::kPlain, "x"), "x");
}

TEST_F(TerminalTest, WritesEverythingAndRemembersTheFirstFailure) {
  Terminal good(descriptor, ColorMode::kNever);
  good.write("hello");
  EXPECT_EQ(written(), "hello");
  EXPECT_EQ(good.error(), 0);
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) {
    GTEST_SKIP() << "no /dev/full";
  }
  Terminal bad(full, ColorMode::kNever);
  bad.write("x");
  EXPECT_EQ(bad.error(), ENOSPC);
  ::close(full);
}

TEST_F(TerminalTest, TheBlockIsRedrawnInPlaceBelowTheLog) {
  Terminal terminal(descriptor, ColorMode::kNever);
  StatusBlock block(terminal);
  block.draw({"one", "two"});
  block.print_above("log");
  block.draw({"three"});
  block.finish(false);
  // Two lines; up two, erase, the log line, both again; up two, one line, erase the rest; up,
  // erase.
  EXPECT_EQ(written(),
            "\rone\x1b[K\ntwo\x1b[K\n\x1b[J"
            "\x1b[2A\r\x1b[Jlog\none\x1b[K\ntwo\x1b[K\n\x1b[J"
            "\x1b[2A\rthree\x1b[K\n\x1b[J"
            "\x1b[1A\r\x1b[J");
}

TEST(Width, EscapesTakeNoColumnsAndCodePointsOne) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("\x1b[31mabc\x1b[0m"), 3U);
  EXPECT_EQ(display_width("ü\u2501"), 2U);
}

TEST(Width, CuttingKeepsEscapesWhole) {
  EXPECT_EQ(cut_to_width("abcdef", 3), "abc");
  EXPECT_EQ(cut_to_width("abc", 3), "abc");
  EXPECT_EQ(cut_to_width("\x1b[31mabcdef\x1b[0m", 2), "\x1b[31mab\x1b[0m");
  EXPECT_EQ(cut_to_width("üü", 1), "ü");
}

TEST_F(TerminalTest, BarsAreClampedAndFilled) {
  const Terminal terminal(descriptor, ColorMode::kNever);
  for (const double fraction : {-1., 0., 0.5, 1., 7., 0. / 1}) {
    EXPECT_EQ(display_width(terminal.bar(fraction, 10)), 10U);
  }
}

TEST_F(TerminalTest, TablesAlignAndWrapTheLastColumn) {
  const Terminal terminal(descriptor, ColorMode::kNever);
  TextTable table({"name", "n", "words"});
  table.add({"a", "10", "short"});
  table.add({"longer", "9", std::string(60, 'x') + " " + std::string(60, 'y')});
  EXPECT_EQ(table.text(terminal),
            "name     n  words\n"
            "a       10  short\n"
            "longer   9  " +
                std::string(60, 'x') + "\n" + std::string(12, ' ') + std::string(60, 'y') + "\n");
}

}  // namespace
}  // namespace isthmus::app::this_file
