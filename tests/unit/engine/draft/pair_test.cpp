#include <gtest/gtest.h>

#include "engine/draft/registry.h"
#include "engine/transformer/target.h"
#include "tests/support/tiny_model.h"

/// Which of two drafters drafts, along lists of tokens made by hand.
namespace draftscope::testing {
namespace {

using Tokens = std::vector<TokenId>;

class PairTest : public ::testing::Test {
  protected:
    std::unique_ptr<Drafter> make(const std::string& spec) {
        auto drafter = make_drafter(spec, "", *target_, *exec_);
        EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
        return std::move(drafter).value();
    }
    DraftJob draft(Drafter& drafter, DrafterState& state, const Tokens& tokens, const TreeSpec& tree) {
        DraftContext context{*exec_, phases_, nullptr, tree, nullptr};
        DraftJob job;
        job.tokens = tokens;
        job.state = &state;
        job.tree = tree;
        EXPECT_TRUE(DraftRunner(drafter).draft(context, {&job, 1}).ok());
        return job;
    }
    /// Returns "ID: drafts".
    std::string drafted(const std::string& spec, const Tokens& tokens, const TreeSpec& tree) {
        const auto drafter = make(spec);
        const DraftJob job = draft(*drafter, *drafter->make_state(256), tokens, tree);
        std::string out(job.drafter);
        out += ':';
        for (int i = 1; i < job.out.size(); ++i) out += ' ' + std::to_string(job.out.tokens[i]);
        return out;
    }
    std::string message(const std::string& spec) {
        const auto drafter = make_drafter(spec, "", *target_, *exec_);
        return drafter.ok() ? std::string() : drafter.error().message;
    }
    static TreeSpec chain(int length) { return {length - 1, 1, length + 1}; }

    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(1);
    std::unique_ptr<Target> target_ =
        std::move(Target::build(make_tiny_model(1), *exec_, kernels::Precision::f32)).value();
    PhaseRecorder phases_;
};

TEST_F(PairTest, TakesSuffixIfItsScoreExceedsTheOthersLength) {
    // "1 2 3" has one continuation and the end of the text: each of three drafts has probability 1/2.
    const Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
    EXPECT_EQ(drafted("pair:suffix+ngram", text, chain(1)), "suffix: 4 5 6");
    EXPECT_EQ(drafted("pair:suffix+ngram", text, chain(2)), "ngram: 4 5");
    EXPECT_EQ(drafted("pair:suffix:factor=2+ngram", text, chain(2)), "suffix: 4 5 6 7 8 1");  // score 3
    EXPECT_EQ(drafted("pair:suffix:factor=2+ngram", text, chain(3)), "ngram: 4 5 6");         // not more
    EXPECT_EQ(drafted("pair:suffix+ngram", text, {0, 3, 4}), "suffix: 4 5 6");  // a tree is as long as deep
}

TEST_F(PairTest, TakesEveryDraftOfNgram) {
    const Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
    EXPECT_EQ(drafted("pair:ngram+suffix", text, chain(2)), "ngram: 4 5");
    EXPECT_EQ(drafted("pair:ngram:min=4,max=4+suffix", text, chain(2)), "suffix: 4 5");
    // Twelve known tokens, and twelve or more that follow: the tree does not shorten that draft.
    Tokens repeated;
    for (TokenId token = 10; token < 40; ++token) repeated.push_back(token);
    for (TokenId token = 10; token < 22; ++token) repeated.push_back(token);
    EXPECT_EQ(
        drafted("pair:ngram:llama.cpp+none", repeated, chain(3)),
        "ngram: 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 10 11 12 13 14 15 16 17 18 19 20 21");
}

TEST_F(PairTest, TakesTheTextsDraftIfTheOtherHasNone) {
    const Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
    EXPECT_EQ(drafted("pair:suffix+none", text, chain(4)), "suffix: 4 5 6");
    EXPECT_EQ(drafted("pair:suffix+ngram:min=4,max=4", text, chain(4)), "suffix: 4 5 6");
    EXPECT_EQ(drafted("pair:suffix+ngram", {1, 2, 3}, chain(4)), "ngram:");
    EXPECT_EQ(drafted("pair:suffix+pair:ngram:min=4,max=4+none", text, chain(4)), "suffix: 4 5 6");
    EXPECT_EQ(drafted("pair:suffix+pair:ngram+none", text, chain(4)), "ngram: 4 5 6 7");
}

TEST_F(PairTest, EndsBeforeTheContextDoes) {
    const int context = target_->config().context;
    Tokens text;
    for (int i = 0; i < context - 4; ++i) text.push_back(i % 7);
    EXPECT_EQ(drafted("pair:suffix+none", text, chain(3)).size(), std::string("suffix: 1 2 3").size());
}

TEST_F(PairTest, SpecsNameTwoDrafters) {
    EXPECT_EQ(drafter_id("pair:ngram:vllm,min=2+eagle3:/a+b,rope=own"), "pair:ngram:vllm,min=2+eagle3");
    EXPECT_EQ(drafter_traits("pair:suffix+eagle3:x").id, "eagle3");
    EXPECT_EQ(drafter_traits("pair:suffix+none").id, "none");
    EXPECT_EQ(split_drafters("pair:ngram+draft-model:/x.gguf,precision=int8,suffix"),
              (std::vector<std::string>{"pair:ngram+draft-model:/x.gguf,precision=int8", "suffix"}));
    for (const std::string spec : {"pair:", "pair:suffix", "pair:suffix+", "pair:eagle3+ngram",
                                   "pair:none+suffix", "pair:+suffix", "pair:suffix+pair:ngram"})
        EXPECT_EQ(message(spec),
                  "drafter '" + spec +
                      "': use pair:suffix+DRAFTER or pair:ngram+DRAFTER, where DRAFTER is another "
                      "drafter's complete spec, for example pair:suffix+eagle3")
            << spec;
    EXPECT_EQ(message("pair").substr(0, 20), "drafter 'pair:': use");
    EXPECT_EQ(message("pair:suffix+eagle3"), "drafter 'eagle3' needs a checkpoint: use eagle3:FOLDER");
    EXPECT_EQ(message("pair:suffix:depth=1+none"),
              "drafter 'suffix': depth=1 is not a whole number in 2..64");
}

TEST_F(PairTest, TextsBeforeMatterIfOneOfTheTwoReadsThem) {
    EXPECT_FALSE(make("pair:suffix+ngram")->properties().order_matters);
    EXPECT_TRUE(make("pair:suffix:answers=3+ngram")->properties().order_matters);
    EXPECT_TRUE(make("pair:suffix+ngram:pool=1")->properties().order_matters);
}

}  // namespace
}  // namespace draftscope::testing
