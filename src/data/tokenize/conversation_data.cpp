// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/conversation_data.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "data/tokenize/conversation_reader.h"
#include "isthmus/errors.h"
#include "text/chat/chat_template.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace isthmus {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void lacks(const Config& config, std::string_view what, std::string_view remedy) {
  throw ConfigError(fmt::format("train.objective = \"sft\": model.init = \"{}\" has no {}; {}",
                                config.model.init.string(), what, remedy));
}

/// How the model of a run reads conversations.
class ModelsReading {
 public:
  ModelsReading(const Storage& storage, const Config& config)
      : config_(config),
        folder_(config.file.parent_path() / config.model.init),
        tokenizer_(open_tokenizer(storage, config, folder_)),
        chat_(open_template(storage, config, folder_, false)),
        with_tools_(open_template(storage, config, folder_, true)),
        end_token_(special_token(storage, folder_, "eos_token")) {}

  [[nodiscard]] PackedConversations open(const Storage& storage, const std::vector<fs::path>& paths,
                                         const std::string& source) const {
    const std::int64_t context = config_.train.context;
    ConversationReader reader(
        paths, tokenizer_, chat_, end_token_,
        {.most_tokens = context,
         .over_long = config_.data.over_long == "drop" ? OverLong::kDrop : OverLong::kCut,
         .skip_bad = config_.data.skip_bad,
         .to_skip = "data.skip_bad = true"},
        &with_tools_);
    std::vector<EncodedConversation> conversations;
    for (EncodedConversation each; reader.next(each);) conversations.push_back(std::move(each));
    std::vector<TokenFile> files;
    for (const fs::path& path : paths) {
      TokenFile& file = files.emplace_back();
      file.path = path;
      file.file = storage.map(path);
    }
    PackedConversations packed =
        pack_conversations(std::move(files), conversations, context, config_.data.val_fraction);
    packed.facts.counts = reader.counts();
    packed.facts.vocabulary = tokenizer_.vocabulary();
    if (packed.facts.training_rows == 0) {
      const std::string note = conversations_note(packed.facts);
      throw ConfigError(fmt::format(
          "data.source = \"{}\": no conversation is left to learn from, and {} for validation{}",
          source, packed.facts.held_out, note.empty() ? "" : " (" + note + ")"));
    }
    return packed;
  }

 private:
  static Tokenizer open_tokenizer(const Storage& storage, const Config& config,
                                  const fs::path& folder) {
    if (storage.kind(folder / "tokenizer.json") == FileKind::kAbsent) {
      lacks(config, "tokenizer.json",
            "conversations become tokens by the tokenizer of the model: put its file there");
    }
    return Tokenizer::open(storage, folder);
  }
  static ChatTemplate open_template(const Storage& storage, const Config& config,
                                    const fs::path& folder, bool tools) {
    std::optional<ChatTemplate> found = chat_template_of(storage, folder, "", tools);
    if (!found) {
      lacks(config, "chat template",
            "put one there as chat_template.jinja, for example that of the model's chat variant");
    }
    return *std::move(found);
  }

  const Config& config_;
  const fs::path folder_;
  const Tokenizer tokenizer_;
  const ChatTemplate chat_, with_tools_;  // of conversations without and with tools
  const std::string end_token_;
};

}  // namespace

Dataset open_data(const Storage& storage, const Config& config, ReadingRules rules) {
  const fs::path folder = config.file.parent_path();
  if (config.train.objective != "sft") {
    return Dataset::open(storage, config.data, folder, rules);
  }
  const ModelsReading reading(storage, config);
  return Dataset::open(storage, config.data, folder, rules, kMostInflatedBytes,
                       [&](const std::vector<fs::path>& paths, const std::string& source) {
                         return reading.open(storage, paths, source);
                       });
}

}  // namespace isthmus
