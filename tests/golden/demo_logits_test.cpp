#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "engine/transformer/target.h"
#include "tests/support/demo_model.h"
#include "tests/support/results.h"

/// Compares the demo target and drafter with float64 numpy results (tests/golden/engine,
/// tools/make_logits_golden.py) along the greedy text of an independent torch implementation.
namespace draftscope {
namespace {

using kernels::Precision;
using Json = nlohmann::json;
using testing::demo_model_hint, testing::demo_model_path, testing::demo_model_present;

Json read_golden(const std::string& name) {
    std::ifstream file(std::string(DS_SOURCE_DIR) + "/tests/golden/engine/" + name);
    return Json::parse(file);
}

struct Text {
    std::vector<TokenId> tokens;  ///< prompt and greedy continuation
    int prompt = 0;
};

Text read_text(const Json& reference, std::size_t ordinal) {
    const Json& entry = reference["prompts"][ordinal];
    Text text;
    text.tokens = entry["prompt"].get<std::vector<TokenId>>();
    text.prompt = static_cast<int>(text.tokens.size());
    for (const Json& token : entry["text"]) text.tokens.push_back(token.get<TokenId>());
    return text;
}

double logsumexp(std::span<const float> row) {
    const double peak = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float value : row) sum += std::exp(static_cast<double>(value) - peak);
    return peak + std::log(sum);
}

/// Largest and root-mean-square difference.
struct Error {
    double largest = 0, squares = 0;
    int count = 0;
    void add(double difference) {
        largest = std::max(largest, std::abs(difference));
        squares += difference * difference;
        ++count;
    }
    double rms() const { return std::sqrt(squares / std::max(count, 1)); }
};

class DemoLogits : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(demo_model_present()) << demo_model_hint(); }

    void load(Precision precision) {
        auto loaded = Target::load(demo_model_path(), *exec_, precision);
        ASSERT_TRUE(is_ok(loaded));
        target_ = std::move(loaded).value();
    }

    /// Runs all rows of `text`; returns the logits of the rows `wanted`.
    void run(const Text& text, const std::vector<int>& wanted) {
        const auto aux = golden_["aux_layers"].get<std::vector<int>>();
        KvCache cache = target_->make_cache(static_cast<int>(text.tokens.size()));
        const SequenceTokens rows{&cache, text.tokens, {}, nullptr};
        const Status status = target_->forward({{&rows, 1}, aux, wanted, false}, out_);
        ASSERT_TRUE(is_ok(status));
    }

    std::span<const float> logits(std::size_t row) const {
        const auto vocab = static_cast<std::size_t>(target_->config().vocab);
        return {out_.logits.data() + row * vocab, vocab};
    }

    /// Returns the difference of the log-probs of each row's best tokens. Checks hidden and aux features
    /// within `feature_tolerance` (relative above 1; infinity = not compared).
    Error compare_rows(double feature_tolerance);
    void compare_text(double clear_margin, double at_least);

    Json golden_ = read_golden("demo_logits.json");
    Json reference_ = read_golden("demo_reference.json");
    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(2);
    std::unique_ptr<Target> target_;
    ForwardOutput out_;
};

Error DemoLogits::compare_rows(double feature_tolerance) {
    Error error;
    for (const Json& prompt : golden_["prompts"]) {
        const Text text = read_text(reference_, prompt["prompt"].get<std::size_t>());
        std::vector<int> positions;
        for (const Json& row : prompt["rows"]) positions.push_back(row["position"].get<int>());
        run(text, positions);
        const int d = target_->config().hidden;
        for (std::size_t r = 0; r < positions.size(); ++r) {
            const Json& row = prompt["rows"][r];
            const double shift = row["logsumexp"].get<double>() - logsumexp(logits(r));
            for (std::size_t i = 0; i < row["ids"].size(); ++i) {
                error.add(static_cast<double>(logits(r)[row["ids"][i].get<std::size_t>()]) + shift -
                          row["logits"][i].get<double>());
            }
            if (std::isinf(feature_tolerance)) continue;
            EXPECT_NEAR(shift, 0.0, feature_tolerance);
            const float* hidden = out_.hidden.data() + static_cast<std::ptrdiff_t>(positions[r]) * d;
            for (std::size_t i = 0; i < row["hidden"].size(); ++i) {
                const double expected = row["hidden"][i].get<double>();
                EXPECT_NEAR(hidden[golden_["hidden_dims"][i].get<int>()], expected,
                            feature_tolerance * std::max(1.0, std::abs(expected)));
            }
            const float* aux = out_.aux.data() + static_cast<std::ptrdiff_t>(positions[r]) * 3 * d;
            for (std::size_t i = 0; i < row["aux"].size(); ++i) {
                const double expected = row["aux"][i].get<double>();
                EXPECT_NEAR(aux[i * golden_["aux_stride"].get<std::size_t>()], expected,
                            feature_tolerance * std::max(1.0, std::abs(expected)));
            }
        }
    }
    return error;
}

/// Teacher-forced: given the reference prefix, the argmax at each position is the next greedy token.
void DemoLogits::compare_text(double clear_margin, double at_least) {
    int clear = 0, all = 0;
    for (std::size_t ordinal = 0; ordinal < 3; ++ordinal) {
        const Text text = read_text(reference_, ordinal);
        std::vector<int> wanted(text.tokens.size() - static_cast<std::size_t>(text.prompt));
        std::iota(wanted.begin(), wanted.end(), text.prompt - 1);
        run(text, wanted);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const std::span<const float> row = logits(i);
            const auto best =
                static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
            float second = -INFINITY;
            for (std::size_t t = 0; t < row.size(); ++t) {
                if (t != best) second = std::max(second, row[t]);
            }
            ++all;
            if (row[best] - second < clear_margin) continue;
            ++clear;
            EXPECT_EQ(static_cast<TokenId>(best), text.tokens[static_cast<std::size_t>(wanted[i]) + 1])
                << "prompt " << ordinal << " token " << i;
        }
    }
    EXPECT_GE(clear, at_least * all) << "of " << all;
}

// compare_text() margins are twice the largest error: no error can reverse a larger top-1 lead.
TEST_F(DemoLogits, TargetInF32) {
    load(Precision::f32);
    const Error error = compare_rows(1e-3);
    EXPECT_LT(error.largest, 5e-4) << "rms " << error.rms();
    compare_text(1e-3, 0.95);
}

// bf16 keeps 8 bits of each weight and activation; rounding errors of 30 layers accumulate.
TEST_F(DemoLogits, TargetInBf16) {
    load(Precision::bf16);
    const Error error = compare_rows(INFINITY);
    EXPECT_LT(error.largest, 0.3) << "rms " << error.rms();
    EXPECT_LT(error.rms(), 0.08);
    compare_text(0.6, 0.6);
}

// int8 has 127 steps for the largest of 64 neighbours, in weights and activations. It is coarser than bf16 if
// one dimension of the residual stream is much larger than the others, as in this model.
TEST_F(DemoLogits, TargetInInt8) {
    load(Precision::int8);
    const Error error = compare_rows(INFINITY);
    EXPECT_LT(error.largest, 1.0) << "rms " << error.rms();
    EXPECT_LT(error.rms(), 0.3);
    compare_text(2.0, 0.4);
}

/// One text with EAGLE-2 and the full head, fed slot by slot as in a decode loop.
class Drafting {
  public:
    Drafting(DraftContext context, Drafter& drafter, const Text& text, Rows<const float> hidden)
        : context_(context),
          drafter_(drafter),
          text_(text),
          hidden_(hidden),
          state_(drafter.make_state(static_cast<int>(text.tokens.size()))) {}

    /// Processes the slots up to `committed` and drafts from there.
    DraftTree tree_at(int committed, const TreeSpec& spec) {
        DraftJob job;
        job.tokens = {text_.tokens.data(), static_cast<std::size_t>(committed) + 1};
        job.new_hidden = hidden_.slice(slots_, committed - slots_);
        job.state = state_.get();
        job.tree = spec;
        slots_ = committed;
        EXPECT_TRUE(is_ok(DraftRunner(drafter_).draft(context_, {&job, 1})));
        return std::move(job.out);
    }

  private:
    DraftContext context_;
    Drafter& drafter_;
    const Text& text_;
    Rows<const float> hidden_;
    std::unique_ptr<DrafterState> state_;
    int slots_ = 0;
};

class DemoEagle2 : public DemoLogits {
  protected:
    void SetUp() override {
        DemoLogits::SetUp();
        load(Precision::f32);
        auto drafter =
            make_drafter("eagle2", std::string(DS_SOURCE_DIR) + "/assets/drafters/eagle2", *target_, *exec_);
        ASSERT_TRUE(is_ok(drafter));
        drafter_ = std::move(drafter).value();
        auto head = make_head({"full", {}}, {});
        ASSERT_TRUE(is_ok(head));
        head_ = std::move(head).value();
        HeadWeights weights;
        weights.lm_head = &target_->lm_head();
        weights.vocab = target_->config().vocab;
        weights.hidden = target_->config().hidden;
        ASSERT_TRUE(head_->prepare(*exec_, weights).ok());
    }

    Drafting drafting(const Text& text) {
        run(text, {});
        return {DraftContext{*exec_, phases_, head_.get(), {}, nullptr}, *drafter_, text,
                Rows<const float>(out_.hidden.data(), out_.rows, target_->config().hidden)};
    }
    void compare_slots(const Json& prompt, const Text& text);
    void compare_trees(const Json& prompt, const Text& text);

    PhaseRecorder phases_;
    std::unique_ptr<Drafter> drafter_;
    std::unique_ptr<LmHead> head_;
};

void DemoEagle2::compare_slots(const Json& prompt, const Text& text) {
    Drafting drafts = drafting(text);
    for (const Json& slot : prompt["slots"]) {
        const int top = static_cast<int>(slot["ids"].size());
        // With one level of `top` candidates, their log-probs are the slot's logits minus its logsumexp.
        const DraftTree tree = drafts.tree_at(slot["position"].get<int>() + 1, {0, top, top + 1});
        ASSERT_EQ(tree.size(), top + 1);
        for (std::size_t i = 0; i < slot["ids"].size(); ++i) {
            const auto node =
                std::find(tree.tokens.begin() + 1, tree.tokens.end(), slot["ids"][i].get<TokenId>());
            // Only the last ranks may differ, between tokens of nearly equal logits.
            if (node == tree.tokens.end() && i + 2 >= slot["ids"].size()) continue;
            ASSERT_NE(node, tree.tokens.end()) << "slot " << slot["position"] << " place " << i;
            EXPECT_NEAR(tree.logprobs[node - tree.tokens.begin()],
                        slot["logits"][i].get<double>() - slot["logsumexp"].get<double>(), 2e-3);
        }
    }
}

void expect_tree(const DraftTree& tree, const Json& expected) {
    std::vector<TokenId> tokens(tree.tokens.begin() + 1, tree.tokens.end());
    std::vector<int> parents(tree.parents.begin() + 1, tree.parents.end());
    EXPECT_EQ(tokens, expected["tokens"].get<std::vector<TokenId>>());
    EXPECT_EQ(parents, expected["parents"].get<std::vector<int>>());
    for (std::size_t i = 0; i < std::min(tokens.size(), expected["tokens"].size()); ++i) {
        EXPECT_NEAR(tree.cum_logprobs[i + 1], expected["cum_logprobs"][i].get<double>(), 4e-3);
    }
}

void DemoEagle2::compare_trees(const Json& prompt, const Text& text) {
    Drafting drafts = drafting(text);
    const auto spec = golden_["tree"].get<std::vector<int>>();
    const int chain = golden_["chain"].get<int>();
    for (const Json& entry : prompt["trees"]) {
        const int committed = entry["committed"].get<int>();
        expect_tree(drafts.tree_at(committed, {spec[0], spec[1], spec[2]}), entry["tree"]);
        expect_tree(drafts.tree_at(committed, {chain - 1, 1, chain + 1}), entry["chain"]);
    }
}

TEST_F(DemoEagle2, LogitsAndTreesInF32) {
    for (const Json& prompt : golden_["prompts"]) {
        const Text text = read_text(reference_, prompt["prompt"].get<std::size_t>());
        compare_slots(prompt, text);
        compare_trees(prompt, text);
    }
}

}  // namespace
}  // namespace draftscope
