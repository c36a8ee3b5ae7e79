// SPDX-License-Identifier: Apache-2.0
// A run that is resumed ends under the outer.final_sync that it began with, whatever the default
// is.
#include "session/run/begun_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "core/temporary_directory.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"

namespace isthmus::app::this_file {
namespace {

Config config_with(const std::string& outer) {
  SchemaContext context;
  context.methods = methods();
  context.codecs = codecs();
  return load_config_text(
      "[data]\nsource = \"synth:markov1\"\n[train]\nsteps = 9\n"
      "global_batch = \"256 tok\"\n[outer]\n" +
          outer,
      "run.toml", {}, context);
}

constexpr const char* kSilent = "method = \"diloco\"\nH = 5\n";
constexpr const char* kFull = "method = \"diloco\"\nH = 5\nfinal_sync = \"full\"\n";
constexpr const char* kDrained = "method = \"diloco\"\nH = 5\nfinal_sync = \"drain\"\n";
constexpr const char* kNone = "method = \"diloco\"\nH = 5\nfinal_sync = \"none\"\n";

class BegunRun : public testing::Test {
 protected:
  /// A run's folder with a checkpoint of this step, which keeps `settings`; its configuration has
  /// `outer`.
  void lay_down(std::int64_t step, std::map<std::string, std::string> settings,
                const std::string& outer = kDrained) {
    StateSnapshot shared;
    StateSnapshot worker;
    const std::vector<float> values(6);
    CheckpointContents contents;
    contents.info = {.step = step,
                     .workers = 1,
                     .run_id = "r",
                     .config_hash = config_digest(config_with(outer)),
                     .settings = std::move(settings)};
    contents.model = {{"w", {2, 3}, values}};
    contents.shared = &shared;
    contents.workers = {&worker};
    CheckpointStore(storage_, out() / "ckpt", 3).save(contents);
  }
  [[nodiscard]] std::filesystem::path out() const { return directory_ / "run"; }
  [[nodiscard]] FinalSync begun(const std::string& outer, const std::string& resume) const {
    return as_begun(storage_, config_with(outer), out(), resume).outer.final_sync;
  }

  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(BegunRun, OfAVersionWhoseDefaultWasDrainEndsSo) {
  lay_down(5, {});
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kDrain);
  EXPECT_EQ(begun(kSilent, out().string()), FinalSync::kDrain);
  EXPECT_EQ(begun(kSilent, (out() / "ckpt/last").string()), FinalSync::kDrain);
  EXPECT_EQ(begun(kFull, "auto"), FinalSync::kFull) << "the file's word is that of its run";
  EXPECT_EQ(begun(kSilent, "never"), FinalSync::kFull);
  // The digest is then the one that the run's checkpoints have.
  EXPECT_EQ(config_digest(as_begun(storage_, config_with(kSilent), out(), "auto")),
            config_digest(config_with("method = \"diloco\"\nH = 5\nfinal_sync = \"drain\"\n")));
}

// Old checkpoints have no setting of that name, but the digest of their configuration.
TEST_F(BegunRun, OfAVersionThatKeptNoValueEndsByItsDigest) {
  lay_down(5, {}, kNone);
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kNone);
  lay_down(6, {}, kFull);
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kFull);
  const Config config = as_begun(storage_, config_with(kSilent), out(), "auto");
  EXPECT_EQ(config.origins.at("outer.final_sync").text, "default") << "nothing has been changed";
  // Another configuration is refused elsewhere, by what differs.
  lay_down(7, {}, "method = \"diloco\"\nH = 6\nfinal_sync = \"drain\"\n");
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kFull);
}

TEST_F(BegunRun, EndsAsItsCheckpointSays) {
  lay_down(5, lasting_settings(config_with(kSilent)));
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kFull);
  lay_down(6, {{"outer.final_sync", "none"}});
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kNone);
  EXPECT_EQ(begun(kSilent, (out() / "ckpt/step-0000005").string()), FinalSync::kFull);
}

TEST_F(BegunRun, WithoutACheckpointBeginsByTheFile) {
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kFull);
  EXPECT_EQ(begun(kSilent, "/nowhere"), FinalSync::kFull) << "finding it again refuses it";
  lay_down(5, {});
  write_atomically(storage_, out() / "ckpt/step-0000005/state.json", as_bytes("{}"));
  EXPECT_EQ(begun(kSilent, "auto"), FinalSync::kFull);
}

TEST_F(BegunRun, OfAMethodWithoutTheKeyKeepsNothing) {
  lay_down(5, {});
  EXPECT_TRUE(lasting_settings(config_with("method = \"ddp\"\n")).empty());
  EXPECT_EQ(begun("method = \"ddp\"\n", "auto"), FinalSync::kFull);
}

}  // namespace
}  // namespace isthmus::app::this_file
