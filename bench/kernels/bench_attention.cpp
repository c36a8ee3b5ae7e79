// SPDX-License-Identifier: Apache-2.0
// Attention inside documents next to full causal attention of equal length, forward and backward,
// one JSON object a line: bench_attention [--isa NAME] [--dtype fp32|bf16] [--rounds N].
// Documents have lengths drawn evenly from 1 to twice the mean. All cases take turns, round after
// round; a line has the median of the rounds' times and of their ratios to the full one of the same
// round. Times are processor time of one thread.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention.h"
#include "kernels/isa.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {
namespace {

struct Shape {
  const char* model;
  std::int64_t batch, seq, q_heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{"gpt2-124m", 2, 1024, 12, 12, 64},
                             {"llama-1b", 1, 2048, 16, 8, 64},
                             {"qwen3-0.6b", 1, 2048, 16, 8, 128}};
/// Mean length of a document; 0: full causal attention, the whole: one document by its starts.
constexpr std::int64_t kWhole = -1;
constexpr std::int64_t kMeans[] = {0, kWhole, 1024, 512, 128, 32};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<std::int32_t> starts_of(const Shape& s, std::int64_t mean) {
  std::vector<std::int32_t> starts;
  if (mean == 0) return starts;
  std::uint64_t draw = 1;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    std::int64_t start = 0;
    std::int64_t end = 0;
    for (std::int64_t t = 0; t < s.seq; ++t) {
      if (t == end) {
        start = t;
        draw = draw * 6364136223846793005U + 1442695040888963407U;
        const auto drawn = static_cast<std::int64_t>(draw >> 33);
        end += mean == kWhole ? s.seq : 1 + drawn % (2 * mean);
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return starts;
}

/// Pairs of query and key that are seen, as a share of those of full causal attention.
double seen(const Shape& s, const std::vector<std::int32_t>& starts) {
  if (starts.empty()) return 1;
  double pairs = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    pairs += static_cast<double>(static_cast<std::int64_t>(i) % s.seq - starts[i] + 1);
  }
  return pairs / (static_cast<double>(s.batch * s.seq) * static_cast<double>(s.seq + 1) / 2);
}

template <typename T>
class Case {
 public:
  Case(const Shape& s, std::int64_t mean) : s_(s), mean_(mean), starts_(starts_of(s, mean)) {}

  [[nodiscard]] AttentionShape shape() const {
    return {.batch = s_.batch,
            .seq = s_.seq,
            .q_heads = s_.q_heads,
            .kv_heads = s_.kv_heads,
            .head_dim = s_.head_dim,
            .scale = 1 / std::sqrt(static_cast<double>(s_.head_dim)),
            .document_starts = starts_.empty() ? nullptr : starts_.data()};
  }
  void tell(const char* pass, const char* dtype, const std::vector<double>& own,
            const std::vector<double>& full) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < own.size(); ++i) ratios.push_back(own[i] / full[i]);
    const std::string documents = mean_ == 0        ? "none"
                                  : mean_ == kWhole ? "whole"
                                                    : std::to_string(mean_);
    fmt::print(
        "{{\"op\":\"attention\",\"pass\":\"{}\",\"isa\":\"{}\",\"dtype\":\"{}\",\"model\":\"{}\","
        "\"batch\":{},\"seq\":{},\"heads\":{},\"kv_heads\":{},\"head_dim\":{},\"documents\":\"{}\","
        "\"pairs\":{:.4f},\"processor_s\":{:.6f},\"to_full\":{:.4f},\"to_full_least\":{:.4f},"
        "\"to_full_most\":{:.4f},\"rounds\":{}}}\n",
        pass, name_of(active_isa()), dtype, s_.model, s_.batch, s_.seq, s_.q_heads, s_.kv_heads,
        s_.head_dim, documents, seen(s_, starts_), median(own), median(ratios),
        *std::ranges::min_element(ratios), *std::ranges::max_element(ratios), own.size());
  }

 private:
  Shape s_;
  std::int64_t mean_;
  std::vector<std::int32_t> starts_;
};

template <typename T>
void bench(const Shape& s, int rounds) {
  ThreadTeam team(1);
  const auto values = [&](std::int64_t heads) {
    std::vector<T> all;
    for (std::int64_t i = 0; i < s.batch * s.seq * heads * s.head_dim; ++i) {
      all.push_back(T(static_cast<float>(std::sin(0.7 * static_cast<double>(i)))));
    }
    return all;
  };
  std::vector<T> q = values(s.q_heads), k = values(s.kv_heads), v = values(s.kv_heads);
  std::vector<T> out = q, d_out = q, d_q = q, d_k = k, d_v = v;
  std::vector<RealOf<T>> lse(static_cast<std::size_t>(s.batch * s.q_heads * s.seq));
  const auto view = [&](std::vector<T>& data, std::int64_t heads) {
    return heads_in_rows<T>(data.data(), s.seq, heads * s.head_dim, s.head_dim);
  };
  const auto read = [&](std::vector<T>& data, std::int64_t heads) {
    return heads_in_rows<const T>(data.data(), s.seq, heads * s.head_dim, s.head_dim);
  };
  std::vector<Case<T>> cases;
  for (const std::int64_t mean : kMeans) cases.emplace_back(s, mean);
  std::vector<std::vector<double>> forward(cases.size()), backward(cases.size());
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const AttentionShape shape = cases[i].shape();
      const double begin = processor_seconds();
      attention_forward<T>(team, shape, read(q, s.q_heads), read(k, s.kv_heads),
                           read(v, s.kv_heads), view(out, s.q_heads), lse.data());
      const double middle = processor_seconds();
      attention_backward<T>(team, shape,
                            {.q = read(q, s.q_heads),
                             .k = read(k, s.kv_heads),
                             .v = read(v, s.kv_heads),
                             .out = read(out, s.q_heads),
                             .d_out = read(d_out, s.q_heads),
                             .lse = lse.data(),
                             .d_q = view(d_q, s.q_heads),
                             .d_k = view(d_k, s.kv_heads),
                             .d_v = view(d_v, s.kv_heads)});
      const double end = processor_seconds();
      if (round < 0) continue;
      forward[i].push_back(middle - begin);
      backward[i].push_back(end - middle);
    }
  }
  const char* const dtype = std::is_same_v<T, float> ? "fp32" : "bf16";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].tell("forward", dtype, forward[i], forward[0]);
    cases[i].tell("backward", dtype, backward[i], backward[0]);
  }
}

int run(int count, char** arguments) {
  std::string isa = "auto";
  bool bf16 = false;
  int rounds = 11;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    const std::string value = i + 1 < count ? arguments[++i] : "";
    if (name == "--isa") {
      isa = value;
    } else if (name == "--dtype" && (value == "fp32" || value == "bf16")) {
      bf16 = value == "bf16";
    } else if (name == "--rounds" && std::atoi(value.c_str()) > 0) {
      rounds = std::atoi(value.c_str());
    } else {
      fmt::print(stderr, "usage: bench_attention [--isa NAME] [--dtype fp32|bf16] [--rounds N]\n");
      return 2;
    }
  }
  use_isa(isa_named(isa));
  for (const Shape& shape : kShapes) {
    if (bf16) {
      bench<Bf16>(shape, rounds);
    } else {
      bench<float>(shape, rounds);
    }
  }
  return 0;
}

}  // namespace
}  // namespace isthmus::kernels

int main(int count, char** arguments) {
  try {
    return isthmus::kernels::run(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_attention: {}\n", error.what());
    return 1;
  }
}
