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

namespace isthmus::app {
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

class BegunRun : public testing::Test {
 protected:
  /// A run's folder with a checkpoint of this step, which keeps `settings`.
  void lay_down(std::int64_t step, std::map<std::string, std::string> settings) {
    StateSnapshot shared;
    StateSnapshot worker;
    const std::vector<float> values(6);
    CheckpointContents contents;
    contents.info = {.step = step,
                     .workers = 1,
                     .run_id = "r",
                     .config_hash = "h",
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
constexpr const char* kSilent = "method = \"diloco\"\nH = 5\n";
constexpr const char* kFull = "method = \"diloco\"\nH = 5\nfinal_sync = \"full\"\n";

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
}  // namespace isthmus::app
