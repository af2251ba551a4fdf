#include "app/jobs/run/prompt_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "stats/bench_table.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

class PromptFile : public ::testing::Test {
  protected:
    std::string write(const std::string& text) {
        std::ofstream(path_) << text;
        return path_;
    }
    std::string read_error(const std::string& text) {
        const auto read = read_prompt_file(write(text), 0, false);
        if (read.ok()) return "";
        EXPECT_EQ(read.error().kind, ErrorKind::bad_input);
        return read.error().message;
    }
    ~PromptFile() override { std::filesystem::remove(path_); }

    std::string path_ =
        (std::filesystem::temp_directory_path() / ("ds_prompts_" + std::to_string(getpid()) + ".jsonl"))
            .string();
};

std::string ids(const std::vector<Conversation>& all) {
    std::string out;
    for (const Conversation& each : all) out += (out.empty() ? "" : " ") + each.id;
    return out;
}

TEST_F(PromptFile, ReadsPromptsAndTurns) {
    const auto read =
        read_prompt_file(write("{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\"}\n"
                               "\n"
                               "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"a\", \"b\"]}\n"
                               "{\"id\": \"x\", \"prompt\": \"\\u00e9\\n\", \"other\": {}}\r\n"
                               "{\"prompt\": \"no id\"}"),
                         0, false);
    ASSERT_TRUE(is_ok(read));
    EXPECT_EQ(ids(*read), "HumanEval/0 81 x 3");
    EXPECT_EQ((*read)[0].category, "HumanEval");
    EXPECT_EQ((*read)[1].category, "writing");
    EXPECT_EQ((*read)[1].turns, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ((*read)[2].turns, (std::vector<std::string>{"\xc3\xa9\n"}));
}

TEST_F(PromptFile, ReadsGsm8k) {
    const auto read = require(read_prompt_file(
        write("{\"question\": \"2 + 2?\", \"answer\": \"#### 4\"}\n"
              "{\"question\": \"1 + 2?\", \"answer\": \"#### 3\", \"category\": \"mine\"}\n"),
        0, false));
    EXPECT_EQ(read[0].category, "GSM8K");
    EXPECT_EQ(read[0].turns, (std::vector<std::string>{"2 + 2?"}));
    EXPECT_EQ(read[1].category, "mine");
    EXPECT_FALSE(read_prompt_file(write("{\"question\": 3, \"answer\": \"\"}"), 0, false).ok());
}

TEST_F(PromptFile, LimitCountsConversations) {
    write("{\"prompt\": \"a\"}\n{\"turns\": [\"b\", \"c\"]}\n{\"prompt\": \"d\"}\n");
    EXPECT_EQ(ids(*read_prompt_file(path_, 2, false)), "0 1");
    EXPECT_EQ(ids(*read_prompt_file(path_, 99, false)), "0 1 2");
    EXPECT_EQ(ids(*read_prompt_file(path_, 0, true)), "0 1 2");
}

TEST_F(PromptFile, BalancedSelectionKeepsFileOrder) {
    std::string text;
    const char* categories[] = {"a", "a", "a", "a", "b", "b", "c"};
    for (int i = 0; i < 7; ++i)
        text += "{\"id\": " + std::to_string(i) + ", \"category\": \"" + categories[i] +
                "\", \"prompt\": \"p\"}\n";
    write(text);
    EXPECT_EQ(ids(*read_prompt_file(path_, 3, true)), "0 4 6");
    EXPECT_EQ(ids(*read_prompt_file(path_, 5, true)), "0 1 4 5 6");
    EXPECT_EQ(ids(*read_prompt_file(path_, 6, true)), "0 1 2 4 5 6");
    EXPECT_EQ(ids(*read_prompt_file(path_, 3, false)), "0 1 2");
}

/// The eight categories of MT-Bench are one of the papers' six tasks.
TEST_F(PromptFile, BalancedSelectionWeighsTasksAlike) {
    const auto spec_bench = require(
        read_prompt_file(std::string(DS_SOURCE_DIR) + "/assets/prompts/spec_bench_half.jsonl", 48, true));
    std::map<std::string, int> tasks, chat;
    for (const Conversation& one : spec_bench) {
        const std::string task = task_of_category(one.category);
        ++tasks[task];
        if (task == "Conv.") ++chat[one.category];
    }
    EXPECT_EQ(tasks.size(), 6u);
    for (const auto& [task, count] : tasks) EXPECT_EQ(count, 8) << task;
    EXPECT_EQ(chat.size(), 8u) << "within a task, its categories in turn";
}

TEST_F(PromptFile, ErrorsNameFileAndLine) {
    EXPECT_NE(read_error("\n{\"prompt\": 3}\n").find(path_ + ", line 2: prompt is not a string"),
              std::string::npos);
    EXPECT_NE(read_error("{\"prompt\": ").find("line 1: not valid JSON"), std::string::npos);
    EXPECT_NE(read_error("[1]").find("not a JSON object"), std::string::npos);
    EXPECT_NE(read_error("{\"turns\": []}").find("turns is empty"), std::string::npos);
    EXPECT_NE(read_error("{\"url\": 1}").find("has url; needs a prompt, messages or turns"),
              std::string::npos);
    EXPECT_NE(read_error("{\"turns\": [1]}").find("entry of turns"), std::string::npos);
    EXPECT_NE(read_error("\n \n").find("contains no prompt"), std::string::npos);
    EXPECT_NE(read_error("\xff\xfe{}").find("UTF-16"), std::string::npos);
    const auto missing = read_prompt_file(path_ + ".none", 0, false);
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("cannot be opened"), std::string::npos);
    EXPECT_FALSE(read_prompt_file(std::filesystem::temp_directory_path().string(), 0, false).ok());
}

/// Returns a conversation as "[system] role: text | ... > turn > turn".
std::string shape(const Conversation& one) {
    std::string out = one.system.empty() ? "" : "[" + one.system + "] ";
    for (const ChatMessage& message : one.history) out += message.role + ": " + message.content + " | ";
    for (const std::string& turn : one.turns) out += "> " + turn;
    return out;
}

/// Each form as its programs write it.
TEST_F(PromptFile, ReadsWhatOtherProgramsWrite) {
    const std::pair<const char*, const char*> forms[] = {
        {R"({"prompt": "one"})", "> one"},
        {R"({"text": "one"})", "> one"},
        {R"({"question": "one"})", "> one"},
        {R"({"problem": "one", "solution": "two"})", "> one"},
        {R"({"prompt": ["one", "two"]})", "> one> two"},
        {R"({"prompt": [{"role": "user", "content": "one"}], "chosen": []})", "> one"},
        {R"([{"role": "system", "content": "S"}, {"role": "user", "content": "one"}])", "[S] > one"},
        {R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "one"},)"
         R"({"role": "assistant", "content": "1"}, {"role": "user", "content": "two"}]})",
         "[S] user: one | assistant: 1 | > two"},
        {R"({"messages": [{"role": "developer", "content": "S"}, {"role": "user", "content": "one"}]})",
         "[S] > one"},
        {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},)"
         R"({"type": "text", "text": "b"}]}]})",
         "> a\nb"},
        {R"({"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "1"}]})", "> one"},
        {R"({"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "one"},)"
         R"({"from": "gpt", "value": "1"}, {"from": "human", "value": "two"}, {"from": "gpt", "value": "2"}]})",
         "[S] user: one | assistant: 1 | > two"},
        {R"({"conversation": [{"role": "user", "content": "one"}], "model": "m"})", "> one"},
        {R"({"custom_id": "r", "body": {"messages": [{"role": "user", "content": "one"}]}})", "> one"},
        {R"({"custom_id": "r", "body": {"input": "one", "instructions": "S"}})", "[S] > one"},
        {R"({"instruction": "one", "input": "more", "output": "x"})", "> one\nmore"},
        {R"({"instruction": "one", "input": "", "system": "S", "history": [["q", "a"]]})",
         "[S] user: q | assistant: a | > one"},
        {R"({"system_prompt": "S", "question": "one", "response": "x"})", "[S] > one"},
        {R"({"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": ["x"]})",
         "> one> two"},
        {R"({"turns": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]})",
         "> one> two"},
        {"{\n  \"prompt\": \"one\"\n}\n", "> one"},
        {"\xef\xbb\xbf{\"prompt\": \"one\"}\r\n", "> one"},
        {"[{\"prompt\": \"one\"},\n {\"prompt\": \"two\"}]\n", "> one; > two"},
        {R"(["one", "two"])", "> one; > two"},
        {"[{\"role\": \"user\", \"content\": \"one\"}]\n[{\"role\": \"user\", \"content\": \"two\"}]\n",
         "> one; > two"},
    };
    for (const auto& [text, right] : forms) {
        Notes notes;
        const auto read = read_prompt_file(write(text), 0, false, &notes);
        ASSERT_TRUE(is_ok(read)) << text;
        std::string found;
        for (const Conversation& one : *read) found += (found.empty() ? "" : "; ") + shape(one);
        EXPECT_EQ(found, right) << text;
        EXPECT_TRUE(notes.empty()) << notes.front();
    }
    EXPECT_EQ(require(read_prompt_file(write(forms[13].first), 0, false))[0].id, "r");
}

TEST_F(PromptFile, SkipsAndCountsMalformedPrompts) {
    Notes notes;
    const auto read = require(read_prompt_file(
        write("{\"prompt\": \"a\"}\n{\"prompt\": \"\\ud83d\"}\n\n{\"promt\": \"b\"}\n{\"prompt\": \"c\"}\n"),
        0, false, &notes));
    EXPECT_EQ(ids(read), "0 3") << "the places of the file";
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(
        notes[0].find(path_ + ": 2 of 4 prompts are skipped; the first, line 2: not valid JSON at column "),
        std::string::npos)
        << notes[0];
    EXPECT_NE(notes[0].find("surrogate"), std::string::npos) << notes[0];
    notes.clear();
    (void)require(read_prompt_file(write("[{\"prompt\": \"a\"}, 3]"), 0, false, &notes));
    EXPECT_NE(notes.at(0).find("1 of 2 prompts is skipped; entry 2: not a JSON object"), std::string::npos);
    notes.clear();
    (void)require(read_prompt_file(
        write(R"({"body": {"messages": [{"role": "user", "content": "a"}], "temperature": 1, "tools": []}})"),
        0, false, &notes));
    EXPECT_NE(notes.at(0).find("temperature of its prompts is not used"), std::string::npos) << notes[0];
}

TEST_F(PromptFile, NamesTheMistake) {
    const std::pair<const char*, const char*> mistakes[] = {
        {"{\"prompt\": \"a\",}", "unexpected '}'; expected string literal; remove the comma before it"},
        {"[{\"prompt\": \"a\"},]", "at column 18: unexpected ']'"},
        {"{\"prompt\": \"a\tb\"}", "control character U+0009 (HT) must be escaped"},
        {"{\"prompt\": 1e999}", "a number is too large"},
        {"{\"prompt\": [1, 2]}", "an entry of prompt is not a string or a message"},
        {R"({"messages": [{"role": "tool", "content": "a"}]})", "role 'tool'"},
        {R"({"messages": [{"role": "assistant", "content": "a"}]})", "messages has no user turn"},
        {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "'image_url'"},
        {R"({"messages": [{"role": "user"}]})", "a message has no content"},
    };
    for (const auto& [text, why] : mistakes)
        EXPECT_NE(read_error(text).find(why), std::string::npos) << read_error(text);
}

TEST_F(PromptFile, HashKnowsTheWholeConversation) {
    const auto hash = [&](const std::string& before) {
        RunConfig config;
        config.prompts_file =
            write("{\"messages\": [" + before + "{\"role\": \"user\", \"content\": \"two\"}]}");
        return require(read_prompts(config)).hash;
    };
    const std::string plain = hash("");
    const std::string one = R"({"role": "user", "content": "one"}, {"role": "assistant", "content": )";
    EXPECT_NE(hash(one + "\"1\"},"), plain);
    EXPECT_NE(hash(one + "\"1\"},"), hash(one + "\"2\"},"));
}

TEST(Prompts, EachConversationHasTheSystemTurn) {
    RunConfig config;
    config.prompt = "Hello.";
    const PromptSet plain = require(read_prompts(config));
    config.system = "Be brief.";
    const PromptSet brief = require(read_prompts(config));
    EXPECT_EQ(plain.conversations.at(0).system, "");
    EXPECT_EQ(brief.conversations.at(0).system, "Be brief.");
    EXPECT_NE(brief.hash, plain.hash);
    config.raw = true;
    const auto raw = read_prompts(config);
    ASSERT_FALSE(raw.ok());
    EXPECT_EQ(raw.error().kind, ErrorKind::bad_input);
    EXPECT_NE(raw.error().message.find("--raw"), std::string::npos) << raw.error().message;
}

TEST(PromptFileAssets, ShippedPromptsLoadUnchanged) {
    const std::string folder = std::string(DS_SOURCE_DIR) + "/assets/prompts/";
    const auto spec_bench = require(read_prompt_file(folder + "spec_bench_half.jsonl", 12, true));
    ASSERT_EQ(spec_bench.size(), 12u);
    std::vector<std::string> categories;
    for (const Conversation& each : spec_bench) {
        EXPECT_FALSE(each.category.empty());
        categories.push_back(each.category);
    }
    std::sort(categories.begin(), categories.end());
    categories.erase(std::unique(categories.begin(), categories.end()), categories.end());
    EXPECT_GE(categories.size(), 6u);
    const auto human_eval = require(read_prompt_file(folder + "humaneval_half.jsonl", 0, false));
    EXPECT_EQ(human_eval.front().id.rfind("HumanEval/", 0), 0u);
}

}  // namespace
}  // namespace draftscope
