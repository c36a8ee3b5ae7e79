// SPDX-License-Identifier: Apache-2.0
// `methods`: the outer methods of this build, and the codecs they may use.
#include <fmt/format.h>

#include "app/common/commands.h"
#include "app/common/text_table.h"
#include "core/base/suggest.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "record/json_line.h"

namespace isthmus::app {

std::string method_json(const MethodInfo& method) {
  return JsonLine()
      .add("kind", "method")
      .add("name", method.name)
      .add("text", method.summary)
      .add("source", method.source)
      .add("deviations", method.deviations)
      .add("keys", std::span<const std::string>(method.keys))
      .add("default_lr", method.default_lr)
      .add("default_momentum", method.default_momentum)
      .add("default_alpha", method.default_alpha)
      .add("inside", method.inside.optimizer)
      .add("rates", method.rates)
      .add("state_values", std::int64_t{method.state_values})
      .str();
}

int command_methods(Session& session) {
  if (session.json) {
    const auto codec_json = [](const CodecInfo& codec) {
      return JsonLine()
          .add("name", codec.name)
          .add("text", codec.summary)
          .add("bits_per_value", codec.bits_per_value);
    };
    session.answer(JsonLine()
                       .add_list("methods", methods(), method_json)
                       .add_list("codecs", codecs(), codec_json));
    return 0;
  }
  TextTable table({"method", "what it does"});
  for (const MethodInfo& method : methods()) {
    table.add({method.name, method.summary});
    table.add({"", "keys: " + (method.keys.empty() ? "none" : join(method.keys))});
    table.add({"", method.source});
  }
  session.out.write(table.text(session.out) + "\n");
  TextTable codec_table({"codec", "bits", "what it is"});
  for (const CodecInfo& codec : codecs()) {
    codec_table.add({codec.name, fmt::format("{:.4g}", codec.bits_per_value), codec.summary});
  }
  session.out.write(codec_table.text(session.out));
  return 0;
}

}  // namespace isthmus::app
