#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/draft/drafter.h"
#include "engine/heads/head.h"
#include "tests/support/results.h"

/// The fixture of drafters whose drafts torch computed (tests/golden/drafters, tools/make_drafter_golden.py).
namespace draftscope {

inline const std::string golden_folder = std::string(DS_SOURCE_DIR) + "/tests/golden/drafters";

/// Equal to the values in tools/make_drafter_golden.py.
inline float feature(std::uint32_t seed, std::uint32_t row, std::uint32_t column) {
    std::uint32_t x = row * 7919u + column * 104729u + seed * 15485863u;
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return static_cast<float>(static_cast<int>(x >> 16 & 0xff) - 128) / 64.0f;
}

/// The full head; records its input rows and the calls before each level.
class SpyHead final : public LmHead {
  public:
    explicit SpyHead(std::unique_ptr<LmHead> full) : full_(std::move(full)) {}
    Status prepare(kernels::Backend& exec, const HeadWeights& weights) override {
        hidden = weights.hidden;
        return full_->prepare(exec, weights);
    }
    CallShape shape(int level, int rows) const override { return full_->shape(level, rows); }
    bool reserve(kernels::Backend& backend, int count, int rows, int k) override {
        return full_->reserve(backend, count, rows, k);
    }
    void begin(HeadCall& call) override { begun.emplace_back(call.level, call.rows); }
    void propose(HeadCall& call) override {
        proposed.emplace_back(call.level, call.rows);
        const auto* row = call.x.floats;
        std::vector<std::vector<float>> rows;
        for (int r = 0; r < call.rows; ++r, row += kernels::padded_columns(hidden))
            rows.emplace_back(row, row + hidden);
        levels.push_back(std::move(rows));
        full_->propose(call);
    }
    HeadCost cost_at(const HeadState* state, int rows, int level) const override {
        return full_->cost_at(state, rows, level);
    }
    ActiveSet active_set(const HeadState* state, int level, std::vector<TokenId>& memory) const override {
        return full_->active_set(state, level, memory);
    }

    std::vector<std::vector<std::vector<float>>> levels;  ///< level, row
    std::vector<std::pair<int, int>> begun, proposed;     ///< level, rows
    int hidden = 0;

  private:
    std::unique_ptr<LmHead> full_;
};

class GoldenDrafters : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::string folder = std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen2";
        auto target = Target::load(folder, *exec_, kernels::Precision::f32);
        ASSERT_TRUE(is_ok(target));
        target_ = std::move(target).value();
    }

    std::unique_ptr<Drafter> open(const std::string& spec) {
        auto drafter = make_drafter(spec, "", *target_, *exec_);
        EXPECT_TRUE(is_ok(drafter));
        return drafter.ok() ? std::move(drafter).value() : nullptr;
    }
    std::string open_error(const std::string& spec) {
        auto drafter = make_drafter(spec, "", *target_, *exec_);
        EXPECT_FALSE(drafter.ok()) << spec;
        if (drafter.ok()) return {};
        EXPECT_EQ(drafter.error().kind, ErrorKind::bad_input);
        return drafter.error().message;
    }

    struct Round {
        int known = 0;
        DraftTree tree;
        SpyHead* spy = nullptr;
    };
    /// Drafts the rounds of `golden`; `spies_` records the head's inputs (empty for drafters without a head).
    std::vector<Round> draft(Drafter& drafter, const nlohmann::json& golden);
    void expect_golden(const std::string& spec, const std::string& name);

    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(2);
    std::unique_ptr<Target> target_;
    std::vector<std::unique_ptr<SpyHead>> spies_;
    PhaseRecorder phases_;
    const nlohmann::json golden_ = nlohmann::json::parse(std::ifstream(golden_folder + "/golden.json"));
};

inline std::vector<GoldenDrafters::Round> GoldenDrafters::draft(Drafter& drafter,
                                                                const nlohmann::json& golden) {
    const auto seed = golden["seed"].get<std::uint32_t>();
    const int width = golden["width"].get<int>();
    const int tokens = golden["rounds"].back()["known"].get<int>();
    std::vector<TokenId> text;
    std::vector<float> features;
    for (int i = 0; i < tokens; ++i) {
        const auto row = static_cast<std::uint32_t>(i);
        text.push_back((static_cast<int>((feature(seed, row, 0) + 2.0f) * 64 * 31) + i * 17) %
                       target_->tokenizer()->size());
        for (int c = 0; c < width; ++c) features.push_back(feature(seed, row, static_cast<std::uint32_t>(c)));
    }
    const auto state = drafter.make_state(256);
    std::vector<Round> rounds;
    int slots = 0;
    for (const nlohmann::json& expected : golden["rounds"]) {
        Round round;
        round.known = expected["known"].get<int>();
        DraftJob job;
        job.tokens = {text.data(), static_cast<std::size_t>(round.known)};
        const auto rows =
            Rows<const float>(features.data(), tokens, width).slice(slots, round.known - 1 - slots);
        (drafter.needs_hidden() ? job.new_hidden : job.new_aux) = rows;
        slots = round.known - 1;
        job.state = state.get();
        job.tree = {3, 3, 14};
        DraftContext context{*exec_, phases_, nullptr, {}, nullptr};
        if (drafter.uses_head()) {
            auto full = make_head({"full", {}}, {});
            spies_.push_back(std::make_unique<SpyHead>(std::move(full).value()));
            round.spy = spies_.back().get();
            HeadWeights weights;
            weights.lm_head =
                drafter.properties().lm_head != nullptr ? drafter.properties().lm_head : &target_->lm_head();
            weights.row_ids = drafter.properties().lm_head_ids;
            weights.vocab = target_->tokenizer()->size();
            weights.hidden = weights.lm_head->k();
            EXPECT_TRUE(round.spy->prepare(*exec_, weights).ok());
            context.head = round.spy;
        }
        const Status status = DraftRunner(drafter).draft(context, {&job, 1});
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        round.tree = std::move(job.out);
        rounds.push_back(std::move(round));
    }
    return rounds;
}

inline void expect_close(const std::vector<float>& found, const nlohmann::json& expected, double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i].get<double>(), tolerance) << "element " << i;
}

inline void GoldenDrafters::expect_golden(const std::string& spec, const std::string& name) {
    SCOPED_TRACE(spec);
    const auto drafter = open(spec);
    ASSERT_NE(drafter, nullptr);
    const auto rounds = draft(*drafter, golden_[name]);
    for (std::size_t r = 0; r < rounds.size(); ++r) {
        const nlohmann::json& expected = golden_[name]["rounds"][r];
        EXPECT_EQ(rounds[r].tree.tokens, expected["tokens"].get<std::vector<TokenId>>());
        EXPECT_EQ(rounds[r].tree.parents, expected["parents"].get<std::vector<int>>());
        // The reference is float64 and computes its own rotary angles; float32 sums of 1000 terms differ by
        // less.
        expect_close(rounds[r].tree.logprobs, expected["logprobs"], 2e-4);
        if (rounds[r].spy == nullptr) continue;
        const auto& levels = rounds[r].spy->levels;
        ASSERT_GE(levels.size(), 2u);
        expect_close(levels[0][0], expected["level0"], 1e-4);
        if (levels[1].size() > 1) expect_close(levels[1][1], expected["level1"], 1e-4);
        EXPECT_EQ(rounds[r].spy->begun, rounds[r].spy->proposed);
    }
}

}  // namespace draftscope
