#include <gtest/gtest.h>

#include <algorithm>

#include "engine/transformer/device_embeddings.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/device_rig.h"
#include "tests/support/ranking_file.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_drafter.h"

/// What is left behind where a device's memory is out: the session ends with an error, the device goes on.
namespace draftscope::testing {
namespace {

TEST(DeviceMemory, ARefusedQuestionLeavesNothingUnderWayAndMayBeAskedAgain) {
    TwinExec on;
    const auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
    KvCache cache = target->make_cache(40);
    const std::vector<TokenId> tokens = {5, 1, 2};
    const SequenceTokens rows{&cache, tokens, {}, nullptr};
    ForwardRequest request;
    request.sequences = {&rows, 1};
    request.all_logits = true;
    RowQuestion question;
    question.vocab = vocab;
    request.question = &question;
    ForwardOutput out;
    ASSERT_TRUE(target->forward(*on.exec, request, out).ok());
    std::vector<TokenId> every;
    for (TokenId id = 0; id < vocab; ++id) every.push_back(id);
    const std::vector<const std::vector<TokenId>*> sets(3, &every);
    question.sets = sets;
    on.twin->leave(0);
    const Status refused = target->forward(*on.exec, request, out);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("memory"), std::string::npos) << refused.error().message;
    EXPECT_EQ(on.twin->under_way(), 0u);
    on.twin->leave(100);
    ASSERT_TRUE(target->forward(*on.exec, request, out).ok());
    for (const float mass : out.answers.masses) EXPECT_NEAR(mass, 1.0f, 1e-5f);
}

/// Wherever memory ends in a round.
struct Refused {
    const char *drafter, *head;
    bool drawn = false;  ///< drafts
    bool there = true;   ///< rounds that the device makes alone
};
class RefusedRounds : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedRounds, LeaveNothingUnderWay) {
    const RankingFile ranking = RankingFile::shuffled(vocab);
    DecodeCase small, setting;  // the first makes the drafter
    small.drafter = setting.drafter = GetParam().drafter;
    small.tree = "chain=1";
    small.rounds_there = false;
    setting.tree = "depth=3,topk=4,nodes=12";
    small.head = setting.head = GetParam().head;
    setting.rounds_there = GetParam().there;
    if (GetParam().drawn) {
        setting.temperature = 0.9;
        setting.verify = "pq";
    }
    int left = 0;
    for (;; ++left) {
        TwinExec on;
        auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
        const TinyEagle2 eagle(target->config(), 77);
        const TinyDecodingHeads hydra(target->config(), true, 82, 4, true);
        DecodeFixture fixture(std::move(target), {{"eagle2", eagle.folder()}, {"hydra", hydra.folder()}},
                              ranking.path());
        fixture.run_on(*on.exec);
        const TinyArtefacts artefacts(fixture);
        ASSERT_EQ(fixture.decode_error(small, prompts()[0]).message, "no error");
        on.twin->leave(left);
        const Error error = fixture.decode_error(setting, prompts()[1]);
        EXPECT_EQ(on.twin->under_way(), 0u) << left << " allocations: " << error.message;
        if (error.message == "no error") break;
        if (left % 5 == 0) {  // the next session has memory again
            on.twin->leave(1 << 20);
            EXPECT_EQ(fixture.decode_error(setting, prompts()[1]).message, "no error") << left;
        }
        EXPECT_NE(error.message.find("memory"), std::string::npos) << error.message;
    }
    EXPECT_GT(left, 20);
}
INSTANTIATE_TEST_SUITE_P(
    Heads, RefusedRounds,
    ::testing::Values(Refused{"eagle2", "full"}, Refused{"eagle2", "dynaspec:kmax=4,kmin=3"},
                      Refused{"eagle2", "dynaspec:kmax=4,kmin=3", true},
                      Refused{"eagle2", "specvocab:k=5", true}, Refused{"eagle2", "full", true},
                      Refused{"hydra", "full"}, Refused{"eagle2", "microspec:wmax=9"},
                      Refused{"eagle2", "microspec:wmax=9,gather=indexed"},
                      Refused{"eagle2", "full", false, false}, Refused{"eagle2", "full", true, false},
                      Refused{"eagle2", "microspec:wmax=9", false, false}));

/// What is loaded outlives a session: no session begins as if it were there.
TEST(DeviceMemory, RowsOfAHeadThatFoundNoMemoryAreNotForgiven) {
    const RankingFile ranking = RankingFile::shuffled(vocab);
    DecodeCase setting;
    setting.head = "fr-spec:v=6";
    int left = 0;
    for (;; ++left) {
        TwinExec on;
        auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
        const TinyEagle2 eagle(target->config(), 77);
        DecodeFixture fixture(std::move(target), {{"eagle2", eagle.folder()}}, ranking.path());
        fixture.run_on(*on.exec);
        Drafter& drafter = fixture.drafter("eagle2");
        on.twin->leave(left);
        (void)fixture.head(setting.head, drafter);
        const bool enough = on.twin->left() > 0;
        on.twin->leave(1 << 20);
        const Error error = fixture.decode_error(setting, prompts()[1]);
        if (enough) {
            EXPECT_EQ(error.message, "no error");
            break;
        }
        if (error.message == "no error") break;  // it needed as many
        EXPECT_NE(error.message.find("memory"), std::string::npos) << error.message;
    }
    EXPECT_EQ(left, 2);  // the matrix, and the list of its rows
}

TEST(DeviceMemory, ADrafterWhoseWeightsFoundNoMemorySaysSo) {
    TwinExec on;
    const auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
    const TinyEagle2 eagle(target->config(), 77);
    on.twin->leave(1000);
    ASSERT_TRUE(make_drafter("eagle2", eagle.folder(), *target, *on.exec).ok());
    const int needed = 1000 - on.twin->left();
    EXPECT_GT(needed, 5);
    for (int left = 0; left < needed; ++left) {
        TwinExec other;
        const auto verifier = DecodeFixture::build(tiny(), kernels::Precision::bf16, other.exec.get());
        other.twin->leave(left);
        const bool made = make_drafter("eagle2", eagle.folder(), *verifier, *other.exec).ok();
        EXPECT_FALSE(made && other.twin->synchronize().ok()) << left << " of " << needed;
    }
}

/// In one session a table that found no room is not looked for again; the next one may have some.
TEST(DeviceMemory, EmbeddingsAreAskedForAgainInTheNextSession) {
    TwinExec on;
    DeviceEmbeddings table;
    int embedded = 0;
    const auto get = [&] {
        const std::lock_guard lock(on.twin->submit_mutex());
        return table.get(*on.twin, 3, 8, [&](std::span<const TokenId> tokens, Rows<float> rows) {
            embedded += static_cast<int>(tokens.size());
            std::fill(rows.data, rows.data + rows.rows * rows.stride, 1.0f);
        });
    };
    on.twin->leave(0);
    EXPECT_EQ(get(), nullptr);
    on.twin->leave(100);
    EXPECT_EQ(get(), nullptr);
    on.twin->clear_out_of_memory();
    const float* there = get();
    EXPECT_NE(there, nullptr);
    EXPECT_EQ(get(), there);
    EXPECT_EQ(embedded, 3);
}

/// The queue of DynaSpec's router has a memory of its own here.
TEST(DeviceMemory, ARouterBesideThatFoundNoMemorySaysSo) {
    const RankingFile ranking = RankingFile::shuffled(vocab);
    DecodeCase setting;
    setting.head = "dynaspec:kmax=4,kmin=3";
    setting.temperature = 0.9;  // levels are the host's, and ask that queue
    setting.verify = "pq";
    setting.rounds_there = false;
    int left = 0, refused_sessions = 0;
    for (std::string message; message != "no error"; ++left) {
        TwinExec on;
        auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
        const TinyEagle2 eagle(target->config(), 77);
        DecodeFixture fixture(std::move(target), {{"eagle2", eagle.folder()}}, ranking.path());
        fixture.run_on(*on.exec);
        const TinyArtefacts artefacts(fixture);
        on.twin->leave_beside(left);
        const Status ready = fixture.prepare_head(setting.head, fixture.drafter("eagle2"));
        message = ready.ok() ? fixture.decode_error(setting, prompts()[1]).message : ready.error().message;
        refused_sessions += ready.ok() ? 1 : 0;
        EXPECT_TRUE(message == "no error" || message.find("memory") != std::string::npos) << message;
    }
    EXPECT_GT(left, 4);
    EXPECT_GT(refused_sessions, 2);
}

}  // namespace
}  // namespace draftscope::testing
