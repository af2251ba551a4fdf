#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/host_rows.h"
#include "tests/support/lm_head_fixture.h"

/// CORAL and DynaSpec: heads whose router selects parts of a partition.
namespace draftscope::testing {
namespace {

constexpr int groups = 11;

class Clusters : public LmHeadFixture {
  protected:
    std::vector<std::int32_t> map_;
    std::vector<float> in_, in_bias_, out_, out_bias_;
    int inputs_width_ = 0, width_ = 0;

    /// Group sizes differ and group 7 is empty. Tokens 40 and 41, which have equal rows, are in different
    /// groups.
    void make_artefact(const std::string& head, int inputs, int width, const std::string& activation) {
        inputs_width_ = inputs;
        width_ = width;
        map_.clear();
        for (int i = 0; i < vocab; ++i) {
            const int group = (i * i + i / 3) % groups;
            map_.push_back(group == 7 ? 3 : group);
        }
        map_[40] = 9;
        map_[41] = 1;
        in_ = random(static_cast<std::size_t>(width * inputs), 5, 0.2f);
        in_bias_ = random(static_cast<std::size_t>(width), 6);
        out_ = random(static_cast<std::size_t>(groups * width), 7);
        out_bias_ = random(groups, 8);
        Tensors tensors;
        tensors.integers(head == "coral" ? "groups" : "clusters", map_);
        tensors.floats("router.in.weight", {width, inputs}, in_);
        tensors.floats("router.in.bias", {width}, in_bias_);
        tensors.floats("router.out.weight", {groups, width}, out_);
        tensors.floats("router.out.bias", {groups}, out_bias_);
        ArtefactInfo about = LmHeadFixture::info(head);
        about.parameters = {{head == "coral" ? "groups" : "clusters", std::to_string(groups)},
                            {"activation", activation}};
        save(about, tensors);
        tensors_ = tensors;
        about_ = about;
    }
    /// Reference router: the best `count` groups of each row of `x` [n, inputs].
    std::vector<std::vector<int>> routed(Rows<const float> x, int count, const std::string& activation) {
        const auto pack = [&](const std::vector<float>& values, int n, int columns) {
            return kernels::Matrix::pack(*exec_, matrix_.precision(), n, columns, [&](int row, float* out) {
                std::copy_n(values.begin() + std::ptrdiff_t{row} * columns, columns, out);
            });
        };
        std::vector<float> middle(static_cast<std::size_t>(x.rows * width_)),
            scores(static_cast<std::size_t>(x.rows * groups));
        kernels::matmul(exec_->pool(), pack(in_, width_, inputs_width_), x,
                        Rows<float>(middle.data(), x.rows, width_), in_bias_.data());
        for (float& v : middle) v = activation == "relu" ? std::max(v, 0.0f) : v / (1.0f + std::exp(-v));
        kernels::matmul(exec_->pool(), pack(out_, groups, width_),
                        Rows<const float>(middle.data(), x.rows, width_),
                        Rows<float>(scores.data(), x.rows, groups), out_bias_.data());
        std::vector<std::vector<int>> found;
        for (int r = 0; r < x.rows; ++r) {
            std::vector<int> order(groups);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(),
                             [&](int a, int b) { return scores[r * groups + a] > scores[r * groups + b]; });
            order.resize(count);
            found.push_back(order);
        }
        return found;
    }
    std::vector<TokenId> support(const std::vector<int>& chosen) const {
        std::vector<TokenId> ids;
        for (TokenId id = 0; id < vocab; ++id)
            if ((ends_ && (id == 0 || id == 2)) ||
                std::find(chosen.begin(), chosen.end(), map_[id]) != chosen.end())
                ids.push_back(id);
        return ids;
    }

    bool ends_ = false;  ///< whether the head keeps the tokens that end the text
    Tensors tensors_;
    ArtefactInfo about_;
};

TEST_F(Clusters, CoralReadsGroupsSelectedByRouter) {
    for (const std::string activation : {"silu", "relu"}) {
        make_artefact("coral", hidden, hidden, activation);
        ends_ = activation == "relu";
        const std::string spec = ends_ ? "coral:active=4,eos=yes" : "coral:active=4";
        const auto logits = dense();
        const auto chosen = routed(input(), 4, activation);
        const auto head = make(spec), apart = make(spec + ",share=per-row");
        const auto a = head->begin_prompt({}, {}), b = head->begin_prompt({}, {});
        const Proposal found = propose(*head, 1, 9, {a.get(), a.get(), a.get(), b.get(), b.get()});
        EXPECT_TRUE(saw(Phase::router) && saw(Phase::head) && saw(Phase::topk));
        const Proposal alone = propose(*apart, 1, 9);
        std::set<TokenId> of_a;
        for (int r = 0; r < rows; ++r) {
            const auto own = support(chosen[r]);
            expect_row(found, r, logits[r], own);
            expect_same_row(alone, r, found, r);
            expect_same_row(propose(*head, input().slice(r, 1), 1, 9, {}), 0, found, r);
            if (r < 3) of_a.insert(own.begin(), own.end());
        }
        EXPECT_EQ(covered(*head, 1, a.get()), std::vector<TokenId>(of_a.begin(), of_a.end()));
        EXPECT_TRUE(covered(*head, 0, a.get()).empty());
        EXPECT_EQ(head->cost_at(a.get(), 3, 1).active_rows, static_cast<double>(of_a.size()));
        double own_tokens = 0;
        for (int r = 0; r < 3; ++r) own_tokens += static_cast<double>(support(chosen[r]).size()) / 3;
        EXPECT_NEAR(*head->cost_at(a.get(), 3, 1).row_tokens, own_tokens, 1e-9) << "a row's own shortlist";
        const auto all = scores(*head, 1);
        for (int r = 0; r < rows; ++r)
            for (const TokenId id : support(chosen[r]))
                EXPECT_EQ(all[r * vocab + id], logits[r][static_cast<std::size_t>(id)]);
        EXPECT_GT(std::count_if(all.begin(), all.end(), [](float v) { return std::isinf(v); }), 0);
    }
}

TEST_F(Clusters, AllGroupsEqualFullHead) {
    const auto full = make("full");
    const Proposal expected = propose(*full, 0, 30);
    make_artefact("coral", hidden, hidden, "silu");
    const Proposal coral = propose(*make("coral:active=11"), 0, 30);
    make_artefact("dynaspec", 2 * hidden, 24, "silu");
    const auto head = make("dynaspec:kmax=11");
    const Proposal dyna = propose_begun(*head, input(), input(), input(), 0, 30, {});
    for (const Proposal& found : {coral, dyna}) {
        EXPECT_EQ(found.ids, expected.ids);
        EXPECT_EQ(found.logits, expected.logits);
        for (int r = 0; r < rows; ++r) EXPECT_NEAR(found.logsumexp[r], expected.logsumexp[r], 1e-5);
    }
}

TEST_F(Clusters, DynaSpecRoutesOnSideStreamByEmbeddingAndPreviousHidden) {
    make_artefact("dynaspec", 2 * hidden, 24, "silu");
    ends_ = true;
    const auto head = make("dynaspec:kmax=4,kmin=2,flat=2,decay=0.5,eos=yes");
    const auto logits = dense();
    const auto inputs = random(rows * 2 * hidden, 30);
    const Rows<const float> embeddings(inputs.data(), rows, hidden, 2 * hidden);
    const Rows<const float> parents(inputs.data() + hidden, rows, hidden, 2 * hidden);
    const auto state = head->begin_prompt({}, {});
    for (int level = 0; level < 6; ++level) {
        // kmax for two steps, then halved per step, at least kmin.
        const int budget = level < 2 ? 4 : 2;
        const auto chosen = routed(Rows<const float>(inputs.data(), rows, 2 * hidden), budget, "silu");
        const std::vector<HeadState*> states(rows, state.get());
        const Proposal found = propose_begun(*head, embeddings, parents, input(), level, 9, states);
        // On the side stream, or on this thread if the stream's thread had no core yet.
        EXPECT_TRUE(saw(Phase::router, Lane::side) || saw(Phase::router));
        EXPECT_TRUE(saw(Phase::head));
        std::set<TokenId> together;
        for (int r = 0; r < rows; ++r) {
            const auto own = support(chosen[r]);
            expect_row(found, r, logits[r], own);
            together.insert(own.begin(), own.end());
            const Proposal alone = propose_begun(*head, embeddings.slice(r, 1), parents.slice(r, 1),
                                                 input().slice(r, 1), level, 9, {nullptr});
            expect_same_row(alone, 0, found, r);
        }
        EXPECT_EQ(covered(*head, level, state.get()), std::vector<TokenId>(together.begin(), together.end()));
    }
}

TEST_F(Clusters, SecondBeginReplacesFirst) {
    make_artefact("dynaspec", 2 * hidden, 24, "silu");
    const auto first = random(rows * hidden, 40), second = random(rows * hidden, 41);
    const Rows<const float> a(first.data(), rows, hidden), b(second.data(), rows, hidden);
    PhaseRecorder phases;
    const auto head = make("dynaspec:kmax=3");
    HostCall call(*exec_, phases);  // a failed round's memory is gone before the head, whose work goes on
    call.begin(*head, 0, a, a, {});
    const Proposal found = propose_begun(*head, b, a, input(), 0, 5, {});
    const Proposal again = propose_begun(*head, b, a, input(), 0, 5, {});
    for (int r = 0; r < rows; ++r) expect_same_row(found, r, again, r);
    call.begin(*head, 0, a, a, {});  // a head may be destroyed while its work runs
}

TEST_F(Clusters, TrimmedDrafterHeadHasSmallerGroups) {
    make_artefact("coral", hidden, hidden, "silu");
    const auto logits = dense();
    const auto chosen = routed(input(), 3, "silu");
    std::vector<TokenId> held;
    for (int i = 1; i < vocab; i += 2) held.push_back(i);
    const kernels::Matrix own = matrix_.gather_rows(exec_->pool(), held);
    weights_.lm_head = &own;
    weights_.row_ids = held;
    const auto head = make("coral:active=3");
    const Proposal found = propose(*head, 0, 6);
    for (int r = 0; r < rows; ++r) {
        std::vector<TokenId> ids = support(chosen[r]);
        std::erase_if(ids, [](TokenId id) { return id % 2 == 0; });
        expect_row(found, r, logits[r], ids);
    }
}

TEST_F(Clusters, RejectMismatchedArtefacts) {
    make_artefact("coral", hidden, hidden, "silu");
    EXPECT_THAT(error_message("coral:active=12"), ::testing::HasSubstr("active=12 of 11 groups"));
    EXPECT_THAT(error_message("coral:groups=16"), ::testing::HasSubstr("groups=11, not groups=16"));
    const auto error_after = [&](auto change) {
        Tensors tensors = tensors_;
        ArtefactInfo about = about_;
        change(tensors, about);
        save(about, tensors);
        return error_message("coral");
    };
    EXPECT_THAT(error_after([](Tensors& t, ArtefactInfo&) {
                    t.integers("groups", {1, 2});
                }),
                ::testing::HasSubstr("one per token of 301"));
    EXPECT_THAT(error_after([&](Tensors& t, ArtefactInfo&) {
                    auto map = map_;
                    map[5] = groups;
                    t.integers("groups", map);
                }),
                ::testing::HasSubstr("contains 11 for token 5, expected 0 to 10"));
    EXPECT_THAT(error_after([](Tensors& t, ArtefactInfo&) { t.remove("router.out.weight"); }),
                ::testing::HasSubstr("'router.out.weight' is missing"));
    EXPECT_THAT(error_after([](Tensors& t, ArtefactInfo&) {
                    t.floats("router.out.bias", {2}, {1, 2});
                }),
                ::testing::HasSubstr("'router.out.bias' has shape [2], expected [11]"));
    EXPECT_THAT(error_after([](Tensors&, ArtefactInfo& i) { i.parameters["activation"] = "gelu"; }),
                ::testing::HasSubstr("activation is \"gelu\""));
    EXPECT_THAT(error_after([](Tensors&, ArtefactInfo& i) { i.parameters.erase("groups"); }),
                ::testing::HasSubstr("no whole number groups"));
    // Biases are optional.
    EXPECT_EQ(error_after([](Tensors& t, ArtefactInfo&) {
                  t.remove("router.in.bias");
                  t.remove("router.out.bias");
              }),
              "");
    make_artefact("dynaspec", 2 * hidden, 24, "silu");
    EXPECT_THAT(error_message("dynaspec:kmax=12"), ::testing::HasSubstr("kmax=12 of 11 clusters"));
    make_artefact("dynaspec", hidden, 24, "silu");
    EXPECT_THAT(error_message("dynaspec"),
                ::testing::HasSubstr("'router.in.weight' has shape [24, 64], expected [any, 128]"));
}

}  // namespace
}  // namespace draftscope::testing
