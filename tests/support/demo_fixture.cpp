#include "tests/support/demo_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/demo_model.h"

namespace draftscope::testing {
namespace {

const std::string source = DS_SOURCE_DIR;

}  // namespace

std::unique_ptr<DecodeFixture> make_demo_fixture(kernels::Precision precision) {
    auto file = open_model_file(demo_model_path());
    if (!file.ok()) {
        ADD_FAILURE() << file.error().message;
        return nullptr;
    }
    std::map<std::string, std::string> folders;
    for (const std::string name : {"eagle2", "eagle3", "medusa", "hydra"})
        folders[name] = source + "/assets/drafters/" + name;
    return std::make_unique<DecodeFixture>(DecodeFixture::build(std::move(file).value(), precision), folders,
                                           source + "/assets/heads/demo_ranking.safetensors");
}

std::vector<std::vector<TokenId>> demo_prompts(const Target& target, std::size_t count) {
    constexpr std::size_t longest = 300;  // characters
    std::ifstream file(source + "/assets/prompts/spec_bench_half.jsonl");
    std::map<std::string, std::vector<std::string>> by_category;
    for (std::string line; std::getline(file, line);) {
        const auto entry = nlohmann::json::parse(line);
        const auto text = entry["turns"][0].get<std::string>();
        if (text.size() <= longest) by_category[entry["category"].get<std::string>()].push_back(text);
    }
    std::vector<std::vector<TokenId>> prompts;
    for (std::size_t round = 0; prompts.size() < count; ++round) {
        bool any = false;
        for (const auto& [category, texts] : by_category) {
            if (round >= texts.size() || prompts.size() == count) continue;
            any = true;
            prompts.push_back(
                target.tokenizer()->encode(*target.chat().render({{"user", texts[round]}}), true));
        }
        if (!any) break;
    }
    EXPECT_EQ(prompts.size(), count);
    return prompts;
}

}  // namespace draftscope::testing
