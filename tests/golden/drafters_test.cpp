#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/golden/drafter_fixture.h"
#include "tests/support/scratch_folder.h"

/// Compares small random drafters in every published layout with torch (tests/golden/drafters,
/// tools/make_drafter_golden.py).
namespace draftscope {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST_F(GoldenDrafters, Eagle2) {
    expect_golden("eagle2:" + golden_folder + "/eagle2_safetensors", "eagle2");
    expect_golden("eagle2:" + golden_folder + "/eagle2_bin", "eagle2");
    expect_golden("eagle2:" + golden_folder + "/eagle2_bin/pytorch_model.bin", "eagle2");
    expect_golden("eagle2:" + golden_folder + "/eagle2_speculators", "eagle2");
    expect_golden("eagle2:" + golden_folder + "/eagle2_bias", "eagle2_bias");
}

TEST_F(GoldenDrafters, Eagle3InEveryLayout) {
    for (const char* layout :
         {"eagle3_official", "eagle3_safetensors", "eagle3_specforge", "eagle3_speculators", "eagle3.gguf"})
        expect_golden("eagle3:" + golden_folder + "/" + layout, "eagle3");
}

TEST_F(GoldenDrafters, Eagle3Variants) {
    expect_golden("eagle3:" + golden_folder + "/eagle3_variants", "eagle3_variants");
    expect_golden("eagle3:" + golden_folder + "/eagle3_fc_norm,recycle=normed", "eagle3_fc_norm");
}

TEST_F(GoldenDrafters, MedusaAndHydraAsPublished) {
    expect_golden("medusa:" + golden_folder + "/medusa_published", "medusa");
    expect_golden("hydra:" + golden_folder + "/hydra_published", "hydra");
}

TEST_F(GoldenDrafters, EveryLayoutDraftsTheSame) {
    const auto same = [&](const std::string& id, const std::string& name,
                          const std::vector<std::string>& layouts) {
        std::vector<std::vector<Round>> all;
        for (const std::string& layout : layouts) {
            const auto drafter = open(id + ":" + golden_folder + "/" + layout);
            ASSERT_NE(drafter, nullptr);
            all.push_back(draft(*drafter, golden_[name]));
        }
        for (std::size_t l = 1; l < all.size(); ++l) {
            for (std::size_t r = 0; r < all[0].size(); ++r) {
                EXPECT_EQ(all[l][r].tree.tokens, all[0][r].tree.tokens) << layouts[l];
                EXPECT_EQ(all[l][r].tree.parents, all[0][r].tree.parents) << layouts[l];
                EXPECT_EQ(all[l][r].tree.logprobs, all[0][r].tree.logprobs) << layouts[l];
            }
        }
    };
    same("eagle2", "eagle2", {"eagle2_safetensors", "eagle2_bin", "eagle2_speculators"});
    same("eagle3", "eagle3",
         {"eagle3_safetensors", "eagle3_official", "eagle3_specforge", "eagle3_speculators", "eagle3.gguf"});
}

TEST_F(GoldenDrafters, OnlyCheckpointsWithoutAnLmHeadUseADraftHead) {
    EXPECT_FALSE(open("medusa:" + golden_folder + "/medusa_published")->uses_head());
    EXPECT_FALSE(open("hydra:" + golden_folder + "/hydra_published")->uses_head());
    EXPECT_EQ(open("eagle3:" + golden_folder + "/eagle3_official")->properties().lm_head_ids.size(), 64u);
    EXPECT_EQ(open("eagle3:" + golden_folder + "/eagle3_fc_norm")->properties().lm_head, nullptr);
}

TEST_F(GoldenDrafters, RopeMayFollowTheTarget) {
    // The target's heads are 12 wide; these drafters' heads are 16 and 20 wide.
    EXPECT_THAT(open_error("eagle2:" + golden_folder + "/eagle2_bin,rope=target"),
                HasSubstr("the target's attention heads are 12 wide, the drafter's 16"));
    EXPECT_THAT(open_error("eagle2:" + golden_folder + "/eagle2_bin,rope=both"),
                HasSubstr("rope=own or rope=target"));
    EXPECT_THAT(open_error("eagle2:" + golden_folder + "/eagle2_bin,ropes=own"), HasSubstr("known: rope"));
    expect_golden("eagle2:" + golden_folder + "/eagle2_bin,rope=own", "eagle2");
}

TEST_F(GoldenDrafters, ReportsMismatchedCheckpoints) {
    EXPECT_THAT(open_error("eagle2:" + golden_folder + "/eagle3_official"),
                HasSubstr("is an EAGLE-3 checkpoint; use --drafter eagle3:PATH"));
    EXPECT_THAT(open_error("eagle3:" + golden_folder + "/eagle2_bin"),
                HasSubstr("is an EAGLE-2 checkpoint; use --drafter eagle2:PATH"));
    EXPECT_THAT(open_error("medusa:" + golden_folder + "/eagle2_bin"), HasSubstr("not a Medusa checkpoint"));
    EXPECT_THAT(open_error("eagle3:" + golden_folder + "/freq_4.pt"),
                HasSubstr("config.json with the drafter's dimensions is missing"));
    EXPECT_THAT(open_error("eagle3:" + golden_folder), HasSubstr("contains none of model.safetensors"));
}

/// A layout's folder with a modified config.json.
class ChangedConfig : public GoldenDrafters {
  protected:
    std::string error_with(const std::string& layout, const std::function<void(Json&)>& change) {
        const std::string from = golden_folder + "/" + layout;
        Json config = Json::parse(std::ifstream(from + "/config.json"));
        change(config);
        std::ofstream(scratch_.file("config.json")) << config;
        for (const char* file : {"model.safetensors", "pytorch_model.bin"}) {
            std::error_code ignored;
            std::filesystem::remove(scratch_.file(file), ignored);
            if (std::filesystem::exists(from + "/" + file))
                std::filesystem::copy_file(from + "/" + file, scratch_.file(file));
        }
        return open_error("eagle3:" + scratch_.path());
    }
    testing::ScratchFolder scratch_;
};

TEST_F(ChangedConfig, RejectsUnsupportedSettings) {
    EXPECT_THAT(error_with("eagle3_official", [](Json& c) { c["num_hidden_layers"] = 2; }),
                HasSubstr("num_hidden_layers is 2"));
    EXPECT_THAT(error_with("eagle3_official",
                           [](Json& c) {
                               c["rope_scaling"] = {{"rope_type", "longrope"}};
                           }),
                HasSubstr("rope_scaling.rope_type is \"longrope\""));
    EXPECT_THAT(error_with("eagle3_official", [](Json& c) { c["hidden_act"] = "gelu"; }),
                HasSubstr("hidden_act is \"gelu\""));
    EXPECT_THAT(error_with("eagle3_official", [](Json& c) { c.erase("eagle_aux_hidden_state_layer_ids"); }),
                HasSubstr("which has only 2 layers"));
    EXPECT_THAT(error_with("eagle3_specforge",
                           [](Json& c) {
                               c["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {0, 0, 2};
                           }),
                HasSubstr("contains 2, but the target has layers 0..1"));
    EXPECT_THAT(
        error_with("eagle3_specforge", [](Json& c) { c["eagle_config"]["use_last_layernorm"] = false; }),
        HasSubstr("eagle_config.use_last_layernorm is false"));
    EXPECT_THAT(error_with("eagle3_speculators", [](Json& c) { c["speculators_model_type"] = "peagle"; }),
                HasSubstr("is a drafter of family P-EAGLE (speculators_model_type is \"peagle\")"));
    EXPECT_THAT(error_with("eagle3_speculators",
                           [](Json& c) { c["transformer_layer_config"]["vocab_size"] = 32000; }),
                HasSubstr("this drafter was made for example/tiny-qwen2"));
    EXPECT_THAT(error_with("eagle3_speculators", [](Json& c) { c["fc_norm"] = true; }),
                HasSubstr("'fc_norm.0.weight' is missing"));
    EXPECT_THAT(error_with("eagle3_variants", [](Json& c) { c["norm_before_fc"] = false; }),
                HasSubstr("tensor 'input_norm.weight' is present"));
}

TEST_F(ChangedConfig, InfersTheHeadSizeFromTheWeights) {
    const std::string from = golden_folder + "/eagle2_bin";
    Json config = Json::parse(std::ifstream(from + "/config.json"));
    config.erase("head_dim");
    std::ofstream(scratch_.file("config.json")) << config;
    std::filesystem::copy_file(from + "/pytorch_model.bin", scratch_.file("pytorch_model.bin"));
    expect_golden("eagle2:" + scratch_.path(), "eagle2");
}

}  // namespace
}  // namespace draftscope
