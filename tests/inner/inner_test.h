// SPDX-License-Identifier: Apache-2.0
// What the inner loop's tests share: small models, random batches, state in memory, parameters as a
// source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/base/all_elements.h"
#include "core/base/rng.h"
#include "inner/loop/language_model_loop.h"
#include "isthmus/errors.h"
#include "isthmus/inner_loop.h"
#include "isthmus/state.h"

namespace isthmus {

/// Random tokens, a function of the step.
class RandomBatches {
 public:
  RandomBatches(std::int64_t vocab, std::int64_t sequences, std::int64_t length)
      : vocab_(vocab), sequences_(sequences), length_(length) {}

  TokenBatch at(StepIndex t) {
    const Rng rng{17, Stream::kTestData};
    inputs_.clear();
    targets_.clear();
    for (std::int64_t i = 0; i < sequences_ * length_; ++i) {
      const auto index = static_cast<std::uint64_t>(t.value() * 1'000'000 + i);
      const auto vocab = static_cast<std::uint64_t>(vocab_);
      inputs_.push_back(static_cast<std::int32_t>(rng.below(vocab, index, 0)));
      targets_.push_back(static_cast<std::int32_t>(rng.below(vocab, index, 1)));
    }
    return {inputs_, targets_, sequences_, length_};
  }
  [[nodiscard]] BatchProvider provider() {
    return [this](StepIndex t) { return at(t); };
  }

 private:
  std::int64_t vocab_, sequences_, length_;
  std::vector<std::int32_t> inputs_, targets_;
};

/// State kept in a map; a reader over what a writer wrote.
class MemoryState final : public StateWriter, public StateReader {
 public:
  void tensor(std::string_view name, std::span<const float> values) override {
    tensors_[std::string(name)].assign(values.begin(), values.end());
  }
  void bytes(std::string_view name, std::span<const std::byte> values) override {
    bytes_[std::string(name)].assign(values.begin(), values.end());
  }
  void integer(std::string_view name, std::int64_t value) override {
    integers_[std::string(name)] = value;
  }
  void real(std::string_view name, double value) override { reals_[std::string(name)] = value; }
  void text(std::string_view name, std::string_view value) override {
    texts_[std::string(name)] = value;
  }
  [[nodiscard]] bool contains(std::string_view name) const override {
    const std::string key(name);
    return tensors_.contains(key) || bytes_.contains(key) || integers_.contains(key) ||
           reals_.contains(key) || texts_.contains(key);
  }
  void tensor(std::string_view name, std::span<float> values) override {
    const std::vector<float>& stored = find(tensors_, name);
    if (stored.size() != values.size()) throw RunError("size of " + std::string(name));
    std::copy(stored.begin(), stored.end(), values.begin());
  }
  std::vector<std::byte> bytes(std::string_view name) override { return find(bytes_, name); }
  std::int64_t integer(std::string_view name) override { return find(integers_, name); }
  double real(std::string_view name) override { return find(reals_, name); }
  std::string text(std::string_view name) override { return find(texts_, name); }

 private:
  template <typename Map>
  static const typename Map::mapped_type& find(const Map& map, std::string_view name) {
    const auto found = map.find(std::string(name));
    if (found == map.end()) throw RunError("no entry " + std::string(name));
    return found->second;
  }
  std::map<std::string, std::vector<float>> tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, std::int64_t> integers_;
  std::map<std::string, double> reals_;
  std::map<std::string, std::string> texts_;
};

/// The parameters of a loop, each copied to a place of its own.
class CopiedParameters final : public ParameterSource {
 public:
  explicit CopiedParameters(InnerLoop& loop) : CopiedParameters(read(loop)) {}
  explicit CopiedParameters(std::span<const Parameter> parameters) {
    for (const Parameter& p : parameters) copies_.emplace_back(p.values.begin(), p.values.end());
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return copies_[parameter];
  }

 private:
  static std::span<const Parameter> read(InnerLoop& loop) {
    loop.read_values(all_elements(loop));
    return loop.parameters();
  }

  std::vector<std::vector<float>> copies_;
};

/// A loop's parameters where they are.
class LoopParameters final : public ParameterSource {
 public:
  explicit LoopParameters(std::span<const Parameter> parameters) : parameters_(parameters) {}
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return parameters_[parameter].values;
  }

 private:
  std::span<const Parameter> parameters_;
};

inline std::vector<float> all_values(InnerLoop& loop) {
  std::vector<float> all;
  loop.read_values(all_elements(loop));
  for (const Parameter& p : loop.parameters())
    all.insert(all.end(), p.values.begin(), p.values.end());
  return all;
}

}  // namespace isthmus
