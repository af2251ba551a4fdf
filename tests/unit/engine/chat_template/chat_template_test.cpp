#include "engine/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/chat_template/template.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const std::vector<ChatMessage> question = {{"user", " Why? "}};
const std::vector<ChatMessage> conversation = {
    {"system", "Be brief."}, {"user", "one"}, {"assistant", "two"}, {"user", "three"}};

std::string render(std::string_view source, const std::vector<ChatMessage>& messages) {
    const ChatTemplate chat = ChatTemplate::from_source(source, "m.gguf");
    EXPECT_EQ(chat.problem(), "");
    return chat.render(messages).value();
}

TEST(ChatTemplate, JoinsContentsWithoutATemplate) {
    EXPECT_EQ(render("", conversation), "Be brief.onetwothree");
    EXPECT_TRUE(ChatTemplate::from_source(" \n", "m.gguf").is_raw());
}

TEST(ChatTemplate, DefinesHuggingFaceVariables) {
    EXPECT_EQ(
        render("{{ bos_token }}{% for m in messages %}{{ m.role + m['content'] }}{% endfor %}{{ eos_token }}"
               "{{ add_generation_prompt }}{{ tools is defined and tools is none }}{{ unknown }}",
               question),
        "<s>user Why? </s>TrueTrue");
    const auto nameless =
        ChatTemplate::from_source("{{ bos_token is defined }}{{ messages[0].content }}", "m", {"", "</s>"});
    EXPECT_EQ(*nameless.render(question), "False Why? ");
}

/// The current date would change the prompt every day.
TEST(ChatTemplate, UsesAFixedDate) {
    EXPECT_EQ(render("{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string "
                     "= strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif "
                     "%}{% endif %}Today Date: {{ date_string }}{{ messages[0].content }}",
                     question),
              "Today Date: 26 Jul 2024 Why? ");
    EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %A') }}{{ messages[0].content }}", question),
              "2024-07-26 Friday Why? ");
}

ChatTemplate parsed(std::string_view source, const std::vector<std::string>& switches = {}) {
    return ChatTemplate::from_source(source, "m.gguf").with_switches(require(normalise_switches(switches)));
}

TEST(ChatTemplate, SwitchSetsTheDate) {
    constexpr const char* dated =
        "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y %a %j') }}{% else %}-{% endif %}{{ "
        "messages[0].content }}";
    EXPECT_EQ(*parsed(dated).render(question), "- Why? ");
    EXPECT_THAT(parsed(dated).notes(false),
                ElementsAre(HasSubstr("m.gguf: the chat template writes today's date")));
    EXPECT_EQ(*parsed(dated, {"date=2026-02-28"}).render(question), "28 Feb 2026 Sat 059 Why? ");
    EXPECT_THAT(parsed(dated, {"date=2026-02-28"}).notes(false), ElementsAre());
    EXPECT_THAT(require(normalise_switches({"date=today"})),
                ElementsAre(::testing::MatchesRegex("date=20..-..-..")));
    EXPECT_THAT(parsed("{{ messages[0].content }}", {"date=2026-02-28"}).notes(false),
                ElementsAre(HasSubstr("date=2026-02-28 has no effect")));
    for (const char* wrong : {"date=2026-02-30", "date=", "date=28 Feb", "date=2026-2-3", "date=2026-02-03x"})
        EXPECT_FALSE(normalise_switches({wrong}).ok()) << wrong;
}

TEST(ChatTemplate, SwitchesAreVariables) {
    constexpr const char* reads =
        "{{ messages[0].content }}{{ [flag | default(0), n | default(0), t | default(0)] | tojson }}";
    EXPECT_EQ(*parsed(reads, {"flag=false", "n=3", "t=low"}).render(question), " Why? [false, 3, \"low\"]");
    EXPECT_EQ(*parsed(reads, {"flag=True", "n=0.5", "t=\"3\""}).render(question), " Why? [true, 0.5, \"3\"]");
    EXPECT_EQ(*parsed(reads, {"flag=none", "n=", "t=a=b"}).render(question),
              " Why? [\"none\", \"\", \"a=b\"]");
    EXPECT_THAT(
        parsed(reads, {"flag=1", "fla=1"}).notes(false),
        ElementsAre(HasSubstr("--template fla=1 has no effect; the chat template does not read fla")));
    EXPECT_THAT(require(normalise_switches({"b=1", "a=2"})), ElementsAre("a=2", "b=1"));
    for (const char* wrong : {"flag", "=1", "1a=2", "a b=1", "messages=x", "tools=1"})
        EXPECT_FALSE(normalise_switches({wrong}).ok()) << wrong;
    EXPECT_FALSE(normalise_switches({"a=1", "a=2"}).ok());
}

TEST(ChatTemplate, WritesTypedParts) {
    EXPECT_EQ(
        render("{% for m in messages %}{{ m.role }}:{% for p in m.content %}{% if p.type == 'text' %}{{ "
               "p.text }}{% endif %}{% endfor %};{% endfor %}",
               conversation),
        "system:Be brief.;user:one;assistant:two;user:three;");
    EXPECT_EQ(render("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", question), " Why? ");
    EXPECT_EQ(
        render("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}parts{% endif "
               "%}{% endfor %}",
               question),
        " Why? ")
        << "a text is the first choice";
}

TEST(ChatTemplate, RefusesTemplatesThatLoseTheQuestion) {
    for (const char* source : {"hello", "{% for m in messages %}{{ m.role }}{% endfor %}",
                               "{% for m in messages %}{{ m.text }}{% endfor %}"}) {
        EXPECT_THAT(parsed(source).problem(),
                    HasSubstr("m.gguf: the chat template does not write the user's text"));
    }
    EXPECT_THAT(
        parsed("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}")
            .notes(true),
        ElementsAre("m.gguf: the chat template leaves out the system turn"));
}

TEST(ChatTemplate, ChoosesTheDefault) {
    Notes notes;
    EXPECT_EQ(choose_template({{"default", "a"}, {"rag", "b"}}, "m", notes), "a");
    EXPECT_THAT(notes, ElementsAre());
    EXPECT_EQ(choose_template({{"tool_use", "c"}, {"rag", "b"}}, "m", notes), "b");
    EXPECT_THAT(notes, ElementsAre("m: no chat template is named default; 'rag' is used (of rag, tool_use)"));
}

TEST(ChatTemplate, ReportsUnsupportedConstructsWithTheirLine) {
    const auto refused = [](std::string_view source) {
        return ChatTemplate::from_source(source, "m.gguf").problem();
    };
    EXPECT_THAT(refused("a\n{% include 'x' %}"),
                HasSubstr("m.gguf: the chat template cannot be used (line 2: the tag is not supported by "
                          "this version at 'include'); use --raw"));
    EXPECT_THAT(refused("{{ messages | strange }}"), HasSubstr("filter 'strange' is not supported"));
    EXPECT_THAT(refused("\n\n{{ strange() }}"), HasSubstr("line 3: 'strange' is not a function"));
    EXPECT_THAT(refused("{% for m in messages %}"), HasSubstr("expected {% endfor %}"));
    EXPECT_THAT(refused("{{ messages[0].content.x.y }}"), HasSubstr("'x' is undefined"));
}

TEST(ChatTemplate, ReportsExceptionsRaisedByTheTemplate) {
    const auto chat = ChatTemplate::from_source(
        "{% if messages | length > 1 %}{{ raise_exception('one turn only') }}{% endif %}x{{ "
        "messages[0].content }}",
        "m.gguf");
    EXPECT_EQ(*chat.render(question), "x Why? ");
    const auto written = chat.render(conversation);
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(written.error().message, HasSubstr("the template raised: one turn only"));
}

TEST(ChatTemplate, StopsEndlessTemplates) {
    std::string sum = "{{ 1";
    for (int i = 0; i < 100000; ++i) sum += "+1";
    for (const std::string& source :
         {std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
          std::string("{{ 'x' * 100000000 }}"),
          std::string("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
                      "{% endfor %}"),
          std::string("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
          "{{ " + std::string(100000, '(') + "1", sum + " }}"})
        EXPECT_NE(ChatTemplate::from_source(source, "m").problem(), "") << source.substr(0, 40);
}

/// Values are copied, so their depth and size are limited.
TEST(ChatTemplate, StopsValuesThatGrow) {
    const auto stopped = [](const std::string& start, const std::string& next) {
        const auto chat =
            ChatTemplate::from_source("{% set ns = namespace(x=" + start + ") %}{% for i in range(999) %}" +
                                          "{% set ns.x = " + next + " %}{% endfor %}",
                                      "m");
        return chat.problem();
    };
    EXPECT_THAT(stopped("1", "[ns.x]"), HasSubstr("line 1: a value is nested too deeply"));
    EXPECT_THAT(stopped("1", "{'k': ns.x}"), HasSubstr("line 1: a value is nested too deeply"));
    EXPECT_THAT(stopped("1", "[ns.x, ns.x]"), HasSubstr("line 1: a value is too large"));
    EXPECT_THAT(stopped("[1]", "ns.x + ns.x"), HasSubstr("line 1: a value is too large"));
    EXPECT_THAT(stopped("'x' * 999999", "range(99999) | map(attribute='y', default=ns.x) | list"),
                HasSubstr("line 1: a string is longer than 64 MiB"));
}

TEST(ChatTemplate, RendersALongConversation) {
    std::vector<ChatMessage> messages;
    for (int i = 0; i < 200; ++i)
        messages.push_back({i % 2 == 0 ? "user" : "assistant", std::string(1000, 'x')});
    const std::string out = render(
        "{% for m in messages %}{% if messages[loop.index0].role == 'user' and messages | length > 1 %}"
        "{{ m.content | trim }}{% endif %}{% endfor %}{{ messages[0].content if messages | length == 1 }}",
        messages);
    EXPECT_EQ(out.size(), 100'000u);
}

TEST(ChatTemplate, ASwitchMayRemoveTheProblem) {
    const auto needs = [](const std::vector<std::string>& switches) {
        return parsed(
            "{% if not style %}{{ raise_exception('name a style') }}{% endif %}{{ style }}:"
            "{% if form == 'parts' %}{{ messages[0].content[0].text }}{% else %}"
            "{{ messages[0].content }}{% endif %}",
            switches);
    };
    EXPECT_THAT(needs({}).problem(), HasSubstr("name a style"));
    EXPECT_THAT(needs({}).problem(), HasSubstr("--template KEY=VALUE"));
    EXPECT_THAT(needs({"other=1"}).problem(), HasSubstr("name a style"));
    for (const auto& switches : {std::vector<std::string>{"style=short"}, {"style=short", "form=parts"}}) {
        EXPECT_EQ(needs(switches).problem(), "");
        EXPECT_FALSE(needs(switches).is_raw());
        EXPECT_EQ(*needs(switches).render(question), "short: Why? ");
    }
}

TEST(ChatTemplate, RawWithProblemKeepsTheReason) {
    const ChatTemplate chat = ChatTemplate::from_source("why", "m.gguf");
    EXPECT_TRUE(chat.is_raw());
    EXPECT_THAT(chat.problem(), HasSubstr("m.gguf: the chat template does not write the user's text"));
    EXPECT_EQ(*chat.render(conversation), "Be brief.onetwothree");
}

const Json& golden() {
    static const Json json = [] {
        std::ifstream file(DS_SOURCE_DIR "/tests/golden/model/templates.json");
        return Json::parse(file);
    }();
    return json;
}

jinja::Value golden_names() {
    return jinja::Value::parse(golden()["names"].dump());
}

TEST(JinjaGolden, RendersLikeJinja) {
    const jinja::Value names = golden_names();
    ASSERT_GT(golden()["rendered"].size(), 300u);
    for (const Json& row : golden()["rendered"]) {
        const auto source = row["source"].get<std::string>();
        const auto parsed = require(jinja::Template::parse(source));
        const auto text = require(parsed.render(names));
        EXPECT_EQ(text, row["text"].get<std::string>()) << source;
    }
}

TEST(JinjaGolden, RejectsWhatJinjaRejects) {
    const jinja::Value names = golden_names();
    for (const Json& row : golden()["wrong"]) {
        const auto source = row.get<std::string>();
        const auto parsed = jinja::Template::parse(source);
        if (!parsed.ok()) {
            EXPECT_THAT(parsed.error().message, HasSubstr("line 1: ")) << source;
            continue;
        }
        const auto text = parsed->render(names);
        ASSERT_FALSE(text.ok()) << source << "\n" << *text;
        EXPECT_THAT(text.error().message, HasSubstr("line 1: ")) << source;
    }
}

/// Damaged templates render or return an error; they never crash.
TEST(JinjaGolden, SurvivesDamagedTemplates) {
    const jinja::Value names = golden_names();
    std::uint32_t state = 12345;
    const auto draw = [&](std::size_t below) {
        state = state * 1664525u + 1013904223u;
        return static_cast<std::size_t>(state >> 8) % below;
    };
    int read = 0;
    for (const Json& row : golden()["rendered"]) {
        for (int i = 0; i < 10; ++i) {
            std::string source = row["source"].get<std::string>();
            for (std::size_t damage = draw(3) + 1; damage > 0 && !source.empty(); --damage) {
                const std::size_t at = draw(source.size());
                if (draw(2) == 0)
                    source.erase(at, draw(4) + 1);
                else
                    source[at] = "{}%#()[]|'\"\\.,:-+*~ \n0anxyz\xff"[draw(29)];
            }
            const auto parsed = jinja::Template::parse(source);
            if (!parsed.ok()) continue;
            read += parsed->render(names).ok() ? 1 : 0;
        }
    }
    EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace draftscope
