// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/start_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/all_elements.h"
#include "core/base/hash.h"
#include "isthmus/errors.h"

namespace isthmus::outer {
namespace {

[[noreturn]] void refuse(std::size_t place, const Parameter& parameter, const std::string& what) {
  throw ConfigError(
      fmt::format("InnerLoop::parameters()[{}] (\"{}\"): {}", place, parameter.name, what));
}

/// The number of values of a shape; 0 for a shape with an extent below 1, and for one with more
/// values than 64 bits count.
std::int64_t size_of(std::span<const std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 1 || size > std::numeric_limits<std::int64_t>::max() / extent) return 0;
    size *= extent;
  }
  return size;
}

/// Two tensors in the same memory would be trained twice, and sent as if they were two.
void check_memory_apart(std::span<const Parameter> parameters) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::less<>(),
                    [&](std::size_t i) { return parameters[i].values.data(); });
  for (std::size_t k = 1; k < order.size(); ++k) {
    const auto [first, second] = std::minmax(order[k - 1], order[k]);
    const std::span<const float> below = parameters[order[k - 1]].values;
    if (std::less_equal<>()(below.data() + below.size(), parameters[order[k]].values.data())) {
      continue;
    }
    refuse(second, parameters[second],
           fmt::format("its values share memory with those of parameters()[{}] (\"{}\"); every "
                       "tensor has memory of its own, and tied tensors are given once",
                       first, parameters[first].name));
  }
}

}  // namespace

std::string layer_rule(int layer) {
  return fmt::format(
      "layer = {}: must be 0 or more and below {}, or kNoLayer ({}) for a tensor of no layer; "
      "number the layers from 0 without gaps",
      layer, kLayerLimit, kNoLayer);
}

void check_layer(std::size_t place, const Parameter& parameter) {
  if (parameter.layer >= kNoLayer && parameter.layer < kLayerLimit) return;
  refuse(place, parameter, layer_rule(parameter.layer));
}

std::string layout_fault(const Parameter& parameter, std::int64_t begin) {
  const std::int64_t size = size_of(parameter.shape);
  const std::string shape = fmt::format("[{}]", fmt::join(parameter.shape, ", "));
  if (size == 0 || size > std::numeric_limits<std::int64_t>::max() - begin) {
    return fmt::format(
        "shape = {}: every extent must be at least 1, and a model has fewer than 2^63 values",
        shape);
  }
  const CanonicalRange elements = parameter.elements;
  if (elements != CanonicalRange{begin, begin + size}) {
    return fmt::format(
        "elements = [{}, {}): must be [{}, {}): the tensors before it have {} values, and its "
        "shape {} holds {}",
        elements.begin, elements.end, begin, begin + size, begin, shape, size);
  }
  return {};
}

void check_parameters(std::span<const Parameter> parameters) {
  if (parameters.empty()) {
    throw ConfigError("InnerLoop::parameters(): there is no tensor, so there is nothing to train");
  }
  std::map<std::string, std::size_t> places;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.name.empty())
      refuse(i, parameter, "its name is empty; every tensor has a name of its own");
    if (const auto [at, is_new] = places.emplace(parameter.name, i); !is_new) {
      refuse(i, parameter,
             fmt::format("parameters()[{}] has the same name; every tensor has a name of its own",
                         at->second));
    }
    check_layer(i, parameter);
    if (const std::string fault = layout_fault(parameter, begin); !fault.empty()) {
      refuse(i, parameter, fault);
    }
    const std::int64_t size = parameter.elements.size();
    if (std::ssize(parameter.values) != size) {
      refuse(i, parameter,
             fmt::format("values holds {} numbers: must be the {} of its shape [{}]",
                         parameter.values.size(), size, fmt::join(parameter.shape, ", ")));
    }
    begin += size;
  }
  check_memory_apart(parameters);
}

void check_finite_start(std::span<const Parameter> parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::span<const float> values = parameters[i].values;
    const auto wrong = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (wrong == values.end()) continue;
    refuse(i, parameters[i],
           fmt::format("value {} of {} is {} before step 1: every initial value must be finite; "
                       "begin with weights from before they broke",
                       wrong - values.begin(), values.size(), *wrong));
  }
}

void agree_on_parameters(InnerLoop& inner, Exchange& exchange) {
  if (exchange.members() == 1)
    return;  // there is no member to compare with, and reading may be expensive
  exchange.agree_on_start([&] {
    inner.read_values(all_elements(inner));
    const std::span<const Parameter> parameters = inner.parameters();
    check_finite_start(parameters);
    StartTerms terms = {{"number of parameters", fmt::format("{}", parameters.size())}};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      terms.emplace_back(
          fmt::format("parameters()[{}] before step 1", i),
          fmt::format("\"{}\" of layer {} and shape [{}] with values of digest {}", parameter.name,
                      parameter.layer, fmt::join(parameter.shape, ", "),
                      xxh3_128(std::as_bytes(parameter.values)).hex()));
    }
    return terms;
  });
}

}  // namespace isthmus::outer
