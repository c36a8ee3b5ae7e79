// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "core/state/checkpoint.h"
#include "inner/model/key_value_cache.h"
#include "inner/model/model.h"
#include "inner/model/model_source.h"
#include "isthmus/errors.h"
#include "kernels/thread_team.h"

namespace isthmus {
namespace {

/// Ids from the most likely down, `count` of them.
std::vector<std::int32_t> most_likely(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    likelier);
  ids.resize(count);
  return ids;
}

/// Parameters of a checkpoint, whole.
class CheckpointParameters final : public ParameterSource {
 public:
  CheckpointParameters(const ModelLayout& layout, const Checkpoint& checkpoint)
      : layout_(layout), values_(static_cast<std::size_t>(layout.elements())) {
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
      const TensorInfo& tensor = layout.tensors()[i];
      checkpoint.read_model(tensor.name, tensor.shape,
                            std::span(values_).subspan(begin(i), size(i)));
    }
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    return std::span(values_).subspan(begin(parameter), size(parameter));
  }

 private:
  [[nodiscard]] std::size_t begin(std::size_t i) const {
    return static_cast<std::size_t>(layout_.tensors()[i].elements.begin);
  }
  [[nodiscard]] std::size_t size(std::size_t i) const {
    return static_cast<std::size_t>(layout_.tensors()[i].elements.size());
  }
  const ModelLayout& layout_;
  std::vector<float> values_;
};

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  ISTHMUS_CHECK(!logits.empty());
  ISTHMUS_CHECK(sampling.top_p > 0, sampling.top_p);
  const auto all = static_cast<std::int64_t>(logits.size());
  const std::int64_t kept = sampling.temperature <= 0 ? 1
                            : sampling.top_k <= 0     ? all
                                                      : std::min(sampling.top_k, all);
  const std::vector<std::int32_t> ids = most_likely(logits, static_cast<std::size_t>(kept));
  if (kept == 1) return ids.front();
  const double top = static_cast<double>(logits[static_cast<std::size_t>(ids.front())]);
  std::vector<double> until(ids.size());  // running sum of weights
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(ids[i])]);
    total += std::exp((logit - top) / sampling.temperature);
    until[i] = total;
  }
  // The first token whose sum reaches top_p is the last that may be drawn.
  auto end = until.end();
  if (sampling.top_p < 1) {
    end = std::lower_bound(until.begin(), until.end() - 1, sampling.top_p * total) + 1;
    total = *(end - 1);
  }
  const auto at = std::upper_bound(until.begin(), end - 1, uniform * total);
  return ids[static_cast<std::size_t>(at - until.begin())];
}

namespace {

void check_prompt(const ModelShape& shape, std::span<const std::int32_t> prompt) {
  for (const std::int32_t token : prompt) {
    if (token >= 0 && token < shape.vocab) continue;
    throw ConfigError(
        fmt::format("prompt token {}: the model's vocabulary is 0 to {}", token, shape.vocab - 1));
  }
}

std::int32_t draw_finite(std::span<const float> logits, const GenerateOptions& options,
                         std::int64_t added) {
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
    throw RunError(fmt::format("sampling token {}: the model's logits are not finite", added));
  }
  const Rng rng{options.seed, Stream::kSample};
  return draw_token(logits, options.sampling, rng.uniform(static_cast<std::uint64_t>(added)));
}

}  // namespace

std::vector<std::int32_t> generate(const ModelShape& shape, const ParameterSource& parameters,
                                   std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options) {
  std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  check_prompt(shape, prompt);
  const std::size_t given = tokens.size();
  if (tokens.empty()) tokens.push_back(0);
  const auto begun = static_cast<std::int64_t>(tokens.size());
  const auto seen_at_most = static_cast<std::size_t>(
      std::min(shape.positions, begun + std::min(options.tokens, shape.positions)));
  ModelShape passes = shape;
  passes.longest = static_cast<std::int64_t>(seen_at_most);
  const ModelLayout layout(passes);
  kernels::ThreadTeam team(options.threads);
  LanguageModel<float> model(layout, passes.longest, LanguageModel<float>::Purpose::kInference);
  SourceWeights weights(layout, parameters);
  std::vector<float> logits(static_cast<std::size_t>(shape.vocab));
  for (std::int64_t added = 0; added < options.tokens; ++added) {
    const std::size_t seen = std::min(tokens.size(), seen_at_most);
    model.next_token_logits(team, weights, std::span(tokens).last(seen), logits.data());
    tokens.push_back(draw_finite(logits, options, added));
  }
  const std::size_t skipped = std::max<std::size_t>(given, 1);
  return {tokens.begin() + static_cast<std::ptrdiff_t>(skipped), tokens.end()};
}

GenerateEnd continue_prompt(const ModelShape& shape, const ParameterSource& parameters,
                            std::span<const std::int32_t> prompt, const ContinueOptions& options) {
  check_prompt(shape, prompt);
  const auto given = static_cast<std::int64_t>(prompt.size());
  if (given == 0) throw ConfigError("the prompt has no token: give it a text");
  if (given > shape.positions) {
    throw ConfigError(fmt::format("the prompt has {} tokens and the model {} positions: shorten it",
                                  given, shape.positions));
  }
  ModelShape passes = shape;
  passes.longest = std::min(shape.positions, given + std::min(options.tokens, shape.positions));
  const ModelLayout layout(passes);
  kernels::ThreadTeam team(options.threads);
  SourceWeights weights(layout, parameters);
  constexpr std::int64_t kPromptRows = 256;  // of a prompt at once
  std::optional<KeyValueCache> cache;
  if (options.cache) cache.emplace(passes, passes.longest);
  LanguageModel<float> model(layout, cache ? std::min(kPromptRows, passes.longest) : passes.longest,
                             LanguageModel<float>::Purpose::kInference);
  std::vector<float> logits(static_cast<std::size_t>(shape.vocab));
  std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  std::size_t seen = 0;
  for (std::int64_t added = 0; added < options.tokens; ++added) {
    if (cache) {
      model.next_token_logits(team, weights, *cache, std::span(tokens).subspan(seen),
                              logits.data());
    } else {
      model.next_token_logits(team, weights, tokens, logits.data());
    }
    seen = tokens.size();
    const std::int32_t token = draw_finite(logits, options, added);
    if (std::ranges::find(options.end_tokens, token) != options.end_tokens.end()) {
      return GenerateEnd::kEndToken;
    }
    if (options.on_token && !options.on_token(token)) return GenerateEnd::kStopped;
    if (std::ssize(tokens) == shape.positions) return GenerateEnd::kPositions;
    tokens.push_back(token);
  }
  return GenerateEnd::kTokens;
}

std::vector<std::int32_t> generate_from(const Config& config, const Checkpoint& checkpoint,
                                        std::span<const std::int32_t> prompt,
                                        const GenerateOptions& options) {
  const ModelShape shape = model_shape(config.model, config.train.context);
  const ModelLayout layout(shape);
  const CheckpointParameters parameters(layout, checkpoint);
  return generate(shape, parameters, prompt, options);
}

}  // namespace isthmus
