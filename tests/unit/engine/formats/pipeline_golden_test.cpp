// Compares tokenizer.json's splitting steps and kinds of added tokens with the `tokenizers` library
// (tools/make_pipeline_golden.py).
#include <gtest/gtest.h>

#include <fstream>

#include "engine/formats/hf_folder.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

TEST(PipelineGolden, MatchesTheTokenizersLibrary) {
    std::ifstream golden(DS_SOURCE_DIR "/tests/golden/model/pipelines.json");
    const Json all = Json::parse(golden);
    int pipelines = 0;
    for (const Json& vocabulary : all["vocabularies"]) {
        for (const auto& [name, pipeline] : vocabulary["pipelines"].items()) {
            const testing::ScratchFolder folder;
            const Json file = {{"model", vocabulary["model"]},
                               {"normalizer", pipeline["normalizer"]},
                               {"pre_tokenizer", pipeline["pre_tokenizer"]},
                               {"added_tokens", pipeline["added_tokens"]}};
            std::ofstream(folder.file("tokenizer.json")) << file.dump();
            std::ofstream(folder.file("config.json")) << "{}";
            const auto config = require(JsonFile::read(folder.file("config.json"), "a test"));
            auto spec = read_hf_tokenizer(folder.path(), config);
            ASSERT_TRUE(spec.ok()) << name << ": " << spec.error().message;
            const auto tokenizer = require(Tokenizer::create(std::move(spec).value()));
            for (std::size_t i = 0; i < all["texts"].size(); ++i) {
                const auto text = all["texts"][i].get<std::string>();
                EXPECT_EQ(tokenizer->encode(text, true), pipeline["ids"][i].get<std::vector<TokenId>>())
                    << name << ": " << text;
                EXPECT_EQ(tokenizer->encode(text, false), pipeline["plain"][i].get<std::vector<TokenId>>())
                    << name << ", control tokens spelt out: " << text;
            }
            ++pipelines;
        }
    }
    EXPECT_EQ(pipelines, 10);
}

}  // namespace
}  // namespace draftscope
