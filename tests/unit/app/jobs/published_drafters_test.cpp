#include "app/jobs/resolve/published_drafters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/draft/registry.h"

namespace draftscope {
namespace {

std::vector<std::string> places(std::string_view model) {
    const auto all = read_published_drafters();
    EXPECT_TRUE(all.ok()) << all.error().message;
    std::vector<std::string> out;
    for (const PublishedDrafter& one : drafters_for(model, *all)) out.push_back(one.at);
    return out;
}

TEST(PublishedDrafters, EveryRowIsComplete) {
    const auto all = read_published_drafters();
    ASSERT_TRUE(all.ok()) << all.error().message;
    EXPECT_GT(all->size(), 50u);
    std::set<std::string> seen;
    for (const PublishedDrafter& one : *all) {
        EXPECT_TRUE(seen.insert(one.target + one.at).second) << one.at << " is listed twice";
        EXPECT_EQ(std::ranges::count(one.at, '/'), 1) << one.at;
        EXPECT_TRUE(one.drafter == "draft-model" || find_drafter(one.drafter) != nullptr) << one.drafter;
    }
}

TEST(PublishedDrafters, FilesAndNamesFindTheirTarget) {
    using testing::Contains, testing::ElementsAre, testing::Not;
    const auto qwen = places("/models/Qwen3-8B-Q4_K_M.gguf");
    EXPECT_THAT(qwen, Contains("AngelSlim/Qwen3-8B_eagle3"));
    EXPECT_THAT(qwen, Contains("RedHatAI/Qwen3-8B-speculator.eagle3"));
    EXPECT_THAT(qwen, Not(Contains("AngelSlim/Qwen3-1.7B_eagle3")));
    EXPECT_EQ(qwen.back(), "Qwen/Qwen3-0.6B");
    EXPECT_THAT(places("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                ElementsAre("Qwen/Qwen2.5-Coder-0.5B-Instruct"));
    EXPECT_THAT(places("/cache/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f2"),
                Contains("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"));
    EXPECT_THAT(places("Meta-Llama-3.1-8B-Instruct-Q8_0.gguf"), Contains("meta-llama/Llama-3.2-1B-Instruct"));
    // The smallest model of a family has none of its own.
    EXPECT_THAT(places("SmolLM2-135M-Instruct.Q4_1.gguf"), ElementsAre());
    EXPECT_THAT(places("some-model.gguf"), ElementsAre());
}

}  // namespace
}  // namespace draftscope
