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
    const auto decode_demo = [&](const Arguments& more) {
        return run(folder_,
                   Arguments{"run", "--prompt", "Name three rivers.", "--max-new", "16", "--quiet"} + more);
    };
    const json chosen = parse_output(decode_demo({"--tree", "quick", "--json"}));
    const json table = json::parse(read_text(std::string(DS_SOURCE_DIR) + "/assets/demo_acceptance.json"));
    std::size_t known = 0;
    for (const auto& [head, trees] : table["drafters"]["eagle3"].items()) known += trees.size();
    const json& forecasts = chosen["tree_auto"]["forecasts"];
    ASSERT_EQ(forecasts.size(), known);
    const json& best = forecasts[0];
    EXPECT_NEAR(best["tau"].get<double>(),
                table["drafters"]["eagle3"][best["head"].get<std::string>()][best["tree"].get<std::string>()],
                1e-9);
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

/// Steps in which the full head also drafts count as calibration unless shadow heads are requested.
TEST_F(Automatic, NamesCalibrationAndShadowSteps) {
    const std::string drafter = "eagle2:" + folder_.file("eagle2");
    const Arguments common = {"--drafter", drafter,   "--head",  "microspec:wmax=64",
                              "--tree",    "chain=2", "--detail"};
    const auto said = [&](const Arguments& more) {
        const ProcessResult done = decode(common + more);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return done.out;
    };
    const std::string calibrated = said({"--calibrate", "2"});
    EXPECT_NE(calibrated.find(" calibration steps"), std::string::npos) << calibrated;
    EXPECT_EQ(calibrated.find("shadow step"), std::string::npos) << calibrated;
    EXPECT_NE(calibrated.find("break-even rho_tau"), std::string::npos) << calibrated;
    EXPECT_NE(said({"--shadow", "aligned:full"}).find(" shadow steps"), std::string::npos);
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
