// SPDX-License-Identifier: Apache-2.0
// The input up to its first zero byte is a chat template, the rest a JSON document of messages.
// Checked: no crash, no read outside, no hang, and generation blocks lie in the text, in order.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "isthmus/errors.h"
#include "text/chat/chat_template.h"
#include "text/jinja/json_values.h"
#include "text/jinja/parser.h"

namespace {

using namespace isthmus;

constexpr std::string_view kMessages =
    R"([{"role": "user", "content": "a b"}, {"role": "assistant", "content": ["c", 1, {"d": null}]}])";

void use(std::string_view source, std::string_view messages) {
  const jinja::Nodes nodes = jinja::parse_template(source);
  const jinja::Value value = jinja::value_of_json(messages.empty() ? kMessages : messages, "input");
  const jinja::Value variables = jinja::Value::dict(
      {{"messages", value}, {"tools", {}}, {"bos_token", "<s>"}, {"add_generation_prompt", true}});
  // Little work, so that a fuzzer tries many.
  const jinja::Rendered rendered = jinja::render(nodes, variables, {.most_work = 1 << 20});
  std::size_t last = 0;
  for (const auto& [begin, end] : rendered.generations) {
    if (begin < last || end < begin || end > rendered.text.size()) std::abort();
    last = end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view messages = zero == std::string_view::npos ? "" : input.substr(zero + 1);
  try {
    use(input.substr(0, zero), messages);
  } catch (const jinja::Refusal&) {  // by the parser
  } catch (const jinja::RenderError&) {
  } catch (const SystemError&) {  // of the messages
  }
  return 0;
}
