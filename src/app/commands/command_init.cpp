// SPDX-License-Identifier: Apache-2.0
// `init`: a commented configuration that loads as it is. The comments come from the table of keys,
// so they equal the texts of `explain`.
#include <fmt/format.h>

#include <span>

#include "app/common/commands.h"
#include "app/common/text_table.h"
#include "core/base/storage.h"
#include "core/base/suggest.h"
#include "record/json_line.h"
#include "record/run_lock.h"

namespace isthmus::app {
namespace {

/// One key of a template; a shown key is written as a comment.
struct StarterLine {
  std::string_view key;    // "outer.H"; "[[site]]" and "[[link]]" begin an element
  std::string_view value;  // empty for those
  bool shown = false;      // only shown, as a comment
};

constexpr StarterLine kLaptop[] = {
    {"run.name", "\"laptop\""},
    {"run.workers", "2"},
    {"run.seed", "0", true},
    {"model.arch", "\"gpt2\""},
    {"model.preset", "\"nano\""},
    {"data.source", "\"synth:markov1\""},
    {"data.val_fraction", "0.1", true},
    {"train.steps", "600"},
    {"train.global_batch", "\"2048 tok\""},
    {"train.context", "64"},
    {"inner.optimizer", "\"adamw\""},
    {"inner.lr", "3e-3"},
    {"inner.schedule", "\"cosine\""},
    {"inner.warmup", "\"5%\""},
    {"inner.floor", "0.1"},
    {"inner.clip", "1.0", true},
    {"outer.method", "\"diloco\""},
    {"outer.H", "20"},
    {"outer.lr", "0.7"},
    {"outer.momentum", "0.6"},  // about 25 rounds: isthmus explain diloco
    {"outer.codec", "\"int8\"", true},
    {"eval.every", "\"100 steps\""},
    {"eval.tokens", "\"32k\""},
    {"ckpt.every", "\"5min\""},
    {"ckpt.keep", "3", true},
};

constexpr StarterLine kWan2[] = {
    {"run.name", "\"wan2\""},
    {"run.seed", "0", true},
    {"model.arch", "\"llama\""},
    {"model.preset", "\"tiny\""},
    {"model.init", "\"models/base\"", true},
    {"data.source", "\"synth:markov1\""},
    {"data.pack", "\"documents\"", true},
    {"train.tokens", "\"2M\""},
    {"train.global_batch", "\"4096 tok\""},
    {"train.context", "128"},
    {"inner.optimizer", "\"adamw\""},
    {"inner.lr", "3e-3"},
    {"inner.betas", "[0.9, 0.95]"},
    {"inner.schedule", "\"cosine\""},
    {"inner.warmup", "\"5%\""},
    {"inner.floor", "0.1"},
    {"outer.method", "\"diloco\""},
    {"outer.H", "20"},
    {"outer.lr", "0.7"},
    {"outer.momentum", "0.6"},  // about 25 rounds: isthmus explain diloco
    {"outer.codec", "\"int8\""},
    {"outer.final_sync", "\"drain\"", true},
    {"surrogate.params", "\"1B\""},
    {"surrogate.step_time", "\"1s\""},
    {"eval.every", "\"100 steps\""},
    {"ckpt.every", "\"10min\""},
    {"[[site]]", ""},
    {"site.name", "\"east\""},
    {"[[site]]", ""},
    {"site.name", "\"west\""},
    {"site.jitter", "\"5%\""},
    {"[[link]]", ""},
    {"link.between", "[\"east\", \"west\"]"},
    {"link.rate", "\"100Mbit/s\""},
    {"link.rtt", "\"80ms\""},
    {"link.loss", "\"0.1%\"", true},
};

/// As many points as the base's space: where rounds are few, momentum matters as much as the rate.
constexpr std::string_view kMomentumToo =
    "{ space = { \"inner.lr\" = [4e-3, 8e-3], \"outer.momentum\" = [0.3, 0.6] } }";

constexpr StarterLine kCompare[] = {
    {"run.name", "\"compare\""},
    {"model.arch", "\"gpt2\""},
    {"model.preset", "\"nano\""},
    {"data.source", "\"synth:markov1\""},
    {"train.steps", "400"},
    {"train.global_batch", "\"1024 tok\""},
    {"train.context", "32"},
    {"inner.lr", "4e-3"},
    {"inner.schedule", "\"cosine\""},
    {"inner.warmup", "\"5%\""},
    {"eval.every", "\"20 steps\""},
    {"eval.tokens", "\"32k\""},
    {"surrogate.params", "\"1B\""},
    {"surrogate.step_time", "\"1s\""},
    {"[[site]]", ""},
    {"site.name", "\"east\""},
    {"[[site]]", ""},
    {"site.name", "\"west\""},
    {"[[link]]", ""},
    {"link.between", "[\"east\", \"west\"]"},
    {"link.rate", "\"100Mbit/s\""},
    {"link.rtt", "\"80ms\""},
    {"compare.baseline", "\"ddp\""},
    {"compare.seeds", "8"},
    {"compare.margin", "\"1%\""},
    {"compare.tune.space", "{ \"inner.lr\" = [2e-3, 4e-3, 8e-3, 16e-3] }"},
    {"compare.tune.follow_ups", "2"},
    {"compare.tune.seeds", "2"},
    {"target.relative_to", "\"ddp\""},
    {"target.factor", "1.02"},
    {"budget.sim_time", "\"48h\"", true},
    {"[variant.ddp]", ""},
    {"variant.outer", "{ method = \"ddp\" }"},
    {"[variant.diloco]", ""},
    {"variant.outer", "{ method = \"diloco\", H = 20 }"},
    {"variant.tune", kMomentumToo},
    {"[variant.diloco-4bit]", ""},
    {"variant.outer", "{ method = \"diloco\", H = 20, codec = \"fp4-e3m0\" }"},
    {"variant.tune", kMomentumToo},
    {"[variant.muloco-2bit]", ""},
    {"variant.outer", "{ method = \"muloco\", H = 20, codec = \"lm2:ef\" }"},
    {"variant.tune",
     "{ space = { \"inner.lr\" = [1e-2, 2e-2], \"outer.momentum\" = [0.3, 0.6] } }"},
};

constexpr StarterLine kFinetune[] = {
    {"run.name", "\"finetune\""},
    {"run.seed", "0", true},
    {"model.init", "\"base\""},
    {"lora.r", "16"},
    {"lora.alpha", "32"},
    {"lora.targets", "[\"q_proj\", \"v_proj\"]", true},
    {"lora.base", "\"nf4\"", true},
    {"lora.init", "\"adapter\"", true},
    {"data.source", "\"text:conversations.jsonl\""},
    {"data.val_fraction", "0.05"},
    {"data.over_long", "\"drop\"", true},
    {"data.skip_bad", "true", true},
    {"train.objective", "\"sft\""},
    {"train.steps", "300"},
    {"train.global_batch", "\"4096 tok\""},
    {"train.context", "512"},
    {"train.precision", "\"bf16\"", true},
    {"inner.lr", "2e-4"},
    {"inner.betas", "[0.9, 0.999]"},
    {"inner.weight_decay", "0"},
    {"inner.schedule", "\"cosine\""},
    {"inner.warmup", "\"3%\""},
    {"inner.floor", "0.1"},
    {"outer.method", "\"diloco\""},
    {"outer.H", "10"},
    {"outer.lr", "0.7"},
    {"outer.momentum", "0.9"},
    {"outer.codec", "\"int8\"", true},
    {"outer.final_sync", "\"full\""},
    {"eval.every", "\"50 steps\""},
    {"ckpt.every", "\"5min\""},
    {"[[site]]", ""},
    {"site.name", "\"east\""},
    {"[[site]]", ""},
    {"site.name", "\"west\""},
    {"[[link]]", ""},
    {"link.between", "[\"east\", \"west\"]"},
    {"link.rate", "\"20Mbit/s\""},
    {"link.rtt", "\"40ms\""},
};

struct Template {
  std::string_view name;
  std::string_view text;
  std::span<const StarterLine> lines;
  std::string_view next;  // the command to run next, with {} for the file
};
constexpr Template kTemplates[] = {
    {"laptop", "Two workers on one machine, synthetic text, about a minute.", kLaptop,
     "isthmus train {}"},
    {"wan2", "Two sites over 100 Mbit/s and 80 ms, with the clock of a 1B model.", kWan2,
     "isthmus simulate {}"},
    {"compare", "Four variants tuned alike and told apart over eight seeds.", kCompare,
     "isthmus compare {}"},
    {"finetune",
     "Adapters beside the model in base/, which learn the replies of conversations.jsonl.",
     kFinetune, "isthmus train {} --dry-run"},
};

const Template& find_template(const std::string& name) {
  for (const Template& each : kTemplates) {
    if (each.name == name) {
      return each;
    }
  }
  const auto near = closest(name, template_names());
  throw UsageError(fmt::format("init: no template '{}'; {}templates: {}", name,
                               near ? fmt::format("did you mean '{}'? ", *near) : "",
                               join(template_names())));
}

std::string render(const Template& chosen) {
  constexpr std::size_t kCommentWidth = 96;
  const std::vector<KeyInfo> keys = config_keys();
  std::string text =
      fmt::format("# {}\n# Any key: isthmus explain KEY\n\nschema = 1\n", chosen.text);
  std::string section;
  std::vector<std::string_view> explained;
  for (const StarterLine& line : chosen.lines) {
    if (line.value.empty()) {
      text += fmt::format("\n{}\n", line.key);
      continue;
    }
    const std::size_t dot = line.key.find('.');
    const std::string_view home = line.key.substr(0, dot);
    const bool has_heading = home == "site" || home == "link" || home == "variant";
    if (home != section && !has_heading) {
      text += fmt::format("\n[{}]\n", home);
    }
    section = home;
    for (const KeyInfo& key : keys) {
      const bool first = std::find(explained.begin(), explained.end(), line.key) == explained.end();
      if (key.name == line.key && first) {
        const std::string comment = wrapped(key.text, 0, kCommentWidth);
        for (std::size_t i = 0; i < comment.size();) {
          const std::size_t end = comment.find('\n', i);
          text += "# " + comment.substr(i, end - i) + "\n";
          i = end + 1;
        }
        explained.push_back(line.key);
      }
    }
    text +=
        fmt::format("{}{} = {}\n", line.shown ? "# " : "", line.key.substr(dot + 1), line.value);
  }
  return text;
}

}  // namespace

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const Template& each : kTemplates) {
    names.emplace_back(each.name);
  }
  return names;
}

int command_init(const InitArguments& arguments, Session& session) {
  const Template& chosen = find_template(arguments.name);
  SystemStorage storage;
  const std::filesystem::path file = arguments.directory / "run.toml";
  if (storage.kind(file) != FileKind::kAbsent && !arguments.force) {
    throw SystemError(fmt::format(
        "{}: exists already; --force replaces it, DIR names another folder", file.string()));
  }
  check_outside_run(file);
  storage.create_directories(arguments.directory);
  write_atomically(storage, file, render(chosen));
  const std::string next = fmt::format(fmt::runtime(chosen.next), file.string());
  session.wrote(file);
  if (session.json) {
    session.out.write(
        JsonLine().add("file", file.string()).add("template", chosen.name).add("next", next).str() +
        "\n");
  } else {
    session.out.write(fmt::format("wrote {}\nnext: {}\n", file.string(), next));
  }
  return 0;
}

}  // namespace isthmus::app
