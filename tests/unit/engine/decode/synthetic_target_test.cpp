#include <gtest/gtest.h>

#include "engine/draft/registry.h"
#include "engine/formats/model_file.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/head_specs.h"
#include "tests/support/results.h"

/// Random weights with the dimensions of a published model: LM head, embedding and drafters of full size over
/// one layer of the target. They are for measuring costs, so they must run and decode losslessly.
namespace draftscope::testing {
namespace {

const std::string spec = "synthetic:qwen3-30b-a3b/1";

TEST(SyntheticTarget, RandomDraftersOfItsSizeDraftForIt) {
    auto file = open_model_file(spec);
    ASSERT_TRUE(is_ok(file));
    DecodeFixture fixture(DecodeFixture::build(std::move(file).value(), kernels::Precision::int8),
                          {{"eagle2", spec}, {"medusa", spec}}, spec);
    EXPECT_EQ(fixture.target().lm_head().n(), 151936);
    EXPECT_EQ(fixture.target().tokenizer()->size(), 151669);
    DecodeCase setting{.drafter = "none", .tree = "depth=1,topk=2,nodes=4", .threads = 2, .max_new = 6};
    const std::vector<std::vector<TokenId>> prompts = {{5, 7, 9}, {1000, 2}};
    const auto expected = fixture.decode(setting, prompts);
    ASSERT_EQ(expected.size(), 2u);
    for (const char* drafter : {"eagle2", "medusa"}) {
        setting.drafter = drafter;
        setting.batch = 2;
        const auto found = fixture.decode(setting, prompts);
        ASSERT_EQ(found.size(), 2u);
        for (std::size_t p = 0; p < 2; ++p) {
            EXPECT_EQ(found[p].tokens, expected[p].tokens) << drafter;
            EXPECT_GT(found[p].draft_tokens, 0) << drafter;
            for (const TokenId id : found[p].tokens) EXPECT_LT(id, 151669);  // no padding row
        }
    }
    // Heads also have random weights, in place of those of a fit.
    setting.drafter = "eagle2";
    for (const HeadInfo& info : head_registry())
        if (info.synthesize != nullptr) fixture.use_artefact(std::string(info.id), spec);
    for (const std::string& head :
         specs_of_heads({"fr-spec:v=8192", "vocabtrim-t:v=8192", "slimspec:rank=256/128",
                         "specvocab:rank=128", "dynaspec:clusters=32", "coral:groups=8"},
                        [](const HeadInfo& info) { return info.accepts_artefact(); })) {
        setting.head = head;
        const auto found = fixture.decode(setting, prompts);
        ASSERT_EQ(found.size(), 2u) << head;
        for (std::size_t p = 0; p < 2; ++p) EXPECT_EQ(found[p].tokens, expected[p].tokens) << head;
    }
    // Down and up, in int8 with one bf16 scale for 128 values.
    const double slim = 256.0 * (2048 + 151669);
    const HeadCost cost = fixture.head("slimspec:rank=256/128", fixture.drafter("eagle2")).cost(1);
    EXPECT_NEAR(static_cast<double>(cost.bytes) / slim, 1.02, 0.03);
    // fc, attention and the drafter's own feed-forward size, in int8 with one bf16 scale for 64 weights.
    const double eagle2 = 2048.0 * 2 * 2048 + 2048.0 * (2 * 32 + 2 * 4) * 128 + 3.0 * 2048 * 12288;
    EXPECT_NEAR(static_cast<double>(fixture.drafter("eagle2").properties().weight_bytes) / eagle2, 1.03,
                0.05);
}

TEST(SyntheticTarget, RandomDraftersFitTheirOwnTargetAlone) {
    auto file = open_model_file(std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen3");
    ASSERT_TRUE(is_ok(file));
    const auto target = DecodeFixture::build(std::move(file).value(), kernels::Precision::f32);
    const auto exec = kernels::make_cpu_backend(1);
    for (const DrafterInfo& drafter : drafter_registry()) {
        if (!drafter.has_synthetic) continue;
        const auto made = make_drafter(std::string(drafter.id) + ":" + spec, "", *target, *exec);
        ASSERT_FALSE(made.ok()) << drafter.id;
        EXPECT_NE(made.error().message.find("needs the synthetic target of the same name"), std::string::npos)
            << made.error().message;
    }
}

}  // namespace
}  // namespace draftscope::testing
