#include "engine/heads/clusters.h"

#include <algorithm>
#include <utility>

#include "engine/heads/factories.h"
#include "engine/heads/head_common.h"
#include "engine/heads/static_vocab.h"

namespace draftscope {
namespace {

constexpr int block = kernels::cluster_block;  ///< outputs per block of a packed matrix

}  // namespace

Result<ClusteredVocab> ClusteredVocab::make(kernels::Backend& backend, const HeadWeights& weights,
                                            const HeadArtefact& artefact, const std::string& name,
                                            int clusters) {
    if (!backend.limits().can_choose_clusters(clusters))
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
    result.rows_ = weights.lm_head->gather_rows(backend.pool(), order);
    ClusterOps::Parts parts;
    parts.tokens = std::move(tokens);
    for (const Cluster& part : result.parts_) {
        parts.first.push_back(part.first_block * block);
        parts.sizes.push_back(static_cast<std::int32_t>(part.ids.size()));
    }
    parts.cluster_of.assign(result.cluster_of_.begin(), result.cluster_of_.end());
    result.ops_.set_parts(std::move(parts));
    return result;
}

std::uint64_t ClusteredVocab::blocks_bytes(int blocks) const {
    return static_cast<std::uint64_t>(static_cast<double>(rows_.bytes()) * blocks * block /
                                      std::max(rows_.n(), 1));
}

/// Calls visit(part) for each cluster that a call reads, and marks it in `read`.
template <typename Visit>
void ClusteredVocab::visit_read(Rows<const std::int32_t> chosen, bool per_row,
                                std::vector<std::uint8_t>& read, Visit visit) const {
    read.assign(parts_.size() + 1, 0);
    const auto add = [&](int cluster) {
        if (read[cluster] != 0 && !per_row) return;
        read[cluster] = 1;
        visit(parts_[cluster]);
    };
    for (int r = 0; r < chosen.rows; ++r) {
        for (const int cluster : chosen.row(r)) add(cluster);
        add(clusters_);
    }
}

void ClusteredVocab::note(ClusterState::Level& seen, Rows<const std::int32_t> chosen, bool per_row) const {
    seen.active_rows = seen.row_tokens = 0;
    seen.bytes = 0;
    visit_read(chosen, per_row, seen.chosen, [&](const Cluster& part) {
        seen.active_rows += static_cast<double>(part.ids.size());
        seen.bytes += blocks_bytes(part.blocks);
    });
    for (int r = 0; r < chosen.rows; ++r)
        for (const int cluster : chosen.row(r))
            seen.row_tokens += static_cast<double>(parts_[cluster].ids.size()) / chosen.rows;
    seen.row_tokens += static_cast<double>(parts_[clusters_].ids.size());
}

/// Bytes of weights that a call reads.
std::uint64_t ClusteredVocab::call_bytes(Rows<const std::int32_t> chosen, bool per_row) const {
    std::vector<std::uint8_t> read;
    int blocks = 0;
    visit_read(chosen, per_row, read, [&](const Cluster& part) { blocks += part.blocks; });
    return blocks_bytes(blocks);
}

void ClusteredVocab::propose(HeadCall& call, int count, bool per_row) {
    for (const HeadSequence& sequence : call.sequences) {
        if (sequence.set == nullptr) continue;
        const std::ptrdiff_t first = std::ptrdiff_t{sequence.first_row} * count;
        ops_.enqueue_tokens(call.backend, call.downloads + first, sequence.rows * count, sequence.set,
                            sequence.set_size);
    }
    if (call.support_logits == nullptr && ops_.max_tokens(count) == 0)
        leave_no_candidates(call, 0, call.rows);
    else
        ops_.enqueue(rows_, call, {call.downloads, count, per_row});
}

void ClusteredVocab::collect(const HeadReadback& back, int count, bool per_row) const {
    const Rows<const std::int32_t> chosen(back.downloads.data(), back.rows, count);
    for (const HeadSequence& sequence : back.sequences)
        if (sequence.state != nullptr)
            note(static_cast<ClusterState&>(*sequence.state).levels[back.level],
                 chosen.slice(sequence.first_row, sequence.rows), per_row);
    back.spans.add_bytes(Phase::head, back.level, [&] { return call_bytes(chosen, per_row); });
}

ClusterHead::ClusterHead(const HeadSpec& spec, bool inputs)
    : LmHead({.inputs = inputs}),
      per_row_(word_param(spec, share_param.name, "union") == "per-row"),
      keep_ends_(keeps_ends(spec)) {}

Status ClusterHead::load(kernels::Backend& backend, const HeadWeights& weights, const HeadArtefact& artefact,
                         const std::string& name, int clusters, int inputs) {
    DS_ASSIGN(vocab_,
              ClusteredVocab::make(backend, with_ends(weights, keep_ends_), artefact, name, clusters));
    DS_ASSIGN(router_, ClusterRouter::load(backend, weights, artefact, inputs, clusters));
    return {};
}

HeadCost ClusterHead::cost_at(const HeadState* state, int rows, int level) const {
    HeadCost cost =
        vocab_.cost(static_cast<const ClusterState*>(state), level,
                    std::min<double>(vocab_.clusters(), static_cast<double>(chosen_at(level)) * rows));
    cost.bytes += router_.bytes();
    cost.flops_per_row += router_.flops_per_row();
    return cost;
}

CallShape ClusterHead::shape(int level, int rows) const {
    const int count = chosen_at(level), support = vocab_.max_tokens(1, count);
    return {.stride = support,
            .support = support,
            .per_row = true,
            .counted = true,
            .set = vocab_.max_tokens(rows, count),
            .downloads = rows * count};
}

bool ClusterHead::reserve(kernels::Backend& backend, int levels, int rows, int k) {
    for (int level = 0; level < levels; ++level)
        if (!vocab_.reserve(backend, rows, chosen_at(level), k)) return false;
    return router_.reserve(backend, rows);
}

void ClusterHead::propose(HeadCall& call) {
    choose(call);
    vocab_.propose(call, chosen_at(call.level), per_row_);
}

ActiveSet ClusteredVocab::active_set(const ClusterState* state, int level,
                                     std::vector<TokenId>& memory) const {
    const auto* seen = state == nullptr ? nullptr : state->levels.at(level);
    memory.clear();
    if (state != nullptr && seen == nullptr) return {};
    memory.resize(weights_.vocab);
    std::size_t count = 0;
    // Without branches, because clusters follow each other in no pattern.
    for (TokenId token = 0; token < weights_.vocab; ++token) {
        memory[count] = token;
        const std::size_t cluster =
            std::min<std::size_t>(static_cast<unsigned>(cluster_of_[token]), parts_.size());
        count += seen == nullptr ? cluster != parts_.size() : seen->chosen[cluster];
    }
    memory.resize(count);
    return {.ids = memory};
}

HeadCost ClusteredVocab::cost(const ClusterState* state, int level, double clusters) const {
    const double row_bytes = static_cast<double>(rows_.bytes()) / std::max(rows_.n(), 1);
    const double mean = clusters_ == 0 ? 0 : tokens_ / clusters_;
    HeadCost cost;
    cost.active_rows = std::min(clusters * mean, tokens_);
    cost.bytes = static_cast<std::uint64_t>(cost.active_rows * row_bytes);
    if (const auto* seen = state == nullptr ? nullptr : state->levels.at(level); seen != nullptr) {
        cost.active_rows = seen->active_rows;
        cost.row_tokens = seen->row_tokens;
        cost.bytes = seen->bytes;
    }
    cost.flops_per_row = 2.0 * cost.active_rows * rows_.k();
    return cost;
}

}  // namespace draftscope
