#include <nlohmann/json.hpp>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

class ReproduceCommand : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
        std::string lines;
        for (const char* category : {"translation", "qa", "qa", "other"})
            lines += json{{"category", category}, {"prompt", "hello you"}}.dump() + "\n";
        write_text(folder_.file("prompts.jsonl"), lines);
    }
    ProcessResult reproduce(const Arguments& more) const {
        return run(folder_, arguments("reproduce --model {} --prompts {} --drafter eagle2:{} --tree chain=2 "
                                      "--max-new 6 --raw --threads 1 --quiet --ignore-eos",
                                      tiny_model(folder_, 512), folder_.file("prompts.jsonl"),
                                      folder_.file("eagle2")) +
                                more);
    }
    ScratchFolder folder_;
};

const json& row_named(const json& report, const std::string& name) {
    for (const json& row : report["blocks"][0]["rows"])
        if (row["row"] == name) return row;
    static const json none;
    ADD_FAILURE() << name;
    return none;
}
const json& value_of(const json& row, const std::string& column, const std::string& quantity) {
    for (const json& value : row["values"])
        if (value["column"] == column && value["quantity"] == quantity) return value;
    static const json none;
    ADD_FAILURE() << column << " " << quantity;
    return none;
}

TEST_F(ReproduceCommand, PutsOurValuesNextToThePublishedOnes) {
    const json report = parse_output(reproduce({"microspec/table-4", "--json"}));
    EXPECT_EQ(report["table"], "microspec/table-4");
    EXPECT_EQ(report["against"], "Qwen-2-7B-Instruct");
    EXPECT_EQ(report["conversations"], (json{{"MT", 1}, {"QA", 2}}));
    const json& full = row_named(report, "full V=152k");
    EXPECT_EQ(full["missing"], nullptr);
    const double mt = value_of(full, "MT", "tau")["ours"], qa = value_of(full, "QA", "tau")["ours"];
    EXPECT_DOUBLE_EQ(value_of(full, "Average", "tau")["ours"].get<double>(), (mt + qa) / 2);
    EXPECT_EQ(value_of(full, "Math", "tau")["ours"], nullptr);
    const json& micro = row_named(report, "microspec V<3k");
    EXPECT_EQ(value_of(micro, "MT", "tau")["published"], 2.69);
    EXPECT_GE(value_of(micro, "MT", "tau")["ours"].get<double>(), 1);
    EXPECT_NE(row_named(report, "coral")["missing"].get<std::string>().find("coral"), std::string::npos);
    EXPECT_EQ(row_named(report, "coral")["kind"], "copied");
    EXPECT_EQ(report["blocks"][0]["repeat"], 1);
    const std::string differences = report["differences"].dump();
    for (const char* part : {"target: Qwen-2-7B-Instruct", "H20Z", "chain=2", "QA 2 (",
                             "values copied by the paper's authors: coral, dynaspec"})
        EXPECT_NE(differences.find(part), std::string::npos) << part << "\n" << differences;
}

TEST_F(ReproduceCommand, LimitCountsPerTaskAndTheTextHasAllLines) {
    std::string lines;
    for (int i = 0; i < 8; ++i) lines += json{{"category", "qa"}, {"prompt", "hello you"}}.dump() + "\n";
    write_text(folder_.file("prompts.jsonl"), lines);
    const ProcessResult done = reproduce({"microspec/table-4", "--limit", "6"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    for (const char* part :
         {"MicroSpec (arXiv 2605.26444", "compare the shape, not the level: rho_tau by row ", "tau of full ",
          "ours", "95 %", "paper", "not run: coral: ", "QA 6 (", "Average*", "* over fewer tasks",
          "what differs:", "averages here are without Code, Conv., MT, Math, RAG, Summ."})
        EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
}

/// Nothing is timed in a table of acceptance. What a replay only estimates, MicroSpec's candidates from the
/// whole tree, is decoded.
TEST_F(ReproduceCommand, AcceptanceIsThatOfDecoding) {
    const auto bench = [&](const std::string& more) {
        return parse_output(
            run(folder_,
                arguments("bench --model {} --prompts {} --drafter eagle2:{} --tree chain=2 --max-new 6 "
                          "--raw --threads 1 --quiet --ignore-eos --no-plain --json",
                          tiny_model(folder_, 512), folder_.file("prompts.jsonl"), folder_.file("eagle2")) +
                    arguments(more)));
    };
    const auto number = [](const json& value) { return value.is_number() ? value.get<double>() : 0.0; };
    const auto expect_equal = [&](const json& row, const json& method) {
        for (const json& task : method["tasks"]) {
            if (task["task"] == "other") continue;
            const std::string column = task["task"] == "Conv." ? "MT-Bench" : task["task"];
            const json& ours = value_of(row, column, "tau");
            EXPECT_DOUBLE_EQ(ours["ours"].get<double>(), task["tau_unclipped"].get<double>()) << row;
            EXPECT_EQ(ours["ours_sd"].is_null(), task["tau_unclipped_sd"].is_null());
            EXPECT_NEAR(number(ours["ours_sd"]), number(task["tau_unclipped_sd"]), 1e-12);
        }
    };
    const json greedy = parse_output(reproduce({"microspec/table-4", "--json"})),
               decoded = bench("--heads full,microspec");
    expect_equal(row_named(greedy, "full V=152k"), decoded["methods"][0]);
    expect_equal(row_named(greedy, "microspec V<3k"), decoded["methods"][1]);
    EXPECT_EQ(greedy["differences"].dump().find("estimate: "), std::string::npos);
    const json& conversations = value_of(row_named(greedy, "full V=152k"), "Average", "tau");
    EXPECT_EQ(conversations["ours_interval"], nullptr) << "three conversations";
    // Repetitions at a temperature have texts of their own, and SlimSpec checks drafts by rejection sampling.
    write_text(folder_.file("prompts.jsonl"),
               json{{"category", "writing"}, {"prompt", "hello you"}}.dump() + "\n");
    const json sampled = parse_output(reproduce({"slimspec/table-9", "--repeat", "3", "--json"}));
    const json& full = row_named(sampled, "full V=128256");
    expect_equal(full, bench("--heads full --temperature 1 --verify pq --repeat 3")["methods"][0]);
    EXPECT_TRUE(value_of(full, "MT-Bench", "tau")["ours_sd"].is_number());
    EXPECT_EQ(sampled["blocks"][0]["verify"], "pq");
    EXPECT_NE(sampled["blocks"][0]["verified"].get<std::string>().find("section 3.2"), std::string::npos);
    EXPECT_EQ(sampled["tasks_left_out"], (json{"GSM8K", "HumanEval"}));
    const ProcessResult text = reproduce({"slimspec/table-9", "--repeat", "1", "--verify", "match"});
    EXPECT_NE(text.out.find("T=1 --verify match"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("the paper checks drafts by rejection sampling"), std::string::npos) << text.out;
}

TEST_F(ReproduceCommand, ReplaysAcceptanceAlongARecording) {
    const std::string model = tiny_model(folder_, 512), recorded = folder_.file("recorded");
    ASSERT_EQ(
        run(folder_, arguments("record --model {} --prompts {} --max-new 6 --raw --ignore-eos --threads 1 "
                               "--no-times --quiet --out {}",
                               model, folder_.file("prompts.jsonl"), recorded))
            .exit_code,
        0);
    const auto replayed = [&](const std::string& table, const Arguments& more) {
        return run(folder_,
                   arguments("reproduce {} --model {} --drafter eagle2:{} --tree chain=2 --threads 1 "
                             "--quiet --recording {}",
                             table, model, folder_.file("eagle2"), recorded) +
                       more);
    };
    const json live = parse_output(reproduce({"microspec/table-4", "--json"}));
    const json replay = parse_output(replayed("microspec/table-4", {"--json"}));
    EXPECT_EQ(replay["conversations"], live["conversations"]);
    EXPECT_EQ(row_named(replay, "full V=152k")["values"], row_named(live, "full V=152k")["values"]);
    EXPECT_NE(replay["differences"].dump().find("replayed along"), std::string::npos);
    EXPECT_NE(replay["differences"].dump().find("estimate: "), std::string::npos) << "microspec's tree";
    expect_one_line_error(replayed("microspec/table-2", {}), {"--recording", "microspec/table-2 has speeds"});
    expect_one_line_error(replayed("microspec/table-4", {"--limit", "1"}), {"--limit", "leave"});
}

TEST_F(ReproduceCommand, RefusesWhatItCannotRun) {
    expect_one_line_error(reproduce({"microspec/table-4", "--limit", "5"}),
                          {"--limit 5", "at least 6 conversations", "0 for all"});
    expect_one_line_error(reproduce({"microspec/tabel-4"}),
                          {"unknown table; known: ", "did you mean microspec/table-4?"});
    expect_one_line_error(run(folder_, {"reproduce"}), {"TABLE", "--list"});
    expect_one_line_error(reproduce({"microspec/table-4", "--system", "Be brief."}),
                          {"--system Be brief.", "--raw"});
    expect_one_line_error(reproduce({"dynaspec/table-1"}),
                          {"no row can run", "dynaspec V=27k mean: ", "fit"});
    write_text(folder_.file("prompts.jsonl"), json{{"prompt", "hello you"}}.dump() + "\n");
    expect_one_line_error(reproduce({"microspec/table-4"}), {"no conversation of the table's tasks"});
}

TEST_F(ReproduceCommand, ListsTheTables) {
    const ProcessResult text = run(folder_, {"reproduce", "--list"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_NE(text.out.find("fr-spec/table-1"), std::string::npos) << text.out;
    const json list = parse_output(run(folder_, {"reproduce", "--list", "--json"}))["tables"];
    ASSERT_GE(list.size(), 40u);
    for (const json& one : list) EXPECT_FALSE(one["quantities"].empty()) << one;
}

}  // namespace
}  // namespace draftscope::testing
