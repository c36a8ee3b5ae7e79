// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/value_tests.h"

namespace isthmus::jinja {
namespace {

constexpr int kMostCalls = 500;              // statements and expressions within one another
constexpr std::int64_t kMostRange = 100000;  // as Jinja's sandbox has it
constexpr std::int64_t kStep = 64;           // work of an expression or statement by itself

/// The template called raise_exception.
class Raised final : public Refusal {
 public:
  using Refusal::Refusal;
};

/// Names that are set in one place, and those around it.
struct Scope {
  std::shared_ptr<Scope> around;
  std::vector<std::pair<std::string_view, Value>> names = {};

  void set(std::string_view name, Value value) {
    const auto found = std::ranges::find(names, name, [](const auto& each) { return each.first; });
    if (found == names.end()) {
      names.emplace_back(name, std::move(value));
    } else {
      found->second = std::move(value);
    }
  }
};
using ScopePtr = std::shared_ptr<Scope>;

class Namespace final : public Object {
 public:
  [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
  [[nodiscard]] bool callable() const override { return false; }
  std::vector<std::pair<std::string, Value>> attributes;

  void set(const std::string& name, Value value) {
    if (name.starts_with('_')) {
      throw Refusal(fmt::format("an attribute '{}' of a namespace: '_' may not begin it", name));
    }
    const auto found =
        std::ranges::find(attributes, name, [](const auto& each) { return each.first; });
    if (found == attributes.end()) {
      attributes.emplace_back(name, std::move(value));
    } else {
      found->second = std::move(value);
    }
  }
};

class Macro final : public Object {
 public:
  Macro(const Node& macro, ScopePtr around) : node(macro), scope(std::move(around)) {}
  [[nodiscard]] std::string_view type_name() const override { return "Macro"; }
  const Node& node;
  ScopePtr scope;
};

enum class Global { kRange, kDict, kNamespace, kRaise, kNow };

class Function final : public Object {
 public:
  explicit Function(Global which) : function(which) {}
  [[nodiscard]] std::string_view type_name() const override { return "function"; }
  const Global function;
};

/// A method of a value that was named and not yet called.
class Bound final : public Object {
 public:
  Bound(Value of, std::string method) : self(std::move(of)), name(std::move(method)) {}
  [[nodiscard]] std::string_view type_name() const override { return "method"; }
  const Value self;
  const std::string name;
};

class Loop final : public Object {
 public:
  [[nodiscard]] std::string_view type_name() const override { return "LoopContext"; }
  [[nodiscard]] bool callable() const override { return false; }
  const Values* items = nullptr;  // alive as long as the loop runs
  std::int64_t index0 = 0;

  [[nodiscard]] std::optional<Value> attribute(std::string_view name) const {
    if (items == nullptr) throw Refusal("'loop' of a loop that is over");
    const std::int64_t size = std::ssize(*items);
    const auto neighbour = [&](std::int64_t at) {
      return at >= 0 && at < size ? (*items)[static_cast<std::size_t>(at)]
                                  : Value::undefined("there is no such item of the loop");
    };
    if (name == "index") return Value(index0 + 1);
    if (name == "index0") return Value(index0);
    if (name == "first") return Value(index0 == 0);
    if (name == "last") return Value(index0 + 1 == size);
    if (name == "length") return Value(size);
    if (name == "revindex") return Value(size - index0);
    if (name == "revindex0") return Value(size - index0 - 1);
    if (name == "previtem") return neighbour(index0 - 1);
    if (name == "nextitem") return neighbour(index0 + 1);
    if (name == "depth") return Value(std::int64_t{1});
    if (name == "depth0") return Value(std::int64_t{0});
    return {};
  }
};

enum class Flow { kNext, kBreak, kContinue };

class Renderer {
 public:
  Renderer(const Value& variables, const RenderOptions& options)
      : variables_(variables), options_(options) {}
  ~Renderer() {
    // Namespaces and the scopes of macros may hold one another.
    for (const auto& each : namespaces_) each->attributes.clear();
    for (const auto& each : captured_) each->names.clear();
  }
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  Rendered run(const Nodes& nodes);

 private:
  /// Counts calls within calls.
  class Called {
   public:
    explicit Called(Renderer& renderer) : renderer_(renderer) {
      if (++renderer_.calls_ > kMostCalls) {
        --renderer_.calls_;
        throw Refusal(fmt::format("more than {} calls within one another", kMostCalls));
      }
    }
    ~Called() { --renderer_.calls_; }
    Called(const Called&) = delete;
    Called& operator=(const Called&) = delete;

   private:
    Renderer& renderer_;
  };

  /// Work, before it is done.
  void spend(std::int64_t work) {
    if (work > options_.most_work - work_) {
      throw Refusal(fmt::format("takes more than {} steps", options_.most_work));
    }
    work_ += work;
  }
  Flow statements(const Nodes& nodes, const ScopePtr& scope);
  Flow statement(const Node& node, const ScopePtr& scope);
  Flow loop(const Node& node, const ScopePtr& scope);
  void print(const Value& value);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  void set_block(const Node& node, const ScopePtr& scope);
  void generation(const Node& node, const ScopePtr& scope);
  /// The output of `nodes`, in a separate scope.
  std::string written(const Nodes& nodes, const ScopePtr& scope);

  Value evaluated(const Expression& e, const ScopePtr& scope);
  Value evaluated_at(const Expression& e, const ScopePtr& scope);
  Value optional_part(const Expression& e, std::size_t part, const ScopePtr& scope) {
    return e.parts[part] == nullptr ? Value() : evaluated(*e.parts[part], scope);
  }
  Value name(const Expression& e, const ScopePtr& scope);
  std::optional<Value> global(std::string_view name) const;
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Value comparison(const Expression& e, const ScopePtr& scope);
  Value binary(const Expression& e, const ScopePtr& scope);
  Value collection(const Expression& e, const ScopePtr& scope);
  Value filter(const Expression& e, const Value& value, const ScopePtr& scope);
  Value call(const Expression& e, const ScopePtr& scope);
  Value called(const Value& function, const Arguments& arguments);
  Value called_method(const Value& self, const std::string& name, const Arguments& arguments);
  Value called_macro(const Macro& macro, const Arguments& arguments);
  Value called_function(Global function, const Arguments& arguments);
  Value new_namespace(const Arguments& arguments);
  Arguments arguments(const Expression& e, const ScopePtr& scope);

  const Value& variables_;
  const RenderOptions& options_;
  Rendered rendered_;
  std::string* out_ = nullptr;
  int line_ = 0, calls_ = 0;
  std::int64_t work_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<ScopePtr> captured_;  // by macros
};

void Renderer::print(const Value& value) {
  spend(value.weight());
  *out_ += to_text(value);
  check_weight(std::ssize(*out_));
}

Flow Renderer::statements(const Nodes& nodes, const ScopePtr& scope) {
  for (const Node& node : nodes) {
    const Flow flow = statement(node, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Flow Renderer::statement(const Node& node, const ScopePtr& scope) {
  const Called counted(*this);
  spend(kStep);
  line_ = node.line;
  switch (node.statement) {
    case Statement::kText:
      spend(std::ssize(node.text));
      *out_ += node.text;
      check_weight(std::ssize(*out_));
      break;
    case Statement::kPrint:
      print(evaluated(*node.value, scope));
      break;
    case Statement::kIf:
      for (const Branch& branch : node.branches) {
        if (evaluated(*branch.condition, scope).truth()) return statements(branch.body, scope);
      }
      return statements(node.otherwise, scope);
    case Statement::kFor:
      return loop(node, scope);
    case Statement::kSet:
      assign(node.target, evaluated(*node.value, scope), scope);
      break;
    case Statement::kSetBlock:
      set_block(node, scope);
      break;
    case Statement::kMacro:
      if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
      scope->set(node.text, Value::object(std::make_shared<Macro>(node, scope)));
      break;
    case Statement::kGeneration:
      generation(node, scope);
      break;
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Flow Renderer::loop(const Node& node, const ScopePtr& scope) {
  const Value over = evaluated(*node.value, scope);
  spend(shallow_size(over));
  Values items = walked(over);
  if (node.condition != nullptr) {
    Values kept;
    for (const Value& each : items) {
      const auto inner = std::make_shared<Scope>(Scope{scope});
      assign(node.target, each, inner);
      if (evaluated(*node.condition, inner).truth()) kept.push_back(each);
    }
    items = std::move(kept);
  }
  if (items.empty()) return statements(node.otherwise, scope);
  const auto state = std::make_shared<Loop>();
  state->items = &items;
  struct Over {  // however the loop ends
    Loop& loop;
    ~Over() { loop.items = nullptr; }
  } const over_at_the_end{*state};
  const Value loop_value = Value::object(state);
  auto inner = std::make_shared<Scope>(Scope{scope});
  for (; state->index0 < std::ssize(items); ++state->index0) {
    if (inner.use_count() > 1) {
      inner = std::make_shared<Scope>(Scope{scope});
    } else {
      inner->names.clear();
    }
    inner->set("loop", loop_value);
    assign(node.target, items[static_cast<std::size_t>(state->index0)], inner);
    if (statements(node.body, inner) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Renderer::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (target.is_tuple) {
    spend(shallow_size(value));
    const Values items = walked(value);
    if (items.size() != target.parts.size()) {
      throw Refusal(fmt::format("{} values for {} names", items.size(), target.parts.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) {
    scope->set(target.name, value);
    return;
  }
  Expression name_of;
  name_of.op = Op::kName;
  name_of.line = line_;
  name_of.name = target.name;
  const Value object = name(name_of, scope);
  auto* const space =
      object.kind() == Kind::kObject ? dynamic_cast<Namespace*>(&object.as_object()) : nullptr;
  if (space == nullptr) {
    throw Refusal(fmt::format("sets an attribute of '{}', which is no namespace", target.name));
  }
  space->set(target.attribute, value);
}

std::string Renderer::written(const Nodes& nodes, const ScopePtr& scope) {
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  struct Restored {
    std::string*& out;
    std::string* before;
    ~Restored() { out = before; }
  } const restored{out_, before};
  statements(nodes, std::make_shared<Scope>(Scope{scope}));
  return text;
}

void Renderer::set_block(const Node& node, const ScopePtr& scope) {
  Value value(written(node.body, scope));
  // The filters of a block stand within one another around a value that is not there.
  std::vector<const Expression*> filters;
  for (const Expression* e = node.value.get(); e != nullptr; e = e->parts[0].get()) {
    filters.push_back(e);
  }
  std::ranges::reverse(filters);
  for (const Expression* const e : filters) value = filter(*e, value, scope);
  assign(node.target, value, scope);
}

void Renderer::generation(const Node& node, const ScopePtr& scope) {
  const std::string text = written(node.body, scope);
  const std::size_t begin = out_->size();
  *out_ += text;
  check_weight(std::ssize(*out_));
  if (out_ == &rendered_.text) rendered_.generations.emplace_back(begin, out_->size());
}

Value Renderer::evaluated(const Expression& e, const ScopePtr& scope) {
  const Called counted(*this);
  spend(kStep);
  line_ = e.line;
  return evaluated_at(e, scope);
}

Value Renderer::evaluated_at(const Expression& e, const ScopePtr& scope) {
  switch (e.op) {
    case Op::kConstant:
      return e.value;
    case Op::kName:
      return name(e, scope);
    case Op::kList:
    case Op::kTuple:
    case Op::kDict:
      return collection(e, scope);
    case Op::kAttribute:
      return attribute(evaluated(*e.parts[0], scope), e.name);
    case Op::kItem: {
      const Value value = evaluated(*e.parts[0], scope);
      return item(value, evaluated(*e.parts[1], scope));
    }
    case Op::kSlice: {
      const Value value = evaluated(*e.parts[0], scope);
      const Value begin = optional_part(e, 1, scope), end = optional_part(e, 2, scope);
      spend(shallow_size(value));
      return slice_of(value, begin, end, optional_part(e, 3, scope));
    }
    case Op::kCall:
      return call(e, scope);
    case Op::kFilter:
      return filter(e, evaluated(*e.parts[0], scope), scope);
    case Op::kTest: {
      const Value value = evaluated(*e.parts[0], scope);
      const Arguments given = arguments(e, scope);
      for (const Value& each : given.values) spend(std::min(value.weight(), each.weight()));
      if (e.name == "in" && !given.values.empty()) spend(shallow_size(given.values[0]));
      return passes_test(e.name, value, given);
    }
    case Op::kIf:
      if (evaluated(*e.parts[0], scope).truth()) return evaluated(*e.parts[1], scope);
      if (e.parts[2] != nullptr) return evaluated(*e.parts[2], scope);
      return Value::undefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.",
          e.line));
    case Op::kOr: {
      Value value = evaluated(*e.parts[0], scope);
      return value.truth() ? value : evaluated(*e.parts[1], scope);
    }
    case Op::kAnd: {
      Value value = evaluated(*e.parts[0], scope);
      return value.truth() ? evaluated(*e.parts[1], scope) : value;
    }
    case Op::kNot:
      return !evaluated(*e.parts[0], scope).truth();
    case Op::kNegative:
      return negative(evaluated(*e.parts[0], scope));
    case Op::kPositive: {
      Value value = evaluated(*e.parts[0], scope);
      if (!value.is_number()) throw Refusal(fmt::format("'+' in front of a {}", value.type_name()));
      return value;
    }
    case Op::kConcat: {
      Values values;
      for (const ExpressionPtr& part : e.parts) {
        values.push_back(evaluated(*part, scope));
        spend(values.back().weight());
      }
      return concatenated(values);
    }
    case Op::kCompare:
      return comparison(e, scope);
    default:
      return binary(e, scope);
  }
}

Value Renderer::binary(const Expression& e, const ScopePtr& scope) {
  const Value a = evaluated(*e.parts[0], scope);
  const Value b = evaluated(*e.parts[1], scope);
  spend(shallow_size(a) + shallow_size(b));
  Value result = computed(e.op, a, b);
  spend(shallow_size(result));
  return result;
}

Value Renderer::collection(const Expression& e, const ScopePtr& scope) {
  Values values;
  for (const ExpressionPtr& part : e.parts) values.push_back(evaluated(*part, scope));
  if (e.op == Op::kList) return Value::list(std::move(values));
  if (e.op == Op::kTuple) return Value::tuple(std::move(values));
  Items items;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) {
    check_defined(values[i]);
    items.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  }
  return Value::dict(std::move(items));
}

Value Renderer::comparison(const Expression& e, const ScopePtr& scope) {
  Value left = evaluated(*e.parts[0], scope);
  for (std::size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = evaluated(*e.parts[i + 1], scope);
    const Comparison how = e.comparisons[i];
    if (how == Comparison::kIn || how == Comparison::kNotIn) {
      const std::int64_t by = left.is_string() && right.is_string() ? left.weight() / 64 : 0;
      spend(shallow_size(right) * (1 + by));  // both are at most kMostWeight
      if (!left.is_string()) spend(std::min(left.weight(), right.weight()));
    } else {
      spend(std::min(left.weight(), right.weight()));
    }
    if (!compared(how, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

std::optional<Value> Renderer::global(std::string_view name) const {
  constexpr std::array<std::pair<std::string_view, Global>, 5> kGlobals = {
      {{"range", Global::kRange},
       {"dict", Global::kDict},
       {"namespace", Global::kNamespace},
       {"raise_exception", Global::kRaise},
       {"strftime_now", Global::kNow}}};
  for (const auto& [known, function] : kGlobals) {
    if (known == name) return Value::object(std::make_shared<Function>(function));
  }
  if (name == "lipsum" || name == "cycler" || name == "joiner") {
    throw Refusal(fmt::format("the function '{}' is not supported", name));
  }
  return {};
}

Value Renderer::name(const Expression& e, const ScopePtr& scope) {
  for (const Scope* s = scope.get(); s != nullptr; s = s->around.get()) {
    for (const auto& [known, value] : s->names) {
      if (known == e.name) return value;
    }
  }
  if (const Value* const found = variables_.find_text(e.name)) return *found;
  if (std::optional<Value> found = global(e.name)) return *std::move(found);
  return Value::undefined(fmt::format("'{}' is undefined", e.name));
}

Value Renderer::attribute(const Value& value, const std::string& name) {
  check_defined(value);
  if (value.kind() == Kind::kObject) {
    if (const auto* const space = dynamic_cast<const Namespace*>(&value.as_object())) {
      for (const auto& [known, found] : space->attributes) {
        if (known == name) return found;
      }
    }
    if (const auto* const state = dynamic_cast<const Loop*>(&value.as_object())) {
      if (std::optional<Value> found = state->attribute(name)) return *std::move(found);
      if (name == "cycle") return Value::object(std::make_shared<Bound>(value, name));
      if (name == "changed") throw Refusal("loop.changed() is not supported");
    }
  }
  if (has_method(value, name)) return Value::object(std::make_shared<Bound>(value, name));
  if (value.is_dict()) {
    if (const Value* const found = value.find_text(name)) return *found;
  }
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", value.type_name(), name));
}

Value Renderer::item(const Value& value, const Value& key) {
  check_defined(value);
  if (value.kind() == Kind::kObject) {
    return key.is_string() ? attribute(value, key.text())
                           : Value::undefined(fmt::format("a {} has no items", value.type_name()));
  }
  if (value.is_string() && key.is_whole()) spend(shallow_size(value));
  Value found = item_of(value, key);
  const bool method = found.is_undefined() && key.is_string() && has_method(value, key.text());
  return method ? Value::object(std::make_shared<Bound>(value, key.text())) : found;
}

Arguments Renderer::arguments(const Expression& e, const ScopePtr& scope) {
  Arguments given;
  for (std::size_t i = 1; i < e.parts.size(); ++i) {
    given.values.push_back(evaluated(*e.parts[i], scope));
  }
  for (const auto& [keyword, value] : e.keywords) {
    given.named.emplace_back(keyword, evaluated(*value, scope));
  }
  return given;
}

Value Renderer::filter(const Expression& e, const Value& value, const ScopePtr& scope) {
  const Arguments given = arguments(e, scope);
  line_ = e.line;
  spend(filter_cost(e.name, value, given));
  Value result = filtered(e.name, value, given);
  spend(shallow_size(result));
  return result;
}

Value Renderer::call(const Expression& e, const ScopePtr& scope) {
  const Expression& function = *e.parts[0];
  if (function.op == Op::kAttribute) {
    const Value self = evaluated(*function.parts[0], scope);
    if (has_method(self, function.name)) {
      return called_method(self, function.name, arguments(e, scope));
    }
    const Value found = attribute(self, function.name);
    return called(found, arguments(e, scope));
  }
  const Value found = evaluated(function, scope);
  return called(found, arguments(e, scope));
}

Value Renderer::called_method(const Value& self, const std::string& name,
                              const Arguments& arguments) {
  spend(method_cost(self, arguments));
  Value result = call_method(self, name, arguments);
  spend(shallow_size(result));
  return result;
}

Value Renderer::called(const Value& function, const Arguments& arguments) {
  check_defined(function);
  if (function.kind() == Kind::kObject) {
    Object& object = function.as_object();
    if (const auto* const macro = dynamic_cast<const Macro*>(&object)) {
      return called_macro(*macro, arguments);
    }
    if (const auto* const global = dynamic_cast<const Function*>(&object)) {
      return called_function(global->function, arguments);
    }
    if (const auto* const bound = dynamic_cast<const Bound*>(&object)) {
      if (bound->self.kind() != Kind::kObject) {
        return called_method(bound->self, bound->name, arguments);
      }
      const auto& state = dynamic_cast<const Loop&>(bound->self.as_object());
      if (arguments.values.empty()) throw Refusal("loop.cycle() without values");
      return arguments.values[static_cast<std::size_t>(state.index0) % arguments.values.size()];
    }
  }
  throw Refusal(fmt::format("'{}' object is not callable", function.type_name()));
}

Value Renderer::called_macro(const Macro& macro, const Arguments& arguments) {
  const Node& node = macro.node;
  const auto& parameters = node.parameters;
  if (arguments.values.size() > parameters.size()) {
    throw Refusal(
        fmt::format("macro '{}' takes not more than {} argument(s)", node.text, parameters.size()));
  }
  const auto inner = std::make_shared<Scope>(Scope{macro.scope});
  for (const auto& named : arguments.named) {
    const std::string& name = named.first;
    const bool known =
        std::ranges::any_of(parameters, [&](const auto& each) { return each.first == name; });
    if (!known) {
      throw Refusal(fmt::format("macro '{}' takes no keyword argument '{}'", node.text, name));
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].first;
    const auto named =
        std::ranges::find(arguments.named, name, [](const auto& each) { return each.first; });
    if (i < arguments.values.size()) {
      if (named != arguments.named.end()) {
        throw Refusal(fmt::format("macro '{}' got two values for '{}'", node.text, name));
      }
      inner->set(name, arguments.values[i]);
    } else if (named != arguments.named.end()) {
      inner->set(name, named->second);
    } else if (parameters[i].second != nullptr) {
      inner->set(name, evaluated(*parameters[i].second, inner));
    } else {
      inner->set(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  return Value(written(node.body, inner));
}

Value Renderer::new_namespace(const Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  namespaces_.push_back(space);
  if (arguments.values.size() > 1) throw Refusal("namespace() takes one dict at most");
  if (!arguments.values.empty()) {
    const Value& from = arguments.values[0];
    if (!from.is_dict()) throw Refusal("namespace() takes a dict, or named values");
    for (const auto& [key, value] : from.pairs()) space->set(to_text(key), value);
  }
  for (const auto& [name, value] : arguments.named) space->set(name, value);
  return Value::object(std::move(space));
}

Value Renderer::called_function(Global function, const Arguments& arguments) {
  switch (function) {
    case Global::kRange: {
      const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
      const std::int64_t start = p.has(1) ? p.whole(0, 0) : 0;
      const std::int64_t stop = p.has(1) ? p.whole(1, 0) : p.whole(0, 0);
      const std::int64_t step = p.whole(2, 1);
      if (step == 0) throw Refusal("range() arg 3 must not be zero");
      Values items;
      for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
        items.emplace_back(i);
        if (std::ssize(items) > kMostRange) {
          throw Refusal(fmt::format("a range of more than {} numbers", kMostRange));
        }
        if (__builtin_add_overflow(i, step, &i)) break;
      }
      spend(std::ssize(items));
      return Value::sequence(Kind::kRange, std::move(items));
    }
    case Global::kDict: {
      Items items;
      if (arguments.values.size() > 1) throw Refusal("dict() takes one dict at most");
      if (!arguments.values.empty()) {
        if (!arguments.values[0].is_dict()) throw Refusal("dict() takes a dict, or named values");
        spend(shallow_size(arguments.values[0]));
        items = arguments.values[0].pairs();
      }
      for (const auto& [name, value] : arguments.named) items.emplace_back(Value(name), value);
      return Value::dict(std::move(items));
    }
    case Global::kNamespace:
      return new_namespace(arguments);
    case Global::kRaise: {
      const Parameters p("raise_exception", arguments, {"message"}, 1);
      throw Raised(to_text(p.at(0)));
    }
    case Global::kNow: {
      const Parameters p("strftime_now", arguments, {"format"}, 1);
      const std::string format = p.text(0, "");
      constexpr std::size_t kLongest = 256;
      std::array<char, 4 * kLongest> text{};
      if (format.size() > kLongest) throw Refusal("strftime_now: the format is too long");
      const std::size_t size =
          std::strftime(text.data(), text.size(), format.c_str(), &options_.now);
      return Value(std::string(text.data(), size));
    }
  }
  return {};
}

Rendered Renderer::run(const Nodes& nodes) {
  out_ = &rendered_.text;
  const auto root = std::make_shared<Scope>();
  captured_.push_back(root);
  try {
    static_cast<void>(statements(nodes, root));
  } catch (const Raised& raised) {
    throw RenderError(raised.what(), line_, true);
  } catch (const Refusal& refusal) {
    throw RenderError(refusal.what(), line_, false);
  }
  return std::move(rendered_);
}

}  // namespace

Rendered render(const Nodes& nodes, const Value& variables, const RenderOptions& options) {
  return Renderer(variables, options).run(nodes);
}

}  // namespace isthmus::jinja
