#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/heads/artefact.h"
#include "engine/recording/recorded_target.h"
#include "tests/support/replay_fixture.h"
#include "tests/support/results.h"
#include "tests/support/tiny_drafter.h"

/// Compares a recording made by tools/record_decode.py with transformers (tests/golden/traces) with a
/// recording of the same model and prompts by this program at f32.
namespace draftscope::testing {
namespace {

const std::string golden = std::string(DS_SOURCE_DIR) + "/tests/golden/";

struct ForeignRecording : ::testing::Test {
    ForeignRecording() {
        auto opened = DecodeRecording::open(golden + "traces/llama");
        if (!opened.ok()) throw std::runtime_error(opened.error().message);
        foreign_recording = *opened;
        auto loaded = Target::load(golden + "models/llama", *exec, kernels::Precision::f32);
        if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
        eagle = std::make_unique<TinyEagle2>((*loaded)->config(), 5);
        fixture = std::make_unique<DecodeFixture>(
            std::move(loaded).value(), std::map<std::string, std::string>{{"eagle2", eagle->folder()}}, "");
        setting.max_new = foreign_recording->info().max_new;
        setting.ignore_eos = foreign_recording->info().ignore_eos;
        for (const RecordedPrompt& prompt : foreign_recording->prompts()) {
            std::vector<TokenId> tokens = foreign_recording->tokens(prompt);
            tokens.resize(prompt.prompt_tokens);
            prompts.push_back(std::move(tokens));
        }
        own_recording = record(*fixture, setting, prompts, {}, scratch.file("own"));
    }

    std::unique_ptr<kernels::Backend> exec = kernels::make_cpu_backend(1);
    std::shared_ptr<const DecodeRecording> foreign_recording, own_recording;
    std::unique_ptr<TinyEagle2> eagle;
    std::unique_ptr<DecodeFixture> fixture;
    DecodeCase setting;
    std::vector<std::vector<TokenId>> prompts;
    ScratchFolder scratch;
};

TEST_F(ForeignRecording, MatchesTextsAndRankingsOfOurRecording) {
    ASSERT_NE(own_recording, nullptr);
    ASSERT_EQ(foreign_recording->prompts().size(), own_recording->prompts().size());
    EXPECT_EQ(foreign_recording->info().target.hidden, own_recording->info().target.hidden);
    EXPECT_EQ(foreign_recording->info().target.vocab, own_recording->info().target.vocab);
    EXPECT_EQ(foreign_recording->info().target.context, own_recording->info().target.context);
    const int d = own_recording->info().target.hidden;
    std::vector<float> a(static_cast<std::size_t>(d)), b(a);
    for (std::size_t p = 0; p < own_recording->prompts().size(); ++p) {
        const RecordedPrompt &theirs = foreign_recording->prompts()[p], &ours = own_recording->prompts()[p];
        ASSERT_EQ(foreign_recording->tokens(theirs), own_recording->tokens(ours));
        EXPECT_EQ(theirs.finish, ours.finish);
        for (int r = 0; r < ours.rows(); ++r) {
            const std::int64_t i = theirs.first_row + r, j = ours.first_row + r;
            EXPECT_EQ(foreign_recording->best(i, 3), own_recording->best(j, 3))
                << "prompt " << p << " row " << r;
            const auto x = foreign_recording->best_logprobs(i, 8), y = own_recording->best_logprobs(j, 8);
            for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], y[k], 0.02);
            ASSERT_TRUE(foreign_recording->hidden(i, Rows<float>(a.data(), 1, d)).ok());
            ASSERT_TRUE(own_recording->hidden(j, Rows<float>(b.data(), 1, d)).ok());
            // One step of bf16, if the last bits of f32 differ.
            for (std::size_t k = 0; k < a.size(); ++k)
                EXPECT_NEAR(a[k], b[k], std::abs(b[k]) / 128 + 1e-4f) << "prompt " << p << " row " << r;
        }
    }
}

TEST_F(ForeignRecording, ReplaysTheRoundsOfOurRecording) {
    ASSERT_NE(own_recording, nullptr);
    const auto recorded_target = require(make_recorded_target(*foreign_recording, golden + "models/llama",
                                                              fixture->exec(1), kernels::Precision::f32));
    Drafter& drafter = fixture->drafter("eagle2");
    std::int64_t accepted = 0, rounds = 0;
    for (const std::string tree : {"chain=4", "depth=3,topk=4,nodes=12"}) {
        setting.tree = tree;
        for (const std::string head : {"full", "microspec:wmax=40,branch=path"}) {
            setting.head = head;
            LmHead* prepared = &fixture->head(head, drafter);
            const auto theirs =
                replayed_rounds(*fixture, *foreign_recording, *recorded_target, drafter, prepared, setting);
            const auto ours =
                replayed_rounds(*fixture, *own_recording, *recorded_target, drafter, prepared, setting);
            const auto live = live_rounds(*fixture, setting, prompts);
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

/// A recording and a head of a published program.
TEST(KeptFiles, RecordingAndHeadOpen) {
    const auto recording = require(DecodeRecording::open(golden + "kept/recording"));
    ASSERT_EQ(recording->prompts().size(), 2u);
    EXPECT_EQ(recording->info().rows, 8);
    EXPECT_EQ(recording->info().target.vocab, 262);
    std::vector<float> hidden(2 * 16);
    EXPECT_TRUE(is_ok(recording->hidden(0, Rows<float>(hidden.data(), 2, 16))));
    const HeadArtefact head = require(HeadArtefact::open(golden + "kept/coral.safetensors", "coral"));
    EXPECT_EQ(head.info().head, "coral");
    EXPECT_EQ(head.info().parameters.at("groups"), "16");
}

}  // namespace
}  // namespace draftscope::testing
