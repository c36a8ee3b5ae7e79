// SPDX-License-Identifier: Apache-2.0
// What templates are refused, by line and construct, and what hostile ones may not do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/jinja/json_values.h"
#include "text/jinja/parser.h"
#include "text/jinja/renderer.h"

namespace isthmus::this_file {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// What is wrong with a template: by the parser, or "line N: ..." by the renderer.
std::string refusal_of(const std::string& source, std::int64_t most_work = std::int64_t{1} << 29) {
  try {
    const jinja::Nodes nodes = jinja::parse_template(source);
    const jinja::RenderOptions little{.most_work = most_work};
    return "gives " + jinja::render(nodes, jinja::Value::dict({}), little).text.substr(0, 100);
  } catch (const jinja::Refusal& refusal) {
    return refusal.what();
  } catch (const jinja::RenderError& error) {
    return "line " + std::to_string(error.line()) + ": " + error.what();
  }
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(TemplateRefusals, NameLineAndConstruct) {
  EXPECT_EQ(refusal_of("a\n{% include 'x' %}"), "line 2: {% include %} is not supported");
  EXPECT_EQ(refusal_of("{{ 1 }}\n\n{{ x |\n groupby('y') }}"),
            "line 4: the filter 'groupby' is not supported");
  EXPECT_EQ(refusal_of("{{ 1 is nothing }}"), "line 1: the test 'nothing' is not supported");
  EXPECT_EQ(refusal_of("\n{% for x in y recursive %}{% endfor %}"),
            "line 2: a recursive loop is not supported");
  EXPECT_EQ(refusal_of("{{ f(*x) }}"), "line 1: a call with * or ** is not supported");
  EXPECT_EQ(refusal_of("{% if 1 %}\n{% else %}"), "line 2: {% endif %} is missing");
  EXPECT_EQ(refusal_of("\n\n{{ 1 + }}"), "line 3: a value expected, not \"}}\"");
  EXPECT_EQ(refusal_of("{{ 99999999999999999999 }}"),
            "line 1: the number 99999999999999999999 is beyond 64 bits, or none");
  EXPECT_EQ(refusal_of("x\n{{ 'abc'.encode() }}"), "line 2: str.encode() is not supported");
  EXPECT_EQ(refusal_of("{{ [].append(1) }}"),
            "line 1: list.append() is not supported: a template changes no list and no dict");
  EXPECT_EQ(refusal_of("{% macro m() %}\n{{ no.thing }}{% endmacro %}\n{{ m() }}"),
            "line 2: 'no' is undefined");
  EXPECT_THAT(refusal_of("{{ '%s' % 1 }}"), HasSubstr("printf formats"));
  EXPECT_THAT(refusal_of("{{ '\xff' }}"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal_of("{{ 'é' | upper }}"), HasSubstr("beyond ASCII"));
  EXPECT_EQ(refusal_of("{{ cycler('a') }}"), "line 1: the function 'cycler' is not supported");
}

TEST(TemplateLimits, EndWorkThatDoesNotEnd) {
  const std::string loop = "{% for a in range(100000) %}";
  EXPECT_THAT(
      refusal_of(loop + loop + loop + "{% set x = 1 %}" + repeated("{% endfor %}", 3), 1 << 24),
      HasSubstr("takes more than"));
  EXPECT_THAT(refusal_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("calls within one another"));
  EXPECT_THAT(refusal_of("{% for a in range(99999999999) %}{% endfor %}"), HasSubstr("a range"));
  EXPECT_THAT(refusal_of("{{ 2 ** 99999999999 }}"), HasSubstr("beyond 64 bits"));
  EXPECT_EQ(refusal_of("{{ (-1) ** 99999999999 }}{{ 1 ** 99999999999 }}{{ 0 ** 99999999999 }}"),
            "gives -110");
  // A search for half a text in itself would take the square of its length.
  EXPECT_THAT(refusal_of("{% set a = 'a' * 4000000 %}{{ ('a' * 2000000 ~ 'b') in a }}"),
              HasSubstr("takes more than"));
}

TEST(TemplateLimits, EndValuesThatGrow) {
  EXPECT_THAT(refusal_of("{{ 'x' * 999999999 }}"), HasSubstr("a value of more than"));
  EXPECT_THAT(refusal_of("{{ [1] * 999999999 }}"), HasSubstr("a value of more than"));
  EXPECT_THAT(refusal_of("{% set ns = namespace(t='xxxx') %}{% for i in range(60) %}"
                         "{% set ns.t = ns.t ~ ns.t %}{% endfor %}"),
              HasSubstr("a value of more than"));
  EXPECT_THAT(refusal_of("{% set ns = namespace(t='x') %}{% for i in range(60) %}"
                         "{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t }}"),
              HasSubstr("a value of more than"));
  EXPECT_THAT(refusal_of("{% set ns = namespace(t=[]) %}{% for i in range(999) %}"
                         "{% set ns.t = [ns.t] %}{% endfor %}"),
              HasSubstr("more than 100 levels"));
  EXPECT_THAT(refusal_of("{{ 'a\\nb' | indent(999999999) }}"), HasSubstr("a value of more than"));
  EXPECT_THAT(refusal_of("{{ [[1]] | tojson(indent=999999999) }}"),
              HasSubstr("a value of more than"));
  EXPECT_THAT(refusal_of("{{ ('a' * 100000).replace('a', 'b' * 100000) }}"), StartsWith("line 1"));
  EXPECT_THAT(refusal_of("{% for i in range(100000) %}" + repeated("x", 10000) + "{% endfor %}"),
              HasSubstr("a value of more than"));
}

TEST(TemplateLimits, EndDepthOfTheSource) {
  EXPECT_THAT(refusal_of("{{ " + repeated("(", 9000) + "1" + repeated(")", 9000) + " }}"),
              HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{{ " + repeated("not ", 100000) + "1 }}"), HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{{ " + repeated("-", 100000) + "1 }}"), HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{{ 1" + repeated(" + 1", 100000) + " }}"), HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{{ x" + repeated(".x", 100000) + " }}"), HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{{ x" + repeated("|e", 100000) + " }}"), HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{{ 1" + repeated(" if 1 else 1", 50000) + " }}"), HasSubstr("levels"));
  EXPECT_THAT(refusal_of(repeated("{% if 1 %}", 50000)), HasSubstr("levels"));
  EXPECT_THAT(refusal_of("{% set " + repeated("(", 9000) + "a" + repeated(")", 9000) + " = 1 %}"),
              HasSubstr("levels"));
  // Many branches, parts and arguments side by side are no depth.
  EXPECT_EQ(refusal_of("{% if 0 %}" + repeated("{% elif 0 %}", 1000) + "{% endif %}.{{ (''" +
                       repeated(" ~ 1", 1000) + ") | length }}"),
            "gives .1000");
  EXPECT_THAT(refusal_of(std::string((1 << 20) + 1, 'x')), HasSubstr("are the most"));
}

TEST(TemplateLimits, NamespacesThatHoldOneAnotherAreFreed) {
  // Under the leak checker of the sanitized build.
  EXPECT_EQ(refusal_of("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                       "{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}"
                       "{% set a.m = m %}{% endfor %}{{ a.m() }}"),
            "gives 1");
}

TEST(TemplateValues, OfJsonKeepTheOrderOfKeys) {
  const jinja::Value value =
      jinja::value_of_json(R"({"b": [1, 2.5, null], "a": {"c": true}, "b": "last"})", "it");
  EXPECT_EQ(jinja::to_text(value), "{'b': 'last', 'a': {'c': True}}");
  for (const char* const bad :
       {"{", "[1,]", "99999999999999999999", "18446744073709551615", "\"\xff\""}) {
    EXPECT_THROW(static_cast<void>(jinja::value_of_json(bad, "it")), std::runtime_error) << bad;
  }
  EXPECT_THROW(static_cast<void>(jinja::value_of_json(repeated("[", 65) + repeated("]", 65), "it")),
               std::runtime_error);
}

}  // namespace
}  // namespace isthmus::this_file
