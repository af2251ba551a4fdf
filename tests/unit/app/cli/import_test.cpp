#include <nlohmann/json.hpp>

#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

// Rounds of another engine: from its file to statistics and comparisons.
namespace draftscope::testing {
namespace {

using nlohmann::json;

/// Six requests of ten rounds, each accepting `accepted` of three drafts; with times if `ms` is not 0.
std::string rounds(int accepted, int ms, const std::string& engine = "vllm") {
    std::string out = "{\"dsrounds\":1,\"engine\":\"" + engine + "\",\"k\":3,\"first_token\":\"prefill\"}\n";
    std::int64_t at = 0;
    for (int request = 0; request < 6; ++request) {
        const std::string name = "{\"req\":\"q" + std::to_string(request) + "\"";
        out +=
            name + ",\"prompt_tokens\":55,\"category\":\"" + (request % 2 == 0 ? "chat" : "code") + "\"}\n";
        for (int i = 0; i < 10; ++i, at += ms * 1'000'000LL) {
            json round = {{"req", "q" + std::to_string(request)},
                          {"i", i},
                          {"d", 3},
                          {"a", (i + request) % 3 == 0 ? 0 : accepted}};
            if (ms > 0) round.update({{"t0", at}, {"dt", ms * 1'000'000LL}});
            out += round.dump() + "\n";
        }
    }
    return out;
}

class Import : public ::testing::Test {
  protected:
    std::string imported(const std::string& name, const std::string& text, const Arguments& more = {}) {
        write_text(folder_.file(name + ".jsonl"), text);
        const ProcessResult done = run(folder_, Arguments{"import", folder_.file(name + ".jsonl"), "--out",
                                                          folder_.file(name + ".dscope")} +
                                                    more);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return folder_.file(name + ".dscope");
    }
    json stats(const std::string& file) {
        return parse_output(run(folder_, {"stats", file, "--json"}))["runs"][0];
    }
    ScratchFolder folder_;
};

TEST_F(Import, StatisticsSayWhatIsKnown) {
    const std::string file = imported("timed", rounds(2, 50));
    const json run = stats(file);
    EXPECT_EQ(run["acceptance"], "imported");
    EXPECT_EQ(run["totals"]["rounds"], 60);
    EXPECT_EQ(run["totals"]["drafted"], 180);
    const double tau = run["totals"]["tau"];
    EXPECT_NEAR(tau, Sql(file).number("SELECT avg(committed) FROM round"), 1e-12);
    EXPECT_NEAR(run["totals"]["tokens_per_second"], tau / 0.05, 1e-9);
    EXPECT_TRUE(run["statistics"]["tau"]["interval"].is_array());
    EXPECT_EQ(run["import"]["categories"].size(), 2u);
    EXPECT_EQ(run["import"]["at_least"].size(), 3u);
    EXPECT_TRUE(run["phases"].empty());
    const std::string text = testing::run(folder_, {"stats", file}).out;
    for (const char* part :
         {"imported from vllm", "plain decoding", "context", "category", "not known: draft trees"})
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    EXPECT_EQ(testing::run(folder_, {"check", file}).exit_code, 0);
}

TEST_F(Import, WhatIsNotKnownIsNull) {
    const std::string file =
        imported("sums", "{\"dsrounds\":1}\n{\"req\":\"1\",\"n\":3,\"a\":1}\n{\"req\":\"1\",\"d_sum\":9}\n");
    const json run = stats(file);
    EXPECT_EQ(run["totals"]["tau"], 2.0);
    for (const char* key : {"drafted", "tokens_per_second", "decode_seconds"})
        EXPECT_TRUE(run["totals"][key].is_null()) << key;
    EXPECT_TRUE(run["speed"]["by_context"].empty());
    EXPECT_EQ(run["import"]["sums"]["drafted_sum"], 9);
    EXPECT_EQ(run["lossless"], "unknown");
    const std::string text = testing::run(folder_, {"stats", file}).out;
    EXPECT_NE(text.find("3 of 9 drafted tokens accepted (33.3 %)"), std::string::npos) << text;
    EXPECT_NE(text.find("times"), std::string::npos);
    EXPECT_EQ(
        testing::run(folder_, {"export", file, "--format", "csv", "--out", folder_.file("csv")}).exit_code,
        0);
}

TEST_F(Import, RunsWithoutTimesAreComparedByTau) {
    const std::string a = imported("a", rounds(1, 0)), b = imported("b", rounds(2, 0, "llama.cpp"));
    const ProcessResult text = run(folder_, {"compare", a, b});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_NE(text.out.find("No times are known"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("engine (vllm and llama.cpp)"), std::string::npos) << text.out;
    const json c = parse_output(run(folder_, {"compare", a, b, "--json"}));
    EXPECT_EQ(c["pairs"], 6);
    EXPECT_GT(c["tau"]["ratio"], 1.2);
    EXPECT_TRUE(c["tokens_per_second"]["a"].is_null());
    EXPECT_EQ(run(folder_, {"compare", a, b, "--fail-below", "0.9"}).exit_code, 2);
}

TEST_F(Import, IsNotMixedWithRunsOfThisProgram) {
    write_text(folder_.file("p.jsonl"), "{\"id\": \"q0\", \"prompt\": \"hello\"}\n");
    const std::string own = folder_.file("own.dscope");
    ASSERT_EQ(
        run(folder_, {"run", "--model", tiny_model(folder_), "--drafter", "ngram", "--prompts",
                      folder_.file("p.jsonl"), "--ignore-eos", "--max-new", "24", "--save", own, "--quiet"})
            .exit_code,
        0);
    const std::string other = imported("timed", rounds(2, 50));
    const ProcessResult compared = run(folder_, {"compare", own, other});
    EXPECT_EQ(compared.exit_code, 2);
    EXPECT_NE(compared.err.find("acceptance (real and imported)"), std::string::npos) << compared.err;
    EXPECT_EQ(run(folder_, {"merge", folder_.file("m.dscope"), own, other}).exit_code, 2);
}

TEST_F(Import, ReadsStandardInput) {
    write_text(folder_.file("a.jsonl"), rounds(2, 0));
    const std::string file = folder_.file("a.dscope");
    const std::string command = std::string(DS_BINARY_DIR) + "/draftscope import - --out " + file + " < " +
                                folder_.file("a.jsonl") + " 2> /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(stats(file)["totals"]["rounds"], 60);
}

TEST_F(Import, NamesWhatIsWrong) {
    write_text(folder_.file("bad.jsonl"), "{\"dsrounds\":7}\n");
    expect_one_line_error(
        run(folder_, {"import", folder_.file("bad.jsonl"), "--out", folder_.file("x.dscope")}),
        {"bad.jsonl:1: field dsrounds: 7"});
    EXPECT_FALSE(std::filesystem::exists(folder_.file("x.dscope")));
    write_text(folder_.file("good.jsonl"), rounds(2, 0));
    for (const auto& [more, why] : std::vector<std::pair<Arguments, std::string>>{
             {{"--format", "vllm"}, "--format vllm: unknown"},
             {{"--header", "drafter"}, "--header drafter: expected KEY=VALUE"},
             {{"--ranking", "r.safetensors"}, "needs --model"}})
        expect_one_line_error(
            run(folder_,
                Arguments{"import", folder_.file("good.jsonl"), "--out", folder_.file("x.dscope")} + more),
            {why});
}

}  // namespace
}  // namespace draftscope::testing
