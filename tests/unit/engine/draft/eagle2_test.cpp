#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using kernels::Precision;

struct SameTree {
    std::vector<TokenId> tokens;
    std::vector<int> parents;
    std::vector<float> logprobs, cum_logprobs;
    explicit SameTree(const DraftTree& tree)
        : tokens(tree.tokens),
          parents(tree.parents),
          logprobs(tree.logprobs),
          cum_logprobs(tree.cum_logprobs) {}
    bool operator==(const SameTree&) const = default;
};

class Eagle2 : public ::testing::Test {
  protected:
    Eagle2() { build(Precision::f32, 1); }

    void build(Precision precision, int threads, const testing::TinyEagleOptions& options = {}) {
        exec_ = kernels::make_cpu_backend(threads);
        auto target = Target::build(testing::make_tiny_model(11), *exec_, precision);
        ASSERT_TRUE(target.ok());
        target_ = std::move(target).value();
        ASSERT_TRUE(testing::write_tiny_eagle2(folder_.path(), 21, target_->config(), options).ok());
        auto drafter = make_drafter("eagle2:" + folder_.path(), "", *target_, *exec_);
        ASSERT_TRUE(is_ok(drafter));
        drafter_ = std::move(drafter).value();
        auto head = make_head({"full", {}}, {});
        ASSERT_TRUE(head.ok());
        head_ = std::move(head).value();
        HeadWeights weights;
        weights.lm_head = &target_->lm_head();
        weights.vocab = target_->config().vocab;
        weights.hidden = target_->config().hidden;
        ASSERT_TRUE(head_->prepare(*exec_, weights).ok());
    }

    /// A sequence with random tokens and features; slot i belongs to token i.
    struct Text {
        std::vector<TokenId> tokens;
        std::vector<float> hidden;
        std::unique_ptr<DrafterState> state;
        int slots = 0;
    };
    Text make_text(unsigned seed, int tokens) {
        std::mt19937 rng(seed);
        Text text;
        for (int i = 0; i < tokens; ++i) text.tokens.push_back(static_cast<TokenId>(rng() % 97));
        for (int i = 0; i < tokens * 64; ++i)
            text.hidden.push_back(static_cast<float>(rng() % 2001) * 1e-3f - 1.0f);
        text.state = drafter_->make_state(256);
        return text;
    }
    /// Returns the job that extends `text` to `known` tokens.
    DraftJob job_for(Text& text, int known, TreeSpec tree, int sequence = 0) {
        DraftJob job;
        job.sequence = sequence;
        job.tokens = {text.tokens.data(), static_cast<std::size_t>(known)};
        job.new_hidden = Rows<const float>(text.hidden.data(), static_cast<int>(text.tokens.size()), 64)
                             .slice(text.slots, known - 1 - text.slots);
        job.state = text.state.get();
        job.tree = tree;
        text.slots = known - 1;
        return job;
    }
    DraftContext context(LmHead* head = nullptr, LevelObserver* observer = nullptr) {
        return {*exec_, phases_, head == nullptr ? head_.get() : head, {}, observer};
    }
    Status draft(DraftContext& with, std::span<DraftJob> jobs) {
        return DraftRunner(*drafter_).draft(with, jobs);
    }
    DraftTree tree_at(Text& text, int known, TreeSpec tree) {
        DraftJob job = job_for(text, known, tree);
        DraftContext with = context();
        const Status status = draft(with, {&job, 1});
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return std::move(job.out);
    }

    testing::ScratchFolder folder_;
    std::unique_ptr<kernels::Backend> exec_;
    std::unique_ptr<Target> target_;
    std::unique_ptr<Drafter> drafter_;
    std::unique_ptr<LmHead> head_;
    PhaseRecorder phases_;
};

TEST_F(Eagle2, GrowsTheRequestedTree) {
    Text text = make_text(1, 20);
    const DraftTree tree = tree_at(text, 12, {3, 4, 12});
    EXPECT_EQ(tree.size(), 12);
    EXPECT_EQ(tree.tokens[0], text.tokens[11]);
    EXPECT_LE(tree.max_depth(), 4);
    EXPECT_EQ(tree.mask.nodes(), 12);
    const DraftTree chain = tree_at(text, 15, {4, 1, 6});
    ASSERT_EQ(chain.size(), 6);
    EXPECT_EQ(chain.max_depth(), 5);
    for (int node = 1; node < 6; ++node) {
        const auto i = static_cast<std::size_t>(node);
        EXPECT_EQ(chain.parents[i], node - 1);
        EXPECT_LE(chain.logprobs[i], 0.0f);
        EXPECT_FLOAT_EQ(chain.cum_logprobs[i], chain.cum_logprobs[i - 1] + chain.logprobs[i]);
    }
}

TEST_F(Eagle2, BranchesAreIndependent) {
    // Along the greedy path a tree must give the tokens of a chain, whatever siblings share its passes.
    Text text = make_text(2, 40);
    for (int known = 10; known < 40; known += 7) {
        const DraftTree chain = tree_at(text, known, {3, 1, 5});
        DraftJob job = job_for(text, known, {3, 6, 60});
        DraftContext with = context();
        ASSERT_TRUE(draft(with, {&job, 1}).ok());
        const DraftTree& tree = job.out;
        int node = 0;
        for (int depth = 1; depth <= 4; ++depth) {
            int next = -1;
            for (int child = 1; child < tree.size(); ++child) {
                const auto c = static_cast<std::size_t>(child);
                if (tree.parents[c] == node && tree.tokens[c] == chain.tokens[depth]) next = child;
            }
            if (next < 0) break;  // the beam left the greedy path
            EXPECT_EQ(tree.logprobs[next], chain.logprobs[depth]) << "known " << known << " depth " << depth;
            node = next;
        }
        EXPECT_NE(node, 0);
    }
}

TEST_F(Eagle2, ExpandDoesNotChangeCommittedState) {
    Text text = make_text(3, 20);
    const SameTree first(tree_at(text, 12, {3, 4, 12}));
    DraftJob other = job_for(text, 12, {5, 3, 30});
    DraftJob again = job_for(text, 12, {3, 4, 12});
    DraftContext with = context();
    ASSERT_TRUE(draft(with, {&other, 1}).ok());
    ASSERT_TRUE(draft(with, {&again, 1}).ok());
    EXPECT_EQ(SameTree(again.out), first);
    Text untouched = make_text(3, 20);
    EXPECT_EQ(SameTree(tree_at(text, 15, {3, 4, 12})), SameTree(tree_at(untouched, 15, {3, 4, 12})));
}

TEST_F(Eagle2, ExtendingInPiecesMatchesAtOnce) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8}) {
        build(precision, 2);
        Text whole = make_text(4, 200), pieces = make_text(4, 200);
        const SameTree expected(tree_at(whole, 170, {3, 4, 12}));
        for (const int known : {2, 3, 7, 140, 169}) tree_at(pieces, known, {2, 3, 8});
        EXPECT_EQ(SameTree(tree_at(pieces, 170, {3, 4, 12})), expected);
    }
}

TEST_F(Eagle2, ThreadsDoNotChangeTheTree) {
    std::vector<SameTree> trees;
    for (const int threads : {1, 2, 3}) {
        build(Precision::int8, threads);
        Text text = make_text(5, 60);
        trees.emplace_back(tree_at(text, 50, {4, 5, 30}));
    }
    EXPECT_EQ(trees[0], trees[1]);
    EXPECT_EQ(trees[0], trees[2]);
}

TEST_F(Eagle2, SequencesOfABatchAreIndependent) {
    const TreeSpec specs[] = {{3, 4, 12}, {1, 2, 4}, {3, 4, 1}, {4, 6, 40}};
    const int known[] = {12, 150, 9, 3};
    std::vector<Text> texts;
    std::vector<SameTree> expected;
    for (unsigned i = 0; i < 4; ++i) {
        Text alone = make_text(30 + i, 160);
        expected.emplace_back(tree_at(alone, known[i], specs[i]));
        texts.push_back(make_text(30 + i, 160));
    }
    std::vector<DraftJob> jobs;
    for (std::size_t i = 0; i < 4; ++i)
        jobs.push_back(job_for(texts[i], known[i], specs[i], static_cast<int>(i)));
    DraftContext with = context();
    ASSERT_TRUE(draft(with, jobs).ok());
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(SameTree(jobs[i].out), expected[i]) << "sequence " << i;
        EXPECT_EQ(static_cast<int>(jobs[i].rows_per_call.size()),
                  specs[i].nodes == 1 ? 0 : specs[i].depth + 1);
    }
    EXPECT_EQ(jobs[2].out.size(), 1);
}

/// Knows only tokens 5 and 6, fewer than any top-k, and at some levels none. Records its calls.
class ShortHead final : public LmHead {
  public:
    ShortHead() : LmHead({.inputs = true}) {}
    Status prepare(kernels::Backend&, const HeadWeights&) override { return {}; }
    CallShape shape(int, int) const override { return {}; }
    bool reserve(kernels::Backend&, int, int, int) override { return true; }
    void begin(HeadCall& call) override {
        begun.push_back({call.level, call.rows});
        if (call.level == 0) root_embedding.assign(call.inputs, call.inputs + 64);
    }
    void propose(HeadCall& call) override {
        proposed.push_back({call.level, call.rows});
        leave_no_candidates(call, 0, call.rows);
        for (int r = 0; r < call.rows; ++r) {
            const int known = call.level >= silent_from ? 0 : std::min(call.k, 2);
            for (int c = 0; c < known; ++c) {
                call.ids[r * call.k + c] = 5 + c;
                call.logits[r * call.k + c] = 1.0f - static_cast<float>(c);
            }
            call.sums[r] = 1.5f;
        }
    }
    HeadCost cost_at(const HeadState*, int, int) const override { return {}; }
    ActiveSet active_set(const HeadState*, int, std::vector<TokenId>& memory) const override {
        memory = {5, 6};
        return {.ids = memory};
    }

    int silent_from = 100;
    std::vector<std::pair<int, int>> begun, proposed;  ///< level, rows
    std::vector<float> root_embedding;
};

TEST_F(Eagle2, ShortlistsSmallerThanTopkMakeSmallerTrees) {
    Text text = make_text(6, 20);
    ShortHead head;
    DraftContext with = context(&head);
    DraftJob job = job_for(text, 10, {2, 4, 40});
    ASSERT_TRUE(draft(with, {&job, 1}).ok());
    EXPECT_EQ(job.out.size(), 1 + 2 + 4 + 8);
    EXPECT_FLOAT_EQ(job.out.logprobs[1], -0.5f);
    EXPECT_FLOAT_EQ(job.out.logprobs[2], -1.5f);
    const std::vector<std::pair<int, int>> levels{{0, 1}, {1, 2}, {2, 4}};
    EXPECT_EQ(head.begun, levels);
    EXPECT_EQ(head.proposed, levels);
    std::vector<float> root(64);
    target_->embed({&text.tokens[9], 1}, Rows<float>(root.data(), 1, 64));
    EXPECT_EQ(head.root_embedding, root);

    for (const int silent : {0, 1}) {
        head.silent_from = silent;
        ASSERT_TRUE(draft(with, {&job, 1}).ok());
        EXPECT_EQ(job.out.size(), silent == 0 ? 1 : 3);
        EXPECT_EQ(static_cast<int>(job.rows_per_call.size()), silent + 1);
    }
}

class LevelLog final : public LevelObserver {
  public:
    void level_done(int sequence, int level, FunctionRef<DraftTree()> partial) override {
        EXPECT_EQ(sequence, 7);
        EXPECT_EQ(level, static_cast<int>(sizes.size()));
        const DraftTree tree = partial();
        EXPECT_EQ(tree.mask.nodes(), tree.size());
        sizes.push_back(tree.size());
    }
    std::vector<int> sizes;
};

TEST_F(Eagle2, NotifiesObserverAndRecordsPhases) {
    Text text = make_text(7, 20);
    LevelLog log;
    DraftContext with = context(nullptr, &log);
    DraftJob job = job_for(text, 10, {3, 4, 12}, 7);
    ASSERT_TRUE(draft(with, {&job, 1}).ok());
    EXPECT_EQ(log.sizes, (std::vector<int>{5, 12, 12, 12}));
    EXPECT_EQ(job.rows_per_call.size(), 4u);

    std::vector<SpanEvent> events;
    phases_.drain(events);
    std::vector<std::pair<int, int>> backbone;  // level, rows
    int rerank = 0, head = 0;
    for (const SpanEvent& event : events) {
        if (event.phase == Phase::backbone) {
            backbone.emplace_back(event.level, event.rows);
            EXPECT_GE(event.bytes, drafter_->properties().weight_bytes);
        }
        rerank += event.phase == Phase::rerank ? 1 : 0;
        head += event.phase == Phase::head ? 1 : 0;
    }
    EXPECT_EQ(backbone, (std::vector<std::pair<int, int>>{{0, 9}, {1, 4}, {2, 4}, {3, 4}}));
    EXPECT_EQ(rerank, 1);
    EXPECT_EQ(head, 4);
}

TEST_F(Eagle2, UsesOptionalTensors) {
    Text plain = make_text(8, 20);
    const SameTree without(tree_at(plain, 12, {3, 4, 12}));
    for (const auto& options : {testing::TinyEagleOptions{2, 1, 16, 64, true, false},
                                testing::TinyEagleOptions{2, 1, 16, 64, false, true}}) {
        build(Precision::f32, 1, options);
        Text text = make_text(8, 20);
        EXPECT_NE(SameTree(tree_at(text, 12, {3, 4, 12})), without);
    }
}

TEST_F(Eagle2, RejectsRoundsOutOfOrder) {
    Text text = make_text(9, 250);
    DraftContext with = context();
    const auto fails_with = [](const Status& status, const std::string& words) {
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    };
    DraftJob early = job_for(text, 10, {3, 4, 12}), without = early;
    without.forget_slots();
    fails_with(draft(with, {&without, 1}), "a round is missing");
    text.slots = 4;
    DraftJob gap = job_for(text, 10, {3, 4, 12});
    fails_with(draft(with, {&gap, 1}), "a round is missing");
    DraftContext headless{*exec_, phases_, nullptr, {}, nullptr};
    fails_with(draft(headless, {&early, 1}), "needs an LM head");
    ASSERT_TRUE(draft(with, {&early, 1}).ok());
    tree_at(text, 250, {3, 4, 12});
    DraftJob deep = job_for(text, 250, {8, 1, 10});
    fails_with(draft(with, {&deep, 1}), "clip the tree");
    deep.tree = {7, 1, 9};
    EXPECT_TRUE(draft(with, {&deep, 1}).ok());
}

TEST_F(Eagle2, CheckpointErrorsNameFileTensorAndShapes) {
    const std::string folder = folder_.path();
    const auto message = [&] {
        const auto drafter = make_drafter("eagle2", folder, *target_, *exec_);
        EXPECT_FALSE(drafter.ok());
        EXPECT_TRUE(drafter.ok() || drafter.error().kind == ErrorKind::bad_input);
        return drafter.ok() ? std::string() : drafter.error().message;
    };
    const auto expect_words = [&](const std::vector<std::string>& words) {
        const std::string text = message();
        for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
    };
    const auto write_config = [&](const std::string& json) {
        std::ofstream(folder + "/config.json") << json;
    };
    const ModelConfig& config = target_->config();
    const std::string good = testing::tiny_eagle2_config(config);

    auto tensors = testing::tiny_eagle2_tensors(21, config);
    tensors[0].shape = {128, 64};
    ASSERT_TRUE(testing::write_safetensors(folder + "/model.safetensors", tensors).ok());
    expect_words({"model.safetensors", "'fc.weight'", "[128, 64]", "[64, 128]"});
    tensors[0].shape = {64, 128};
    tensors.pop_back();
    ASSERT_TRUE(testing::write_safetensors(folder + "/model.safetensors", tensors).ok());
    expect_words({"'layers.0.post_attention_layernorm.weight' is missing", "[64]"});

    ASSERT_TRUE(testing::write_tiny_eagle2(folder, 21, config, {2, 1, 16, 64, true, false}).ok());
    write_config(good);
    expect_words({"'fc.bias' is present", "\"bias\": false"});
    ASSERT_TRUE(testing::write_tiny_eagle2(folder, 21, config).ok());
    ModelConfig wide = config;
    wide.hidden = 128;
    write_config(testing::tiny_eagle2_config(wide));
    expect_words({"config.json", "hidden_size is 128", "64", "another target"});
    write_config("{\"hidden_size\": 64}");
    expect_words({"config.json", "num_attention_heads is missing"});
    write_config("{\"hidden_size\": -1}");
    expect_words({"hidden_size is -1"});
    write_config("[1, 2");
    expect_words({"not a JSON object"});
    write_config(good);
    std::filesystem::remove(folder + "/model.safetensors");
    expect_words({"model.safetensors"});
    std::filesystem::remove(folder + "/config.json");
    expect_words({"config.json"});
}

}  // namespace
}  // namespace draftscope
