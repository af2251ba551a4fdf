#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/demo_model.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

std::string write_prompts(const ScratchFolder& folder, int count) {
    constexpr const char* texts[] = {"Name three rivers.",       "What is 12 times 12?",
                                     "Say hello in French.",     "Write a haiku about rain.",
                                     "Why is the sky blue?",     "List the days of the week.",
                                     "Translate 'cat' to Dutch", "Count from one to ten."};
    std::string lines;
    for (int i = 0; i < count; ++i) lines += json{{"id", i}, {"prompt", texts[i % 8]}}.dump() + "\n";
    const std::string path = folder.file("prompts" + std::to_string(count) + ".jsonl");
    write_text(path, lines);
    return path;
}

/// A tiny random target, whose drafter nothing can mend.
class Diagnose : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
        model_ = tiny_model(folder_, 512);
    }
    Arguments on(const std::string& drafter, const std::string& source) const {
        return arguments("diagnose --drafter {} --model {} --precision f32 --threads 1 --quiet " + source,
                         drafter, model_);
    }
    std::string eagle2() const { return "eagle2:" + folder_.file("eagle2"); }
    std::string record(int prompts) const {
        const std::string out = folder_.file("recording" + std::to_string(prompts));
        const ProcessResult done = run(
            folder_, arguments("record --model {} --prompts {} --max-new 16 --raw --ignore-eos --no-times "
                               "--precision f32 --quiet --out {}",
                               model_, write_prompts(folder_, prompts), out));
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return out;
    }
    ScratchFolder folder_;
    std::string model_;
};

TEST_F(Diagnose, NothingIsFoundInADrafterThatNoReadingMends) {
    const json found = parse_output(run(folder_, on(eagle2(), "--json --recording ") + Arguments{record(8)}));
    EXPECT_TRUE(found["fits"].is_null());
    EXPECT_EQ(found["verdict"].get<std::string>().rfind("Nothing wrong found", 0), 0u) << found["verdict"];
    EXPECT_EQ(found["conversations"], 8);
    EXPECT_EQ(found["tree"], "chain=3");
    const json& given = found["readings"][found["given"].get<int>()];
    EXPECT_TRUE(given["changes"].empty());
    EXPECT_GE(given["tau"]["value"], 1.0);
    EXPECT_EQ(given["gain"]["value"], 1.0);
    // The recording has no layer that the state before the final norm could come from.
    EXPECT_NE(found["untested"].dump().find("features=raw"), std::string::npos) << found["untested"];
    EXPECT_TRUE(found["prompts"].empty());
}

TEST_F(Diagnose, TheTargetAlsoTestsOtherLayersAndPrompts) {
    const json found = parse_output(
        run(folder_, on(eagle2(), "--json --max-new 12 --prompts ") + Arguments{write_prompts(folder_, 8)}));
    std::set<std::string> options;
    for (const json& reading : found["readings"])
        for (const json& change : reading["changes"]) options.insert(change["option"].get<std::string>());
    EXPECT_TRUE(options.contains("features")) << found["readings"];
    EXPECT_EQ(found["prompts"].size(), 2u) << found["prompts"];
}

TEST_F(Diagnose, BadInputIsNamed) {
    const std::string recording = record(8);
    const auto fails = [&](const std::string& drafter, const Arguments& more,
                           const std::vector<std::string>& parts) {
        expect_one_line_error(run(folder_, on(drafter, "--recording ") + Arguments{recording} + more), parts);
    };
    fails("ngram", {}, {"--drafter ngram", "no checkpoint"});
    fails("pair:suffix+" + eagle2(), {}, {"no checkpoint"});
    fails(eagle2(), {"--tree", "depth=2,topk=2,nodes=5"}, {"--tree", "chain=3"});
    fails(eagle2() + ",rope=none", {}, {"rope=none"});
    fails(eagle2(), {"--rounds", folder_.file("absent.dscope")}, {"absent.dscope"});
    const std::string few = record(3);
    expect_one_line_error(run(folder_, on(eagle2(), "--recording ") + Arguments{few}),
                          {few, "at least 6 conversations"});
}

/// Faults of the demo's drafter are found, and another engine's rounds tell which reading it has.
TEST(DiagnoseDemo, AFaultIsFoundAndTheEngineWithoutItAgrees) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    ScratchFolder folder;
    const std::string prompts = write_prompts(folder, 8), recording = folder.file("recording"),
                      rounds = folder.file("rounds.dscope");
    for (const Arguments& command :
         {arguments("record --prompts {} --max-new 36 --no-times --quiet --out {}", prompts, recording),
          arguments(
              "run --prompts {} --max-new 36 --quiet --tree chain=3 --head full --calibrate 0 --save {}",
              prompts, rounds)}) {
        const ProcessResult done = run(folder, command);
        ASSERT_EQ(done.exit_code, 0) << done.err;
    }
    const std::string drafter =
        std::string(DS_SOURCE_DIR) + "/assets/drafters/eagle3,recycle=normed,residual=normed";
    const json found = parse_output(
        run(folder, arguments("diagnose --drafter eagle3:{} --recording {} --rounds {} --json --quiet",
                              drafter, recording, rounds)));
    ASSERT_TRUE(found["fits"].is_number()) << found["verdict"];
    const json &best = found["readings"][found["fits"].get<int>()],
               &given = found["readings"][found["given"].get<int>()];
    std::set<std::string> changes;
    for (const json& change : best["changes"])
        changes.insert(change["option"].get<std::string>() + "=" + change["value"].get<std::string>());
    EXPECT_EQ(changes, (std::set<std::string>{"recycle=raw", "residual=raw"})) << found["verdict"];
    EXPECT_GT(best["tau"]["value"], 1.3 * given["tau"]["value"].get<double>());
    EXPECT_EQ(best["parts_at_depth"], 0) << best["acceptance_by_depth"];
    EXPECT_EQ(best["acceptance_by_depth"], found["engine_acceptance_by_depth"]);  // also behind token 32
    EXPECT_EQ(given["parts_at_depth"], 1) << given["acceptance_by_depth"];
}

}  // namespace
}  // namespace draftscope::testing
