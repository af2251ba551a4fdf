#include <gtest/gtest.h>

#include "tests/unit/engine/decode_rig.h"
#include "tests/unit/engine/device_rig.h"
#include "tests/unit/engine/ranking_file.h"
#include "tests/unit/engine/tiny_artefacts.h"
#include "tests/unit/engine/tiny_drafter.h"

/// What is left behind where a device's memory is out: the session ends with an error, the device goes on.
namespace draftscope::testing {
namespace {

TEST(DeviceMemory, ARefusedQuestionLeavesNothingUnderWayAndMayBeAskedAgain) {
    TwinExec on;
    const auto target = DecodeRig::build(tiny(), kernels::Precision::bf16, on.exec.get());
    KvCache cache = target->make_cache(40);
    const std::vector<TokenId> tokens = {5, 1, 2};
    const SequenceRows rows{&cache, tokens, {}, nullptr};
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

/// Wherever memory ends in a round that the device makes alone.
struct Refused {
    const char *drafter, *head;
    bool drawn = false;  ///< drafts
};
class RefusedRounds : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedRounds, LeaveNothingUnderWay) {
    const RankingFile ranking = RankingFile::shuffled(vocab);
    RigSetting small, setting;  // the first makes the drafter
    small.drafter = setting.drafter = GetParam().drafter;
    small.tree = "chain=1";
    small.rounds_there = false;
    setting.tree = "depth=3,topk=4,nodes=12";
    small.head = setting.head = GetParam().head;
    if (GetParam().drawn) {
        setting.temperature = 0.9;
        setting.verify = "pq";
    }
    int left = 0;
    for (;; ++left) {
        TwinExec on;
        auto target = DecodeRig::build(tiny(), kernels::Precision::bf16, on.exec.get());
        const TinyEagle2 eagle(target->config(), 77);
        const TinyPathHeads hydra(target->config(), true, 82, 4, true);
        DecodeRig rig(std::move(target), {{"eagle2", eagle.folder()}, {"hydra", hydra.folder()}},
                      ranking.path());
        rig.run_on(*on.exec);
        const TinyArtefacts artefacts(rig);
        ASSERT_EQ(rig.decode_error(small, prompts()[0]).message, "no error");
        on.twin->leave(left);
        const Error error = rig.decode_error(setting, prompts()[1]);
        EXPECT_EQ(on.twin->under_way(), 0u) << left << " allocations: " << error.message;
        if (error.message == "no error") break;
        if (left % 5 == 0) {  // the next session has memory again
            on.twin->leave(1 << 20);
            EXPECT_EQ(rig.decode_error(setting, prompts()[1]).message, "no error") << left;
        }
        EXPECT_NE(error.message.find("memory"), std::string::npos) << error.message;
    }
    EXPECT_GT(left, 20);
}
INSTANTIATE_TEST_SUITE_P(Heads, RefusedRounds,
                         ::testing::Values(Refused{"eagle2", "full"},
                                           Refused{"eagle2", "dynaspec:kmax=4,kmin=3"},
                                           Refused{"eagle2", "full", true}, Refused{"hydra", "full"}));

}  // namespace
}  // namespace draftscope::testing
