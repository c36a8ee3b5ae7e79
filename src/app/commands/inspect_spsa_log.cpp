// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/commands/inspect.h"
#include "app/common/text_table.h"
#include "isthmus/errors.h"
#include "kernels/spsa_code.h"
#include "outer/parts/spsa_log.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

/// The summary of all records.
struct Summary {
  std::size_t zeros = 0;     // entries of code 0: a slope that is zero or not finite
  std::size_t extremes = 0;  // entries at either end of the code's range
  std::size_t seals = 0;     // digests of the weights
  double squares = 0;        // of the decoded slopes
  float last_lr = 0;
  std::string last_weights;  // newest digest, with its step
};

Summary summary_of(const outer::SpsaLog& log) {
  Summary s;
  for (StepIndex t = log.header().base_step; t < log.last();) {
    ++t;
    const outer::SpsaRecord record = log.record(t);
    for (const std::uint8_t code : record.codes) {
      const int k = code & 0x7f;
      s.zeros += k == 0 ? 1 : 0;
      s.extremes += k == 1 || k == 127 ? 1 : 0;
      const double g = kernels::spsa_decode(code, log.header().scale_log2);
      s.squares += g * g;
    }
    s.last_lr = record.lr;
    if (record.weights) {
      ++s.seals;
      s.last_weights = fmt::format("{} after step {}", record.weights->hex(), t.value());
    }
  }
  return s;
}

}  // namespace

int inspect_spsa_log(const std::filesystem::path& path, std::span<const std::byte> bytes,
                     Session& session) {
  const auto parsed = outer::SpsaLog::parse(bytes);
  if (!parsed) {
    throw RunError(fmt::format("{}: {}", path.string(), parsed.error().what));
  }
  const outer::SpsaLog& log = *parsed;
  const outer::SpsaLogHeader& header = log.header();
  const Summary s = summary_of(log);
  const auto entries = static_cast<double>(std::max<std::size_t>(1, log.entries()));
  const double slope = std::sqrt(s.squares / entries);
  if (session.json) {
    session.answer(JsonLine()
                       .add("kind", "spsa_log")
                       .add("path", path.string())
                       .add("bytes", bytes.size())
                       .add("members", static_cast<std::int64_t>(header.members))
                       .add("base_step", header.base_step.value())
                       .add("last_step", log.last().value())
                       .add("entries", log.entries())
                       .add("zero_entries", s.zeros)
                       .add("extreme_entries", s.extremes)
                       .add("rms_slope", slope)
                       .add("last_lr", static_cast<double>(s.last_lr))
                       .add("run_key", fmt::format("{:016x}", header.run_key))
                       .add("base_weights", header.base_weights.hex())
                       .add("chain", log.chain().hex()));
    return 0;
  }
  session.out.write(fmt::format("{}   spsa log, its hash chain holds\n",
                                session.out.paint(Style::kBold, path.string())));
  TextTable table({"", ""});
  table.add({"  steps", fmt::format("{} to {}", header.base_step.value() + 1, log.last().value())});
  table.add({"  members", fmt::format("{}", header.members)});
  table.add({"  entries", fmt::format("{} in {} bytes, {} of them zero, {} at the ends of the code",
                                      log.entries(), bytes.size(), s.zeros, s.extremes)});
  table.add({"  slopes", fmt::format("{:.4g} root mean square", slope)});
  table.add({"  last lr", fmt::format("{}", s.last_lr)});
  table.add({"  divisor", header.divide_by_sqrt ? "sqrt" : "mean"});
  table.add({"  weight decay", fmt::format("{}", header.weight_decay)});
  table.add({"  code scale", fmt::format("2^{}", header.scale_log2)});
  table.add({"  run key", fmt::format("{:016x}", header.run_key)});
  table.add({"  elements", fmt::format("{}", header.elements)});
  table.add({"  starts from", fmt::format("weights {}", header.base_weights.hex())});
  table.add({"  weights", s.seals == 0 ? "no digest yet" : s.last_weights});
  table.add({"  chain", log.chain().hex()});
  session.out.write(table.text(session.out));
  return 0;
}

}  // namespace isthmus::app
