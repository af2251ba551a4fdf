#include "app/jobs/run/prompt_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "profiler/stats/bench_table.h"
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
    EXPECT_NE(
        read_error("{\"prompt\": \"a\"}\n{\"prompt\": 3}\n").find(path_ + ", line 2: prompt is not a string"),
        std::string::npos);
    EXPECT_NE(read_error("{\"prompt\": ").find("line 1: not valid JSON"), std::string::npos);
    EXPECT_NE(read_error("[1]").find("not a JSON object"), std::string::npos);
    EXPECT_NE(read_error("{\"turns\": []}").find("needs a prompt or"), std::string::npos);
    EXPECT_NE(read_error("{\"turns\": [1]}").find("entry of turns"), std::string::npos);
    EXPECT_NE(read_error("\n \n").find("contains no prompt"), std::string::npos);
    EXPECT_NE(read_error("\xff\xfe{}").find("UTF-16"), std::string::npos);
    const auto missing = read_prompt_file(path_ + ".none", 0, false);
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("cannot be opened"), std::string::npos);
    EXPECT_FALSE(read_prompt_file(std::filesystem::temp_directory_path().string(), 0, false).ok());
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
