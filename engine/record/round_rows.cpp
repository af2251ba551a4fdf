#include "engine/record/round_rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "kernels/host_rows.h"

namespace draftscope {

void set_ids(RoundRecord& record, RowId run, RowId step, RowId round) {
    record.round.id = round;
    record.round.run_id = run;
    record.round.step_id = step;
    for (NodeRow& row : record.nodes) row.round_id = round;
    for (NodeTopRow& row : record.tops) row.round_id = round;
    for (TokenRow& row : record.tokens) row.round_id = round;
    for (HeadEvalRow& row : record.head_evals) {
        row.run_id = run;
        row.round_id = round;
    }
}

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

std::vector<NodeRow> node_rows(const RoundOutcome& outcome, DraftVocab& active) {
    std::vector<NodeRow> rows = draft_rows(outcome.tree);
    for (NodeRow& row : rows) {
        const TargetSample& own = outcome.choices[row.node];
        row.target_token_id = own.token;
        row.target_token_prob = own.prob;
        row.target_covered = active.covers(own.token, row.depth);
        if (row.parent < 0) continue;
        const std::size_t at = outcome.first_row + row.node;
        row.target_prob =
            target_probability(outcome.choices[row.parent], outcome.sampling, outcome.answers.logits[at]);
        row.target_rank = outcome.answers.ranks[at];
    }
    // The i-th draft on the path is token i of the round, so a node is accepted if its token was committed.
    const std::size_t kept = std::min(outcome.path.size(), outcome.emitted.size() + 1);
    for (std::size_t i = 0; i < kept; ++i) rows[outcome.path[i]].accepted = true;
    return rows;
}

void find_top_tokens(const RoundOutcome& outcome, std::span<const int> nodes, int k,
                     std::vector<TokenId>& ids) {
    const LogitsResult& answers = outcome.answers;
    assert(k <= answers.best);
    ids.clear();
    for (const int node : nodes) {
        const auto first = answers.best_ids.begin() +
                           static_cast<std::ptrdiff_t>(numel(outcome.first_row + node, answers.best));
        ids.insert(ids.end(), first, first + k);
    }
}

PromptTopTokens find_prompt_top_tokens(kernels::Backend& backend, const kernels::Matrix& lm_head,
                                       const ForwardOutput& prefill, int vocab, int k) {
    constexpr int chunk = 32;  // rows of logits computed together
    PromptTopTokens best;
    if (k == 0) return best;
    best.k = k;
    best.ids.resize(numel(prefill.rows, k));
    std::vector<float> logits(numel(std::min(chunk, prefill.rows), lm_head.n()));
    std::vector<float> values(numel(chunk, k));
    const Rows<const float> hidden(prefill.hidden.data(), prefill.rows, lm_head.k());
    for (int first = 0; first < prefill.rows; first += chunk) {
        const int rows = std::min(chunk, prefill.rows - first);
        kernels::matmul(backend.pool(), lm_head, hidden.slice(first, rows),
                        Rows<float>(logits.data(), rows, lm_head.n()));
        kernels::topk(backend.pool(), Rows<const float>(logits.data(), rows, vocab, lm_head.n()), k,
                      Rows<std::int32_t>(best.ids.data() + static_cast<std::ptrdiff_t>(first) * k, rows, k),
                      Rows<float>(values.data(), rows, k));
        best.bytes += lm_head.bytes();
    }
    return best;
}

std::vector<NodeTopRow> top_rows(const RoundOutcome& outcome, int k) {
    const LogitsResult& answers = outcome.answers;
    std::vector<NodeTopRow> rows;
    rows.reserve(outcome.path.size() * k);
    for (const int node : outcome.path) {
        const std::size_t first = numel(outcome.first_row + node, answers.best);
        for (int rank = 0; rank < k; ++rank)
            rows.push_back({0, node, rank, answers.best_ids[first + rank],
                            target_probability(outcome.choices[node], outcome.sampling,
                                               answers.best_logits[first + rank])});
    }
    return rows;
}

std::vector<TokenRow> token_rows(const RoundOutcome& outcome, DraftVocab& active, RowId prompt_id,
                                 int first_position, const std::vector<std::optional<int>>* ranks) {
    std::vector<TokenRow> rows;
    rows.reserve(outcome.emitted.size());
    const int drafts = static_cast<int>(outcome.path.size()) - 1;
    for (int i = 0; i < static_cast<int>(outcome.emitted.size()); ++i) {
        TokenRow row;
        row.prompt_id = prompt_id;
        row.position = first_position + i;
        row.token_id = outcome.emitted[i];
        row.source = i < drafts ? TokenSource::draft : TokenSource::bonus;
        row.depth = i + 1;
        row.rank = frequency_rank(ranks, row.token_id);
        row.covered = active.covers(row.token_id, i);
        rows.push_back(row);
    }
    return rows;
}

HeadEvalRow head_row(const LmHead& head, std::span<const DraftJob> jobs, std::size_t index, std::string text,
                     HeadMode mode) {
    HeadEvalRow row;
    row.head = std::move(text);
    row.mode = mode;
    const DraftJob& job = jobs[index];
    double active = 0, own = 0, bytes = 0, flops = 0;
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
        own += cost.row_tokens.value_or(cost.active_rows);
        bytes += static_cast<double>(cost.bytes) / (shared ? sharing : 1);
        flops += cost.flops_per_row * job.rows_per_call[level];
    }
    if (const auto calls = static_cast<double>(job.rows_per_call.size()); calls > 0) {
        row.active_rows = active / calls;
        row.row_tokens = own / calls;
    }
    row.bytes = std::llround(bytes);
    row.flops = std::llround(flops);
    return row;
}

double covered_mass(const RoundOutcome& outcome, DraftVocab& active) {
    const LogitsResult& answers = outcome.answers;
    const std::size_t nodes = std::min(outcome.path.size(), outcome.emitted.size());
    double sum = 0;
    for (std::size_t i = 0; i < nodes; ++i) {
        const bool restricted = active.restricted_ids(static_cast<int>(i)) != nullptr;
        sum +=
            restricted
                ? std::min(static_cast<double>(answers.masses[numel(outcome.index, answers.width) + i]), 1.0)
                : 1.0;
    }
    return nodes == 0 ? 0.0 : sum / static_cast<double>(nodes);
}

std::optional<int> frequency_rank(const std::vector<std::optional<int>>* ranks, TokenId token) {
    if (ranks == nullptr || token < 0 || static_cast<std::size_t>(token) >= ranks->size())
        return std::nullopt;
    return (*ranks)[token];
}

}  // namespace draftscope
