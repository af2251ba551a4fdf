#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/demo_model.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

const char* prompts_text =
    "{\"question_id\": 7, \"category\": \"chat\", \"turns\": [\"hello the and the\", \"hello you\"]}\n"
    "{\"task_id\": \"T/1\", \"category\": \"code\", \"prompt\": \"the the the in and in\"}\n"
    "{\"category\": \"chat\", \"prompt\": \"you and you\"}\n";

std::set<std::string> json_keys(const json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    return keys;
}

/// Said once, and kept: what a drafter takes from earlier answers depends on their order.
TEST(DrafterNotes, OrderOfPromptsMatters) {
    const ScratchFolder folder;
    write_text(folder.file("prompts.jsonl"), prompts_text);
    const Arguments words = arguments("run --model {} --prompts {} --max-new 8 --ignore-eos --json --drafter",
                                      tiny_model(folder), folder.file("prompts.jsonl"));
    const auto count = [&](const std::string& drafter) {
        const ProcessResult done = run(folder, words + Arguments{drafter});
        const std::string text = "so the order of the 4 prompts matters";
        const std::size_t said = done.err.find(text);
        EXPECT_EQ(done.err.find(text, said + 1), std::string::npos) << done.err;
        EXPECT_EQ(said != std::string::npos,
                  parse_output(done)["notes"].dump().find(text) != std::string::npos);
        return said != std::string::npos;
    };
    EXPECT_TRUE(count("suffix:answers=100"));
    EXPECT_TRUE(count("ngram:pool=1"));
    EXPECT_FALSE(count("suffix"));
}

class RunJson : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        folder_ = new ScratchFolder;
        write_text(folder_->file("prompts.jsonl"), prompts_text);
        done_ = new ProcessResult(run(*folder_, {"run",
                                                 "--model",
                                                 tiny_model(*folder_),
                                                 "--drafter",
                                                 "ngram",
                                                 "--tree",
                                                 "chain=4",
                                                 "--prompts",
                                                 folder_->file("prompts.jsonl"),
                                                 "--max-new",
                                                 "40",
                                                 "--ignore-eos",
                                                 "--threads",
                                                 "2",
                                                 "--precision",
                                                 "f32",
                                                 "--baseline",
                                                 "0",
                                                 "--save",
                                                 folder_->file("run.dscope"),
                                                 "--json"}));
        document_ = new json(json::parse(done_->out, nullptr, false));
    }
    static void TearDownTestSuite() {
        delete document_;
        delete done_;
        delete folder_;
    }
    static const json& document() { return *document_; }
    static std::string capture() { return folder_->file("run.dscope"); }

    static ScratchFolder* folder_;
    static ProcessResult* done_;
    static json* document_;
};
ScratchFolder* RunJson::folder_ = nullptr;
ProcessResult* RunJson::done_ = nullptr;
json* RunJson::document_ = nullptr;

void expect_near(const json& printed, double recomputed, const std::string& what) {
    ASSERT_TRUE(printed.is_number()) << what << " " << printed.dump();
    EXPECT_NEAR(printed.get<double>(), recomputed, 1e-9 * std::max(1.0, std::abs(recomputed))) << what;
}

TEST_F(RunJson, StdoutIsOneDocument) {
    EXPECT_EQ(done_->exit_code, 0) << done_->err;
    EXPECT_FALSE(document().is_discarded()) << done_->out;
}

TEST_F(RunJson, HasTheDocumentedKeys) {
    EXPECT_EQ(json_keys(document()), (std::set<std::string>{"version",    "target",         "drafter",
                                                            "head",       "tree",           "verify",
                                                            "lossless",   "cancelled",      "planned_prompts",
                                                            "resumed",    "shard",          "temperature",
                                                            "seed",       "batch",          "tier_asked",
                                                            "tier_note",  "cupti",          "tier",
                                                            "backend",    "precision",      "synthetic",
                                                            "acceptance", "capture",        "prompts",
                                                            "totals",     "baseline",       "phases",
                                                            "heads",      "losses",         "tree_auto",
                                                            "threads",    "pinned_workers", "gpu",
                                                            "numerics",   "beside_exact",   "latency",
                                                            "speed",      "template",       "notes",
                                                            "memory"}));
    EXPECT_EQ(document()["memory"]["drafter_weights"], 0);
    EXPECT_EQ(document()["memory"]["drafter_cache"], 0);
    EXPECT_TRUE(document()["gpu"].is_null());  // it ran on the CPU
    EXPECT_EQ(document()["numerics"], "exact");
    EXPECT_TRUE(document()["beside_exact"].is_null());
    EXPECT_TRUE(document()["tree_auto"].is_null());  // a tree was named
    ASSERT_FALSE(document()["prompts"].empty());
    EXPECT_EQ(json_keys(document()["prompts"][0]),
              (std::set<std::string>{"id", "category", "prompt_tokens", "tokens", "text", "rounds", "tau",
                                     "tau_unclipped", "tokens_per_second", "finish"}));
    EXPECT_EQ(json_keys(document()["totals"]),
              (std::set<std::string>{"rounds", "drafted", "accepted", "committed", "tau", "tau_unclipped",
                                     "generated", "decode_seconds", "prefill_seconds", "tokens_per_second",
                                     "tokens_per_second_e2e", "histogram", "per_depth", "drafters"}));
    EXPECT_TRUE(document()["totals"]["drafters"].is_null());  // no pair
    EXPECT_EQ(json_keys(document()["baseline"]),
              (std::set<std::string>{"runs", "prompts", "conversations", "tokens_per_second",
                                     "run_tokens_per_second", "speedup", "interval"}));
    ASSERT_FALSE(document()["phases"].empty());
    EXPECT_EQ(json_keys(document()["phases"][0]),
              (std::set<std::string>{"name", "count", "total_ms", "exposed_ms", "median_us", "p90_us",
                                     "share", "gb_per_s", "of_probe"}));
    EXPECT_EQ(document()["tier"], "T0");
    EXPECT_EQ(document()["backend"], "cpu");
    EXPECT_EQ(document()["acceptance"], "real");
    EXPECT_EQ(document()["synthetic"], false);
    EXPECT_EQ(document()["precision"], "f32");
    EXPECT_EQ(document()["capture"], capture());
    EXPECT_EQ(document()["drafter"], "ngram");
    EXPECT_EQ(document()["losses"], json::array());
}

/// The chosen tree depends on the machine; the text does not.
TEST_F(RunJson, TreeAutoUsesTheBestForecastAndKeepsTheText) {
    const json chosen =
        parse_output(run(*folder_, {"run", "--model", tiny_model(*folder_), "--drafter", "ngram", "--tree",
                                    "auto", "--prompts", folder_->file("prompts.jsonl"), "--max-new", "40",
                                    "--ignore-eos", "--threads", "2", "--precision", "f32", "--json"}));
    const json& forecasts = chosen["tree_auto"]["forecasts"];
    ASSERT_GE(forecasts.size(), 6u);  // chains of 1 to 6
    EXPECT_EQ(chosen["tree"], forecasts[0]["tree"]);
    EXPECT_GT(chosen["tree_auto"]["pilot_rounds"], 0);
    for (const json& one : forecasts) {
        EXPECT_EQ(json_keys(one), (std::set<std::string>{"head", "tree", "tau", "round_ms", "speedup"}));
        EXPECT_LE(one["speedup"], forecasts[0]["speedup"]);
        EXPECT_GE(one["tau"], 1.0);
    }
    ASSERT_EQ(chosen["prompts"].size(), document()["prompts"].size());
    for (std::size_t i = 0; i < chosen["prompts"].size(); ++i)
        EXPECT_EQ(chosen["prompts"][i]["tokens"], document()["prompts"][i]["tokens"]);
}

TEST_F(RunJson, ListsEveryPromptOfTheFile) {
    const json& prompts = document()["prompts"];
    ASSERT_EQ(prompts.size(), 4u);  // two turns, then two single ones
    EXPECT_EQ(prompts[0]["id"], "7");
    EXPECT_EQ(prompts[1]["id"], "7");
    EXPECT_EQ(prompts[2]["id"], "T/1");
    EXPECT_EQ(prompts[3]["id"], "2");
    EXPECT_EQ(prompts[2]["category"], "code");
    EXPECT_GT(prompts[1]["prompt_tokens"], prompts[0]["prompt_tokens"]);  // includes the first turn's answer
    for (const json& prompt : prompts) {
        EXPECT_EQ(prompt["finish"], "length");
        EXPECT_EQ(prompt["tokens"].size(), 40u);
    }
}

TEST_F(RunJson, TotalsMatchTheCapture) {
    const Sql sql(capture());
    const json& totals = document()["totals"];
    const auto round_sum = [&](const char* column) {
        return sql.number(std::string("SELECT ") + column + " FROM round");
    };
    expect_near(totals["rounds"], round_sum("count(*)"), "rounds");
    expect_near(totals["drafted"], round_sum("sum(drafted)"), "drafted");
    expect_near(totals["accepted"], round_sum("sum(accepted)"), "accepted");
    expect_near(totals["committed"], round_sum("sum(committed)"), "committed");
    expect_near(totals["tau"], round_sum("1.0 * sum(committed) / count(*)"), "tau");
    expect_near(totals["generated"], sql.number("SELECT sum(generated_tokens) FROM prompt"), "generated");
    expect_near(totals["generated"], sql.number("SELECT count(*) FROM token"), "generated");
    expect_near(totals["decode_seconds"],
                sql.number("SELECT sum(end_ns - start_ns - paused_ns) * 1e-9 FROM step"), "decode_seconds");
    expect_near(totals["prefill_seconds"], sql.number("SELECT sum(prefill_ns) * 1e-9 FROM prompt"),
                "prefill_seconds");
    expect_near(totals["tokens_per_second"],
                sql.number("SELECT 1e9 * sum(r.committed) / sum(s.end_ns - s.start_ns - s.paused_ns) FROM "
                           "round r JOIN step s ON s.id = r.step_id WHERE s.excluded IS NULL"),
                "tokens_per_second");
    expect_near(totals["tokens_per_second_e2e"],
                sql.number("SELECT (SELECT sum(generated_tokens) FROM prompt) / (1e-9 * ((SELECT "
                           "sum(prefill_ns) FROM prompt) + (SELECT sum(committed) FROM round) * (SELECT 1.0 "
                           "* sum(s.end_ns - s.start_ns - s.paused_ns) / sum(r.committed) FROM round r JOIN "
                           "step s ON s.id = r.step_id WHERE s.excluded IS NULL)))"),
                "tokens_per_second_e2e");
    // The first token of each prompt comes from its prefill.
    EXPECT_EQ(totals["committed"].get<int>() + 4, totals["generated"].get<int>());
}

TEST_F(RunJson, PhasesMatchTheCapture) {
    const Sql sql(capture());
    const auto rows = sql.rows(
        "SELECT name, n, total * 1e-6, exposed * 1e-6, median * 1e-3, p90 * 1e-3, share, "
        "CASE WHEN total > 0 THEN 1.0 * bytes / total ELSE 0 END FROM v_phase WHERE n > 0");
    json printed = json::array();
    for (const json& phase : document()["phases"])
        if (phase["count"] > 0) printed.push_back(phase);
    ASSERT_EQ(printed.size(), rows.size());
    double shares = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const json& phase = printed[i];
        const Sql::Row& row = rows[i];
        EXPECT_EQ(phase["name"], row[0]);
        expect_near(phase["count"], std::stod(row[1]), row[0] + " count");
        expect_near(phase["total_ms"], std::stod(row[2]), row[0] + " total");
        expect_near(phase["exposed_ms"], std::stod(row[3]), row[0] + " exposed");
        expect_near(phase["median_us"], std::stod(row[4]), row[0] + " median");
        if (row[5] == "NULL")
            EXPECT_TRUE(phase["p90_us"].is_null());
        else
            expect_near(phase["p90_us"], std::stod(row[5]), row[0] + " p90");
        expect_near(phase["share"], std::stod(row[6]), row[0] + " share");
        expect_near(phase["gb_per_s"], std::stod(row[7]), row[0] + " gb_per_s");
        shares += phase["share"].get<double>();
    }
    EXPECT_NEAR(shares, 1.0, 1e-9);
}

TEST_F(RunJson, PromptsMatchTheCapture) {
    const Sql sql(capture());
    const auto rows = sql.rows(
        "SELECT external_id, category, prompt_tokens, rounds, tau, tokens_per_second, finish, "
        "prompt_id FROM v_prompt ORDER BY prompt_id");
    const json& prompts = document()["prompts"];
    ASSERT_EQ(rows.size(), prompts.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(prompts[i]["id"], rows[i][0]);
        EXPECT_EQ(prompts[i]["category"], rows[i][1]);
        expect_near(prompts[i]["prompt_tokens"], std::stod(rows[i][2]), "prompt_tokens");
        expect_near(prompts[i]["rounds"], std::stod(rows[i][3]), "rounds");
        expect_near(prompts[i]["tau"], std::stod(rows[i][4]), "tau");
        expect_near(prompts[i]["tokens_per_second"], std::stod(rows[i][5]), "tokens_per_second");
        EXPECT_EQ(prompts[i]["finish"], rows[i][6]);
        EXPECT_EQ(prompts[i]["text"], sql.text("SELECT output FROM prompt WHERE id = " + rows[i][7]));
        json tokens = json::array();
        for (const auto& row :
             sql.rows("SELECT token_id FROM token WHERE prompt_id = " + rows[i][7] + " ORDER BY position"))
            tokens.push_back(std::stoi(row[0]));
        EXPECT_EQ(prompts[i]["tokens"], tokens);
    }
}

TEST_F(RunJson, HeaderMatchesTheRunRow) {
    const Sql sql(capture());
    for (const char* key :
         {"target", "drafter", "head", "tree", "verify", "tier", "backend", "precision", "acceptance"})
        EXPECT_EQ(document()[key], sql.text(std::string("SELECT ") + key + " FROM run")) << key;
    EXPECT_EQ(sql.text("SELECT ended FROM run"), "ok");
    EXPECT_EQ(sql.text("SELECT frontend FROM run"), "cli");
    const json config = json::parse(sql.text("SELECT config_json FROM run"), nullptr, false);
    EXPECT_EQ(config["command"].get<std::string>().rfind("draftscope run ", 0), 0u);
    EXPECT_EQ(config["head_traits"], json::object());  // ngram uses no head
    EXPECT_EQ(config["losslessness"], document()["lossless"]);
    EXPECT_FALSE(json::parse(sql.text("SELECT machine_json FROM run"), nullptr, false).is_discarded());
}

TEST_F(RunJson, StatsPrintsTheSameNumbers) {
    const json printed = parse_output(run(*folder_, {"stats", capture(), "--json"}));
    ASSERT_EQ(printed["runs"].size(), 1u);
    for (const char* key : {"totals", "phases", "heads", "losses"})
        EXPECT_EQ(printed["runs"][0][key], document()[key]) << key;
}

/// The run's JSON, its text, the capture's view and stats give the same value.
TEST_F(RunJson, SpeedupIsTheSameInEveryOutput) {
    const std::string path = folder_->file("baseline.dscope");
    const std::vector<std::string> words =
        arguments("run --model {} --drafter ngram --prompts {} --max-new 16 --ignore-eos --baseline 2",
                  tiny_model(*folder_), folder_->file("prompts.jsonl"));
    auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), words.begin(), words.end());
        return run(*folder_, more);
    };
    const json baseline = parse_output(with({"--save", path, "--json"}))["baseline"];
    EXPECT_EQ(baseline["runs"], json::array({2}));
    EXPECT_TRUE(baseline["interval"].is_null());
    const Sql sql(path);
    EXPECT_EQ(sql.text("SELECT group_concat(drafter) FROM (SELECT drafter FROM run ORDER BY id)"),
              "ngram,none");
    EXPECT_EQ(sql.text("SELECT group_concat(baseline) FROM (SELECT baseline FROM run ORDER BY id)"), "0,1");
    ASSERT_EQ(sql.rows("SELECT run_id FROM v_speedup").size(), 1u);
    expect_near(baseline["speedup"], sql.number("SELECT speedup FROM v_speedup WHERE run_id = 1"), "view");
    EXPECT_EQ(baseline["prompts"], sql.number("SELECT prompts FROM v_speedup"));
    EXPECT_EQ(baseline["conversations"], 2);
    // Expected value: both runs over the first two conversations.
    const auto rate = [&](int run_id) {
        return sql.number(
            "SELECT 1e9 * sum(r.committed) / sum(s.end_ns - s.start_ns - s.paused_ns) FROM round r JOIN step "
            "s ON s.id = r.step_id JOIN prompt p ON p.id = r.prompt_id WHERE s.excluded IS NULL AND r.run_id "
            "= " +
            std::to_string(run_id) +
            " AND p.external_id IN (SELECT external_id FROM prompt WHERE run_id = 2)");
    };
    expect_near(baseline["speedup"], rate(1) / rate(2), "by hand");
    expect_near(baseline["run_tokens_per_second"], rate(1), "run");
    const json stats = json::parse(run(*folder_, {"stats", path, "--json"}).out, nullptr, false);
    EXPECT_EQ(stats["runs"][0]["baseline"], baseline);
    EXPECT_EQ(stats["runs"][1]["is_baseline"], true);
    const std::string printed =
        fmt::format("speed-up {:.2f}x against autoregressive decoding", baseline["speedup"].get<double>());
    const ProcessResult text = run(*folder_, {"stats", path});
    EXPECT_NE(text.out.find(printed), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("of 2 conversations (the run has 3)"), std::string::npos) << text.out;
    // A capture with a baseline is compared like one without.
    const std::string other = folder_->file("alone.dscope");
    ASSERT_EQ(run(*folder_, {"run", "--model", tiny_model(*folder_), "--drafter", "ngram", "--prompts",
                             folder_->file("prompts.jsonl"), "--max-new", "16", "--ignore-eos", "--save",
                             other, "--quiet"})
                  .exit_code,
              0);
    const json compared = json::parse(run(*folder_, {"compare", path, other, "--json"}).out, nullptr, false);
    EXPECT_EQ(compared["a"]["run"], 1);
    EXPECT_EQ(compared["tau"]["ratio"], 1.0);
}

/// Two tokens are warm-up, so no output reports a speed.
TEST_F(RunJson, SpeedIsNullWithoutCountedSteps) {
    const std::string path = folder_->file("short.dscope");
    const json document =
        parse_output(run(*folder_, {"run", "--model", tiny_model(*folder_), "--drafter", "none", "--prompt",
                                    "hi", "--max-new", "3", "--ignore-eos", "--save", path, "--json"}));
    EXPECT_TRUE(document["totals"]["tokens_per_second"].is_null());
    EXPECT_TRUE(document["prompts"][0]["tokens_per_second"].is_null());
    EXPECT_EQ(Sql(path).text("SELECT tokens_per_second IS NULL FROM v_prompt"), "1");
    EXPECT_NE(run(*folder_, {"stats", path}).out.find("   - tok/s decode"), std::string::npos);
}

TEST_F(RunJson, SpeculationDoesNotChangeTheTokens) {
    const json other =
        parse_output(run(*folder_, {"run", "--model", folder_->file("tiny256.gguf"), "--drafter", "none",
                                    "--prompts", folder_->file("prompts.jsonl"), "--max-new", "40",
                                    "--ignore-eos", "--threads", "1", "--precision", "f32", "--json"}));
    ASSERT_EQ(other["prompts"].size(), document()["prompts"].size());
    for (std::size_t i = 0; i < other["prompts"].size(); ++i)
        EXPECT_EQ(other["prompts"][i]["tokens"], document()["prompts"][i]["tokens"]) << i;
    EXPECT_TRUE(other["capture"].is_null());
    EXPECT_TRUE(other["baseline"]["speedup"].is_null());
    EXPECT_DOUBLE_EQ(other["totals"]["tau"], 1.0);
}

Arguments demo_head_words(const std::string& path) {
    return {"run",
            "--model",
            demo_model_path(),
            "--drafter",
            "eagle2",
            "--head",
            "fr-spec:v=8192",
            "--prompt",
            "Name three rivers.",
            "--max-new",
            "40",
            "--ignore-eos",
            "--save",
            path};
}

TEST(RunJsonHeads, MatchTheCapture) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    const ScratchFolder folder;
    const std::string path = folder.file("heads.dscope");
    const json document =
        parse_output(run(folder, demo_head_words(path) + Arguments{"--shadow", "full", "--json"}));
    EXPECT_EQ(document["head"], "fr-spec:v=8192");
    const auto rows = Sql(path).rows(
        "SELECT head, mode, tau, rho_tau, nu, kappa, active_rows, coverage, covered_mass "
        "FROM v_head ORDER BY mode");
    ASSERT_EQ(rows.size(), 2u);
    ASSERT_EQ(document["heads"].size(), 2u);
    const char* keys[] = {"tau", "rho_tau", "nu", "kappa", "active_rows", "coverage", "covered_mass"};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const json& head = document["heads"][i];
        EXPECT_EQ(head["head"], rows[i][0]);
        EXPECT_EQ(head["mode"], rows[i][1]);
        for (std::size_t k = 0; k < std::size(keys); ++k)
            expect_near(head[keys[k]], std::stod(rows[i][k + 2]), rows[i][0] + " " + keys[k]);
        EXPECT_GT(head["bytes_per_call"], 0);
        EXPECT_EQ(head["streamed_bytes_per_round"], head["bytes_per_round"]);
        EXPECT_EQ(head["gathered_bytes_per_round"], 0);
    }
    EXPECT_EQ(document["heads"][0]["active_rows"], 8192);
    // One conversation gives no interval for any number of rounds; the text states the reason.
    for (const json& head : document["heads"]) EXPECT_TRUE(head["intervals"].empty());
    const std::string why = document["heads"][0]["no_interval"];
    EXPECT_NE(why.find("1 conversation: intervals need at least 6"), std::string::npos) << why;
    const ProcessResult table = run(folder, {"stats", path});
    EXPECT_NE(table.out.find(why), std::string::npos) << table.out;
    EXPECT_EQ(table.out.find('['), std::string::npos) << table.out;
}

/// Calibration changes neither rounds nor what is said of them, and gives no figure from a few rounds.
TEST(RunJsonHeads, CalibrationOfOneConversationIsNoFigure) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    const ScratchFolder folder;
    const std::string with = folder.file("with.dscope"), without = folder.file("without.dscope");
    // In a batch the full head does not follow the texts.
    const json document =
        parse_output(run(folder, demo_head_words(with) + Arguments{"--batch", "2", "--json"}));
    ASSERT_EQ(document["heads"].size(), 2u);
    EXPECT_EQ(document["heads"][1]["mode"], "calibration");
    EXPECT_TRUE(document["heads"][1]["tau"].is_null());
    for (const json& head : document["heads"]) {
        EXPECT_TRUE(head["rho_tau"].is_null());
        EXPECT_TRUE(head["predicted_speedup"].is_null());
        EXPECT_GT(head["kappa"], 0);
    }
    EXPECT_EQ(Sql(with).number("SELECT count(*) FROM v_head WHERE rho_tau IS NULL AND nu > 0"), 2);
    EXPECT_EQ(Sql(with).number("SELECT count(*) FROM step WHERE excluded = 'shadow'"), 0);
    const ProcessResult stats = run(folder, {"stats", with});
    EXPECT_NE(stats.out.find("against the full head: calibration rounds in 1 conversation are too few"),
              std::string::npos)
        << stats.out;
    EXPECT_EQ(stats.out.find("with the full head"), std::string::npos) << stats.out;

    const json plain = parse_output(
        run(folder, demo_head_words(without) + Arguments{"--batch", "2", "--calibrate", "0", "--json"}));
    EXPECT_EQ(plain["heads"].size(), 1u);
    EXPECT_EQ(plain["totals"]["tau"], document["totals"]["tau"]);
    const json compared = parse_output(run(folder, {"compare", with, without, "--json"}));
    EXPECT_EQ(compared["tau"]["ratio"], 1.0);
    EXPECT_EQ(compared["tau"]["a"], document["totals"]["tau"]);
}

}  // namespace
}  // namespace draftscope::testing
