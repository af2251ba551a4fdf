#include "capture/rejections.h"

#include <algorithm>
#include <map>

#include "capture/queries.h"
#include "capture/run_setting.h"

namespace draftscope {
namespace {

constexpr int position_bin = 64;  // tokens; our default

/// Returns how a round's tree stopped, or nothing if the target's token after it is not known.
std::optional<RoundEnding> ending_of(const RoundRow& round, const std::vector<NodeRow>& nodes,
                                     bool imported) {
    const NodeRow* last = nullptr;
    for (const NodeRow& node : nodes)
        if ((node.accepted || node.depth == 0) && (last == nullptr || node.depth > last->depth)) last = &node;
    if (last == nullptr || last->target_token_id == no_token) return std::nullopt;
    // The candidates behind the drafted nodes of an imported round are no drafts.
    const auto drafted = [&](const NodeRow& node) {
        return node.depth > 0 && (!imported || round.draft_tokens < 0 || node.node <= round.draft_tokens);
    };
    bool any = false, children = false, same = false;
    int depth = 0;
    for (const NodeRow& node : nodes) {
        if (!drafted(node)) continue;
        any = true;
        depth = std::max(depth, node.depth);
        if (node.parent != last->node) continue;
        children = true;
        same = same || node.token_id == last->target_token_id;
    }
    RoundEnding out;
    out.depth = last->depth + 1;
    out.token_id = last->target_token_id;
    out.token_prob = last->target_token_prob;
    out.draft_rank = last->target_draft_rank;
    using enum RoundStop;
    const RoundStop missed = !last->target_covered.value_or(true) ? outside_set
                             : !last->target_draft_rank           ? other_drafted
                             : last->target_draft_logprob         ? pruned
                                                                  : no_candidate;
    out.stop = round.clipped || same                   ? text_ended
               : !any                                  ? nothing_drafted
               : !children && last->depth >= depth     ? all_accepted
               : !children && !last->target_draft_rank ? not_expanded
                                                       : missed;
    return out;
}

}  // namespace

std::string_view to_text(RoundStop stop) {
    static constexpr std::string_view texts[] = {
        "outside the active set", "not among the candidates", "drafted and pruned", "another token drafted",
        "node not expanded",      "whole draft accepted",     "nothing drafted",    "text ended"};
    return texts[static_cast<std::size_t>(stop)];
}

std::int64_t StopCounts::all() const {
    std::int64_t sum = 0;
    for (const std::int64_t one : rounds) sum += one;
    return sum;
}

std::optional<RoundEnding> round_ending(const Snapshot& snapshot, std::size_t round) {
    const RoundEntry& entry = snapshot.rounds[round];
    const RunRow* run = snapshot.run(entry.row.run_id);
    std::vector<NodeRow> nodes;
    if (snapshot.stored != nullptr)
        nodes = snapshot.tree(round)->nodes;
    else
        for (std::uint32_t n = 0; n < entry.nodes.count; ++n)
            nodes.push_back(snapshot.nodes[entry.nodes.first + n]);
    auto ending = ending_of(entry.row, nodes, run != nullptr && run->acceptance == imported_acceptance);
    if (ending) ending->round = round;
    return ending;
}

std::vector<RoundEnding> round_endings(const Snapshot& snapshot, RowId run_id, std::size_t max_stored) {
    std::vector<RoundEnding> out;
    std::size_t read = 0;
    for (std::size_t r = 0; r < snapshot.rounds.size(); ++r) {
        if (snapshot.rounds[r].row.run_id != run_id) continue;
        if (snapshot.stored != nullptr && ++read > max_stored) break;
        if (const auto ending = round_ending(snapshot, r)) out.push_back(*ending);
    }
    return out;
}

RejectionSummary summarise_rejections(const Snapshot& snapshot, RowId run_id) {
    RejectionSummary out;
    std::map<int, StopCounts> depths, positions;
    std::map<std::string, StopCounts> categories;
    std::map<TokenId, MissedToken> missed;
    const std::vector<RoundEnding> endings = round_endings(snapshot, run_id);
    for (const RoundEnding& one : endings) {
        const RoundRow& round = snapshot.rounds[one.round].row;
        const PromptRow* prompt = snapshot.prompt(round.prompt_id);
        const auto stop = static_cast<std::size_t>(one.stop);
        const int before = prompt == nullptr ? 0 : std::max(0, round.context_length - prompt->prompt_tokens);
        ++out.all.rounds[stop];
        ++depths[one.depth].rounds[stop];
        ++positions[before / position_bin * position_bin].rounds[stop];
        ++categories[prompt == nullptr ? "" : prompt->category].rounds[stop];
        if (!is_rejection(one.stop)) continue;
        MissedToken& token = missed[one.token_id];
        if (token.rounds == 0) token.token_id = one.token_id, token.first_round = one.round;
        ++token.rounds;
        token.outside_set += one.stop == RoundStop::outside_set ? 1 : 0;
        if (one.stop == RoundStop::pruned) ++token.pruned, token.rank_sum += *one.draft_rank;
    }
    const auto list = [](auto& from, std::vector<StopCounts>& to, auto label) {
        for (auto& [key, counts] : from) {
            counts.label = label(key);
            to.push_back(std::move(counts));
        }
    };
    const auto number = [](int value) { return std::to_string(value); };
    out.all.label = "all";
    list(depths, out.by_depth, number);
    list(positions, out.by_position, number);
    list(categories, out.by_category, [](const std::string& name) { return name.empty() ? "-" : name; });
    for (const auto& [id, token] : missed) out.missed.push_back(token);
    std::ranges::stable_sort(out.missed, std::greater(), &MissedToken::rounds);
    std::size_t rounds = 0;
    for (const RoundEntry& entry : snapshot.rounds) rounds += entry.row.run_id == run_id ? 1 : 0;
    out.left_out = rounds - endings.size();
    return out;
}

}  // namespace draftscope
