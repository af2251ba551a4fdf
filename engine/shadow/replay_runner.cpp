#include "engine/shadow/replay_runner.h"

#include <algorithm>

#include "engine/heads/oracle.h"
#include "engine/sequence/round_rows.h"
#include "engine/verify/tree_path.h"

namespace draftscope {
namespace {

constexpr int max_known = 1 << 16;  // limit for the best tokens: all that the text has

/// The text's best tokens at rows [first, first + rows), k of each or as many as it has.
std::vector<TokenId> best_of_rows(const ReferenceText& text, int first, int rows, int k) {
    std::vector<TokenId> best;
    for (int row = first; k > 0 && row < first + rows; ++row) {
        const std::vector<TokenId> ids = text.best(row, k);
        best.insert(best.end(), ids.begin(), ids.end());
    }
    return best;
}

}  // namespace

Status ReplayRunner::check(const LmHead& head, int known) {
    if (head.target_tokens().at_prompt > known || head.target_tokens().at_verified > known)
        return bad_input("it needs the target's {} best tokens per position, but a recording holds {}",
                         std::max(head.target_tokens().at_prompt, head.target_tokens().at_verified), known);
    return {};
}

void ReplayRunner::begin(ReplayCursor& cursor) const {
    cursor.prefix = cursor.text.prompt_tokens + 1;
    cursor.job.reset();
    cursor.lengths = DraftLengths(tree_);
    if (head_ == nullptr) return;
    const int k = std::min(head_->target_tokens().at_prompt, vocab_);
    const std::vector<TokenId> best = best_of_rows(cursor.text, 0, cursor.text.prompt_tokens, k);
    cursor.head =
        head_->begin_prompt(cursor.text.tokens.first(cursor.text.prompt_tokens),
                            Rows<const TokenId>(best.data(), k == 0 ? 0 : cursor.text.prompt_tokens, k));
}

Status ReplayRunner::draft(std::span<ReplayCursor* const> cursors, Features features) {
    std::vector<DraftJob> jobs;
    std::vector<std::size_t> indices;  // of the jobs' cursors
    for (std::size_t i = 0; i < cursors.size(); ++i) {
        ReplayCursor& cursor = *cursors[i];
        DraftJob job;
        job.sequence = static_cast<int>(jobs.size());
        job.tokens = cursor.text.tokens.first(cursor.prefix);
        job.state = cursor.drafter;
        job.head_state = cursor.head.get();
        const int levels = drafting_.drafter().limit_levels(context_ - cursor.prefix - 1, cursor.prefix);
        job.tree = cursor.lengths.next(tree_, levels);
        if (levels < 1 || tree_.nodes <= 1) {
            job.out = DraftTree::with_root(job.tokens.back());
            cursor.job = std::move(job);
            continue;
        }
        if (needs_future_) load_future(cursor);
        indices.push_back(i);
        jobs.push_back(std::move(job));
    }
    if (jobs.empty()) return {};
    for (std::size_t j = 0; j < jobs.size(); ++j) DS_TRY(features(indices[j], jobs[j]));
    for (PhaseRecorder* phases : {&phases_, measured_}) {
        if (phases == nullptr) continue;
        DraftContext context{backend_, *phases, head_, tree_, nullptr};
        context.keep_candidates = keeps_candidates_;
        DS_TRY(drafting_.draft(context, jobs));
    }
    for (std::size_t j = 0; j < jobs.size(); ++j) cursors[indices[j]]->job = std::move(jobs[j]);
    return {};
}

/// A draft at level l predicts the token after token prefix - 1 + l of the text. The bonus needs one more
/// level.
void ReplayRunner::load_future(ReplayCursor& cursor) const {
    const int known = static_cast<int>(cursor.text.tokens.size());
    const int levels = std::clamp(known - cursor.prefix, 0, tree_.levels() + 1);
    const std::vector<TokenId> best = best_of_rows(cursor.text, cursor.prefix - 1, levels, max_known);
    const int k = levels == 0 ? 0 : static_cast<int>(best.size()) / levels;
    set_future_tokens(*cursor.head, Rows<const TokenId>(best.data(), levels, k));
}

std::optional<HeadRound> ReplayRunner::evaluate(ReplayCursor& cursor) const {
    if (!cursor.job) return std::nullopt;
    const DraftTree& tree = cursor.job->out;
    const auto rest = cursor.text.tokens.subspan(cursor.prefix);
    const std::vector<int> path = follow_path(tree, rest);
    const bool decided = path.size() <= rest.size();  // the text leaves the tree
    if (!decided && !cursor.text.ended) return std::nullopt;
    HeadRound round;
    round.prefix = cursor.prefix;
    round.tree_nodes = tree.size();
    round.tree_depth = tree.max_depth();
    round.accepted = static_cast<int>(path.size()) - 1;
    round.committed = std::min(round.accepted + 1, static_cast<int>(rest.size()));
    round.clipped = !decided;
    round.covered = round.committed;
    if (head_ != nullptr) {
        round.covered = 0;
        double covered_prob = 0;
        for (int i = 0; i < round.committed; ++i) {
            const ActiveSet active = head_->active_set(cursor.head.get(), i, cursor.active_memory);
            round.covered += active.has(rest[i]) ? 1 : 0;
            if (cursor.text.covered_prob)
                covered_prob += cursor.text.covered_prob(cursor.prefix - 1 + i, active, i);
        }
        if (cursor.text.covered_prob && round.committed > 0)
            round.covered_mass = covered_prob / round.committed;
        const HeadEvalRow cost = head_row(*head_, {&*cursor.job, 1}, 0, {}, HeadMode::selfpaced);
        round.active_rows = cost.active_rows;
        round.row_tokens = cost.row_tokens.value_or(0);
        round.bytes = static_cast<std::uint64_t>(cost.bytes);
        round.flops = static_cast<double>(cost.flops);
        if (decided) {
            const int k = std::min(head_->target_tokens().at_verified, vocab_);
            const std::vector<TokenId> best =
                best_of_rows(cursor.text, cursor.prefix - 1, static_cast<int>(path.size()), k);
            head_->on_verified(cursor.head.get(), tree, {path, rest[path.size() - 1], best, k});
        }
    }
    round.drafter = cursor.job->drafter;
    if (!cursor.job->own_length) cursor.lengths.update(round.tree_nodes - 1, round.accepted);
    cursor.prefix += round.committed;
    cursor.job.reset();
    return round;
}

}  // namespace draftscope
