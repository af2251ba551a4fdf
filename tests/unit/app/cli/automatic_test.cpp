#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/demo_model.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

/// The fastest choice depends on the machine; the text does not.
class Automatic : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
        std::string lines;
        for (int i = 0; i < 3; ++i) lines += json{{"id", i}, {"prompt", "hello you"}}.dump() + "\n";
        write_text(folder_.file("prompts.jsonl"), lines);
    }
    ProcessResult decode(const Arguments& more) const {
        return run(folder_, arguments("run --model {} --prompts {} --max-new 20 --ignore-eos --raw --threads "
                                      "1 --precision f32 --quiet",
                                      tiny_model(folder_, 512), folder_.file("prompts.jsonl")) +
                                more);
    }
    json document(const Arguments& more) const {
        return parse_output(
            decode(Arguments{"--drafter", "eagle2:" + folder_.file("eagle2"), "--json"} + more));
    }
    /// Runs with an own cache folder, which has the demo model.
    ProcessResult decode_demo(const Arguments& more) const {
        const std::string cache = folder_.file("cache"), models = cache + "/draftscope/models";
        if (!std::filesystem::exists(models)) {
            std::filesystem::create_directories(cache + "/draftscope");
            std::filesystem::create_directory_symlink(std::filesystem::path(demo_model_path()).parent_path(),
                                                      models);
        }
        StartOptions options;
        options.cache = cache.c_str();
        return run(folder_, Arguments{"run", "--prompt", "hello", "--max-new", "16", "--quiet"} + more,
                   options);
    }
    ScratchFolder folder_;
};

std::set<std::string> head_names(const json& document) {
    std::set<std::string> heads;
    for (const json& one : document["tree_auto"]["forecasts"]) heads.insert(one["head"].get<std::string>());
    return heads;
}

TEST_F(Automatic, TreeAutoAlsoChoosesTheHead) {
    const json chosen = document({"--tree", "auto"});
    // Only heads without files: the others have none here.
    EXPECT_EQ(head_names(chosen), (std::set<std::string>{"full", "microspec"}));
    const json& best = chosen["tree_auto"]["forecasts"][0];
    EXPECT_EQ(chosen["head"], best["head"]);
    EXPECT_EQ(chosen["tree"], best["tree"]);
    const json plain = document({"--tree", "chain=2"});
    for (std::size_t i = 0; i < plain["prompts"].size(); ++i)
        EXPECT_EQ(chosen["prompts"][i]["tokens"], plain["prompts"][i]["tokens"]);
}

TEST_F(Automatic, KeepsAnExplicitHead) {
    const json chosen = document({"--tree", "auto", "--head", "microspec:wmax=64"});
    EXPECT_EQ(head_names(chosen), std::set<std::string>{"microspec:wmax=64"});
    EXPECT_EQ(chosen["head"], "microspec:wmax=64");
}

TEST_F(Automatic, DraftersWithoutHeadsReportNoHead) {
    const json printed = parse_output(decode({"--drafter", "ngram", "--tree", "auto", "--json"}));
    for (const json& one : printed["tree_auto"]["forecasts"]) EXPECT_TRUE(one["head"].is_null());
}

/// The chosen tree depends on the machine; the use of the table does not.
TEST_F(Automatic, QuickForecastsFromShippedAcceptance) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    const json chosen = parse_output(decode_demo({"--tree", "quick", "--json"}));
    const json table = json::parse(read_text(std::string(DS_SOURCE_DIR) + "/assets/demo_acceptance.json"));
    EXPECT_EQ(chosen["tree_auto"]["kept"], false);
    EXPECT_TRUE(chosen["tree_auto"]["interval"].is_array());
    std::size_t known = 0;
    for (const auto& [head, trees] : table["drafters"]["eagle3"].items()) known += trees.size();
    const json& forecasts = chosen["tree_auto"]["forecasts"];
    ASSERT_EQ(forecasts.size(), known);
    const json& best = forecasts[0];
    EXPECT_NEAR(
        best["tau"].get<double>(),
        table["drafters"]["eagle3"][best["head"].get<std::string>()][best["tree"].get<std::string>()]["tau"],
        5e-4);
    if (best["speedup"] >= 1) {
        EXPECT_EQ(chosen["drafter"], "eagle3");
        EXPECT_EQ(chosen["head"], best["head"]);
        EXPECT_EQ(chosen["tree"], best["tree"]);
    } else {
        EXPECT_EQ(chosen["drafter"], "none");
    }
    const json plain = json::parse(decode_demo({"--drafter", "none", "--json"}).out);
    EXPECT_EQ(chosen["prompts"][0]["tokens"], plain["prompts"][0]["tokens"]);

    expect_one_line_error(decode_demo({"--tree", "quick", "--head", "slimspec"}),
                          {"--head slimspec", "--tree auto"});
    expect_one_line_error(decode_demo({"--tree", "quick", "--drafter", "ngram"}),
                          {"--drafter ngram", "--tree auto"});
    expect_one_line_error(decode_demo({"--tree", "quick", "--batch", "2"}), {"--tree quick", "--batch 2"});
    expect_one_line_error(decode({"--drafter", "eagle2:" + folder_.file("eagle2"), "--tree", "quick"}),
                          {"--tree quick", "tiny512.gguf"});
}

/// The second start takes the forecast of the first, and a damaged file is made again.
TEST_F(Automatic, TheDemoModelRunsUnderAKeptForecast) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    const json first = parse_output(decode_demo({"--json"}));
    EXPECT_EQ(first["tree_auto"]["kept"], false);
    EXPECT_GT(first["tree_auto"]["pilot_rounds"], 0);
    const json second = parse_output(decode_demo({"--json"}));
    EXPECT_EQ(second["tree_auto"]["kept"], true);
    EXPECT_EQ(second["tree_auto"]["pilot_rounds"], 0);
    for (const char* key : {"drafter", "head", "tree"}) EXPECT_EQ(second[key], first[key]) << key;
    EXPECT_EQ(second["tree_auto"]["forecasts"], first["tree_auto"]["forecasts"]);
    EXPECT_NE(decode_demo({}).out.find("forecast kept from an earlier start: "), std::string::npos);
    // What was measured under other conditions is not taken, and --tree quick measures again.
    EXPECT_EQ(parse_output(decode_demo({"--json", "--threads", "1"}))["tree_auto"]["kept"],
              first["threads"] == 1);
    EXPECT_EQ(parse_output(decode_demo({"--json", "--tree", "quick"}))["tree_auto"]["kept"], false);
    for (const char* damaged : {"[{", "[3]", R"([{"key": 3, "settings": 4}])", "{}"}) {
        write_text(folder_.file("cache/draftscope/forecasts.json"), damaged);
        EXPECT_EQ(parse_output(decode_demo({"--json"}))["tree_auto"]["kept"], false) << damaged;
    }
    // A head, a tree, a batch or a temperature keeps the fixed tree.
    for (const Arguments& more : {Arguments{"--head", "full"}, Arguments{"--tree", "chain=2"},
                                  Arguments{"--batch", "2"}, Arguments{"--temperature", "0.5"}})
        EXPECT_TRUE(parse_output(decode_demo(Arguments{"--json"} + more))["tree_auto"].is_null()) << more[0];
}

/// Drafts of other heads exclude no step.
TEST_F(Automatic, ExcludesWarmUpAlone) {
    const std::string drafter = "eagle2:" + folder_.file("eagle2");
    const Arguments common = {"--drafter", drafter,   "--head",  "microspec:wmax=64",
                              "--tree",    "chain=2", "--detail"};
    for (const Arguments& more : {Arguments{"--calibrate", "2"}, Arguments{"--shadow", "aligned:full"}}) {
        const ProcessResult done = decode(common + more);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        EXPECT_NE(done.out.find("\n2 warm-up steps excluded from times and speeds"), std::string::npos)
            << done.out;
        EXPECT_NE(done.out.find("break-even rho_tau"), std::string::npos) << done.out;
    }
}

TEST_F(Automatic, RejectsHeadAutoWithoutTreeAuto) {
    const std::string drafter = "eagle2:" + folder_.file("eagle2");
    expect_one_line_error(decode({"--drafter", drafter, "--head", "auto"}),
                          {"--head auto", "--tree auto", "bench"});
    expect_one_line_error(decode({"--drafter", drafter, "--tree", "auto", "--shadow", "auto"}),
                          {"--shadow auto"});
}

}  // namespace
}  // namespace draftscope::testing
