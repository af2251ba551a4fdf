#include "engine/heads/clusters.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "base/numel.h"
#include "engine/heads/candidates.h"
#include "engine/heads/static_vocab.h"
#include "kernels/matmul.h"
#include "kernels/topk.h"

namespace draftscope {
namespace {

constexpr int block = kernels::cluster_block;  ///< outputs per block of a packed matrix

/// Orders equal logits by token id, which the cluster order does not. A tie may also decide which token is
/// kept. `ids` and `logits` are the kept ones, best first.
void order_ties(std::span<const float> all, std::span<const TokenId> tokens, std::span<TokenId> ids,
                std::span<float> logits) {
    if (ids.empty()) return;
    const float worst = logits.back();
    const auto among = std::count_if(all.begin(), all.end(), [&](float v) { return v >= worst; });
    const bool tied = among > static_cast<std::ptrdiff_t>(ids.size()) ||
                      std::adjacent_find(logits.begin(), logits.end()) != logits.end();
    if (!tied) return;
    std::vector<std::pair<float, TokenId>> best;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i] >= worst) best.emplace_back(all[i], tokens[i]);
    std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    for (std::size_t i = 0; i < ids.size() && i < best.size(); ++i) {
        logits[i] = best[i].first;
        ids[i] = best[i].second;
    }
}

/// Sets `row` to these tokens in ascending order.
void take_ascending(std::span<const TokenId> ids, std::span<const float> logits,
                    std::vector<std::size_t>& order, SparseLogits& row) {
    order.resize(ids.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
    row.ids.clear();
    row.logits.clear();
    for (const std::size_t i : order) {
        row.ids.push_back(ids[i]);
        row.logits.push_back(logits[i]);
    }
}

}  // namespace

void best_clusters(Rows<const float> scores, Rows<std::int32_t> out, std::vector<std::int32_t>& order) {
    assert(out.rows == scores.rows && out.cols <= scores.cols);
    order.resize(scores.cols);
    for (int r = 0; r < scores.rows; ++r) {
        const float* const own = scores.row_data(r);
        std::iota(order.begin(), order.end(), 0);
        const auto kept = order.begin() + out.cols;
        std::partial_sort(order.begin(), kept, order.end(),
                          [own](int a, int b) { return own[a] != own[b] ? own[a] > own[b] : a < b; });
        std::sort(order.begin(), kept);
        std::copy(order.begin(), kept, out.row(r).begin());
    }
}

Result<ClusteredVocab> ClusteredVocab::make(kernels::Exec& exec, const HeadWeights& weights,
                                            const HeadArtefact& artefact, const std::string& name,
                                            int clusters) {
    if (weights.lm_head->on_device() && clusters >= kernels::max_clusters)
        return bad_input("{}: {} clusters, but a device selects among at most {}; fit fewer", artefact.path(),
                         clusters, kernels::max_clusters - 1);
    ClusteredVocab result;
    result.weights_ = weights;
    result.clusters_ = clusters;
    DS_ASSIGN(result.cluster_of_, artefact.token_map(name, clusters));
    for (const TokenId id : weights.always_active)
        if (id >= 0 && id < weights.vocab) result.cluster_of_[id] = clusters;
    result.parts_.resize(static_cast<std::size_t>(clusters) + 1);
    for (TokenId id = 0; id < weights.vocab; ++id) {
        int& cluster = result.cluster_of_[id];
        if (!lm_head_has(weights, id)) cluster = -1;
        if (cluster >= 0) result.parts_[cluster].ids.push_back(id);
    }
    std::vector<TokenId> order, tokens;
    for (Cluster& part : result.parts_) {
        part.first_block = static_cast<int>(order.size()) / block;
        part.blocks = (static_cast<int>(part.ids.size()) + block - 1) / block;
        const std::vector<TokenId> rows = lm_head_row_indices(weights, part.ids);
        order.insert(order.end(), rows.begin(), rows.end());
        tokens.insert(tokens.end(), part.ids.begin(), part.ids.end());
        // Padding up to a whole block; its logits are not read.
        while (order.size() % block != 0) order.push_back(rows.back());
        tokens.resize(order.size(), no_token);
        result.tokens_ += static_cast<double>(part.ids.size());
    }
    result.rows_ = weights.lm_head->gather_rows(exec, order);
    kernels::DeviceClusters::Parts parts;
    parts.tokens = std::move(tokens);
    for (const Cluster& part : result.parts_) {
        parts.first.push_back(part.first_block * block);
        parts.sizes.push_back(static_cast<std::int32_t>(part.ids.size()));
    }
    parts.cluster_of.assign(result.cluster_of_.begin(), result.cluster_of_.end());
    result.device_.set_parts(std::move(parts));
    result.row_logits_.reserve(weights.vocab);
    result.row_ids_.reserve(weights.vocab);
    result.blocks_.reserve(result.rows_.n() / block);
    result.first_column_.resize(result.parts_.size());
    result.in_union_.resize(result.parts_.size());
    return result;
}

bool ClusteredVocab::has(TokenId token) const {
    return token >= 0 && token < weights_.vocab && cluster_of_[token] >= 0;
}

void ClusteredVocab::propose(ProposeContext& context, Rows<const float> hidden,
                             Rows<const std::int32_t> chosen, bool per_row,
                             std::span<HeadState* const> states, int k, Proposal& out) {
    out.resize(hidden.rows, k);
    for (int first = 0; first < hidden.rows;) {
        const int end = per_row ? first + 1 : hidden.rows;
        read(context, hidden, chosen, first, end, out);
        first = end;
    }
    PhaseScope gather(context.phases, Phase::gather, context.level, hidden.rows);
    PhaseScope remap(context.phases, Phase::remap, context.level, hidden.rows,
                     out.ids.size() * 2 * sizeof(TokenId));
    note(context.level, chosen, per_row, states);
}

std::uint64_t ClusteredVocab::blocks_bytes(int blocks) const {
    return static_cast<std::uint64_t>(static_cast<double>(rows_.bytes()) * blocks * block /
                                      std::max(rows_.n(), 1));
}

void ClusteredVocab::note(int level, Rows<const std::int32_t> chosen, bool per_row,
                          std::span<HeadState* const> states) const {
    for (std::size_t r = 0; r < states.size(); ++r) {
        if (states[r] == nullptr) continue;
        auto& seen = static_cast<ClusterState&>(*states[r]).levels[level];
        const bool first_row = r == 0 || states[r - 1] != states[r];
        if (first_row) {
            seen.chosen.assign(parts_.size(), false);
            seen.active_rows = 0;
            seen.bytes = 0;
        }
        const auto own = chosen.row(static_cast<int>(r));
        for (std::size_t c = 0; c <= own.size(); ++c) {
            const int cluster = c < own.size() ? own[c] : clusters_;
            const Cluster& part = parts_[cluster];
            if (seen.chosen[cluster] && !per_row) continue;
            seen.chosen[cluster] = true;
            seen.active_rows += static_cast<double>(part.ids.size());
            seen.bytes += blocks_bytes(part.blocks);
        }
    }
}

/// Bytes of weights that a call reads.
std::uint64_t ClusteredVocab::call_bytes(Rows<const std::int32_t> chosen, bool per_row) const {
    std::vector<bool> read(parts_.size());
    int blocks = 0;
    const auto add = [&](int cluster) {
        if (!read[cluster] || per_row) blocks += parts_[cluster].blocks;
        read[cluster] = true;
    };
    for (int r = 0; r < chosen.rows; ++r) {
        for (const int cluster : chosen.row(r)) add(cluster);
        add(clusters_);
    }
    return blocks_bytes(blocks);
}

void ClusteredVocab::enqueue_on_device(DeviceLevel& call, int count, bool per_row) {
    for (const DeviceSequence& sequence : call.sequences) {
        if (sequence.set == nullptr) continue;
        const std::ptrdiff_t first = std::ptrdiff_t{sequence.first_row} * count;
        device_.enqueue_tokens(call.device, call.downloads + first, sequence.rows * count, sequence.set,
                               sequence.set_size);
    }
    const DeviceSpans::Scope scope(call.spans, call.phases, Phase::head, call.level, call.rows, 0);
    const kernels::DeviceClusters::Call rows{call.x, call.rows, call.downloads, count, per_row};
    if (call.support_logits != nullptr)
        device_.enqueue_own(rows_, rows, call.support_logits, call.support_tokens, call.support_sizes,
                            call.support_stride);
    else if (device_.max_tokens(count) == 0)
        leave_no_candidates(call, 0, call.rows);
    else
        device_.enqueue(rows_, rows, call.k, call.ids, call.logits, call.sums);
}

void ClusteredVocab::collect_on_device(const DeviceLevelResult& back, int count, bool per_row) {
    const Rows<const std::int32_t> chosen(back.downloads.data(), back.rows, count);
    std::vector<HeadState*> states;
    for (const DeviceSequence& sequence : back.sequences)
        states.insert(states.end(), sequence.rows, sequence.state);
    note(back.level, chosen, per_row, states);
    back.spans.add_bytes(Phase::head, back.level, call_bytes(chosen, per_row));
}

SupportColumns DeviceClusterHead::support_columns(int levels) const {
    int max_count = 0;
    for (int level = 0; level < levels; ++level)
        max_count = std::max(max_count, vocab_.num_tokens_on_device(1, chosen_at(level)));
    return {max_count, max_count, true};
}

bool DeviceClusterHead::reserve(kernels::Device&, int levels, int rows, int k) {
    for (int level = 0; level < levels; ++level)
        if (!vocab_.reserve_on_device(rows, chosen_at(level), k)) return false;
    return router_on_device().reserve(rows);
}

void DeviceClusterHead::enqueue(DeviceLevel& call) {
    choose_on_device(call);
    vocab_.enqueue_on_device(call, chosen_at(call.level), per_row_);
}

void ClusteredVocab::read(ProposeContext& context, Rows<const float> hidden, Rows<const std::int32_t> chosen,
                          int first, int end, Proposal& out) {
    const int rows = end - first;
    {
        PhaseScope scope(context.phases, Phase::head, context.level, rows);
        std::fill(in_union_.begin(), in_union_.end(), false);
        in_union_.back() = true;
        for (int r = first; r < end; ++r)
            for (const int cluster : chosen.row(r)) in_union_[cluster] = true;
        blocks_.clear();
        for (std::size_t c = 0; c < parts_.size(); ++c) {
            if (!in_union_[c]) continue;
            first_column_[c] = static_cast<int>(blocks_.size()) * block;
            for (int b = 0; b < parts_[c].blocks; ++b) blocks_.push_back(parts_[c].first_block + b);
        }
        const int columns = static_cast<int>(blocks_.size()) * block;
        scope.add_bytes(blocks_bytes(static_cast<int>(blocks_.size())));
        kernels::matmul_blocks(context.exec, rows_, blocks_, hidden.slice(first, rows),
                               as_matrix(logits_, rows, columns));
    }
    const std::size_t columns = blocks_.size() * block;
    PhaseScope scope(context.phases, Phase::topk, context.level, rows,
                     3 * static_cast<std::size_t>(rows) * columns * sizeof(float));
    for (int r = first; r < end; ++r)
        select_row(context, logits_.data() + row_offset(r - first, columns), chosen.row(r), r, out);
}

void ClusteredVocab::select_row(ProposeContext& context, const float* logits,
                                std::span<const std::int32_t> chosen, int row, Proposal& out) {
    row_logits_.clear();
    row_ids_.clear();
    const auto take = [&](int cluster) {
        const Cluster& part = parts_[cluster];
        const float* from = logits + first_column_[cluster];
        row_logits_.insert(row_logits_.end(), from, from + part.ids.size());
        row_ids_.insert(row_ids_.end(), part.ids.begin(), part.ids.end());
    };
    for (const int cluster : chosen) take(cluster);
    take(clusters_);
    const std::size_t r = row, cell = r * out.k;
    const int support = static_cast<int>(row_logits_.size()), kept = std::min(out.k, support);
    out.counts[r] = kept;
    if (support == 0) {
        store_support_logits(context, Rows<const float>(nullptr, 1, 0), 0, {});
        return;
    }
    const Rows<const float> mine(row_logits_.data(), 1, support);
    kernels::logsumexp(context.exec, mine, std::span(out.logsumexp).subspan(r, 1));
    const std::span<TokenId> ids = std::span(out.ids).subspan(cell, kept);
    const std::span<float> values = std::span(out.logits).subspan(cell, kept);
    kernels::topk(context.exec, mine, kept, Rows<std::int32_t>(ids.data(), 1, kept),
                  Rows<float>(values.data(), 1, kept));
    for (TokenId& id : ids) id = row_ids_[id];
    order_ties(row_logits_, row_ids_, ids, values);
    if (context.support != nullptr) take_ascending(row_ids_, row_logits_, order_, context.support->add());
}

bool ClusteredVocab::covers(const ClusterState& state, TokenId token, int level) const {
    const auto* seen = state.levels.at(level);
    return seen != nullptr && has(token) && seen->chosen[cluster_of_[token]];
}

bool ClusteredVocab::active_ids(const ClusterState& state, int level, std::vector<TokenId>& out) const {
    const auto* seen = state.levels.at(level);
    if (seen == nullptr) return false;
    TokenBitmap active(weights_.vocab);
    for (std::size_t c = 0; c < parts_.size(); ++c)
        if (seen->chosen[c]) active.add(parts_[c].ids);
    active.take(out);
    return true;
}

HeadCost ClusteredVocab::cost(const ClusterState* state, int level, double clusters) const {
    const double row_bytes = static_cast<double>(rows_.bytes()) / std::max(rows_.n(), 1);
    const double mean = clusters_ == 0 ? 0 : tokens_ / clusters_;
    HeadCost cost;
    cost.active_rows = std::min(clusters * mean, tokens_);
    cost.bytes = static_cast<std::uint64_t>(cost.active_rows * row_bytes);
    if (const auto* seen = state == nullptr ? nullptr : state->levels.at(level); seen != nullptr) {
        cost.active_rows = seen->active_rows;
        cost.bytes = seen->bytes;
    }
    cost.flops_per_row = 2.0 * cost.active_rows * rows_.k();
    return cost;
}

}  // namespace draftscope
