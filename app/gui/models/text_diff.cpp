#include "app/gui/models/text_diff.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/gui/models/text.h"
#include "base/format_count.h"
#include "capture/queries.h"
#include "stats/compare_pairs.h"

namespace draftscope {
namespace {

/// Returns the text of each generated token.
std::vector<TextPiece> output_pieces(const Snapshot& snapshot, RowId prompt_id) {
    std::vector<TextPiece> pieces = build_text(snapshot, prompt_id).pieces;
    std::erase_if(pieces, &TextPiece::is_prompt);
    return pieces;
}

/// Puts marks around a changed part, in which line ends are visible.
std::string marked(const std::string& text, DiffSide side) {
    if (side == DiffSide::both) return text;
    std::string out = side == DiffSide::only_a ? "[-" : "{+";
    for (const char c : text) out += c == '\n' ? std::string("⏎\n") : std::string(1, c);
    return out + (side == DiffSide::only_a ? "-]" : "+}");
}

}  // namespace

RunDiff diff_runs(const Snapshot& a, RowId run_a, const Snapshot& b, RowId run_b) {
    PromptPairs found = pair_prompts(a, std::vector{run_a}, b, std::vector{run_b});
    RunDiff out;
    std::int64_t differing = 0, unknown = 0;
    for (PromptPair& pair : found.pairs) {
        if (pair.a.tokens.empty() || pair.b.tokens.empty()) {
            ++unknown;
            continue;
        }
        PromptDiff diff{pair.a.prompt->id, pair.b.prompt->id, std::move(pair.a.tokens),
                        std::move(pair.b.tokens), std::nullopt};
        const auto at = std::ranges::mismatch(diff.tokens_a, diff.tokens_b);
        if (at.in1 != diff.tokens_a.end() || at.in2 != diff.tokens_b.end())
            diff.first = static_cast<int>(at.in1 - diff.tokens_a.begin());
        differing += diff.first ? 1 : 0;
        out.prompts.push_back(std::move(diff));
    }
    std::ranges::sort(out.prompts, {}, &PromptDiff::prompt_a);
    const std::string all = format_count(static_cast<std::int64_t>(out.prompts.size()), "prompt");
    out.headline = differing > 0 ? fmt::format("the outputs of {} of {} differ", differing, all)
                                 : fmt::format("the outputs of {} agree", all);
    for (const auto& [count, what] : {std::pair<std::size_t, const char*>{found.only_a, "only in A"},
                                      {found.only_b, "only in B"},
                                      {unknown, "without token ids"}})
        if (count > 0) out.headline += fmt::format("; {}: {}", what, count);
    return out;
}

std::optional<int> first_position(const Snapshot& snapshot, RowId round_id) {
    const auto round = round_index(snapshot, round_id);
    if (!round) return std::nullopt;
    const RowRange tokens = snapshot.rounds[*round].tokens;
    std::optional<int> first;
    for (std::uint32_t t = tokens.first; t < tokens.first + tokens.count; ++t)
        if (!first || snapshot.tokens[t].position < *first) first = snapshot.tokens[t].position;
    return first;
}

std::optional<std::size_t> round_at_position(const Snapshot& snapshot, RowId prompt_id, int position) {
    const TokenRow* found = nullptr;
    for (const TokenRow& token : snapshot.tokens)
        if (token.prompt_id == prompt_id && token.round_id != 0 && token.position >= position &&
            (found == nullptr || token.position < found->position))
            found = &token;
    return found == nullptr ? std::nullopt : round_index(snapshot, found->round_id);
}

std::vector<DiffToken> diff_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
    constexpr std::size_t max_cells = 4'000'000;
    const auto first = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    std::size_t end_a = a.size(), end_b = b.size();
    while (end_a > first && end_b > first && a[end_a - 1] == b[end_b - 1]) --end_a, --end_b;
    const std::size_t width = end_b - first + 1, cells = (end_a - first + 1) * width;
    // Of each pair of places, how many tokens both changed parts have in common from there on.
    std::vector<std::uint16_t> common(cells <= max_cells ? cells : 0);
    const auto at = [&](std::size_t i, std::size_t j) -> std::uint16_t& {
        return common[(i - first) * width + j - first];
    };
    for (std::size_t i = end_a; !common.empty() && i-- > first;)
        for (std::size_t j = end_b; j-- > first;)
            at(i, j) = a[i] == b[j] ? static_cast<std::uint16_t>(at(i + 1, j + 1) + 1)
                                    : std::max(at(i + 1, j), at(i, j + 1));
    std::vector<DiffToken> out;
    std::size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
        const bool changed = i >= first && (i < end_a || j < end_b);
        const bool searched = i < end_a && j < end_b && !common.empty();
        if (!changed || (searched && a[i] == b[j])) {
            out.push_back({DiffSide::both, i++});
            ++j;
        } else if (i < end_a && (!searched || at(i + 1, j) >= at(i, j + 1))) {
            out.push_back({DiffSide::only_a, i++});
        } else {
            out.push_back({DiffSide::only_b, j++});
        }
    }
    return out;
}

std::vector<DiffGroup> diff_texts(const Snapshot& a, const Snapshot& b, const PromptDiff& prompt) {
    const std::vector<TextPiece> of_a = output_pieces(a, prompt.prompt_a);
    const std::vector<TextPiece> of_b = output_pieces(b, prompt.prompt_b);
    std::vector<DiffGroup> groups;
    int at_a = 0, at_b = 0;
    for (const DiffToken& token : diff_tokens(prompt.tokens_a, prompt.tokens_b)) {
        if (groups.empty() || groups.back().side != token.side)
            groups.push_back({token.side, "", at_a, at_b});
        groups.back().text += (token.side == DiffSide::only_b ? of_b : of_a)[token.index].text;
        at_a += token.side != DiffSide::only_b ? 1 : 0;
        at_b += token.side != DiffSide::only_a ? 1 : 0;
    }
    for (DiffGroup& group : groups) group.text = marked(group.text, group.side);
    return groups;
}

}  // namespace draftscope
