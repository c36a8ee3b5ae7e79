// SPDX-License-Identifier: Apache-2.0
// Z85, key pairs and key files.
#include "transport/links/link_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// RFC 32's test case.
constexpr std::array<std::uint8_t, 8> kHello = {0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b};
constexpr std::string_view kHelloText = "HelloWorld";
// The pair that libzmq's manual (zmq_curve) gives as an example.
constexpr std::string_view kManualPublic = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
constexpr std::string_view kManualSecret = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";

TEST(Z85, IsThatOfTheRfc) {
  EXPECT_EQ(write_z85(kHello), kHelloText);
  std::array<std::uint8_t, 8> bytes{};
  ASSERT_TRUE(read_z85(kHelloText, bytes));
  EXPECT_EQ(bytes, kHello);
}

TEST(Z85, WhatIsNoneIsRefused) {
  std::array<std::uint8_t, 8> bytes{};
  EXPECT_FALSE(read_z85("HelloWorl", bytes));
  EXPECT_FALSE(read_z85("HelloWorld!", bytes));
  EXPECT_FALSE(read_z85("Hello,orld", bytes));
  EXPECT_FALSE(read_z85("Hello orld", bytes));
  EXPECT_TRUE(read_z85("%nSc0%nSc0", bytes));  // 2^32 - 1
  EXPECT_FALSE(read_z85("%nSc1%nSc0", bytes));
  EXPECT_FALSE(read_z85("##########", bytes));
}

TEST(LinkKeys, ThePublicHalfIsThatOfZeroMqsManual) {
  EXPECT_EQ(public_of(kManualSecret), kManualPublic);
}

TEST(LinkKeys, PairsAreFreshAndBelongTogether) {
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) {
    const LinkKeys keys = make_link_keys();
    EXPECT_EQ(keys.public_key, public_of(keys.secret));
    EXPECT_NO_THROW(check_public_key(keys.public_key));
    EXPECT_TRUE(seen.insert(keys.secret).second);
    EXPECT_TRUE(seen.insert(keys.public_key).second);
  }
}

TEST(LinkKeys, WhatIsNoPublicKeyIsRefusedWithoutRepeatingIt) {
  const auto what = [](std::string_view text) -> std::string {
    try {
      check_public_key(text, "key of east");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(what(kManualPublic), "accepted");
  EXPECT_THAT(what("short"), HasSubstr("key of east: has 5 characters, a public key has 40"));
  std::string text(kManualSecret);
  text[7] = '"';
  EXPECT_THAT(what(text), HasSubstr("character 8 belongs to no public key"));
  EXPECT_THAT(what(text), Not(HasSubstr(text.substr(0, 7))));
  EXPECT_THAT(what(std::string(40, '0')), HasSubstr("are no public key"));  // all bits zero
  EXPECT_THAT(what(std::string(40, '#')), HasSubstr("are no public key"));  // beyond 32 bits
}

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() {
    std::string pattern = ::testing::TempDir() + "/keysXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ / "east.key";
  }
  ~KeyFile() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  [[nodiscard]] std::string refusal(const std::filesystem::path& path) const {
    try {
      (void)read_secret_key(path);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr(keys_.secret)));
      return error.what();
    }
    return "accepted";
  }
  [[nodiscard]] std::string lines(const std::string& public_key, const std::string& secret) const {
    return "# words\n\npublic-key = \"" + public_key + "\"\n secret-key=\"" + secret + "\"\n";
  }

  std::filesystem::path folder_, path_;
  const LinkKeys keys_ = make_link_keys();
};

TEST_F(KeyFile, IsReadAsWrittenAndBelongsToItsOwnerAlone) {
  write_secret_key(path_, keys_);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  const LinkKeys read = read_secret_key(path_);
  EXPECT_EQ(read.secret, keys_.secret);
  EXPECT_EQ(read.public_key, keys_.public_key);
  const auto files = std::distance(std::filesystem::directory_iterator(folder_), {});
  EXPECT_EQ(files, 1);  // and no temporary
}

TEST_F(KeyFile, IsNeverOverwritten) {
  write_secret_key(path_, keys_);
  EXPECT_THROW(write_secret_key(path_, make_link_keys()), SystemError);
  EXPECT_EQ(read_secret_key(path_).secret, keys_.secret);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_THROW(write_secret_key(path_, keys_), SystemError);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
}

TEST_F(KeyFile, WhatAnInterruptedWriteLeftIsReplaced) {
  std::ofstream(folder_ / ".east.key.tmp") << "half";
  write_secret_key(path_, keys_);
  EXPECT_EQ(read_secret_key(path_).secret, keys_.secret);
}

TEST_F(KeyFile, OthersMayNotReadIt) {
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    write(lines(keys_.public_key, keys_.secret), mode);
    EXPECT_THAT(refusal(path_), HasSubstr("chmod 600 " + path_.string()));
  }
  write(lines(keys_.public_key, keys_.secret), 0400);
  EXPECT_EQ(refusal(path_), "accepted");
}

TEST_F(KeyFile, MissingAndMalformedOnesAreNamed) {
  EXPECT_THAT(refusal(path_), HasSubstr(path_.string() + ": no such key file"));
  EXPECT_THAT(refusal(keys_.secret.find('/') == std::string::npos ? keys_.secret : kManualSecret),
              HasSubstr("a key stands where the path of a key file belongs"));
  const auto told = [&](const std::string& text, const std::string& words) {
    write(text);
    EXPECT_THAT(refusal(path_), HasSubstr(path_.string()));
    EXPECT_THAT(refusal(path_), HasSubstr(words));
    EXPECT_THAT(refusal(path_), HasSubstr("name the file that `isthmus keygen` wrote"));
  };
  const LinkKeys other = make_link_keys();
  told("", "holds no key");
  told("public-key = \"" + keys_.public_key + "\"\n", "holds a public key and no secret one");
  told(keys_.public_key + "\n", "holds a bare key");
  told(lines(keys_.public_key, keys_.public_key), "the public key where the secret one belongs");
  told(lines(other.public_key, keys_.secret), "does not belong to its secret one");
  told(lines(keys_.public_key, keys_.secret.substr(1)), "its secret key has 39 characters");
  told(lines(keys_.public_key, keys_.secret) + "secret-key = \"x\"\n", "line 5 is none");
  told("-----BEGIN OPENSSH PRIVATE KEY-----\n", "line 1 is none");
  told(std::string(5000, 'x'), "too long");
}

}  // namespace
}  // namespace isthmus::this_file
