#include "engine/sequence/round_rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "engine/sequence/decode_context.h"
#include "engine/sequence/round.h"
#include "kernels/host_rows.h"

namespace draftscope {

std::vector<NodeRow> draft_rows(const DraftTree& tree) {
    std::vector<NodeRow> rows(tree.tokens.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].node = static_cast<int>(i);
        rows[i].parent = tree.parents[i];
        rows[i].depth = tree.depths[i];
        rows[i].token_id = tree.tokens[i];
        rows[i].draft_logprob = tree.logprobs[i];
        rows[i].cum_logprob = tree.cum_logprobs[i];
    }
    return rows;
}

std::vector<NodeRow> node_rows(const DecodeContext& core, const Round& round) {
    std::vector<NodeRow> rows = draft_rows(round.tree);
    for (NodeRow& row : rows) {
        const TargetSample& choice = round.choices[row.node];
        row.target_token_id = choice.token;
        row.target_token_prob = choice.prob;
        row.target_covered = round.sequence->active->covers(choice.token, row.depth);
        if (round.candidates != nullptr) round.candidates->set_rank(row);
        if (row.parent < 0) continue;
        const std::size_t at = round.first_row + row.node;
        row.target_prob = target_probability(round.choices[row.parent], core.options.sampling,
                                             core.target_results.logits[at]);
        row.target_rank = core.target_results.ranks[at];
    }
    // The i-th draft on the path is token i of the round, so a node is accepted if its token was committed.
    for (int i = 0; i <= round.accepted(); ++i) rows[round.acceptance.path[i]].accepted = true;
    return rows;
}

void find_top_tokens(const DecodeContext& core, const Round& round, std::span<const int> nodes, int k,
                     std::vector<TokenId>& ids) {
    const LogitsResult& results = core.target_results;
    assert(k <= results.best);
    ids.clear();
    for (const int node : nodes) {
        const auto first = results.best_ids.begin() +
                           static_cast<std::ptrdiff_t>(numel(round.first_row + node, results.best));
        ids.insert(ids.end(), first, first + k);
    }
}

PromptTopTokens find_prompt_top_tokens(const DecodeContext& core, int k) {
    constexpr int chunk = 32;  // rows of logits computed together
    PromptTopTokens best;
    if (k == 0) return best;
    const kernels::Matrix& lm_head = core.target.lm_head();
    const Rows<const float> hidden(core.forward.hidden.data(), core.forward.rows, lm_head.k());
    best.ids.resize(numel(hidden.rows, k));
    std::vector<float> logits(numel(std::min(chunk, hidden.rows), lm_head.n()));
    std::vector<float> values(numel(chunk, k));
    for (int first = 0; first < hidden.rows; first += chunk) {
        const int rows = std::min(chunk, hidden.rows - first);
        kernels::matmul(core.backend.pool(), lm_head, hidden.slice(first, rows),
                        Rows<float>(logits.data(), rows, lm_head.n()));
        kernels::topk(core.backend.pool(), Rows<const float>(logits.data(), rows, core.vocab, lm_head.n()), k,
                      Rows<std::int32_t>(best.ids.data() + static_cast<std::ptrdiff_t>(first) * k, rows, k),
                      Rows<float>(values.data(), rows, k));
        best.bytes += lm_head.bytes();
    }
    return best;
}

std::vector<NodeTopRow> top_rows(const DecodeContext& core, const Round& round, int k) {
    const LogitsResult& results = core.target_results;
    std::vector<NodeTopRow> rows;
    rows.reserve(round.acceptance.path.size() * k);
    for (const int node : round.acceptance.path) {
        const std::size_t first = numel(round.first_row + node, results.best);
        for (int rank = 0; rank < k; ++rank)
            rows.push_back({0, node, rank, results.best_ids[first + rank],
                            target_probability(round.choices[node], core.options.sampling,
                                               results.best_logits[first + rank])});
    }
    return rows;
}

std::vector<TokenRow> token_rows(const DecodeContext& core, const Round& round) {
    const Sequence& sequence = *round.sequence;
    std::vector<TokenRow> rows;
    rows.reserve(round.emitted.size());
    const int drafts = static_cast<int>(round.acceptance.path.size()) - 1;
    for (int i = 0; i < static_cast<int>(round.emitted.size()); ++i) {
        TokenRow& row = rows.emplace_back();
        row.prompt_id = sequence.row.id;
        row.position = sequence.generated() + i;
        row.token_id = round.emitted[i];
        row.source = i < drafts ? TokenSource::draft : TokenSource::bonus;
        row.depth = i + 1;
        row.rank = core.records.rank(row.token_id);
        row.covered = sequence.active->covers(row.token_id, i);
    }
    return rows;
}

HeadEvalRow head_row(const LmHead& head, std::span<const DraftJob> jobs, std::size_t index, std::string text,
                     HeadMode mode) {
    HeadEvalRow row;
    row.head = std::move(text);
    row.mode = mode;
    const DraftJob& job = jobs[index];
    double active = 0, tokens = 0, bytes = 0, flops = 0;
    for (std::size_t level = 0; level < job.rows_per_call.size(); ++level) {
        int rows = 0, sharing = 0;
        for (const DraftJob& other : jobs) {
            if (other.rows_per_call.size() <= level) continue;
            rows += other.rows_per_call[level];
            ++sharing;
        }
        const bool shared = job.head_state == nullptr;
        const HeadCost cost =
            head.cost_at(job.head_state, shared ? rows : job.rows_per_call[level], static_cast<int>(level));
        active += cost.active_rows;
        tokens += cost.row_tokens.value_or(cost.active_rows);
        bytes += static_cast<double>(cost.bytes) / (shared ? sharing : 1);
        flops += cost.flops_per_row * job.rows_per_call[level];
    }
    if (const auto calls = static_cast<double>(job.rows_per_call.size()); calls > 0) {
        row.active_rows = active / calls;
        row.row_tokens = tokens / calls;
    }
    row.bytes = std::llround(bytes);
    row.flops = std::llround(flops);
    return row;
}

double covered_mass(const DecodeContext& core, const Round& round) {
    const std::size_t first = numel(round.tree_index, core.target_results.width);
    const std::size_t nodes = round.nodes_with_token();
    double sum = 0;
    for (std::size_t i = 0; i < nodes; ++i) {
        const bool restricted = round.sequence->active->restricted_ids(static_cast<int>(i)) != nullptr;
        sum +=
            restricted ? std::min(static_cast<double>(core.target_results.set_probs[first + i]), 1.0) : 1.0;
    }
    return nodes == 0 ? 0.0 : sum / static_cast<double>(nodes);
}

}  // namespace draftscope
