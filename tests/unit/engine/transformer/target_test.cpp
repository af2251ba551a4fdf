#include "engine/transformer/target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/cpu/attention.h"
#include "kernels/host_rows.h"
#include "tests/support/commit_path.h"
#include "tests/support/count_allocations.h"
#include "tests/support/results.h"
#include "tests/support/target_step.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

using kernels::Precision;
using testing::make_tiny_model;
using testing::TinyModelOptions;

constexpr int aux_layers[] = {0, 1, 1};

std::unique_ptr<Target> make_target(kernels::Backend& exec, Precision precision,
                                    TinyModelOptions options = {}) {
    auto target = Target::build(make_tiny_model(11, options), exec, precision);
    EXPECT_TRUE(target.ok()) << (target.ok() ? "" : target.error().message);
    return std::move(target).value();
}

std::vector<TokenId> random_tokens(std::mt19937& rng, int count, int vocab) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % static_cast<unsigned>(vocab));
    return tokens;
}

/// A random tree with root 0, wide near the root, with chains.
std::vector<int> random_parents(std::mt19937& rng, int nodes) {
    std::vector<int> parents{-1};
    for (int i = 1; i < nodes; ++i) {
        const bool extend = rng() % 3 != 0;
        parents.push_back(extend ? i - 1 : static_cast<int>(rng() % static_cast<unsigned>(i)));
    }
    return parents;
}

std::vector<int> compute_depths(const std::vector<int>& parents) {
    std::vector<int> depths{0};
    for (std::size_t i = 1; i < parents.size(); ++i) depths.push_back(depths[parents[i]] + 1);
    return depths;
}

/// All outputs of a forward pass for some rows.
struct RowOutputs {
    std::vector<float> hidden, aux, logits;
    bool operator==(const RowOutputs&) const = default;
    void append(const RowOutputs& more) {
        hidden.insert(hidden.end(), more.hidden.begin(), more.hidden.end());
        aux.insert(aux.end(), more.aux.begin(), more.aux.end());
        logits.insert(logits.end(), more.logits.begin(), more.logits.end());
    }
};

RowOutputs select_rows(const Target& target, const ForwardOutput& out, const std::vector<int>& rows) {
    RowOutputs outputs;
    const auto append_rows = [&](std::vector<float>& to, const std::vector<float>& from, int width) {
        for (const int row : rows) {
            const auto at = from.begin() + static_cast<std::ptrdiff_t>(row) * width;
            to.insert(to.end(), at, at + width);
        }
    };
    append_rows(outputs.hidden, out.hidden, target.config().hidden);
    append_rows(outputs.aux, out.aux, static_cast<int>(std::size(aux_layers)) * target.config().hidden);
    append_rows(outputs.logits, out.logits, target.config().vocab);
    return outputs;
}

ForwardOutput forward(Target& target, const std::vector<SequenceTokens>& sequences) {
    ForwardOutput out;
    ForwardRequest request;
    request.sequences = sequences;
    request.aux_layers = aux_layers;
    request.all_logits = true;
    const Status status = target.forward(request, out);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return out;
}

KvCache prefilled(Target& target, const std::vector<TokenId>& prompt, int slots = 256) {
    KvCache cache = target.make_cache(slots);
    ForwardOutput out;
    EXPECT_TRUE(target.prefill(cache, prompt, aux_layers, out).ok());
    return cache;
}

RowOutputs decode_one_by_one(Target& target, const std::vector<TokenId>& prompt,
                             const std::vector<TokenId>& tokens) {
    KvCache cache = prefilled(target, prompt);
    RowOutputs outputs;
    for (const TokenId token : tokens) {
        const ForwardOutput out = forward(target, {{&cache, {&token, 1}, {}, nullptr}});
        outputs.append(select_rows(target, out, {0}));
        cache.commit(1);
    }
    return outputs;
}

struct Setting {
    Precision precision;
    kernels::Isa isa;
};

class Exactness : public ::testing::TestWithParam<Setting> {};

TEST_P(Exactness, TreePathEqualsChainEqualsSingleSteps) {
    std::mt19937 rng(5);
    std::vector<RowOutputs> of_threads;
    const std::vector<TokenId> prompt = random_tokens(rng, 37, 97);
    const std::vector<int> parents = random_parents(rng, 70);
    const std::vector<TokenId> tokens = random_tokens(rng, 70, 97);
    const std::vector<int> depths = compute_depths(parents);
    const AncestorMask mask = AncestorMask::from_parents(parents);
    for (const int threads : {1, 2, 3}) {
        const auto exec = kernels::make_cpu_backend(threads, GetParam().isa);
        const auto target = make_target(*exec, GetParam().precision);
        KvCache cache = prefilled(*target, prompt);
        const ForwardOutput tree = forward(*target, {{&cache, tokens, depths, &mask}});
        for (const int leaf : {69, 40, 11}) {
            std::vector<int> path;
            mask.path(leaf, path);
            std::vector<TokenId> path_tokens;
            for (const int node : path) path_tokens.push_back(tokens[node]);
            const RowOutputs from_tree = select_rows(*target, tree, path);

            KvCache chain_cache = prefilled(*target, prompt);
            const ForwardOutput chain = forward(*target, {{&chain_cache, path_tokens, {}, nullptr}});
            std::vector<int> all(path.size());
            std::iota(all.begin(), all.end(), 0);
            EXPECT_EQ(from_tree, select_rows(*target, chain, all)) << threads << " threads, leaf " << leaf;
            EXPECT_EQ(from_tree, decode_one_by_one(*target, prompt, path_tokens));
            if (leaf == 69) of_threads.push_back(from_tree);
        }
    }
    EXPECT_EQ(of_threads[0], of_threads[1]);
    EXPECT_EQ(of_threads[0], of_threads[2]);
}

TEST_P(Exactness, SequencesInABatchAreIndependent) {
    std::mt19937 rng(6);
    const auto exec = kernels::make_cpu_backend(2, GetParam().isa);
    const auto target = make_target(*exec, GetParam().precision);
    const std::vector<int> parents = random_parents(rng, 9);
    const std::vector<int> depths = compute_depths(parents);
    const AncestorMask mask = AncestorMask::from_parents(parents);
    const std::vector<TokenId> tree_tokens = random_tokens(rng, 9, 97);
    const std::vector<TokenId> chain_tokens = random_tokens(rng, 4, 97);
    KvCache a = prefilled(*target, random_tokens(rng, 20, 97));
    KvCache b = prefilled(*target, random_tokens(rng, 3, 97));
    const SequenceTokens tree{&a, tree_tokens, depths, &mask};
    const SequenceTokens chain{&b, chain_tokens, {}, nullptr};

    const RowOutputs together =
        select_rows(*target, forward(*target, {tree, chain}), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    RowOutputs apart = select_rows(*target, forward(*target, {tree}), {0, 1, 2, 3, 4, 5, 6, 7, 8});
    apart.append(select_rows(*target, forward(*target, {chain}), {0, 1, 2, 3}));
    EXPECT_EQ(together, apart);
}

TEST_P(Exactness, CommittedPathContinuesLikePlainDecoding) {
    std::mt19937 rng(8);
    const auto exec = kernels::make_cpu_backend(2, GetParam().isa);
    const auto target = make_target(*exec, GetParam().precision);
    const std::vector<TokenId> prompt = random_tokens(rng, 15, 97);
    KvCache cache = prefilled(*target, prompt);
    std::vector<TokenId> text;
    RowOutputs from_trees;
    for (int round = 0; round < 4; ++round) {
        const std::vector<int> parents = random_parents(rng, 12);
        const std::vector<int> depths = compute_depths(parents);
        const AncestorMask mask = AncestorMask::from_parents(parents);
        const std::vector<TokenId> tokens = random_tokens(rng, 12, 97);
        const ForwardOutput out = forward(*target, {{&cache, tokens, depths, &mask}});
        std::vector<int> path;
        mask.path(7 + round, path);
        from_trees.append(select_rows(*target, out, path));
        for (const int node : path) text.push_back(tokens[node]);
        testing::commit_path(cache, (*exec), path);
    }
    EXPECT_EQ(cache.length(), static_cast<int>(prompt.size() + text.size()));
    EXPECT_EQ(from_trees, decode_one_by_one(*target, prompt, text));
}

TEST_P(Exactness, PrefillInChunksEqualsOneCall) {
    std::mt19937 rng(9);
    const auto exec = kernels::make_cpu_backend(2, GetParam().isa);
    TinyModelOptions options;
    options.context = 400;
    const auto target = make_target(*exec, GetParam().precision, options);
    const std::vector<TokenId> prompt = random_tokens(rng, 300, 97);
    KvCache chunked = target->make_cache(400), whole = target->make_cache(400);
    ForwardOutput out;
    ASSERT_TRUE(target->prefill(chunked, prompt, aux_layers, out).ok());
    const ForwardOutput once = forward(*target, {{&whole, prompt, {}, nullptr}});
    EXPECT_EQ(chunked.length(), 300);
    EXPECT_EQ(out.rows, 300);
    EXPECT_EQ(out.hidden, once.hidden);
    EXPECT_EQ(out.aux, once.aux);
    EXPECT_EQ(out.logits, std::vector<float>(once.logits.end() - 97, once.logits.end()));
}

// The rotation table has its first 4096 rows until a pass needs more.
TEST(Target, RotatesBeyondTheFirstRowsOfTheTable) {
    std::mt19937 rng(9);
    const auto exec = kernels::make_cpu_backend(2);
    TinyModelOptions options{.hidden = 32, .layers = 2, .heads = 2, .kv_heads = 1, .ffn = 32};
    options.context = 4200;
    const auto target = make_target(*exec, Precision::f32, options);
    const std::vector<TokenId> prompt = random_tokens(rng, 4150, 97);
    KvCache chunked = target->make_cache(4200), whole = target->make_cache(4200);
    EXPECT_EQ(target->rope().rows(), 4096);
    ForwardOutput out;
    ASSERT_TRUE(target->prefill(chunked, prompt, {}, out).ok());
    EXPECT_EQ(target->rope().rows(), 4200);
    const ForwardOutput once = forward(*target, {{&whole, prompt, {}, nullptr}});
    EXPECT_EQ(out.logits, std::vector<float>(once.logits.end() - 97, once.logits.end()));
}

INSTANTIATE_TEST_SUITE_P(Precisions, Exactness,
                         ::testing::Values(Setting{Precision::f32, kernels::best_isa()},
                                           Setting{Precision::bf16, kernels::best_isa()},
                                           Setting{Precision::int8, kernels::best_isa()},
                                           Setting{Precision::int8, kernels::Isa::portable}),
                         [](const auto& setting) {
                             return std::string(kernels::to_text(setting.param.precision)) + "_" +
                                    std::to_string(setting.index);
                         });

TEST(Target, ReturnsLogitsForTheRequestedRows) {
    std::mt19937 rng(2);
    const auto exec = kernels::make_cpu_backend(1);
    const auto target = make_target(*exec, Precision::f32);
    KvCache cache = target->make_cache(32);
    const std::vector<TokenId> tokens = random_tokens(rng, 6, 97);
    const ForwardOutput all = forward(*target, {{&cache, tokens, {}, nullptr}});
    const SequenceTokens rows{&cache, tokens, {}, nullptr};
    const int wanted[] = {4, 1};
    ForwardOutput some;
    ASSERT_TRUE(target->forward({{&rows, 1}, {}, wanted, false}, some).ok());
    EXPECT_EQ(some.logits, select_rows(*target, all, {4, 1}).logits);
    EXPECT_TRUE(some.aux.empty());
    EXPECT_GE(all.bytes, target->weight_bytes());
    ForwardOutput none;
    ASSERT_TRUE(target->forward({{&rows, 1}, {}, {}, false}, none).ok());
    EXPECT_TRUE(none.logits.empty());
    EXPECT_EQ(some.bytes - none.bytes, target->lm_head().bytes());
    EXPECT_EQ(cache.length(), 0);
}

TEST(Target, SteadyStateAllocatesNothing) {
    std::mt19937 rng(3);
    const auto exec = kernels::make_cpu_backend(2);
    const auto target = make_target(*exec, Precision::int8);
    KvCache cache = prefilled(*target, random_tokens(rng, 20, 97));
    const std::vector<int> parents = random_parents(rng, 12);
    const std::vector<int> depths = compute_depths(parents);
    const AncestorMask mask = AncestorMask::from_parents(parents);
    const std::vector<TokenId> tokens = random_tokens(rng, 12, 97);
    const SequenceTokens rows{&cache, tokens, depths, &mask};
    const ForwardRequest request{{&rows, 1}, aux_layers, {}, true};
    ForwardOutput out;
    ASSERT_TRUE(target->forward(request, out).ok());
    const std::int64_t before = testing::total_allocations();
    const bool ok = target->forward(request, out).ok();
    const std::int64_t after = testing::total_allocations();
    EXPECT_TRUE(ok);
    EXPECT_EQ(after - before, 0);
}

/// Counts the fork-joins of the thread pool.
class CountingPool final : public kernels::ThreadPool {
  public:
    explicit CountingPool(int threads) : pool_(kernels::make_thread_pool(threads)) {}
    int threads() const override { return pool_->threads(); }
    kernels::Isa isa() const override { return pool_->isa(); }
    void parallel(int parts, FunctionRef<void(int part)> work) override {
        ++meetings;
        pool_->parallel(parts, work);
    }
    std::byte* scratch(int thread, std::size_t bytes) override { return pool_->scratch(thread, bytes); }
    std::byte* shared_scratch(std::size_t bytes) override { return pool_->shared_scratch(bytes); }
    kernels::PrefetchHint* prefetch_hint(int thread) override { return pool_->prefetch_hint(thread); }

    int meetings = 0;

  private:
    std::unique_ptr<kernels::ThreadPool> pool_;
};

/// Norms, gates and sums are fused into the four products of a layer, whatever their size. Attention over
/// such a short context runs on the calling thread.
TEST(Target, SynchronizesThreadsOncePerProduct) {
    std::mt19937 rng(5);
    auto counting = std::make_unique<CountingPool>(2);
    CountingPool& pool = *counting;
    const auto exec = kernels::make_cpu_backend(std::move(counting));
    TinyModelOptions options{.hidden = 256, .ffn = 4096};
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8, Precision::int4}) {
        const auto target = make_target(*exec, precision, options);
        KvCache cache = prefilled(*target, random_tokens(rng, 12, 97));
        const std::vector<TokenId> tokens = random_tokens(rng, 8, 97);
        const SequenceTokens chain{&cache, tokens, {}, nullptr};
        ForwardOutput out;
        pool.meetings = 0;
        ASSERT_TRUE(target->forward({{&chain, 1}, {}, {}, true}, out).ok());
        EXPECT_EQ(pool.meetings, 4 * target->config().layers + 1) << kernels::to_text(precision);
    }
}

/// A query for best tokens only is answered by a single pass over the LM head, with the bits of the ops on
/// complete rows. Queries that need complete rows get them.
TEST(Target, GreedyChoicesNeedNoLogits) {
    std::mt19937 rng(6);
    TinyModelOptions options;
    options.vocab = 4099;
    constexpr int vocab = 4000, best = 3, rows = 5;
    for (const int threads : {1, 2}) {
        const auto exec = kernels::make_cpu_backend(threads);
        const auto target = make_target(*exec, Precision::int8, options);
        KvCache cache = prefilled(*target, random_tokens(rng, 12, vocab));
        const std::vector<TokenId> tokens = random_tokens(rng, rows, vocab);
        DraftTree tree = DraftTree::with_root(tokens[0]);
        for (int i = 1; i < rows; ++i) tree.add(tokens[i], i - 1, -0.5f);
        ASSERT_TRUE(tree.finish().ok());
        const SequenceTokens chain{&cache, tokens, tree.depths, &tree.mask};
        LogitsQuery query{.vocab = vocab, .best = best};
        ForwardOutput whole;
        ASSERT_TRUE(target->forward({{&chain, 1}, {}, {}, true}, whole).ok());
        testing::TargetStep step;
        step.round.plan.add({rows, rows - 1, rows});
        std::vector<float> hidden(whole.hidden.size());
        const auto run = [&] { return step.run(*target, cache, tree, query, hidden).ok(); };
        ASSERT_TRUE(run());
        EXPECT_EQ(step.logits.data() != nullptr, !(*exec).prefers_matmul_topk(vocab, best));
        EXPECT_EQ(hidden, whole.hidden);
        EXPECT_EQ(step.bytes, whole.bytes);
        const Rows<const float> logits(whole.logits.data(), rows, vocab, options.vocab);
        std::vector<std::int32_t> ids(rows * best), choices(rows);
        std::vector<float> values(rows * best), sums(rows);
        kernels::topk(exec->pool(), logits, best, Rows<std::int32_t>(ids.data(), rows, best),
                      Rows<float>(values.data(), rows, best));
        kernels::argmax(exec->pool(), logits, choices);
        kernels::logsumexp(exec->pool(), logits, sums);
        EXPECT_EQ(step.answers.best_ids, ids);
        EXPECT_EQ(step.answers.best_logits, values);
        EXPECT_EQ(step.answers.choices, choices);
        EXPECT_EQ(step.answers.log_norm, sums);
        ASSERT_TRUE(run());  // the step's memory becomes one block
        const std::int64_t before = testing::total_allocations();
        const bool again = run();
        EXPECT_EQ(testing::total_allocations() - before, 0);
        EXPECT_TRUE(again);
        query.complete = true;
        ASSERT_TRUE(run());
        ASSERT_TRUE(step.logits.data() != nullptr);
        EXPECT_EQ(step.answers.best_ids, ids);
        EXPECT_EQ(step.answers.log_norm, sums);
        const Rows<const float> stored = step.logits.download(0, rows);
        EXPECT_TRUE(std::equal(whole.logits.begin(), whole.logits.end(), stored.data));
    }
}

TEST(Target, DecodedTokensAllocateNothing) {
    std::mt19937 rng(4);
    const auto exec = kernels::make_cpu_backend(2);
    for (const Precision precision : {Precision::bf16, Precision::int8, Precision::int4}) {
        const auto target = make_target(*exec, precision);
        KvCache cache = prefilled(*target, random_tokens(rng, 12, 97));
        ForwardOutput out;
        std::int64_t allocated = 0;
        int decoded = 0;
        for (TokenId token = 5; cache.free_slots() > 0 && decoded < 16; ++decoded) {
            const SequenceTokens row{&cache, {&token, 1}, {}, nullptr};
            const std::int64_t before = testing::total_allocations();
            ASSERT_TRUE(target->forward({{&row, 1}, {}, {}, true}, out).ok());
            cache.commit(1);
            // The first token allocates the buffers that later tokens reuse.
            if (decoded > 0) allocated += testing::total_allocations() - before;
            token = static_cast<TokenId>(std::max_element(out.logits.begin(), out.logits.begin() + 97) -
                                         out.logits.begin());
        }
        EXPECT_GT(decoded, 8);
        EXPECT_EQ(allocated, 0) << kernels::to_text(precision);
    }
}

TEST(Target, Int4OfAFourBitFilePacksLargerTypesInInt8) {
    const auto exec = kernels::make_cpu_backend(1);
    ModelFile plain = testing::make_tiny_model(1), mostly_four_bits = testing::make_tiny_model(1);
    mostly_four_bits.quantisation = "Q4_K";
    const auto four = require(Target::build(std::move(plain), *exec, Precision::int4));
    const auto mixed = require(Target::build(std::move(mostly_four_bits), *exec, Precision::int4));
    EXPECT_EQ(four->lm_head().precision(), Precision::int4);
    EXPECT_EQ(mixed->lm_head().precision(), Precision::int8);
    EXPECT_GT(mixed->weight_bytes(), four->weight_bytes());
}

TEST(Target, EmbedsFileValuesWithATiedHead) {
    const auto exec = kernels::make_cpu_backend(1);
    TinyModelOptions options;
    options.tied_head = true;
    const ModelFile file = make_tiny_model(11, options);
    const auto target = make_target(*exec, Precision::int8, options);
    std::vector<float> expected(64), found(64);
    const TokenId token = 42;
    file.weights->read_row(*file.weights->find("token_embd.weight"), token, expected.data());
    target->embed({&token, 1}, Rows<float>(found.data(), 1, 64));
    EXPECT_EQ(found, expected);
    EXPECT_EQ(target->lm_head().n(), 97);
}

TEST(Target, RejectsRequestsThatDoNotFit) {
    std::mt19937 rng(4);
    const auto exec = kernels::make_cpu_backend(1);
    const auto target = make_target(*exec, Precision::f32);
    const auto message = [&](KvCache& cache, const std::vector<TokenId>& tokens, std::vector<int> aux,
                             std::vector<int> wanted) {
        const SequenceTokens rows{&cache, tokens, {}, nullptr};
        ForwardOutput out;
        const Status status = target->forward({{&rows, 1}, aux, wanted, false}, out);
        return status.ok() ? std::string() : status.error().message;
    };
    KvCache small = target->make_cache(4), large = target->make_cache(400);
    EXPECT_NE(message(small, random_tokens(rng, 5, 97), {}, {}).find("5 rows do not fit into the 4 free"),
              std::string::npos);
    EXPECT_NE(message(large, random_tokens(rng, 257, 97), {}, {}).find("context of 256"), std::string::npos);
    EXPECT_EQ(message(large, random_tokens(rng, 256, 97), {}, {}), "");
    EXPECT_NE(message(large, {97}, {}, {}).find("token id 97"), std::string::npos);
    EXPECT_NE(message(large, {-1}, {}, {}).find("token id -1"), std::string::npos);
    EXPECT_EQ(message(large, {1}, {2}, {}), "") << "the stream after the last layer";
    EXPECT_NE(message(large, {1}, {3}, {}).find("aux layer 3"), std::string::npos);
    EXPECT_NE(message(large, {1}, {}, {1}).find("row 1 of 1"), std::string::npos);
    KvCache foreign(1, 8, 32, kernels::KvType::f32, *exec);
    EXPECT_NE(message(foreign, {1}, {}, {}).find("not made by this target"), std::string::npos);
}

TEST(Target, DepthsDetermineThePositions) {
    const auto exec = kernels::make_cpu_backend(1);
    const auto target = make_target(*exec, Precision::f32);
    std::mt19937 rng(12);
    KvCache cache = prefilled(*target, random_tokens(rng, 254, 97), 300);
    const std::vector<int> star{-1, 0, 0, 0, 0}, line{-1, 0, 1};
    const std::vector<int> star_depths{0, 1, 1, 1, 1}, line_depths{0, 1, 2};
    const AncestorMask star_mask = AncestorMask::from_parents(star);
    const AncestorMask line_mask = AncestorMask::from_parents(line);
    const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
    ForwardOutput out;
    const SequenceTokens fits{&cache, tokens, star_depths, &star_mask};
    EXPECT_TRUE(target->forward({{&fits, 1}, {}, {}, false}, out).ok());
    const SequenceTokens passes{&cache, {tokens.data(), 3}, line_depths, &line_mask};
    EXPECT_FALSE(target->forward({{&passes, 1}, {}, {}, false}, out).ok());
}

TEST(Target, CancelledPrefillKeepsCompletedChunks) {
    const auto exec = kernels::make_cpu_backend(1);
    TinyModelOptions options;
    options.context = 512;
    const auto target = make_target(*exec, Precision::f32, options);
    std::mt19937 rng(1);
    KvCache cache = target->make_cache(512);
    ForwardOutput out;
    int queried = 0;
    const Status status =
        target->prefill(cache, random_tokens(rng, 300, 97), {}, out, [&] { return ++queried == 3; });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::cancelled);
    EXPECT_EQ(cache.length(), 2 * target->backend().limits().prefill_rows);
}

TEST(Target, ReportsLoadingProgress) {
    const auto exec = kernels::make_cpu_backend(1);
    std::vector<double> fractions;
    const auto target =
        Target::build(make_tiny_model(1), *exec, Precision::bf16,
                      [&](double fraction, const std::string&) { fractions.push_back(fraction); });
    ASSERT_TRUE(target.ok());
    EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
    EXPECT_EQ(fractions.back(), 1.0);
}

TEST(Target, RejectsAConfigThatTheWeightsContradict) {
    const auto exec = kernels::make_cpu_backend(1);
    ModelFile file = make_tiny_model(1);
    file.config.ffn = 80;
    const auto target = Target::build(std::move(file), *exec, Precision::f32);
    ASSERT_FALSE(target.ok());
    EXPECT_NE(target.error().message.find("blk.0.ffn_gate.weight"), std::string::npos)
        << target.error().message;
    EXPECT_NE(target.error().message.find("[96, 64]"), std::string::npos) << target.error().message;
    EXPECT_NE(target.error().message.find("[80, 64]"), std::string::npos) << target.error().message;
}

std::byte* keys(KvCache& cache, int layer) {
    return reinterpret_cast<std::byte*>(const_cast<kernels::half_t*>(cache.planes().keys(layer)));
}
std::byte* values(KvCache& cache, int layer) {
    return reinterpret_cast<std::byte*>(const_cast<kernels::half_t*>(cache.planes().values(layer)));
}

TEST(KvCache, CommitsAPathAndGrows) {
    constexpr int width = 3, slots = 24;
    const auto exec = kernels::make_cpu_backend(1);
    KvCache cache(2, slots, width, kernels::KvType::f32, *exec),
        expected(2, 40, width, kernels::KvType::f32, *exec);
    const auto put = [&](KvCache& to, int layer, int slot, int number) {
        std::vector<float> row(width), other(width);
        for (int d = 0; d < width; ++d) {
            row[d] = static_cast<float>(1000 * layer + 10 * number + d);
            other[d] = -row[d];
        }
        kernels::store_key(exec->pool(), to.type(), row.data(), width, slot, keys(to, layer));
        kernels::store_value(exec->pool(), to.type(), other.data(), width, slot, values(to, layer));
    };
    for (int layer = 0; layer < 2; ++layer)
        for (int slot = 0; slot < slots; ++slot) put(cache, layer, slot, slot);
    cache.commit(14);
    const std::vector<int> path{0, 3, 5, 9};
    testing::commit_path(cache, (*exec), path);
    EXPECT_EQ(cache.length(), 18);
    EXPECT_EQ(cache.free_slots(), 6);
    cache.ensure_free(22);
    EXPECT_EQ(cache.length(), 18);
    EXPECT_GE(cache.free_slots(), 22);
    for (int layer = 0; layer < 2; ++layer) {
        for (int slot = 0; slot < 18; ++slot)
            put(expected, layer, slot, slot < 14 ? slot : 14 + path[slot - 14]);
        const auto floats = [&](std::byte* rows) { return reinterpret_cast<float*>(rows); };
        for (int slot = 0; slot < 18; ++slot)
            for (int d = 0; d < width; ++d) {
                const int key = (slot / 16 * width + d) * 16 + slot % 16;
                EXPECT_EQ(floats(keys(cache, layer))[key], floats(keys(expected, layer))[key]);
                EXPECT_EQ(floats(values(cache, layer))[slot * width + d],
                          floats(values(expected, layer))[slot * width + d]);
            }
    }
    cache.truncate(1);
    EXPECT_EQ(cache.length(), 1);
}

TEST(KvCache, StoresF16UnlessWeightsAreF32) {
    auto exec = kernels::make_cpu_backend(1);
    const auto exact = make_target(*exec, Precision::f32), narrow = make_target(*exec, Precision::int8);
    KvCache floats = exact->make_cache(8), halves = narrow->make_cache(8);
    EXPECT_EQ(floats.type(), kernels::KvType::f32);
    EXPECT_EQ(halves.type(), kernels::KvType::f16);
    EXPECT_EQ(kernels::bytes_per_value(floats.type()), 2 * kernels::bytes_per_value(halves.type()));
    const std::size_t row_bytes = halves.kv_width() * kernels::bytes_per_value(halves.type());

    const std::vector<TokenId> tokens{1, 2, 3};
    ForwardOutput out;
    const Status wrong = narrow->prefill(floats, tokens, {}, out);
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("not made by this target"), std::string::npos);

    // Compaction moves complete rows of either type.
    ASSERT_TRUE(narrow->prefill(halves, tokens, {}, out).ok());
    const std::vector<std::byte> before(values(halves, 0), values(halves, 0) + 3 * row_bytes);
    halves.truncate(1);
    testing::commit_path(halves, (*exec), {1});
    halves.ensure_free(40);
    EXPECT_TRUE(std::equal(values(halves, 0), values(halves, 0) + row_bytes, before.begin()));
    EXPECT_TRUE(std::equal(values(halves, 0) + row_bytes, values(halves, 0) + 2 * row_bytes,
                           before.begin() + static_cast<std::ptrdiff_t>(2 * row_bytes)));
}

TEST(AncestorMask, MatchesParentTraversal) {
    std::mt19937 rng(77);
    for (const int nodes : {1, 2, 63, 64, 65, 200}) {
        const std::vector<int> parents = random_parents(rng, nodes);
        const AncestorMask mask = AncestorMask::from_parents(parents);
        ASSERT_EQ(mask.nodes(), nodes);
        EXPECT_EQ(mask.words_per_row(), (nodes + 63) / 64);
        for (int node = 0; node < nodes; ++node) {
            std::vector<int> walk;
            for (int up = node; up >= 0; up = parents[up]) walk.push_back(up);
            std::reverse(walk.begin(), walk.end());
            std::vector<int> path;
            mask.path(node, path);
            EXPECT_EQ(path, walk);
            int set = 0;
            for (int other = 0; other < nodes; ++other) set += mask.test(node, other) ? 1 : 0;
            EXPECT_EQ(set, static_cast<int>(walk.size()));
        }
    }
}

}  // namespace
}  // namespace draftscope
