#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/demo_fixture.h"
#include "tests/support/demo_model.h"

/// Compares complete decodes of the demo with an independent torch implementation: the tokens of each text
/// and the rounds of each prompt (tests/golden/engine/demo_reference.json).
namespace draftscope::testing {
namespace {

using Json = nlohmann::json;

/// Number of prompts tested, of ten. All ten agree but take minutes in f32.
constexpr std::size_t prompts = 2;

TEST(DemoReference, TextAndRounds) {
    ASSERT_TRUE(demo_model_present()) << demo_model_hint();
    std::ifstream file(std::string(DS_SOURCE_DIR) + "/tests/golden/engine/demo_reference.json");
    const Json reference = Json::parse(file);
    std::vector<std::vector<TokenId>> inputs;
    for (std::size_t i = 0; i < prompts; ++i)
        inputs.push_back(reference["prompts"][i]["prompt"].get<std::vector<TokenId>>());
    const auto fixture = make_demo_fixture(kernels::Precision::f32);
    ASSERT_NE(fixture, nullptr);
    for (const Json& entry : reference["rounds"]) {
        const auto tree = entry["tree"].get<std::vector<int>>();
        DecodeCase setting;
        setting.drafter = entry["drafter"].get<std::string>();
        setting.tree = to_text(TreeSpec{tree[0], tree[1], tree[2]});
        setting.threads = 2;
        setting.max_new = 48;
        const std::vector<PromptOutcome> outcomes = fixture->decode(setting, inputs);
        ASSERT_EQ(outcomes.size(), prompts);
        for (std::size_t i = 0; i < prompts; ++i) {
            const std::string which = to_text(setting) + " prompt " + std::to_string(i);
            EXPECT_EQ(outcomes[i].tokens, reference["prompts"][i]["text"].get<std::vector<TokenId>>())
                << which;
            EXPECT_EQ(outcomes[i].rounds, entry["per_prompt"][i].get<int>()) << which;
        }
    }
}

}  // namespace
}  // namespace draftscope::testing
