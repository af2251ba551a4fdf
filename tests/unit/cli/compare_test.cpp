#include <nlohmann/json.hpp>

#include "tests/unit/cli/program.h"
#include "tests/unit/cli/sql.h"

// Several captures at once: compare, merge, and the statistics of what they join.
namespace draftscope::testing {
namespace {

using nlohmann::json;

class TwoRuns : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string lines;
        for (int i = 0; i < 8; ++i)
            lines +=
                R"({"id": "q)" + std::to_string(i) + R"(", "prompt": "hello )" + std::to_string(i) + "\"}\n";
        write_text(folder_.file("p.jsonl"), lines);
        model_ = tiny_model(folder_);
    }
    std::string recorded(const std::string& name, const std::string& drafter) {
        const std::string path = folder_.file(name);
        const Finished done = run(
            folder_, {"run", "--model", model_, "--drafter", drafter, "--prompts", folder_.file("p.jsonl"),
                      "--ignore-eos", "--max-new", "24", "--save", path, "--quiet"});
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return path;
    }
    ScratchFolder folder_;
    std::string model_;
};

TEST_F(TwoRuns, AreComparedPromptByPrompt) {
    const std::string a = recorded("a.dscope", "none"), b = recorded("b.dscope", "ngram");
    const Finished done = run(folder_, {"compare", a, b, "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    const json c = json::parse(done.out, nullptr, false);
    ASSERT_FALSE(c.is_discarded());
    EXPECT_EQ(c["pairs"], 8);
    EXPECT_EQ(c["same_tokens"], 8);  // lossless
    EXPECT_FALSE(c["forced"]);
    EXPECT_EQ(c["tau"]["a"], 1.0);
    ASSERT_TRUE(c["tokens_per_second"]["interval"].is_array());
    const double ratio = c["tokens_per_second"]["ratio"];
    EXPECT_LE(c["tokens_per_second"]["interval"][0], ratio);
    EXPECT_GE(c["tokens_per_second"]["interval"][1], ratio);
    // The numbers are those of the tables.
    const Sql sql(b);
    EXPECT_NEAR(
        c["tau"]["b"],
        sql.number(
            "SELECT 1.0 * sum(r.committed) / count(*) FROM round r JOIN step s ON s.id = r.step_id WHERE "
            "s.excluded IS NULL"),
        1e-9);
    const Finished text = run(folder_, {"compare", a, b});
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_NE(text.out.find("95 % interval"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("verify, us per round"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("8 turns of 8 prompts, paired"), std::string::npos) << text.out;
}

TEST_F(TwoRuns, OfOtherTiersAreRefusedUnlessForced) {
    const std::string a = recorded("a.dscope", "none"), b = recorded("b.dscope", "ngram");
    { Sql(b, true).exec("UPDATE run SET tier = 'T2'"); }
    expect_one_line_error(run(folder_, {"compare", a, b}), {"tier (T0 and T2)", "--force"});
    const Finished forced = run(folder_, {"compare", a, b, "--force"});
    EXPECT_EQ(forced.exit_code, 0);
    EXPECT_NE(forced.out.find("FORCED"), std::string::npos);
    expect_one_line_error(run(folder_, {"merge", folder_.file("all.dscope"), a, b}),
                          {a, b, "tier (T0 and T2)"});
    EXPECT_FALSE(std::filesystem::exists(folder_.file("all.dscope")));
    EXPECT_FALSE(std::filesystem::exists(folder_.file("all.dscope.partial")));
}

TEST_F(TwoRuns, MergeIntoOneFile) {
    const std::string a = recorded("a.dscope", "none"), b = recorded("b.dscope", "ngram");
    const std::string all = folder_.file("all.dscope");
    const Finished merged = run(folder_, {"merge", all, a, b});
    ASSERT_EQ(merged.exit_code, 0) << merged.err;
    const Finished checked = run(folder_, {"check", all});
    EXPECT_EQ(checked.exit_code, 0) << checked.out;
    const Sql sql(all), sql_a(a), sql_b(b);
    EXPECT_EQ(sql.number("SELECT count(*) FROM run"), 2);
    for (const char* table :
         {"prompt", "step", "round", "node", "node_top", "token", "span", "head_eval", "clock_anchor"})
        EXPECT_EQ(sql.number(std::string("SELECT count(*) FROM ") + table),
                  sql_a.number(std::string("SELECT count(*) FROM ") + table) +
                      sql_b.number(std::string("SELECT count(*) FROM ") + table))
            << table;
    EXPECT_EQ(sql.number("SELECT count(DISTINCT vocab_id) FROM vocab"), 1);  // one target, one vocabulary
    for (int run_id = 1; run_id <= 2; ++run_id) {
        const std::string shares = "SELECT group_concat(round(total)) FROM v_phase WHERE run_id = ";
        EXPECT_EQ(sql.text(shares + std::to_string(run_id)),
                  (run_id == 1 ? sql_a : sql_b).text(shares + "1"));
    }
    // Two runs of one file are compared as those of two are.
    const json one = json::parse(run(folder_, {"compare", all, "--json"}).out, nullptr, false);
    const json two = json::parse(run(folder_, {"compare", a, b, "--json"}).out, nullptr, false);
    EXPECT_EQ(one["tokens_per_second"], two["tokens_per_second"]);
    EXPECT_EQ(one["phases"], two["phases"]);

    expect_one_line_error(run(folder_, {"merge", all, a, b}), {all, "file exists"});
    expect_one_line_error(run(folder_, {"merge", folder_.file("x.dscope"), a, a}), {"counts once"});
    expect_one_line_error(run(folder_, {"compare", a}), {a, "second file"});
    expect_one_line_error(run(folder_, {"compare", all, b}), {all, "--run-a"});
    EXPECT_EQ(run(folder_, {"compare", all, b, "--run-a", "1"}).exit_code, 0);
}

TEST_F(TwoRuns, StatisticsSayWhatTheyRestOn) {
    const std::string a = recorded("a.dscope", "ngram");
    const Finished done = run(folder_, {"stats", a, "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    const json s = json::parse(done.out, nullptr, false)["runs"][0]["statistics"];
    EXPECT_EQ(s["unit"], "prompt");
    EXPECT_EQ(s["units"], 8);
    const Sql sql(a);
    bool verify_seen = false;
    for (const json& phase : s["phases"]) {
        if (phase["name"] != "verify") continue;
        verify_seen = true;
        EXPECT_EQ(phase["n"], sql.number("SELECT n FROM v_phase WHERE name = 'verify'"));
        EXPECT_NEAR(phase["median_us"], sql.number("SELECT median / 1e3 FROM v_phase WHERE name = 'verify'"),
                    1e-6);
        EXPECT_NEAR(phase["share"], sql.number("SELECT share FROM v_phase WHERE name = 'verify'"), 1e-9);
        ASSERT_TRUE(phase["median_interval_us"].is_array());
        EXPECT_TRUE(phase["p99_us"].is_null());  // under 368 samples
    }
    EXPECT_TRUE(verify_seen);
    const Finished text = run(folder_, {"stats", a});
    EXPECT_NE(text.out.find("bootstrap by prompt (8 of them"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("n < 368"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace draftscope::testing
