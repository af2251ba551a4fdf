#include "engine/record/round_rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/numel.h"
#include "kernels/matmul.h"
#include "kernels/ranks.h"
#include "kernels/topk.h"

namespace draftscope {
namespace {

/// Computes the ranks that `best` does not give, with one pass over the parent's logits for all siblings.
void count_ranks(kernels::Exec& exec, Rows<const float> logits, RowScratch& wanted,
                 std::vector<NodeRow>& rows) {
    std::sort(wanted.nodes.begin(), wanted.nodes.end(), [&](std::size_t a, std::size_t b) {
        return rows[a].parent != rows[b].parent ? rows[a].parent < rows[b].parent : a < b;
    });
    wanted.rows.clear();
    wanted.columns.clear();
    for (const std::size_t node : wanted.nodes) {
        wanted.rows.push_back(rows[node].parent);
        wanted.columns.push_back(rows[node].token_id);
    }
    wanted.ranks.resize(wanted.nodes.size());
    kernels::token_ranks(exec, logits, wanted.rows, wanted.columns, wanted.ranks);
    for (std::size_t i = 0; i < wanted.ranks.size(); ++i) rows[wanted.nodes[i]].target_rank = wanted.ranks[i];
}

float top_token_logit(const RoundOutcome& outcome, int node, int rank, TokenId token) {
    if (outcome.device_result == nullptr) return outcome.logits.row_data(node)[token];
    const LogitsResult& answers = *outcome.device_result;
    const std::size_t row = outcome.first_row + node;
    return answers.best_logits[row * answers.best + rank];
}

}  // namespace

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

std::vector<NodeRow> node_rows(kernels::Exec& exec, const RoundOutcome& outcome, const DraftVocab& active,
                               std::span<const TokenId> best, RowScratch& scratch) {
    std::vector<NodeRow> rows = draft_rows(outcome.tree);
    const std::size_t width = outcome.path.empty() ? 0 : best.size() / outcome.path.size();
    const auto known_rank = [&](int parent, TokenId token) -> std::optional<int> {
        if (outcome.sampling.temperature <= 0 && outcome.choices[parent].token == token) return 0;
        const auto on_path = std::find(outcome.path.begin(), outcome.path.end(), parent);
        if (on_path == outcome.path.end()) return std::nullopt;
        const auto known = best.subspan(numel(on_path - outcome.path.begin(), width), width);
        const auto found = std::find(known.begin(), known.end(), token);
        if (found == known.end()) return std::nullopt;
        return static_cast<int>(found - known.begin());
    };
    scratch.nodes.clear();
    const auto fill_child = [&](std::size_t i) {
        NodeRow& row = rows[i];
        const TargetSample& parent = outcome.choices[row.parent];
        if (outcome.device_result != nullptr) {
            const std::size_t at = outcome.first_row + row.node;
            row.target_prob = target_probability(parent, outcome.sampling, outcome.device_result->logits[at]);
            row.target_rank = outcome.device_result->ranks[at];
            return;
        }
        const std::span<const float> logits = outcome.logits.row(row.parent);
        row.target_prob = target_probability(parent, outcome.sampling, logits[row.token_id]);
        row.target_rank = known_rank(row.parent, row.token_id);
        if (!row.target_rank) scratch.nodes.push_back(i);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        NodeRow& row = rows[i];
        const TargetSample& own = outcome.choices[i];
        row.target_token_id = own.token;
        row.target_token_prob = own.prob;
        row.target_covered = active.covers(own.token, row.depth);
        if (row.parent >= 0) fill_child(i);
    }
    if (!scratch.nodes.empty()) count_ranks(exec, outcome.logits, scratch, rows);
    // The i-th draft on the path is token i of the round, so a node is accepted if its token was committed.
    const std::size_t kept = std::min(outcome.path.size(), outcome.emitted.size() + 1);
    for (std::size_t i = 0; i < kept; ++i) rows[outcome.path[i]].accepted = true;
    return rows;
}

void find_top_tokens(kernels::Exec& exec, const RoundOutcome& outcome, std::span<const int> nodes, int k,
                     RowScratch& scratch, std::vector<TokenId>& ids) {
    const std::size_t width = k;
    ids.resize(nodes.size() * width);
    if (outcome.device_result != nullptr) {
        const LogitsResult& answers = *outcome.device_result;
        assert(k <= answers.best);
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const std::size_t row = outcome.first_row + nodes[i];
            std::copy_n(answers.best_ids.data() + row * answers.best, width, ids.data() + i * width);
        }
        return;
    }
    scratch.logits.resize(width);
    for (std::size_t i = 0; i < nodes.size(); ++i)
        kernels::topk(exec, outcome.logits.slice(nodes[i], 1), k,
                      Rows<std::int32_t>(ids.data() + i * width, 1, k),
                      Rows<float>(scratch.logits.data(), 1, k));
}

PromptTopTokens find_prompt_top_tokens(kernels::Exec& exec, const kernels::Matrix& lm_head,
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
        kernels::matmul(exec, lm_head, hidden.slice(first, rows),
                        Rows<float>(logits.data(), rows, lm_head.n()));
        kernels::topk(exec, Rows<const float>(logits.data(), rows, vocab, lm_head.n()), k,
                      Rows<std::int32_t>(best.ids.data() + static_cast<std::ptrdiff_t>(first) * k, rows, k),
                      Rows<float>(values.data(), rows, k));
        best.bytes += lm_head.bytes();
    }
    return best;
}

std::vector<NodeTopRow> top_rows(const RoundOutcome& outcome, std::span<const TokenId> best, int k) {
    std::vector<NodeTopRow> rows;
    rows.reserve(outcome.path.size() * k);
    const std::size_t width = outcome.path.empty() ? 0 : best.size() / outcome.path.size();
    for (std::size_t i = 0; i < outcome.path.size(); ++i) {
        const int node = outcome.path[i];
        for (int r = 0; r < k; ++r) {
            const TokenId token = best[i * width + r];
            rows.push_back({0, node, r, token,
                            target_probability(outcome.choices[node], outcome.sampling,
                                               top_token_logit(outcome, node, r, token))});
        }
    }
    return rows;
}

std::vector<TokenRow> token_rows(const RoundOutcome& outcome, const DraftVocab& active, RowId prompt_id,
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
    double active = 0, bytes = 0;
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
        bytes += static_cast<double>(cost.bytes) / (shared ? sharing : 1);
    }
    if (!job.rows_per_call.empty()) row.active_rows = active / static_cast<double>(job.rows_per_call.size());
    row.bytes = std::llround(bytes);
    return row;
}

double covered_mass(const kernels::Exec& exec, const RoundOutcome& outcome, DraftVocab& active) {
    const std::size_t nodes = std::min(outcome.path.size(), outcome.emitted.size());
    double sum = 0;
    for (std::size_t i = 0; i < nodes; ++i) {
        const int node = outcome.path[i];
        if (outcome.device_result != nullptr) {
            const auto level = static_cast<int>(i);
            const float covered_prob = outcome.device_result->masses[outcome.first_row + node];
            sum += active.restricted_ids(level) == nullptr ? 1.0
                                                           : std::min(static_cast<double>(covered_prob), 1.0);
            continue;
        }
        sum += active.covered_prob(exec, outcome.logits.row_data(node), outcome.choices[node],
                                   outcome.sampling, static_cast<int>(i));
    }
    return nodes == 0 ? 0.0 : sum / static_cast<double>(nodes);
}

std::optional<int> frequency_rank(const std::vector<std::optional<int>>* ranks, TokenId token) {
    if (ranks == nullptr || token < 0 || static_cast<std::size_t>(token) >= ranks->size())
        return std::nullopt;
    return (*ranks)[token];
}

}  // namespace draftscope
