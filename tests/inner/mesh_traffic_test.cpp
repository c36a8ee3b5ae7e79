// SPDX-License-Identifier: Apache-2.0
// What a mesh of processes writes of the canonical weights where these lie in a file: with ZeRO
// what has been collected, and nothing else, as nobody else writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/events.h"
#include "core/base/system_runtime.h"
#include "core/state/state_memory.h"
#include "core/temporary_directory.h"
#include "inner/mesh_test.h"

namespace isthmus::this_file {
namespace {

constexpr std::uint64_t kPage = 4096;

/// Files of which it is known how much has been written by now.
class WatchedMemory {
 public:
  explicit WatchedMemory(const TemporaryDirectory& directory)
      : memory_({.folder = directory / "state", .events = &written_, .clock = &runtime_.clock()}),
        scope_(&memory_) {}

  /// Bytes written since the last call. Writing keeps its order, so all that was asked for before
  /// the mark has been written when the mark has been.
  [[nodiscard]] std::uint64_t written() {
    const StateArray mark(kMark / sizeof(float));
    state_done(mark.span(), StateUse::kWrite);
    return written_.up_to_mark();
  }

 private:
  static constexpr std::uint64_t kMark = (1U << 20) + kPage;  // no other array's size

  class Written final : public EventSink {
   public:
    void record(const Event& event) override {
      if (event.kind != EventKind::kWrite) return;
      const std::scoped_lock lock(mutex_);
      if (event.bytes == kMark) {
        mark_ = true;
      } else {
        bytes_ += event.bytes;
      }
      changed_.notify_all();
    }
    std::uint64_t up_to_mark() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return mark_; });
      mark_ = false;
      return std::exchange(bytes_, 0);
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t bytes_ = 0;
    bool mark_ = false;
  };

  SystemRuntime runtime_;
  Written written_;
  StateMemory memory_;
  StateMemoryScope scope_;
};

/// Canonical weights of more than a MiB, from which an array has a file, and shares of less.
LanguageModelOptions large(int zero) {
  LanguageModelOptions o = on_mesh(model_of("llama-tied"), {"", {.tp = 2, .dp = 2}});
  o.model.d_model = 96;
  o.model.d_ff = 256;
  o.sequences = 4;
  o.context = 8;
  o.zero = zero;
  return o;
}

class MeshTrafficTest : public testing::TestWithParam<int> {};

TEST_P(MeshTrafficTest, WritesWhatWasCollectedAlone) {
  with_processes(large(GetParam()), [](const LanguageModelOptions& options) {
    const TemporaryDirectory directory;
    WatchedMemory memory(directory);
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    const auto all = static_cast<std::uint64_t>(4 * loop.layout().elements());
    ASSERT_TRUE(state_in_file(loop.parameters()[0].values));
    // Borders of what is written are those of pages that nobody else has a part of.
    const auto about = [](std::uint64_t bytes) {
      return testing::AllOf(testing::Gt(bytes - 3 * kPage), testing::Le(bytes + kPage));
    };
    const auto step = [&](int t) { (void)loop.train_step(StepIndex(t)); };
    (void)memory.written();  // the first values
    for (int t = 1; t <= 3; ++t) step(t);
    EXPECT_EQ(memory.written(), 0U) << "of ordinary steps";

    const Parameter* wide = &loop.parameters()[0];
    for (const Parameter& p : loop.parameters()) {
      if (p.values.size() > wide->values.size()) wide = &p;
    }
    loop.read_values(wide->elements);
    EXPECT_THAT(memory.written(), about(wide->values.size_bytes())) << wide->name;
    loop.read_values(wide->elements);
    EXPECT_EQ(memory.written(), 0U) << "collected already";
    loop.read_values({0, loop.layout().elements()});
    EXPECT_THAT(memory.written(), about(all - wide->values.size_bytes())) << "the others";

    wide->values[0] = 0.5f;
    loop.wrote_values({wide->elements.begin, wide->elements.begin + 1});
    step(4);
    EXPECT_EQ(memory.written(), 0U) << "handed out";
    wide->values[0] = 0.25f;
    loop.wrote_values({wide->elements.begin, wide->elements.begin + 1});
    EXPECT_THAT(memory.written(), about(wide->values.size_bytes())) << "the rest of a tensor";

    const CopiedParameters others(loop);
    (void)memory.written();
    step(5);
    EXPECT_EQ(memory.written(), 0U);
    (void)loop.loss(batches.at(StepIndex(100)), others);
    EXPECT_THAT(memory.written(), about(all)) << "collected before an evaluation of others";
    step(6);
    EXPECT_EQ(memory.written(), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Zero, MeshTrafficTest, testing::Values(1, 2, 3),
                         [](const auto& at) { return "zero" + std::to_string(at.param); });

}  // namespace
}  // namespace isthmus::this_file
