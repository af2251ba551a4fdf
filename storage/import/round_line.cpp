// Reads and checks one round of `dsrounds`. Contradictions are refused; what is absent stays unknown.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/phase.h"
#include "storage/import/round_lines.h"

namespace draftscope::storage {

namespace {

constexpr std::int64_t max_time = std::int64_t{1} << 61;  ///< holds nanoseconds since 1970
constexpr std::int64_t max_duration = std::int64_t{1} << 53;
constexpr std::int64_t max_drafted = 1 << 16;
constexpr std::int64_t max_equal_rounds = 1'000'000;

int value_or_unknown(const std::optional<std::int64_t>& value) {
    return static_cast<int>(value.value_or(-1));
}

/// Reads the counts and compares them with one another.
void read_counts(RoundFields& fields, RoundLine& round) {
    const auto count = fields.integer("n", 1, max_equal_rounds);
    round.count = static_cast<int>(count.value_or(1));
    round.ordinal = value_or_unknown(fields.integer("i"));
    if (count && round.ordinal >= 0) fields.refuse("n", "a line of several rounds has no field i");
    round.context = value_or_unknown(fields.integer("ctx"));
    round.drafter = fields.text("by");
    round.drafted = value_or_unknown(fields.integer("d", 0, max_drafted));
    round.accepted = static_cast<int>(fields.integer("a", 0, max_drafted).value_or(0));
    const auto committed = fields.integer("c");
    round.committed = static_cast<int>(
        committed.value_or(round.out.empty() ? round.accepted + 1 : static_cast<int>(round.out.size())));
    if (round.drafted < 0 && fields.find("draft") != nullptr)
        round.drafted = static_cast<int>(round.draft.size());
    if (round.drafted >= 0 && round.accepted > round.drafted)
        fields.refuse("a", fmt::format("{} accepted of {} drafted (d)", round.accepted, round.drafted));
    if (round.committed > round.accepted + 1)
        fields.refuse("c", fmt::format("{} committed, but {} accepted (a) and the target's token are {}",
                                       round.committed, round.accepted, round.accepted + 1));
    if (!round.out.empty() && std::ssize(round.out) != round.committed)
        fields.refuse("out",
                      fmt::format("{} ids for {} committed tokens (c)", round.out.size(), round.committed));
    if (const auto limit = fields.integer("cap"); limit && round.drafted > *limit)
        fields.refuse("cap", fmt::format("{}, but {} were drafted (d)", *limit, round.drafted));
}

/// Refuses a list that has not one element for each drafted node.
template <typename List>
std::vector<List> per_node(RoundFields& fields, const char* key, std::optional<std::vector<List>> list,
                           std::size_t nodes) {
    if (!list) return {};
    if (list->size() != nodes)
        fields.refuse(key, fmt::format("{} elements for {} drafted ids (draft)", list->size(), nodes));
    return *std::move(list);
}

void read_parents(RoundFields& fields, RoundLine& round) {
    const std::size_t nodes = round.draft.size();
    round.parents.resize(nodes);
    std::iota(round.parents.begin(), round.parents.end(), -1);  // a chain
    if (const auto parents = fields.integers("par", -1)) {
        if (parents->size() != nodes)
            return fields.refuse(
                "par", fmt::format("{} elements for {} drafted ids (draft)", parents->size(), nodes));
        round.parents = *parents;
    }
    for (std::size_t i = 0; i < nodes; ++i) {
        if (round.parents[i] >= static_cast<int>(i))
            return fields.refuse(
                "par", fmt::format("node {} has parent {}; parents come first", i, round.parents[i]));
        round.depths.push_back(round.parents[i] < 0 ? 1 : round.depths[round.parents[i]] + 1);
    }
}

/// Follows the committed ids through the drafts. Without ids, the path of a chain is known.
void find_path(RoundFields& fields, RoundLine& round) {
    const bool chain = round.depth == static_cast<int>(round.draft.size());
    int last = -1;
    for (int i = 0; i < round.accepted; ++i) {
        const bool known = i < static_cast<int>(round.out.size());
        if (!known && !chain) return;
        int next = -1;
        for (std::size_t node = 0; node < round.draft.size() && next < 0; ++node)
            if (round.parents[node] == last && (!known || round.draft[node] == round.out[i]))
                next = static_cast<int>(node);
        if (next < 0)
            return fields.refuse("out",
                                 fmt::format("no drafted id (draft) is {}, which was accepted at depth {}",
                                             known ? round.out[i] : no_token, i + 1));
        round.path.push_back(last = next);
    }
}

void read_draft(RoundFields& fields, RoundLine& round) {
    if (round.draft.empty()) {
        round.depth = round.drafted == 0 ? 0 : -1;
        return;
    }
    const std::size_t nodes = round.draft.size();
    if (static_cast<int>(nodes) != round.drafted)
        fields.refuse("draft", fmt::format("{} ids for {} drafted tokens (d)", nodes, round.drafted));
    read_parents(fields, round);
    if (!fields.problem().empty()) return;
    round.depth = *std::max_element(round.depths.begin(), round.depths.end());
    if (round.accepted > round.depth)
        fields.refuse("a", fmt::format("{} accepted in a draft of depth {}", round.accepted, round.depth));
    round.logprobs = per_node(fields, "lp", fields.logprobs("lp"), nodes);
    round.target_logprobs = per_node(fields, "tlp", fields.logprobs("tlp"), nodes);
    round.target_ranks = per_node(fields, "trank", fields.integers("trank", -1), nodes);
    find_path(fields, round);
}

void read_alternatives(RoundFields& fields, RoundLine& round, int vocab_size) {
    const Json* top = fields.find("top");
    if (top == nullptr) return;
    for (std::size_t place = 0; top->is_array() && place < top->size(); ++place) {
        auto& best = round.alternatives.emplace_back();
        for (const Json& pair : (*top)[place]) {
            const bool ok = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                            pair[0] >= 0 && pair[0] < vocab_size && pair[1].is_number() && pair[1] <= 0.0;
            if (!ok) return fields.refuse(fmt::format("top[{}]", place), "expected pairs of id and log-prob");
            best.emplace_back(pair[0].get<int>(), pair[1].get<float>());
        }
    }
}

void read_times(RoundFields& fields, RoundLine& round) {
    static const std::map<std::string_view, Phase> names = {{"draft", Phase::backbone},
                                                            {"head", Phase::head},
                                                            {"verify", Phase::verify},
                                                            {"accept", Phase::accept}};
    round.start = fields.integer("t0", 0, max_time);
    round.duration = fields.integer("dt", 0, max_duration);
    const Json* phases = fields.find("ph");
    if (phases == nullptr || !round.duration) return;
    TimeNs sum = 0;
    for (const auto& [name, phase] : names) {
        const auto ns = fields.integer(fmt::format("ph.{}", name), 0, max_duration);
        if (!ns) continue;
        round.phases.emplace_back(static_cast<int>(phase), *ns);
        sum += *ns;
    }
    sum += fields.integer("ph.host", 0, max_duration).value_or(0);
    if (sum > *round.duration)
        fields.refuse("ph", fmt::format("the phases last {} ns, the round (dt) {}", sum, *round.duration));
}

}  // namespace

RoundLine read_round(RoundFields& fields, int vocab_size) {
    RoundLine round;
    round.out = fields.integers("out", 0, vocab_size - 1).value_or(std::vector<int>());
    round.draft = fields.integers("draft", 0, vocab_size - 1).value_or(std::vector<int>());
    read_counts(fields, round);
    if (fields.problem().empty()) read_draft(fields, round);
    read_alternatives(fields, round, vocab_size);
    read_times(fields, round);
    return round;
}

}  // namespace draftscope::storage
