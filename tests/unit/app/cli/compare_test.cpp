#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

// Several captures: compare, merge, and the statistics of merged captures.
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
        const ProcessResult done = run(
            folder_, {"run", "--model", model_, "--drafter", drafter, "--prompts", folder_.file("p.jsonl"),
                      "--ignore-eos", "--max-new", "24", "--baseline", "0", "--save", path, "--quiet"});
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return path;
    }
    ScratchFolder folder_;
    std::string model_;
};

TEST_F(TwoRuns, AreComparedPromptByPrompt) {
    const std::string a = recorded("a.dscope", "none"), b = recorded("b.dscope", "ngram");
    const json c = parse_output(run(folder_, {"compare", a, b, "--json"}));
    ASSERT_FALSE(c.is_discarded());
    EXPECT_EQ(c["pairs"], 8);
    EXPECT_EQ(c["same_tokens"], 8);  // lossless
    EXPECT_FALSE(c["forced"]);
    EXPECT_EQ(c["tau"]["a"], 1.0);
    ASSERT_TRUE(c["tokens_per_second"]["interval"].is_array());
    const double ratio = c["tokens_per_second"]["ratio"];
    EXPECT_LE(c["tokens_per_second"]["interval"][0], ratio);
    EXPECT_GE(c["tokens_per_second"]["interval"][1], ratio);
    // The numbers equal those of the tables.
    const Sql sql(b);
    EXPECT_NEAR(c["tau"]["b"],
                sql.number("SELECT 1.0 * sum(r.committed) / count(*) FROM round r JOIN step s ON s.id = "
                           "r.step_id"),
                1e-9);
    EXPECT_EQ(run(folder_, {"compare", a, b, "--fail-below", "0.0001"}).exit_code, 0);
    const ProcessResult slow = run(folder_, {"compare", a, b, "--fail-below", "1000"});
    EXPECT_EQ(slow.exit_code, 1);
    EXPECT_NE(slow.err.find("lies below 1000"), std::string::npos) << slow.err;
    EXPECT_NE(slow.out.find("95 % interval"), std::string::npos) << "the comparison is printed all the same";
    const ProcessResult text = run(folder_, {"compare", a, b});
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_NE(text.out.find("95 % interval"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("verify, us per round"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("8 turns of 8 conversations, paired"), std::string::npos) << text.out;
}

TEST_F(TwoRuns, OfDifferentTiersNeedForce) {
    const std::string a = recorded("a.dscope", "none"), b = recorded("b.dscope", "ngram");
    { Sql(b, true).exec("UPDATE run SET tier = 'T2'"); }
    expect_one_line_error(run(folder_, {"compare", a, b}), {"tier (T0 and T2)", "--force"});
    const ProcessResult forced = run(folder_, {"compare", a, b, "--force"});
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
    const ProcessResult merged = run(folder_, {"merge", all, a, b});
    ASSERT_EQ(merged.exit_code, 0) << merged.err;
    const ProcessResult checked = run(folder_, {"check", all});
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
    // Two runs of one file give the same comparison as runs of two files.
    const json one = json::parse(run(folder_, {"compare", all, "--json"}).out, nullptr, false);
    const json two = json::parse(run(folder_, {"compare", a, b, "--json"}).out, nullptr, false);
    EXPECT_EQ(one["tokens_per_second"], two["tokens_per_second"]);
    EXPECT_EQ(one["phases"], two["phases"]);

    expect_one_line_error(run(folder_, {"merge", all, a, b}), {all, "file exists"});
    expect_one_line_error(run(folder_, {"merge", folder_.file("x.dscope"), a, a}), {"each shard once"});
    expect_one_line_error(run(folder_, {"compare", a}), {a, "second file"});
    expect_one_line_error(run(folder_, {"compare", all, b}), {all, "--run-a"});
    EXPECT_EQ(run(folder_, {"compare", all, b, "--run-a", "1"}).exit_code, 0);
}

/// Runs with a draft LM head, unlike the other tests' drafters.
class TwoHeads : public TwoRuns {
  protected:
    void SetUp() override {
        TwoRuns::SetUp();
        ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
    }
    std::string recorded_head(const std::string& name, const std::string& head,
                              std::vector<std::string> more) {
        const std::string path = folder_.file(name);
        if (std::ranges::find(more, "--prompts") == more.end())
            more.insert(more.end(), {"--prompts", folder_.file("p.jsonl")});
        if (std::ranges::find(more, "--calibrate") == more.end())
            more.insert(more.end(), {"--calibrate", "0"});
        more.insert(more.begin(),
                    {"run", "--model", model_, "--drafter", "eagle2:" + folder_.file("eagle2"), "--head",
                     head, "--raw", "--ignore-eos", "--baseline", "0", "--save", path, "--quiet"});
        const ProcessResult done = run(folder_, more);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return path;
    }
    const std::string small_ = "microspec:wmax=64,source=ctx,gather=indexed";
};

TEST_F(TwoHeads, OfDifferentLengthsAreNoReference) {
    const std::string full = recorded_head("full.dscope", "full", {"--max-new", "8"});
    const std::string same = recorded_head("same.dscope", small_, {"--max-new", "8"});
    const std::string longer = recorded_head("longer.dscope", small_, {"--max-new", "16"});
    const std::string all = folder_.file("all.dscope");
    ASSERT_EQ(run(folder_, {"merge", all, full, same, longer}).exit_code, 0);
    const Sql sql(all);
    EXPECT_EQ(sql.text("SELECT reference FROM v_head WHERE run_id = 2"), "other run");
    EXPECT_EQ(sql.text("SELECT rho_tau IS NULL AND measured_speedup IS NULL AND nu IS NULL FROM v_head WHERE "
                       "run_id = 3"),
              "1");
    const json stats = json::parse(run(folder_, {"stats", all, "--json"}).out, nullptr, false);
    EXPECT_TRUE(stats["runs"][1]["heads"][0]["rho_tau"].is_number());
    EXPECT_TRUE(stats["runs"][2]["heads"][0]["rho_tau"].is_null());
    EXPECT_TRUE(stats["runs"][2]["heads"][0]["measured_speedup"].is_null());
    expect_one_line_error(run(folder_, {"compare", full, longer}), {"max-new (8 and 16)", "--force"});
    const ProcessResult forced = run(folder_, {"compare", full, longer, "--force"});
    EXPECT_EQ(forced.exit_code, 0);
    EXPECT_NE(forced.out.find("FORCED: the runs differ in max-new (8 and 16)"), std::string::npos)
        << forced.out;
    EXPECT_EQ(run(folder_, {"compare", full, same}).exit_code, 0);
    // Settings remain distinguishable without texts.
    const std::string bare = folder_.file("bare.dscope");
    ASSERT_EQ(run(folder_, {"export", longer, "--format", "sqlite", "--no-text", "--out", bare}).exit_code,
              0);
    EXPECT_EQ(Sql(bare).text("SELECT json_extract(config_json, '$.command') IS NULL FROM run"), "1");
    EXPECT_EQ(Sql(bare).text("SELECT json_extract(config_json, '$.head_traits') IS NULL FROM run"), "0");
    expect_one_line_error(run(folder_, {"compare", full, bare}), {"max-new (8 and 16)"});
}

TEST_F(TwoHeads, CalibrationLeavesTheRoundsAlike) {
    const std::string with = recorded_head("with.dscope", small_, {"--max-new", "30", "--calibrate", "4"});
    const std::string without = recorded_head("without.dscope", small_, {"--max-new", "30"});
    EXPECT_GT(Sql(with).number("SELECT count(*) FROM head_eval WHERE mode = 'calibration'"), 0);
    const json compared = parse_output(run(folder_, {"compare", with, without, "--json"}));
    EXPECT_EQ(compared["tau"]["ratio"], 1.0);
    EXPECT_TRUE(compared["warnings"].empty()) << compared["warnings"];
    for (const char* const of : {"SELECT rounds, tau FROM v_head WHERE mode = 'drive'",
                                 "SELECT category, rounds, tau, coverage FROM v_category",
                                 "SELECT ordinal, excluded, committed FROM v_round"})
        EXPECT_EQ(Sql(with).rows(of), Sql(without).rows(of)) << of;
}

TEST_F(TwoHeads, SeedsRepeatOneSetting) {
    const std::vector<std::string> drawn = {"--max-new", "8", "--temperature", "1", "--seed"};
    const auto seeded = [&](const char* seed) {
        std::vector<std::string> words = drawn;
        words.emplace_back(seed);
        return words;
    };
    const std::string one = recorded_head("one.dscope", "full", seeded("1"));
    const std::string two = recorded_head("two.dscope", "full", seeded("2"));
    const std::string three = recorded_head("three.dscope", small_, seeded("3"));
    const std::string all = folder_.file("all.dscope");
    ASSERT_EQ(run(folder_, {"merge", all, one, two, three}).exit_code, 0);
    const Sql sql(all);
    EXPECT_EQ(sql.text("SELECT count(DISTINCT setting) FROM run"), "1");
    EXPECT_EQ(sql.text("SELECT reference FROM v_head WHERE run_id = 3"), "other run");
    EXPECT_NEAR(sql.number("SELECT rho_tau FROM v_head WHERE run_id = 3"),
                sql.number("SELECT (SELECT 1.0 * sum(committed) / count(*) FROM round WHERE run_id = 3) / "
                           "(SELECT 1.0 * sum(committed) / count(*) FROM round WHERE run_id < 3)"),
                1e-9);
    const json pooled = json::parse(run(folder_, {"stats", all, "--json"}).out, nullptr, false)["pooled"];
    ASSERT_EQ(pooled.size(), 1u);
    EXPECT_EQ(pooled[0]["runs"], (json{1, 2}));
    EXPECT_EQ(pooled[0]["seeds"], (json{1, 2}));
    EXPECT_NEAR(pooled[0]["tau"],
                sql.number("SELECT 1.0 * sum(committed) / count(*) FROM round WHERE run_id < 3"), 1e-9);
    const json c = json::parse(run(folder_, {"compare", all, "--json"}).out, nullptr, false);
    EXPECT_EQ(c["a"]["runs"], (json{1, 2}));
    EXPECT_EQ(c["b"]["runs"], json::array({3}));
    EXPECT_EQ(c["pairs"], 8);
    EXPECT_EQ(c["conversations"], 8);
    const json same = json::parse(
        run(folder_, {"compare", all, "--run-a", "1,2", "--run-b", "3", "--json"}).out, nullptr, false);
    EXPECT_EQ(same["tau"], c["tau"]);
    const json by_one = json::parse(run(folder_, {"compare", one, three, "--json"}).out, nullptr, false);
    EXPECT_NE(by_one["tau"], c["tau"]);
    EXPECT_NE(run(folder_, {"compare", all}).out.find("A  runs 1, 2, pooled"), std::string::npos);
    expect_one_line_error(run(folder_, {"compare", all, "--run-a", "1,3", "--run-b", "2"}),
                          {"runs 1 and 3 do not repeat one setting", "head (full and"});
}

/// Merged shards of a sweep are compared as one run per setting.
TEST_F(TwoHeads, ShardsArePooled) {
    std::vector<std::string> files;
    for (const std::string part : {"0", "1"}) {
        write_text(folder_.file("part" + part + ".jsonl"),
                   R"({"id": "s)" + part + R"(", "prompt": "hello )" + part + "\"}\n");
        for (const std::string& head : {std::string("full"), small_})
            files.push_back(
                recorded_head(head.substr(0, 4) + part + ".dscope", head,
                              {"--max-new", "8", "--prompts", folder_.file("part" + part + ".jsonl")}));
    }
    const std::string full = folder_.file("f.dscope"), small = folder_.file("m.dscope");
    ASSERT_EQ(run(folder_, {"merge", full, files[0], files[2]}).exit_code, 0);
    ASSERT_EQ(run(folder_, {"merge", small, files[1], files[3]}).exit_code, 0);
    const json c = json::parse(run(folder_, {"compare", full, small, "--json"}).out, nullptr, false);
    EXPECT_EQ(c["pairs"], 2);
    EXPECT_EQ(c["a"]["runs"], (json{1, 2}));
}

TEST_F(TwoRuns, StatisticsNameTheirSample) {
    const std::string a = recorded("a.dscope", "ngram");
    const json s = parse_output(run(folder_, {"stats", a, "--json"}))["runs"][0]["statistics"];
    EXPECT_EQ(s["unit"], "conversation");
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
    const ProcessResult text = run(folder_, {"stats", a});
    EXPECT_NE(text.out.find("bootstrap by conversation (8 of them"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("n < 368"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace draftscope::testing
