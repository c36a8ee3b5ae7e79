// SPDX-License-Identifier: Apache-2.0
// Checks of a completed configuration: required combinations, exclusions, divisibility. One
// function per section of the file, each in config_check_<section>.cpp; a rule is in the file of
// the key that it refuses. Types and ranges of single values are checked earlier, against the rows
// of the schema.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/load/config_load_draft.h"

namespace isthmus::config {

/// The context of a check besides its own section: the rest of the configuration, the given keys,
/// and a way to report errors at file:line:col. Borrows the draft, which must outlive it.
class CheckContext {
 public:
  explicit CheckContext(Draft& draft)
      : config(draft.config), schema(draft.schema), method(draft.method()), draft_(draft) {}

  [[nodiscard]] bool given(std::string_view name) const { return draft_.given(name); }
  /// 'outer.H = 0', with the value as given, or the value in effect.
  [[nodiscard]] std::string quoted(std::string_view name) const { return draft_.quoted(name); }
  [[nodiscard]] const GivenKeys& keys() const { return draft_.keys; }
  [[nodiscard]] const GivenElements& sites() const { return draft_.sites; }
  [[nodiscard]] const GivenElements& links() const { return draft_.links; }
  [[nodiscard]] const GivenElements& faults() const { return draft_.faults; }

  /// Reports an error at the value of key `name`, or at the file if the key is not given.
  void refuse(std::string code, std::string_view name, std::string_view message,
              std::string_view hint = {}) {
    draft_.refuse(std::move(code), name, message, hint);
  }
  /// Reports an error at `place`.
  void refuse_at(std::string code, const Place& place, std::string_view message,
                 std::string_view hint = {}) {
    draft_.diagnostics.add(std::move(code), place, message, hint);
  }
  /// Refuses `spelling`, the value of key `name`, unless it is a codec of this build.
  void refuse_unknown_codec(std::string_view name, const std::string& spelling);

  const Config& config;
  const SchemaContext& schema;
  const MethodInfo* const method;  // null for an unknown method

 private:
  Draft& draft_;
};

/// Checks the whole configuration of a completed draft.
void validate(Draft& draft);

void validate_method(const std::string& method, CheckContext& check);  // outer.method
void validate_unused(CheckContext& check);                             // keys without effect
void validate_run(const RunConfig& run, CheckContext& check);
void validate_data(const DataConfig& data, CheckContext& check);
void validate_train(const TrainConfig& train, CheckContext& check);
void validate_inner(const InnerConfig& inner, CheckContext& check);
void validate_model(const ModelConfig& model, CheckContext& check);
void validate_eval(const EvalConfig& eval, CheckContext& check);
void validate_outer(const OuterOptions& outer, CheckContext& check);
void validate_surrogate(CheckContext& check);
void validate_parallel(const Config& config, CheckContext& check);  // has no struct
void validate_net(const NetConfig& net, CheckContext& check);
void validate_hub(const HubConfig& hub, CheckContext& check);
void validate_sites(std::span<const SiteConfig> sites, CheckContext& check);
/// `names`: the sites between which a link or a fault can be.
void validate_links(std::span<const LinkConfig> links, const std::vector<std::string>& names,
                    CheckContext& check);
void validate_faults(std::span<const FaultConfig> faults, const std::vector<std::string>& names,
                     CheckContext& check);

/// Whether `name` is 1 to 64 letters, digits, '-', '_' or '.', as names of runs and sites are.
[[nodiscard]] bool is_plain_name(std::string_view name);
/// Whether model.n_heads divides model.d_model, if no head width is given. If not, the model is
/// refused, and rules about the length of windows are not checked.
[[nodiscard]] bool heads_divide_width(const ModelConfig& model);
/// Samples of one rank in one inner step; nothing unless train.global_batch is a valid multiple.
[[nodiscard]] std::optional<std::int64_t> samples_of_one_rank(const Config& config);

}  // namespace isthmus::config
