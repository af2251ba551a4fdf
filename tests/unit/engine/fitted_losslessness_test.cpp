#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "engine/heads/artefact.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine/decode_rig.h"
#include "tests/unit/engine/ranking_file.h"
#include "tests/unit/engine/tiny_drafter.h"

/// Heads made from artefacts, on a target of so few tokens that a random drafter's trees are often right:
/// none of them changes the text, whatever it proposes.
namespace draftscope::testing {
namespace {

constexpr int vocab = 13;

class FittedLosslessness : public ::testing::TestWithParam<kernels::Precision> {
  protected:
    static ModelFile tiny() {
        TinyModelOptions options;
        options.vocab = vocab;
        return make_tiny_model(21, options);
    }
    FittedLosslessness()
        : target_(DecodeRig::build(tiny(), GetParam())),
          eagle_(target_->config(), 77),
          ranking_(RankingFile::shuffled(vocab)),
          hidden_(target_->config().hidden),
          lm_head_(rows_of_head()),
          rig_(std::move(target_), {{"eagle2", eagle_.folder()}}, ranking_.path()) {
        make_artefacts();
    }

    std::vector<float> rows_of_head() const {
        std::vector<float> rows(static_cast<std::size_t>(vocab * hidden_));
        for (int r = 0; r < vocab; ++r)
            target_->lm_head().unpack_row(r, std::span(rows).subspan(static_cast<std::size_t>(r * hidden_),
                                                                     static_cast<std::size_t>(hidden_)));
        return rows;
    }
    static std::vector<float> random(int count, std::uint64_t seed, float scale) {
        Rng rng(seed);
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values) value = scale * static_cast<float>(rng.normal());
        return values;
    }

    struct Tensor {
        std::string name;
        std::vector<std::int64_t> shape;
        std::vector<float> floats;
        std::vector<std::int32_t> integers = {};
    };
    void save(const std::string& head, const std::map<std::string, std::string>& parameters,
              const std::vector<Tensor>& tensors) {
        ArtefactInfo info;
        info.head = head;
        info.vocab = vocab;
        info.hidden = hidden_;
        info.parameters.insert(parameters.begin(), parameters.end());
        std::vector<TensorToSave> list;
        for (const Tensor& t : tensors)
            list.push_back({t.name, t.floats.empty() ? "I32" : "F32", t.shape,
                            t.floats.empty() ? std::as_bytes(std::span(t.integers))
                                             : std::as_bytes(std::span(t.floats))});
        ASSERT_TRUE(save_artefact(folder_.file(head), info, list).ok());
        rig_.use_artefact(head, folder_.file(head));
    }
    /// Factors that leave the LM head as it is, blurred by noise so that they are sometimes wrong.
    void make_artefacts() {
        std::vector<float> same = random(hidden_ * hidden_, 3, 0.05f), head = lm_head_;
        for (int i = 0; i < hidden_; ++i) same[static_cast<std::size_t>(i * hidden_ + i)] += 1.0f;
        const std::vector<std::int64_t> square = {hidden_, hidden_}, whole = {vocab, hidden_};
        save("slimspec", {}, {{"down", square, same}, {"up", whole, head}});
        save("specvocab", {}, {{"down", square, same}, {"vocab", whole, head}});
        std::vector<std::int32_t> ids, groups;
        std::vector<float> kept;
        for (int id = 0; id < vocab; ++id) {
            groups.push_back(id % 5);
            if (id % 3 == 2) continue;
            ids.push_back(id);
            kept.insert(kept.end(), head.begin() + id * hidden_, head.begin() + (id + 1) * hidden_);
        }
        const auto size = static_cast<std::int64_t>(ids.size());
        for (const std::string name : {"vocabtrim-t", "bcl"})
            save(name, {}, {{"ids", {size}, {}, ids}, {"weight", {size, hidden_}, kept}});
        const auto router = [&](int inputs) {
            return std::vector<Tensor>{{"router.in.weight", {16, inputs}, random(16 * inputs, 5, 0.2f)},
                                       {"router.out.weight", {5, 16}, random(5 * 16, 6, 1.0f)}};
        };
        std::vector<Tensor> coral = router(hidden_), dynaspec = router(2 * hidden_);
        coral.push_back({"groups", {vocab}, {}, groups});
        dynaspec.push_back({"clusters", {vocab}, {}, groups});
        save("coral", {{"groups", "5"}}, coral);
        save("dynaspec", {{"clusters", "5"}}, dynaspec);
    }

    static std::vector<std::vector<TokenId>> prompts() {
        std::vector<std::vector<TokenId>> all = {{5}, {}, {}};
        for (int i = 0; i < 24; ++i) all[1].push_back(i % 6);
        Rng rng(3);
        for (int i = 0; i < 131; ++i) all[2].push_back(static_cast<TokenId>(rng.below(vocab)));
        return all;
    }

    std::unique_ptr<Target> target_;
    TinyEagle2 eagle_;
    RankingFile ranking_;
    int hidden_;
    std::vector<float> lm_head_;
    ScratchFolder folder_;
    DecodeRig rig_;
};

const std::vector<std::string> specs = {"slimspec",
                                        "specvocab:k=4",
                                        "specvocab:k=6/3/1,share=per-row",
                                        "vocabtrim-t",
                                        "bcl",
                                        "coral:active=2",
                                        "coral:active=5",
                                        "dynaspec:kmax=3,kmin=1,decay=0.5",
                                        "dynaspec:kmax=2,share=per-row",
                                        "microspec:wmax=64",
                                        "microspec:wmax=9,gather=sync",
                                        "microspec:wmax=9,gather=indexed",
                                        "microspec:wmax=20,stream=new,prompt=last,bonus=yes,eos=yes"};

TEST_P(FittedLosslessness, TextIsThatOfPlainDecoding) {
    for (const double temperature : {0.0, 0.8}) {
        RigSetting plain;
        plain.drafter = "none";
        plain.tree = "chain=1";
        plain.temperature = temperature;
        plain.max_new = 24;
        const auto expected = rig_.decode(plain, prompts());
        for (const std::string& head : specs)
            for (const std::string tree : {"chain=3", "depth=3,topk=4,nodes=12"}) {
                RigSetting setting = plain;
                setting.drafter = "eagle2";
                setting.head = head;
                setting.tree = tree;
                setting.threads = tree == "chain=3" ? 1 : 2;
                setting.batch = tree == "chain=3" ? 1 : 3;
                const auto found = rig_.decode(setting, prompts());
                ASSERT_EQ(found.size(), expected.size());
                std::int64_t accepted = 0;
                for (std::size_t p = 0; p < found.size(); ++p) {
                    EXPECT_EQ(found[p].tokens, expected[p].tokens) << to_text(setting) << " prompt " << p;
                    accepted += found[p].accepted;
                }
                EXPECT_GT(accepted, 0) << to_text(setting);
            }
    }
}

TEST_P(FittedLosslessness, CoverageAndCostAreThoseOfTheRound) {
    for (const std::string head : {"specvocab:k=4", "dynaspec:kmax=2", "coral:active=2"}) {
        RecordList list;
        RigSetting setting;
        setting.head = head;
        setting.tree = "chain=3";
        rig_.decode(setting, {{5, 6, 7}}, &list);
        int seen = 0, covered = 0, committed = 0;
        for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
            for (const RoundRecord& round : step.rounds)
                for (const HeadEvalRow& row : round.head_evals) {
                    if (row.mode != HeadMode::drive || round.round.drafted == 0) continue;
                    EXPECT_GT(row.active_rows, 0) << head;
                    EXPECT_LE(row.active_rows, vocab) << head;
                    EXPECT_GT(row.bytes, 0) << head;
                    EXPECT_GE(row.covered, row.accepted) << head;
                    covered += row.covered;
                    committed += row.committed;
                    ++seen;
                }
        EXPECT_GT(seen, 5) << head;
        EXPECT_GT(covered, 0) << head;
        EXPECT_LT(covered, committed) << head;
    }
}

INSTANTIATE_TEST_SUITE_P(Precisions, FittedLosslessness,
                         ::testing::Values(kernels::Precision::bf16, kernels::Precision::int8),
                         [](const auto& instance) { return std::string(kernels::to_text(instance.param)); });

}  // namespace
}  // namespace draftscope::testing
