// SPDX-License-Identifier: Apache-2.0
// The top of the page: the result, in a sentence and a table, and its caveats.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "core/base/units.h"
#include "report/data/text.h"
#include "report/page/line_chart.h"
#include "report/page/page.h"

namespace isthmus::report {
namespace {

std::string strong(const std::string& text) { return concat("<b>", escape_html(text), "</b>"); }

std::string workers_phrase(int workers) {
  return workers == 1 ? "1 worker" : fmt::format("{} workers", workers);
}

/// "1 h 53 min of simulated time", "14 s", or nothing.
std::string elapsed(const RunView& run) {
  if (std::isfinite(run.figures.simulated_s)) {
    return format_seconds(run.figures.simulated_s) + " of simulated time";
  }
  return std::isfinite(run.figures.wall_s) ? format_seconds(run.figures.wall_s) : std::string{};
}

std::string one_run_sentence(const RunView& run) {
  const RunFigures& f = run.figures;
  const bool has_eval = std::isfinite(f.eval_loss);
  std::string text =
      concat(strong(run.data.label), " trained for ", format_count(f.steps), " steps");
  if (run.data.workers > 0) {
    text += concat(" on ", workers_phrase(run.data.workers));
  }
  text += fmt::format(" to a {} loss of {}.", has_eval ? "validation" : "training",
                      format_loss(has_eval ? f.eval_loss : f.train_loss));
  if (f.wire_bytes > 0) {
    text += fmt::format(" Each worker sent {}", human_bytes(f.wire_bytes));
    if (std::isfinite(f.utilisation)) {
      text +=
          fmt::format(" and computed for {} of {}", format_percent(f.utilisation), elapsed(run));
    }
    text += ".";
  } else if (!elapsed(run).empty()) {
    text += concat(" It took ", elapsed(run), ".");
  }
  return text;
}

/// "15.6× less simulated time", "3.1× more bytes per worker", "as much ..." within 1 %.
std::string ratio_phrase(double value, double reference, const char* fewer, const char* more,
                         const std::string& what) {
  if (!(value > 0) || !(reference > 0) || !std::isfinite(value) || !std::isfinite(reference)) {
    return {};
  }
  const double ratio = reference / value;
  if (std::abs(ratio - 1) < 0.01) {
    return fmt::format("within 1 % of its {}", what);
  }
  return fmt::format("{}× {} {}", format_ratio(ratio > 1 ? ratio : 1 / ratio),
                     ratio > 1 ? fewer : more, what);
}

std::string pair_sentence(const RunView& run, const RunView& reference) {
  if (!same_length(run, reference)) {
    return fmt::format("{} stands at step {}, {} at step {}: no comparison of unequal lengths.",
                       strong(run.data.label), format_count(run.figures.steps),
                       strong(reference.data.label), format_count(reference.figures.steps));
  }
  const bool simulated = std::isfinite(run.figures.simulated_s);
  const std::string bytes = ratio_phrase(run.figures.wire_bytes, reference.figures.wire_bytes,
                                         "fewer", "more", "bytes on the wire per worker");
  const std::string time =
      ratio_phrase(simulated ? run.figures.simulated_s : run.figures.wall_s,
                   simulated ? reference.figures.simulated_s : reference.figures.wall_s, "less",
                   "more", simulated ? "simulated time" : "time on this machine");
  std::string text =
      fmt::format("{} against {}", strong(run.data.label), strong(reference.data.label));
  const char* joint = ": ";
  for (const std::string& part : {bytes, time}) {
    if (!part.empty()) {
      text += concat(joint, part);
      joint = ", ";
    }
  }
  const double loss = run.figures.eval_loss;
  const double reference_loss = reference.figures.eval_loss;
  if (std::isfinite(loss) && std::isfinite(reference_loss)) {
    const double gap = loss - reference_loss;
    text += fmt::format("{}a final validation loss of {} against {} ({}{:.4f})", joint,
                        format_loss(loss), format_loss(reference_loss), gap < 0 ? "−" : "+",
                        std::abs(gap));
  }
  return text + ".";
}

/// Seeds of runs that differ in nothing else: the smallest such group decides which claims are
/// allowed.
std::size_t seeds_per_variant(const std::vector<RunView>& runs) {
  static const std::set<std::string> kNotTheVariant = {"run.seed", "run.name", "run.out"};
  std::map<std::string, std::set<std::string>> seeds;
  for (const RunView& run : runs) {
    std::string variant = run.data.method;
    for (const auto& [key, value] : run.data.config) {
      if (!kNotTheVariant.contains(key)) {
        variant += concat("\n", key, "=", value.value);
      }
    }
    const auto seed = run.data.config.find("run.seed");
    seeds[variant].insert(seed == run.data.config.end() ? "" : seed->second.value);
  }
  std::size_t least = runs.size();
  for (const auto& [variant, values] : seeds) {
    least = std::min(least, values.size());
  }
  return least;
}

std::string seeds_caution(const std::vector<RunView>& runs) {
  const std::size_t seeds = seeds_per_variant(runs);
  if (seeds == 1) {
    return "<b>One seed: not a result.</b> Another seed moves a final loss by as much as methods "
           "often differ; use several paired seeds before drawing a conclusion.";
  }
  return fmt::format(
      "<b>{} seeds a variant{}.</b> This page shows runs one by one; it makes no "
      "statistical statement about them.",
      seeds, seeds < 6 ? ": too few to tell" : "");
}

/// The reasons why the losses of these runs cannot be compared, in words; empty if there is none.
std::vector<std::string> unlike_things(const std::vector<RunView>& runs) {
  const auto differs = [&](const std::function<std::string(const RunView&)>& of) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const RunView& run) { return of(run) != of(runs.front()); });
  };
  std::vector<std::string> unlike;
  if (differs([](const RunView& run) { return exact(run.figures.tokens); })) {
    unlike.emplace_back("tokens seen");
  }
  if (differs([](const RunView& run) {
        std::string model;
        for (const auto& [key, value] : run.data.manifest.model) {
          model += concat(key, "=", value, ";");
        }
        return model;
      })) {
    unlike.emplace_back("model");
  }
  if (differs([](const RunView& run) {
        std::string data;
        for (const DataFile& file : run.data.manifest.data) {
          data += file.sha256 + ";";
        }
        return data;
      })) {
    unlike.emplace_back("data");
  }
  if (differs([](const RunView& run) { return run.clock.basis; })) {
    unlike.emplace_back("compute figure of the clock");
  }
  return unlike;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += concat(i == 0 ? "" : i + 1 == words.size() ? " and " : ", ", words[i]);
  }
  return text;
}

/// Which run has which inner optimizer, where they differ; otherwise empty.
std::string optimizers_caution(const std::vector<RunView>& runs) {
  std::map<std::string, std::vector<std::string>> labels;  // by optimizer
  for (const RunView& run : runs) {
    const auto found = run.data.config.find("inner.optimizer");
    if (found == run.data.config.end()) return {};
    std::string name = found->second.value;
    std::erase(name, '"');
    labels[name].push_back(run.data.label);
  }
  if (labels.size() < 2) return {};
  std::string parts;
  for (const auto& [name, of] : labels) {
    parts += concat(parts.empty() ? "" : "; ", escape_html(name), " in ", escape_html(joined(of)));
  }
  return fmt::format(
      "<b>The inner optimizers differ:</b> {}. A gap in loss between these runs may come from the "
      "optimizer and its rate as well as from the outer method; a run of the reference's method "
      "with the other optimizer tells them apart.",
      parts);
}

std::string clock_notes(const std::vector<RunView>& runs) {
  std::set<std::string> notes;
  for (const RunView& run : runs) {
    if (run.clock.surrogate) {
      const auto parameters = run.data.manifest.model.find("parameters");
      const std::string small =
          parameters == run.data.manifest.model.end()
              ? std::string{"the small model"}
              : fmt::format("the small model ({} parameters)",
                            format_count(std::strtod(parameters->second.c_str(), nullptr)));
      notes.insert(fmt::format(
          R"(<p class="note"><span class="badge">[surrogate]</span> Clock and byte counts are those of a declared model of {}. The loss curves are those of {}, which is what really learned.</p>)",
          escape_html(run.clock.basis), escape_html(small)));
    } else if (run.clock.simulated) {
      notes.insert(fmt::format(
          R"(<p class="note"><span class="badge">[simulated]</span> Seconds are simulated: they rest on {} and on the links declared below.</p>)",
          escape_html(run.clock.basis)));
    }
  }
  std::string html;
  for (const std::string& note : notes) {
    html += note;
  }
  return html;
}

std::string warnings_html(const std::vector<RunView>& runs) {
  std::string items;
  std::size_t count = 0;
  for (const RunView& run : runs) {
    for (const std::string& warning : run.data.warnings) {
      items +=
          fmt::format("<li><b>{}</b>: {}</li>", escape_html(run.data.label), escape_html(warning));
      ++count;
    }
    for (const std::string& note : run.data.notes) {
      items += fmt::format("<li><b>{}</b>, said by the run: {}</li>", escape_html(run.data.label),
                           escape_html(note));
      ++count;
    }
  }
  if (count == 0) {
    return {};
  }
  return fmt::format(
      R"(<details class="warnings"{}><summary>{} warning{} about the input</summary><ul>{}</ul></details>)",
      count <= 6 ? " open" : "", count, count == 1 ? "" : "s", items);
}

}  // namespace

void section_verdict(Page& page) {
  std::string sentence;
  if (page.runs.size() == 1) {
    sentence = one_run_sentence(page.runs.front());
  }
  for (std::size_t i = 1; i < page.runs.size() && i <= 3; ++i) {
    sentence += concat(i > 1 ? " " : "", pair_sentence(page.runs[i], page.runs.front()));
  }
  if (page.runs.size() > 4) {
    sentence += fmt::format(" The other {} runs are in the table.", page.runs.size() - 4);
  }
  page.html += concat("<section id=\"verdict\"><p class=\"verdict\">", sentence, "</p>\n");
  if (page.runs.size() > 1) {
    page.html += concat("<p class=\"caution\">", seeds_caution(page.runs), "</p>\n");
    if (const std::vector<std::string> unlike = unlike_things(page.runs); !unlike.empty()) {
      page.html += fmt::format(
          "<p class=\"caution\"><b>These runs differ in {}:</b> their losses and times are not "
          "measured on the same terms.</p>\n",
          joined(unlike));
    }
    if (const std::string caution = optimizers_caution(page.runs); !caution.empty()) {
      page.html += concat("<p class=\"caution\">", caution, "</p>\n");
    }
  }
  page.html += clock_notes(page.runs);
  page.html += summary_table(page);
  page.html += warnings_html(page.runs);
  page.html += "</section>\n";
}

}  // namespace isthmus::report
