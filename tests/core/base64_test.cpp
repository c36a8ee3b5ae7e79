// SPDX-License-Identifier: Apache-2.0
#include "core/base/base64.h"

#include <gtest/gtest.h>

namespace isthmus::this_file {
namespace {

TEST(Base64, FollowsTheVectorsOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(Base64, ReadsBackWhatItWrites) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(base64_bytes(base64(bytes)), bytes) << i;
    bytes.push_back(static_cast<char>(i));
  }
}

TEST(Base64, RefusesWhatItDoesNotWrite) {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Z g=", "Zg-_"}) {
    EXPECT_FALSE(base64_bytes(text)) << text;
  }
}

}  // namespace
}  // namespace isthmus::this_file
