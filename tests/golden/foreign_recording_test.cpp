#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/recording/recorded_target.h"
#include "tests/support/replay_fixture.h"
#include "tests/support/tiny_drafter.h"

/// Compares a recording made by tools/record_trace.py with transformers (tests/golden/traces) with a
/// recording of the same model and prompts by this program at f32.
namespace draftscope::testing {
namespace {

const std::string golden = std::string(DS_SOURCE_DIR) + "/tests/golden/";

struct ForeignTrace : ::testing::Test {
    ForeignTrace() {
        auto opened = Trace::open(golden + "traces/llama");
        if (!opened.ok()) throw std::runtime_error(opened.error().message);
        foreign = *opened;
        const auto exec = kernels::make_cpu_exec(1);
        auto loaded = Target::load(golden + "models/llama", *exec, kernels::Precision::f32);
        if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
        eagle = std::make_unique<TinyEagle2>((*loaded)->config(), 5);
        rig = std::make_unique<DecodeRig>(
            std::move(loaded).value(), std::map<std::string, std::string>{{"eagle2", eagle->folder()}}, "");
        setting.max_new = foreign->info().max_new;
        setting.ignore_eos = foreign->info().ignore_eos;
        for (const TracePrompt& prompt : foreign->prompts()) {
            std::vector<TokenId> tokens = foreign->tokens(prompt);
            tokens.resize(static_cast<std::size_t>(prompt.prompt_tokens));
            prompts.push_back(std::move(tokens));
        }
        own = record(*rig, setting, prompts, {}, scratch.file("own"));
    }

    std::shared_ptr<const Trace> foreign, own;
    std::unique_ptr<TinyEagle2> eagle;
    std::unique_ptr<DecodeRig> rig;
    RigSetting setting;
    std::vector<std::vector<TokenId>> prompts;
    ScratchFolder scratch;
};

TEST_F(ForeignTrace, HoldsTheTextsAndRankingsOfOurOwn) {
    ASSERT_NE(own, nullptr);
    ASSERT_EQ(foreign->prompts().size(), own->prompts().size());
    EXPECT_EQ(foreign->info().target.hidden, own->info().target.hidden);
    EXPECT_EQ(foreign->info().target.vocab, own->info().target.vocab);
    EXPECT_EQ(foreign->info().target.context, own->info().target.context);
    const int d = own->info().target.hidden;
    std::vector<float> a(static_cast<std::size_t>(d)), b(a);
    for (std::size_t p = 0; p < own->prompts().size(); ++p) {
        const TracePrompt &theirs = foreign->prompts()[p], &ours = own->prompts()[p];
        ASSERT_EQ(foreign->tokens(theirs), own->tokens(ours));
        EXPECT_EQ(theirs.finish, ours.finish);
        for (int r = 0; r < ours.rows(); ++r) {
            const std::int64_t i = theirs.first_row + r, j = ours.first_row + r;
            EXPECT_EQ(foreign->best(i, 3), own->best(j, 3)) << "prompt " << p << " row " << r;
            const auto x = foreign->best_logprobs(i, 8), y = own->best_logprobs(j, 8);
            for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], 0.02);
            ASSERT_TRUE(foreign->hidden(i, Rows<float>(a.data(), 1, d)).ok());
            ASSERT_TRUE(own->hidden(j, Rows<float>(b.data(), 1, d)).ok());
            // One step of bf16, if the last bits of f32 differ.
            for (std::size_t k = 0; k < a.size(); ++k)
                EXPECT_NEAR(a[k], b[k], std::abs(b[k]) / 128 + 1e-4f) << "prompt " << p << " row " << r;
        }
    }
}

TEST_F(ForeignTrace, ReplaysToTheRoundsOfOurOwn) {
    ASSERT_NE(own, nullptr);
    const auto ends =
        make_trace_target(*foreign, golden + "models/llama", rig->exec(1), kernels::Precision::f32);
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    Drafter& drafter = rig->drafter("eagle2");
    std::int64_t accepted = 0, rounds = 0;
    for (const std::string tree : {"chain=4", "depth=3,topk=4,nodes=12"}) {
        setting.tree = tree;
        for (const std::string head : {"full", "microspec:wmax=40"}) {
            setting.head = head;
            Head* prepared = &rig->head(head, drafter);
            const auto theirs = replayed_rounds(*rig, *foreign, **ends, drafter, prepared, setting);
            const auto ours = replayed_rounds(*rig, *own, **ends, drafter, prepared, setting);
            const auto live = live_rounds(*rig, setting, prompts);
            ASSERT_EQ(theirs.size(), ours.size());
            for (std::size_t p = 0; p < ours.size(); ++p) {
                EXPECT_EQ(round_texts(theirs[p]), round_texts(ours[p])) << head << " " << tree;
                EXPECT_EQ(round_texts(ours[p]), round_texts(live[p])) << head << " " << tree;
                for (const HeadRound& round : ours[p]) {
                    accepted += round.accepted;
                    ++rounds;
                }
            }
        }
    }
    EXPECT_GT(rounds, 200);
    EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace draftscope::testing
