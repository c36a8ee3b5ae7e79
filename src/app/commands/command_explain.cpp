// SPDX-License-Identifier: Apache-2.0
// `explain TOPIC`: everything that has a name can be asked for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/common/commands.h"
#include "app/common/error_catalog.h"
#include "app/common/text_table.h"
#include "core/base/suggest.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

std::string section_of(const KeyInfo& key) { return key.name.substr(0, key.name.find('.')); }

constexpr std::size_t kLabelColumns = 12;  // two spaces, a label, a space

/// A label and its text as it is, for what people paste.
void whole_line(Session& session, std::string_view label, const std::string& text) {
  if (text.empty()) return;
  session.out.write(
      fmt::format("  {} {}\n", session.out.paint(Style::kDim, fmt::format("{:9}", label)), text));
}

/// A label and its text; further lines of the text begin below its first word.
void line(Session& session, std::string_view label, const std::string& text) {
  if (text.empty()) return;
  std::string lines = wrapped(text, kLabelColumns, session.out.width()).substr(kLabelColumns);
  if (lines.ends_with('\n')) lines.pop_back();
  whole_line(session, label, lines);
}

void title(Session& session, const std::string& name, const std::string& kind) {
  session.out.write(fmt::format("{}   {}\n", session.out.paint(Style::kBold, name),
                                session.out.paint(Style::kDim, kind)));
}

std::string default_text(const KeyInfo& key) {
  if (key.name == "outer.H") {
    std::string text = key.default_value;
    for (const MethodInfo& method : methods()) {
      if (method.default_H > 1) text += fmt::format("; {}: {}", method.name, method.default_H);
    }
    return text;
  }
  if (!key.default_value.empty()) {
    return key.default_value;
  }
  return section_of(key) == "outer" ? "that of the method" : "none";
}

bool explain_key(const std::string& topic, Session& session) {
  for (const KeyInfo& key : config_keys()) {
    if (key.name != topic) {
      continue;
    }
    if (session.json) {
      session.answer(JsonLine()
                         .add("kind", "key")
                         .add("name", key.name)
                         .add("type", key.type)
                         .add("default", key.default_value)
                         .add("default_text", default_text(key))
                         .add("range", key.range)
                         .add("text", key.text)
                         .add("used_by", key.used_by)
                         .add("example", key.example));
      return true;
    }
    title(session, key.name, fmt::format("key of [{}]", section_of(key)));
    session.out.write(wrapped(key.text, 2, session.out.width()));
    line(session, "type", key.type);
    line(session, "range", key.range);
    line(session, "default", default_text(key));
    line(session, "used by", key.used_by);
    if (topic.starts_with("outer.") && topic != "outer.method") {
      std::vector<std::string> users;
      for (const MethodInfo& method : methods()) {
        if (std::find(method.keys.begin(), method.keys.end(), topic.substr(6)) !=
            method.keys.end()) {
          users.push_back(method.name);
        }
      }
      line(session, "used by", "methods " + join(users));
    }
    whole_line(session, "example", key.example);
    return true;
  }
  return false;
}

bool explain_section(const std::string& topic, Session& session) {
  std::vector<KeyInfo> keys = config_keys();
  std::erase_if(keys, [&](const KeyInfo& key) {
    return section_of(key) != topic || key.name.find('.') == std::string::npos;
  });
  if (keys.empty()) {
    return false;
  }
  if (session.json) {
    std::vector<std::string> names;
    for (const KeyInfo& key : keys) {
      names.push_back(key.name);
    }
    session.answer(JsonLine()
                       .add("kind", "section")
                       .add("name", topic)
                       .add("keys", std::span<const std::string>(names)));
    return true;
  }
  title(session,
        topic == "site" || topic == "link" || topic == "fault" ? fmt::format("[[{}]]", topic)
                                                               : fmt::format("[{}]", topic),
        "section");
  TextTable table({"key", "default", "what it does"});
  for (const KeyInfo& key : keys) {
    table.add({key.name.substr(topic.size() + 1), default_text(key), key.text});
  }
  session.out.write(table.text(session.out));
  session.out.write(fmt::format("more: isthmus explain {}\n", keys.front().name));
  return true;
}

bool explain_error(const std::string& topic, Session& session) {
  for (const ErrorEntry& entry : error_catalog()) {
    if (entry.code != topic) {
      continue;
    }
    if (session.json) {
      session.answer(JsonLine()
                         .add("kind", "error")
                         .add("name", entry.code)
                         .add("text", entry.meaning)
                         .add("remedy", entry.remedy));
      return true;
    }
    title(session, topic, "error code");
    session.out.write(wrapped(std::string(entry.meaning), 2, session.out.width()));
    session.out.write(wrapped(std::string(entry.remedy), 2, session.out.width()));
    return true;
  }
  return false;
}

/// Those that are the method's own.
std::string defaults_of(const MethodInfo& method) {
  std::vector<std::string> parts;
  if (method.default_H > 1) parts.push_back(fmt::format("H = {}", method.default_H));
  if (method.takes("lr")) parts.push_back(fmt::format("lr = {}", method.default_lr));
  if (method.takes("momentum")) {
    parts.push_back(fmt::format("momentum = {}", method.default_momentum));
  }
  if (method.takes("codec") && method.default_codec != "fp32") {
    parts.push_back(fmt::format("codec = {}", method.default_codec));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Keys of [inner] that a file which says nothing gets.
std::string inside_of(const MethodInfo& method) {
  const MethodInfo::Inside& inside = method.inside;
  if (inside.optimizer.empty()) return "";
  return fmt::format(
      "inner.optimizer = {}, lr = {}, weight_decay = {}, momentum = {}, nesterov = {}, adjust_lr = "
      "{}",
      inside.optimizer, inside.lr, inside.weight_decay, inside.momentum, inside.nesterov,
      inside.adjust_lr);
}

/// The state that the method keeps between two steps, with its own codec.
std::string memory_of(const MethodInfo& method) {
  const bool residual = make_codec(method.default_codec)->error_feedback();
  const int values = method.state_values + (residual ? 1 : 0);
  const bool takes_momentum = method.takes("momentum");
  std::vector<std::string> parts;
  if (method.state_values > 0) parts.emplace_back("anchors");
  if (method.state_values > 1) {
    parts.emplace_back(takes_momentum      ? "momentum"
                       : method.one_worker ? "the optimizer's own parameters"
                                           : "summed momenta");
  }
  if (residual) parts.emplace_back("residuals of error feedback");
  return fmt::format("{} bytes a parameter and worker{}{}{}", 4 * values,
                     parts.empty() ? "" : ", fp32: ", fmt::join(parts, ", "),
                     takes_momentum ? fmt::format(" ({} at momentum 0)", 4 * (values - 1)) : "");
}

bool explain_method(const std::string& topic, Session& session) {
  for (const MethodInfo& method : methods()) {
    if (method.name != topic) {
      continue;
    }
    if (session.json) {
      session.out.write(method_json(method) + "\n");
      return true;
    }
    title(session, topic, "method");
    session.out.write(wrapped(method.summary, 2, session.out.width()));
    line(session, "source", method.source);
    line(session, "deviates", method.deviations);
    line(session, "keys", join(method.keys));
    line(session, "defaults", defaults_of(method));
    line(session, "inside", inside_of(method));
    line(session, "memory", memory_of(method));
    if (!method.rates.empty()) {
      session.out.write("\n" + wrapped(method.rates, 2, session.out.width()));
    }
    return true;
  }
  return false;
}

bool explain_codec(const std::string& topic, Session& session) {
  for (const CodecInfo& codec : codecs()) {
    if (codec.name != topic) {
      continue;
    }
    if (session.json) {
      session.answer(JsonLine()
                         .add("kind", "codec")
                         .add("name", codec.name)
                         .add("text", codec.summary)
                         .add("bits_per_value", codec.bits_per_value));
      return true;
    }
    title(session, topic, "codec");
    session.out.write(wrapped(codec.summary, 2, session.out.width()));
    line(session, "size",
         fmt::format("{:.4g} bits a value, scales included", codec.bits_per_value));
    return true;
  }
  return false;
}

bool explain_exit(const std::string& topic, Session& session) {
  if (topic != "exit") {
    return false;
  }
  if (session.json) {
    JsonLine codes;
    for (const ExitEntry& entry : exit_codes()) {
      codes.add(fmt::format("{}", entry.code), entry.meaning);
    }
    session.answer(JsonLine().add("kind", "exit").add_raw("codes", codes.str()));
    return true;
  }
  title(session, "exit", "exit codes");
  for (const ExitEntry& entry : exit_codes()) {
    session.out.write(fmt::format("  {:3}  {}\n", entry.code, entry.meaning));
  }
  return true;
}

std::vector<std::string> all_topics() {
  std::vector<std::string> topics = {"exit"};
  for (const KeyInfo& key : config_keys()) {
    topics.push_back(key.name);
    const std::string section = section_of(key);
    if (std::find(topics.begin(), topics.end(), section) == topics.end()) {
      topics.push_back(section);
    }
  }
  for (const ErrorEntry& entry : error_catalog()) {
    topics.emplace_back(entry.code);
  }
  for (const MethodInfo& method : methods()) {
    topics.push_back(method.name);
  }
  for (const CodecInfo& codec : codecs()) {
    topics.push_back(codec.name);
  }
  return topics;
}

}  // namespace

int command_explain(const ExplainArguments& arguments, Session& session) {
  const std::string& topic = arguments.topic;
  const bool known = explain_key(topic, session) || explain_section(topic, session) ||
                     explain_error(topic, session) || explain_method(topic, session) ||
                     explain_codec(topic, session) || explain_exit(topic, session);
  if (known) {
    return 0;
  }
  // A bare key name: "alpha" for outer.alpha, as long as only one section has it.
  std::vector<std::string> whole;
  for (const KeyInfo& key : config_keys()) {
    if (key.name.substr(key.name.find('.') + 1) == topic) {
      whole.push_back(key.name);
    }
  }
  if (whole.size() == 1) {
    explain_key(whole.front(), session);
    return 0;
  }
  const auto near = closest(topic, all_topics());
  throw UsageError(fmt::format(
      "explain: nothing is called '{}'; {}", topic,
      !whole.empty() ? fmt::format("do you mean {}?", join(whole, " or "))
      : near         ? fmt::format("did you mean '{}'?", *near)
             : "topics are a key (outer.H), a section, an error code, a method, a codec, or exit; "
               "`isthmus methods` lists methods and codecs"));
}

}  // namespace isthmus::app
