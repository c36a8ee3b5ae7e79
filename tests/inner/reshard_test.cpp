// SPDX-License-Identifier: Apache-2.0
// What a run saves under one mesh and goes on with under another (spec: the equivalence table).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inner/mesh_test.h"

namespace isthmus::this_file {
namespace {

LanguageModelOptions with_zero(LanguageModelOptions options, int zero) {
  options.zero = zero;
  return options;
}

/// All that a loop saves, as bytes.
class SavedBytes final : public StateWriter {
 public:
  void tensor(std::string_view name, std::span<const float> values) override {
    bytes(name, std::as_bytes(values));
  }
  void bytes(std::string_view name, std::span<const std::byte> values) override {
    all_[std::string(name)].assign(values.begin(), values.end());
  }
  void integer(std::string_view name, std::int64_t value) override {
    bytes(name, std::as_bytes(std::span(&value, 1)));
  }
  void real(std::string_view name, double value) override {
    bytes(name, std::as_bytes(std::span(&value, 1)));
  }
  void text(std::string_view name, std::string_view value) override {
    bytes(name, std::as_bytes(std::span(value)));
  }
  [[nodiscard]] const std::map<std::string, std::vector<std::byte>>& all() const { return all_; }

 private:
  std::map<std::string, std::vector<std::byte>> all_;
};

std::map<std::string, std::vector<std::byte>> saved_bytes(const LanguageModelLoop& loop) {
  SavedBytes saved;
  loop.save(saved);
  return saved.all();
}

// Moments that one mesh has saved are those of the mesh that loads them, bit for bit, whoever holds
// them; and so are the weights that its ranks have: an update of rate 0 gives them all back.
TEST(ZeroReshard, StatesPassBetweenMeshesBitForBit) {
  LanguageModelOptions one = model_of("llama-tied");
  one.inner.weight_decay = 0.1;
  const LanguageModelOptions meshes[] = {
      one, with_zero(on_mesh(one, {"", {.tp = 2, .pp = 2, .dp = 2}, 2}), 1),
      with_zero(on_mesh(one, {"", {.tp = 2, .dp = 2}}), 3),
      on_mesh(one, {"", {.tp = 2, .pp = 2}, 4}), with_zero(on_mesh(one, {"", {.dp = 4}}), 2)};
  for (const LanguageModelOptions& from : meshes) {
    RandomBatches batches(kVocab, from.sequences, from.context);
    LanguageModelLoop loop(from, batches.provider());
    for (int t = 1; t <= 3; ++t) (void)loop.train_step(StepIndex(t));
    const std::vector<float> trained = all_values(loop);
    MemoryState saved;
    loop.save(saved);
    const auto expected = saved_bytes(loop);
    for (LanguageModelOptions to : meshes) {
      to.inner.lr = 0;
      const auto check = [&](const LanguageModelOptions& options) {
        LanguageModelLoop then(options, batches.provider());
        std::size_t place = 0;
        for (const Parameter& p : then.parameters()) {
          std::copy_n(trained.begin() + static_cast<std::ptrdiff_t>(place), p.values.size(),
                      p.values.begin());
          place += p.values.size();
        }
        then.wrote_values(all_elements(then));
        then.load(saved);
        EXPECT_EQ(saved_bytes(then), expected) << from.mesh.ranks() << " to " << to.mesh.ranks();
        (void)then.train_step(StepIndex(4));
        EXPECT_EQ(all_values(then), trained) << from.mesh.ranks() << to.mesh.ranks();
      };
      check(to);
      if (to.mesh.ranks() > 1) with_processes(to, check);
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
