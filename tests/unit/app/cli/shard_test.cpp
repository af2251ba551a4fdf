#include <map>
#include <nlohmann/json.hpp>

#include "app/cli/shard_option.h"
#include "tests/support/results.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using cli::expand_pattern;
using cli::find_shard;
using cli::parse_shard;
using nlohmann::json;

cli::Environment variables(std::map<std::string, std::string> values) {
    return [values = std::move(values)](const char* name) -> const char* {
        const auto found = values.find(name);
        return found == values.end() ? nullptr : found->second.c_str();
    };
}

TEST(Shard, ComesFromASlurmArray) {
    std::map<std::string, std::string> task = {{"SLURM_ARRAY_TASK_ID", "7"},
                                               {"SLURM_ARRAY_TASK_MIN", "1"},
                                               {"SLURM_ARRAY_TASK_MAX", "9"},
                                               {"SLURM_ARRAY_TASK_STEP", "2"},
                                               {"SLURM_ARRAY_TASK_COUNT", "5"},
                                               // A batch script has them, but is one process.
                                               {"SLURM_PROCID", "0"},
                                               {"SLURM_NTASKS", "4"}};
    const auto found = require(find_shard(variables(task)));
    EXPECT_EQ(found.shard, (Shard{4, 5}));
    EXPECT_EQ(found.variables, "SLURM_ARRAY_TASK_ID");
    // The ranks of an srun step divide the shard of its array task.
    task["SLURM_PROCID"] = "1";
    task["SLURM_STEP_NUM_TASKS"] = "4";
    EXPECT_EQ(require(find_shard(variables(task))).shard, (Shard{14, 20}));
    task["SLURM_ARRAY_TASK_COUNT"] = "3";  // --array=1,7,9
    EXPECT_FALSE(find_shard(variables(task)).ok());
}

TEST(Shard, ComesFromMpi) {
    const auto found = require(find_shard(variables({{"OMPI_COMM_WORLD_RANK", "2"},
                                                     {"OMPI_COMM_WORLD_SIZE", "3"},
                                                     // Of the daemon that mpirun starts on each node.
                                                     {"SLURM_PROCID", "0"},
                                                     {"SLURM_STEP_NUM_TASKS", "2"}})));
    EXPECT_EQ(found.shard, (Shard{3, 3}));
    EXPECT_EQ(require(find_shard(variables({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}))).shard, (Shard{1, 2}));
    const auto one =
        require(find_shard(variables({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}})));
    EXPECT_TRUE(one.shard.whole());
    EXPECT_EQ(one.variables, "");
}

TEST(Shard, IsParsed) {
    EXPECT_EQ(require(parse_shard("2/8")), (Shard{2, 8}));
    EXPECT_TRUE(require(parse_shard("off")).whole());
    for (const char* wrong : {"0/2", "3/2", "2", "1/", "a/b", "1/2/3"})
        EXPECT_FALSE(parse_shard(wrong).ok()) << wrong;
}

TEST(Shard, NamesItsFile) {
    const auto job = variables({{"SLURM_JOB_ID", "42"}});
    EXPECT_EQ(require(expand_pattern("--save", "a-%j-%i-of-%n%%.dscope", {2, 8}, job)),
              "a-42-2-of-8%.dscope");
    EXPECT_EQ(require(expand_pattern("--save", "a.dscope", {}, job)), "a.dscope");
    const auto clash = expand_pattern("--save", "a-%n.dscope", {2, 8}, job);
    ASSERT_FALSE(clash.ok());
    EXPECT_NE(clash.error().message.find("every one of the 8 shards would write this file"),
              std::string::npos);
    EXPECT_FALSE(expand_pattern("--save", "100%.dscope", {}, job).ok());
    EXPECT_FALSE(expand_pattern("--save", "%j.dscope", {}, variables({})).ok());
}

/// The program on a tiny model, with sampling: a text depends on the seed and its prompt's place.
class ShardCommands : public ::testing::Test {
  protected:
    void SetUp() override {
        model_ = tiny_model(folder_);
        ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
        std::string lines;
        for (int i = 0; i < 5; ++i)
            lines += json{{"id", "q" + std::to_string(i)}, {"turns", {"hello you", "and the"}}}.dump() + "\n";
        write_text(folder_.file("prompts.jsonl"), lines);
    }
    Arguments words(const std::string& command) const {
        return arguments(
            command +
                " --model {} --prompts {} --max-new 8 --ignore-eos --threads 1 --precision f32 --raw "
                "--temperature 1 --seed 3 --quiet --json",
            model_, folder_.file("prompts.jsonl"));
    }
    Arguments run_words() const {
        return words("run") + arguments("--drafter eagle2:{} --baseline 3", folder_.file("eagle2"));
    }
    json document(const Arguments& words) { return parse_output(run(folder_, words)); }

    ScratchFolder folder_;
    std::string model_;
};

/// Returns the values of `key` in the prompts of all documents, by id and turn; each prompt may occur once.
std::map<std::string, json> by_prompt(const std::vector<json>& documents, const char* key) {
    std::map<std::string, json> out;
    for (const json& document : documents) {
        std::map<std::string, int> turns;
        for (const json& prompt : document["prompts"]) {
            const std::string id = prompt["id"].get<std::string>();
            EXPECT_TRUE(out.emplace(id + "." + std::to_string(turns[id]++), prompt[key]).second) << id;
        }
    }
    return out;
}

TEST_F(ShardCommands, RunsPartitionTheTexts) {
    const json whole = document(run_words());
    const json first = document(run_words() + Arguments{"--shard", "1/2"});
    setenv("SLURM_ARRAY_TASK_ID", "2", 1);
    setenv("SLURM_ARRAY_TASK_MIN", "1", 1);
    setenv("SLURM_ARRAY_TASK_MAX", "2", 1);
    const ProcessResult done = run(folder_, run_words());
    const json off = document(run_words() + Arguments{"--shard", "off"});
    const ProcessResult clash = run(folder_, run_words() + Arguments{"--save", folder_.file("a.dscope")});
    for (const char* name : {"ID", "MIN", "MAX"}) unsetenv((std::string("SLURM_ARRAY_TASK_") + name).c_str());
    const json second = parse_output(done);
    EXPECT_NE(done.err.find("shard 2 of 2, from SLURM_ARRAY_TASK_ID"), std::string::npos) << done.err;
    EXPECT_EQ(clash.exit_code, 2);
    EXPECT_EQ(by_prompt({first}, "tokens").size(), 6u);
    EXPECT_EQ(by_prompt({second}, "tokens").size(), 4u);
    EXPECT_EQ(by_prompt({first, second}, "tokens"), by_prompt({whole}, "tokens"));
    EXPECT_EQ(by_prompt({first, second}, "rounds"), by_prompt({whole}, "rounds"));
    EXPECT_EQ(by_prompt({off}, "tokens"), by_prompt({whole}, "tokens"));
    EXPECT_EQ(whole["shard"], nullptr);
    EXPECT_EQ(first["shard"], (json{{"index", 1}, {"count", 2}}));
}

TEST_F(ShardCommands, RecordingsAndReplaysPartitionTheRounds) {
    const auto record = [&](const std::string& out, const Arguments& more) {
        return document(words("record") + Arguments{"--no-times", "--out", folder_.file(out)} + more);
    };
    const auto replay = [&](const std::string& recording, const Arguments& more) {
        return document(
            arguments("replay --recording {} --model {} --drafter eagle2:{} --threads 1 --quiet --json",
                      folder_.file(recording), model_, folder_.file("eagle2")) +
            more);
    };
    record("whole", {});
    record("part%i", {"--shard", "1/2"});
    record("part%i", {"--shard", "2/2"});
    const auto whole = by_prompt({replay("whole", {})}, "heads");
    EXPECT_EQ(by_prompt({replay("part1", {}), replay("part2", {})}, "heads"), whole);
    EXPECT_EQ(by_prompt({replay("whole", {"--shard", "1/3"}), replay("whole", {"--shard", "2/3"}),
                         replay("whole", {"--shard", "3/3"})},
                        "heads"),
              whole);
    expect_one_line_error(
        run(folder_, words("record") + Arguments{"--out", folder_.file("p"), "--shard", "1/2"}),
        {"--out", "%i"});
    // The pooled recording is that of the whole, but for the order of its rows.
    const Arguments pool = {"merge", "--pool", folder_.file("pooled"), folder_.file("part1")};
    expect_one_line_error(run(folder_, pool), {"shard 2/2 is missing"});
    expect_one_line_error(run(folder_, pool + Arguments{folder_.file("part1")}), {"shard 1/2 is in"});
    expect_one_line_error(run(folder_, pool + Arguments{folder_.file("whole")}), {"whole", "not of a shard"});
    const ProcessResult done = run(folder_, pool + Arguments{folder_.file("part2")});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(replay("pooled", {})["prompts"], replay("whole", {})["prompts"]);
    const auto text = [&](const std::string& name) {
        json info = json::parse(read_text(folder_.file(name) + "/trace.json"));
        for (json& prompt : info["prompts"]) prompt.erase("first_row");
        return info;
    };
    EXPECT_EQ(text("pooled"), text("whole"));
}

/// What a cluster's job does: shards with a capture each, run again as a whole after a failure, and pooled.
TEST_F(ShardCommands, PooledCapturesHaveTheFiguresOfTheWhole) {
    const std::string pattern = folder_.file("part-%i-of-%n.dscope"), whole = folder_.file("whole.dscope"),
                      pooled = folder_.file("pooled.dscope");
    document(run_words() + Arguments{"--save", whole});
    for (int attempt = 0; attempt < 2; ++attempt)
        for (const char* shard : {"1/2", "2/2"}) {
            const json done = document(
                run_words() + Arguments{"--save", pattern, "--resume", "--shard", shard, "--tag", "job=7"});
            EXPECT_EQ(done["resumed"], attempt == 0 ? 0 : shard[0] == '1' ? 3 : 2);
        }
    const Arguments pool = {"merge", "--pool", pooled, folder_.file("part-1-of-2.dscope")};
    expect_one_line_error(run(folder_, pool), {"shard 2/2 is missing"});
    const ProcessResult done = run(folder_, pool + Arguments{folder_.file("part-2-of-2.dscope")});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const auto stats = [&](const std::string& file) {
        json out;
        for (const json& run : document({"stats", file, "--json"})["runs"])
            for (const char* key : {"tau", "rounds", "generated", "intervals"})
                out.push_back(run["totals"][key]);
        return out;
    };
    EXPECT_EQ(stats(pooled), stats(whole));
    const json compared = document({"compare", whole, pooled, "--run-a", "1", "--run-b", "1", "--json"});
    EXPECT_EQ(compared["pairs"], 10);
    EXPECT_EQ(compared["conversations"], 5);
    EXPECT_EQ(compared["same_tokens"], 10);
    expect_one_line_error(run(folder_, run_words() + Arguments{"--resume"}), {"--resume", "--save"});
}

TEST_F(ShardCommands, RejectsShardsThatCannotWork) {
    expect_one_line_error(run(folder_, run_words() + Arguments{"--shard", "6/6"}),
                          {"--shard 6/6", "at most 5"});
    expect_one_line_error(run(folder_, run_words() + Arguments{"--shard", "1/2", "--tree", "auto"}),
                          {"--tree auto", "could choose another tree for the shards"});
    expect_one_line_error(run(folder_, arguments("run --model {} --prompt hi --shard 1/2", model_)),
                          {"--shard 1/2", "one prompt"});
    EXPECT_EQ(run(folder_, run_words() + Arguments{"--tag", "host"}).exit_code, 2);
}

}  // namespace
}  // namespace draftscope::testing
