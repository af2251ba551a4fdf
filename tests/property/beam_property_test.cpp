#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/numel.h"
#include "base/rng.h"
#include "engine/tree/length_policy.h"
#include "tests/support/beam_expansion.h"
#include "tests/support/fake_cuda/fake_gpu.h"
#include "tests/support/twin_device.h"

/// Compares tree expansion by BeamOp on a device, thread by thread or on the twin, with the host's expansion
/// fed with the device's candidates. Beams, parents and ancestors must agree at every level. Few distinct
/// values make ties frequent; some are NaN or -inf.
namespace draftscope::testing {
namespace {

template <typename T>
class OnDevice {
  public:
    OnDevice(kernels::Backend& backend, std::vector<T> values) : backend_(backend), count_(values.size()) {
        EXPECT_TRUE(memory_.reserve(backend, std::max<std::size_t>(count_, 1) * sizeof(T)));
        backend.upload(memory_.as<T>(), values.data(), count_ * sizeof(T));
    }
    T* at() const { return memory_.as<T>(); }
    std::vector<T> read() const {
        std::vector<T> values(count_);
        backend_.download(values.data(), at(), count_ * sizeof(T));
        EXPECT_TRUE(backend_.synchronize().ok());
        return values;
    }

  private:
    kernels::Backend& backend_;
    std::size_t count_;
    kernels::DeviceBuffer memory_;
};

std::vector<float> some_logits(Rng& rng, std::size_t count) {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t kind = rng.below(12);
        values.push_back(kind == 0   ? std::numeric_limits<float>::quiet_NaN()
                         : kind == 1 ? -std::numeric_limits<float>::infinity()
                                     : 0.25f * static_cast<float>(rng.below(9)) - 1.0f);
    }
    return values;
}

/// `shared_logits`: all rows of a level share the candidates of one row.
void expand_and_compare(kernels::Backend& backend, int topk, int depth, std::uint64_t seed,
                        bool shared_logits) {
    Rng rng(seed);
    const auto width = static_cast<std::size_t>(topk);
    TreeSpec spec{.depth = depth, .topk = topk, .nodes = topk * (depth + 1) + 1};
    BeamExpansion host(1, spec);
    const int first_row = static_cast<int>(rng.below(5)), first_slot = 40;
    OnDevice<float> scores(backend, std::vector<float>(kernels::max_topk, 7.0f));
    OnDevice<std::int32_t> tokens(backend, std::vector<std::int32_t>(width, -1)),
        parents(backend, std::vector<std::int32_t>(width, -1));
    std::unique_ptr<OnDevice<std::int32_t>> ancestor_slots;
    for (int level = 0; level <= depth; ++level) {
        const int rows = level == 0 ? 1 : topk;
        const auto cells = numel(rows, width);
        const int given = shared_logits ? 1 : rows;
        const std::size_t said = numel(given, width);
        std::vector<std::int32_t> ids;
        for (std::size_t i = 0; i < said; ++i) ids.push_back(static_cast<std::int32_t>(rng.below(1000)));
        std::vector<float> norms;
        for (int r = 0; r < given; ++r) norms.push_back(0.5f * static_cast<float>(rng.below(4)));
        const OnDevice<std::int32_t> d_ids(backend, ids), pool(backend, std::vector<std::int32_t>(cells, -1));
        const OnDevice<float> logits(backend, some_logits(rng, said)), sums(backend, norms),
            logprobs(backend, std::vector<float>(cells, 9.0f));
        auto next = std::make_unique<OnDevice<std::int32_t>>(
            backend, std::vector<std::int32_t>(width * static_cast<std::size_t>(level + 1), -1));
        kernels::BeamOp op{.level = level,
                           .rows = rows,
                           .k = topk,
                           .ids = d_ids.at(),
                           .logits = logits.at(),
                           .logsumexp = sums.at(),
                           .shared_logits = shared_logits,
                           .pool_tokens = pool.at(),
                           .pool_logprobs = logprobs.at(),
                           .keep = level < depth ? topk : 0,
                           .first_row = first_row,
                           .first_slot = first_slot + level * topk,
                           .scores = scores.at(),
                           .next_tokens = tokens.at(),
                           .next_rows = parents.at(),
                           .ancestor_slots = ancestor_slots ? ancestor_slots->at() : nullptr,
                           .next_ancestor_slots = next->at()};
        backend.beam(std::span(&op, 1));
        ancestor_slots = std::move(next);
        const std::vector<std::int32_t> drafted = pool.read();
        for (std::size_t i = 0; i < cells; ++i) RC_ASSERT(drafted[i] == ids[i % said]);
        if (level == 0)
            host.start(drafted, logprobs.read());
        else
            host.extend(drafted, logprobs.read(), std::vector<int>(static_cast<std::size_t>(rows), topk));
        if (level == depth) continue;
        const std::vector<std::int32_t> found = tokens.read(), rows_found = parents.read(),
                                        seen = ancestor_slots->read();
        const std::vector<float> sums_found = scores.read();
        RC_ASSERT(host.beam().size() == width);
        for (std::size_t b = 0; b < width; ++b) {
            const BeamExpansion::BeamNode& node = host.beam()[b];
            RC_ASSERT(found[b] == node.token);
            RC_ASSERT(rows_found[b] == first_row + node.parent_row);
            RC_ASSERT(sums_found[b] == node.score);
            const std::vector<int> ancestors = host.ancestor_rows(static_cast<int>(b));
            RC_ASSERT(ancestors.size() == static_cast<std::size_t>(level));
            for (int l = 0; l <= level; ++l) {
                const int row = l < level ? ancestors[l] : static_cast<int>(b);
                RC_ASSERT(seen[b * static_cast<std::size_t>(level + 1) + static_cast<std::size_t>(l)] ==
                          first_slot + l * topk + row);
            }
        }
    }
}

/// Grows a chain level by level and counts its drafts. Those after a missing one are missing.
void end_chain(kernels::Backend& backend, const ConfidenceLimits& limits, const std::vector<float>& drafts) {
    OnDevice<float> scores(backend, {0});
    OnDevice<std::int32_t> token(backend, {-1}), parent(backend, {-1}), id(backend, {5});
    const OnDevice<float> zero(backend, {0});
    std::unique_ptr<OnDevice<std::int32_t>> slots;
    int found = 0;
    for (int level = 0; level < std::ssize(drafts); ++level) {
        const OnDevice<float> logit(backend, {drafts[level]});
        OnDevice<std::int32_t> pool(backend, {-2});
        OnDevice<float> logprob(backend, {0});
        auto next = std::make_unique<OnDevice<std::int32_t>>(backend, std::vector<std::int32_t>(level + 1));
        kernels::BeamOp op{.level = level,
                           .rows = 1,
                           .k = 1,
                           .ids = id.at(),
                           .logits = logit.at(),
                           .logsumexp = zero.at(),
                           .min_logprob = limits.min_logprob,
                           .min_score = limits.min_cum_logprob,
                           .min_next_logprob = limits.min_next_logprob,
                           .pool_tokens = pool.at(),
                           .pool_logprobs = logprob.at(),
                           .keep = 1,
                           .scores = scores.at(),
                           .next_tokens = token.at(),
                           .next_rows = parent.at(),
                           .ancestor_slots = slots ? slots->at() : nullptr,
                           .next_ancestor_slots = next->at()};
        backend.beam(std::span(&op, 1));
        slots = std::move(next);
        const bool is_draft = pool.read()[0] >= 0;
        RC_ASSERT(!is_draft || found == level);
        found += is_draft ? 1 : 0;
    }
    RC_ASSERT(found == limits.length(drafts));
}

RC_GTEST_PROP(DeviceBeam, EndsAChainByProbabilities, ()) {
    const std::unique_ptr<kernels::Backend> simt = make_simt_backend(*rc::gen::inRange(0u, 4u));
    TwinDevice twin;
    const auto number = [] { return -0.25f * static_cast<float>(*rc::gen::inRange(0, 9)); };
    ConfidenceLimits limits;
    (*rc::gen::arbitrary<bool>() ? limits.min_logprob : limits.min_next_logprob) = number();
    if (*rc::gen::arbitrary<bool>()) limits.min_cum_logprob = 3 * number();
    std::vector<float> drafts;
    for (int i = 0; i < 6; ++i) drafts.push_back(number());
    end_chain(*simt, limits, drafts);
    end_chain(twin, limits, drafts);
}

RC_GTEST_PROP(DeviceBeam, MatchesHostTreeThreadByThread, ()) {
    const auto order = *rc::gen::inRange(0u, 4u);
    const auto backend = make_simt_backend(order);
    const int topk = *rc::gen::inRange(1, 9), depth = *rc::gen::inRange(0, 4);
    expand_and_compare(*backend, topk, depth, *rc::gen::arbitrary<std::uint64_t>(),
                       *rc::gen::arbitrary<bool>());
}

RC_GTEST_PROP(DeviceBeam, MatchesHostTreeOnTheTwin, ()) {
    TwinDevice twin;
    const int topk = *rc::gen::inRange(1, 33), depth = *rc::gen::inRange(0, 6);
    expand_and_compare(twin, topk, depth, *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<bool>());
}

}  // namespace
}  // namespace draftscope::testing
