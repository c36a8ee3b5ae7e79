// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::filesystem::path cache_with(const std::map<std::string, std::string>& variables) {
  return hub_cache([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(HubCache, LiesWhereHuggingFaceHubHasIt) {
  EXPECT_EQ(cache_with({{"HF_HUB_CACHE", "/a"}, {"HF_HOME", "/b"}, {"HOME", "/c"}}), "/a");
  EXPECT_EQ(cache_with({{"HF_HOME", "/b"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/c"}}), "/b/hub");
  EXPECT_EQ(cache_with({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/c"}}), "/x/huggingface/hub");
  EXPECT_EQ(cache_with({{"HF_HOME", ""}, {"HOME", "/c"}}), "/c/.cache/huggingface/hub");
  EXPECT_TRUE(cache_with({}).empty());
}

TEST(HubCache, NamesAreOneOrTwoParts) {
  for (const char* name : {"gpt2", "Qwen/Qwen2.5-0.5B", "a_b/c"}) EXPECT_TRUE(is_hub_name(name));
  for (const char* name : {"", "/abs", "./here", "a/b/c", "../up", "a//b", "with space", "a/"}) {
    EXPECT_FALSE(is_hub_name(name)) << name;
  }
}

class HubModel : public testing::Test {
 protected:
  std::string refusal() {
    return message_of<SystemError>([&] { (void)hub_model(storage_, cache_, "Qwen/Tiny"); });
  }
  SystemStorage storage_;
  TemporaryDirectory directory_;
  const std::filesystem::path cache_ = directory_.path();
  const std::filesystem::path model_ = cache_ / "models--Qwen--Tiny";
};

TEST_F(HubModel, IsTheSnapshotOfMain) {
  storage_.create_directories(model_ / "refs");
  storage_.create_directories(model_ / "snapshots/abc");
  storage_.create_directories(model_ / "snapshots/older");
  write_atomically(storage_, model_ / "refs/main", std::string_view("abc\n"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("snapshots/abc lacks config.json"),
                               HasSubstr("huggingface-cli download Qwen/Tiny")));
  write_atomically(storage_, model_ / "snapshots/abc/config.json", std::string_view("{}"));
  EXPECT_EQ(hub_model(storage_, cache_, "Qwen/Tiny"), model_ / "snapshots/abc");
}

TEST_F(HubModel, ThatIsNotThereNamesTheLineThatDownloadsIt) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no model of this name in " + cache_.string()),
                               HasSubstr("huggingface-cli download Qwen/Tiny")));
  EXPECT_THAT(message_of<SystemError>([&] { (void)hub_model(storage_, {}, "gpt2"); }),
              HasSubstr("HF_HOME and HOME are not set"));
  storage_.create_directories(model_);
  EXPECT_THAT(refusal(), HasSubstr("has no version \"main\""));
}

}  // namespace
}  // namespace isthmus::this_file
