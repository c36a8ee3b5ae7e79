// SPDX-License-Identifier: Apache-2.0
#include "text/chat/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_input.h"
#include "isthmus/errors.h"
#include "text/jinja/parser.h"
#include "text/special_tokens.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;

/// A template's source, and its name in messages.
struct Source {
  std::string name, text, label;
};

constexpr const char* kKey = "chat_template";

std::vector<Source> template_files(const Storage& storage, const fs::path& folder) {
  std::vector<Source> sources;
  const fs::path file = folder / "chat_template.jinja";
  if (storage.kind(file) == FileKind::kFile) {
    sources.push_back({"default", read_text(storage, file), file.string()});
  }
  const fs::path more = folder / "additional_chat_templates";
  if (storage.kind(more) != FileKind::kDirectory) return sources;
  for (const fs::path& each : expand_pattern(storage, "*.jinja", more)) {
    sources.push_back({each.stem().string(), read_text(storage, each), each.string()});
  }
  return sources;
}

/// Those under the key of a JSON file: a text, or a list of {"name", "template"}.
std::vector<Source> templates_in(const Storage& storage, const fs::path& file) {
  std::vector<Source> sources;
  if (storage.kind(file) != FileKind::kFile) return sources;
  const nlohmann::json config = parse_json(read_text(storage, file), file.string());
  if (!config.is_object() || !config.contains(kKey) || config[kKey].is_null()) return sources;
  const nlohmann::json& found = config[kKey];
  const std::string label = fmt::format("{}: {}", file.string(), kKey);
  if (found.is_string()) {
    sources.push_back({"default", found.get<std::string>(), label});
    return sources;
  }
  for (const nlohmann::json& each : found.is_array() ? found : nlohmann::json::array({found})) {
    const bool sound = each.is_object() && each.contains("name") && each["name"].is_string() &&
                       each.contains("template") && each["template"].is_string();
    if (!sound) {
      throw SystemError(label + " must be a text, or a list of objects with name and template");
    }
    const auto name = each["name"].get<std::string>();
    sources.push_back(
        {name, each["template"].get<std::string>(), fmt::format("{} \"{}\"", label, name)});
  }
  return sources;
}

const Source& chosen(const std::vector<Source>& sources, const fs::path& folder,
                     const std::string& name, bool tools) {
  const auto find = [&](std::string_view wanted) {
    return std::ranges::find(sources, wanted, &Source::name);
  };
  auto found = name.empty() && tools ? find("tool_use") : sources.end();
  if (found == sources.end()) found = find(name.empty() ? "default" : name);
  if (found != sources.end()) return *found;
  std::vector<std::string> names;
  for (const Source& source : sources) names.push_back(source.name);
  throw ConfigError(fmt::format("{}: has no chat template \"{}\"; it has {}", folder.string(),
                                name.empty() ? "default" : name, fmt::join(names, ", ")));
}

[[noreturn]] void refuse(const std::string& label, int line, std::string_view what) {
  throw SystemError(fmt::format("{}:{}: {}", label, line, what));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string label,
                           std::vector<std::pair<std::string, std::string>> tokens)
    : label_(std::move(label)), tokens_(std::move(tokens)) {
  try {
    nodes_ = std::make_shared<const jinja::Nodes>(jinja::parse_template(source));
  } catch (const jinja::Refusal& refusal) {  // "line N: ..."
    std::string_view what = refusal.what();
    int line = 0;
    if (what.starts_with("line ")) {
      line = std::stoi(std::string(what.substr(5)));
      what.remove_prefix(what.find(':') + 2);
    }
    refuse(label_, line, what);
  }
}

jinja::Rendered ChatTemplate::render(const ChatRequest& request) const {
  try {
    jinja::Items variables;
    for (const auto& [role, token] : tokens_) variables.emplace_back(role, token);
    variables.emplace_back("messages", request.messages);
    variables.emplace_back("tools", request.tools);
    variables.emplace_back("documents", jinja::Value());
    variables.emplace_back("add_generation_prompt", request.add_generation_prompt);
    variables.insert(variables.end(), request.more.begin(), request.more.end());
    return jinja::render(*nodes_, jinja::Value::dict(std::move(variables)), {.now = request.now});
  } catch (const jinja::RenderError& error) {
    refuse(label_, error.line(),
           error.raised() ? fmt::format("the chat template refuses: {}", error.what())
                          : std::string(error.what()));
  } catch (const jinja::Refusal& refusal) {
    refuse(label_, 0, refusal.what());
  }
}

std::optional<ChatTemplate> chat_template_of(const Storage& storage, const fs::path& folder,
                                             const std::string& name, bool tools) {
  std::vector<Source> sources = template_files(storage, folder);
  if (sources.empty()) sources = templates_in(storage, folder / "tokenizer_config.json");
  if (sources.empty()) sources = templates_in(storage, folder / "chat_template.json");
  if (sources.empty()) return {};
  const Source& source = chosen(sources, folder, name, tools);
  return ChatTemplate(source.text, source.label, special_tokens(storage, folder));
}

}  // namespace isthmus
