#include "engine/draft/head_rows.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace draftscope {
namespace {

using Integers = std::vector<std::int64_t>;

/// Returns the tokens of a map whose entries are tokens, or tokens less their row.
Integers tokens_of(const Integers& map, bool offsets) {
    Integers out = map;
    for (std::size_t i = 0; offsets && i < out.size(); ++i)
        // Entries near the ends of the type are out of range in any case.
        out[i] = std::abs(map[i]) > INT32_MAX ? -1 : map[i] + static_cast<std::int64_t>(i);
    return out;
}

/// Returns the first row whose token is outside of [0, limit) or occurs before; nullopt if there is none.
std::optional<std::size_t> first_bad_row(const Integers& tokens, int limit) {
    std::vector<bool> seen(limit);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] < 0 || tokens[i] >= limit || seen[tokens[i]]) return i;
        seen[tokens[i]] = true;
    }
    return std::nullopt;
}

/// Returns the marked tokens, ascending.
Integers marked_tokens(const Integers& marks) {
    Integers out;
    for (std::size_t i = 0; i < marks.size(); ++i)
        if (marks[i] != 0) out.push_back(static_cast<std::int64_t>(i));
    return out;
}

bool same_set(Integers tokens, const Integers& marked) {
    std::sort(tokens.begin(), tokens.end());
    return tokens == marked;
}

/// A map with its two readings, and what decides between them.
struct Readings {
    const WeightSource& source;
    const HeadRowMaps& maps;
    Integers map;
    Integers marked;  ///< empty = no marks
    int limit = 0;

    Result<Integers> choose(Notes& notes) const;
};

Result<Integers> Readings::choose(Notes& notes) const {
    if (maps.read_offsets) {
        Integers tokens = tokens_of(map, *maps.read_offsets);
        const auto row = first_bad_row(tokens, limit);
        if (!row) return tokens;
        return bad_input("{}: {} read as {}: {}[{}] = {} gives token {}; expected distinct ids below {}",
                         source.path(), maps.to_target, *maps.read_offsets ? "offsets" : "tokens",
                         maps.to_target, *row, map[*row], tokens[*row], limit);
    }
    Integers usual = tokens_of(map, maps.offsets), other = tokens_of(map, !maps.offsets);
    const auto bad = first_bad_row(usual, limit);
    const bool usual_fits = !bad, other_fits = !first_bad_row(other, limit);
    const std::string_view as_other = maps.offsets ? "tokens" : "offsets from the row to its token";
    const bool other_agrees = other_fits && (marked.empty() || same_set(other, marked));
    if (!usual_fits && !other_agrees) {
        return bad_input("{}: {}[{}] = {} gives token {}; expected distinct ids below {}", source.path(),
                         maps.to_target, *bad, map[*bad], usual[*bad], limit);
    }
    if (!marked.empty()) {
        if (usual_fits && same_set(usual, marked)) return usual;
        if (!other_agrees) {
            return bad_input(
                "{}: {} marks {} tokens, but {} maps to a different set of {}; the checkpoint is "
                "inconsistent",
                source.path(), maps.marks, marked.size(), maps.to_target, map.size());
        }
        add_note(notes, "{}: {} holds {}, as {} says", source.path(), maps.to_target, as_other, maps.marks);
        return other;
    }
    const bool usual_sorted = std::is_sorted(usual.begin(), usual.end());
    if (!usual_fits || (other_fits && !usual_sorted && std::is_sorted(other.begin(), other.end()))) {
        add_note(notes, "{}: {} is taken to hold {}: otherwise {}", source.path(), maps.to_target, as_other,
                 !usual_fits ? "its ids repeat or are outside of the vocabulary" : "its order would be odd");
        return other;
    }
    if (other_fits && !usual_sorted && map.size() > 1)
        add_note(notes, "{}: {} may hold offsets or tokens; it is taken to hold {}", source.path(),
                 maps.to_target, maps.offsets ? "offsets" : "tokens");
    return usual;
}

/// Sorts the rows by token, and leaves out those beyond the target's vocabulary.
HeadRows sorted_rows(const Integers& tokens, int vocab) {
    HeadRows out;
    out.rows.resize(tokens.size());
    std::iota(out.rows.begin(), out.rows.end(), 0);
    std::erase_if(out.rows, [&](TokenId row) { return tokens[row] >= vocab; });
    std::sort(out.rows.begin(), out.rows.end(), [&](TokenId a, TokenId b) { return tokens[a] < tokens[b]; });
    for (const TokenId row : out.rows) out.ids.push_back(static_cast<TokenId>(tokens[row]));
    if (out.rows.size() == tokens.size() && std::is_sorted(tokens.begin(), tokens.end())) out.rows.clear();
    if (static_cast<int>(out.ids.size()) == vocab) out.ids.clear();
    return out;
}

}  // namespace

Result<HeadRows> read_head_rows(const WeightSource& source, const HeadRowMaps& maps, std::optional<int> rows,
                                int vocab, Notes& notes) {
    Integers marked;
    if (!maps.marks.empty() && source.find(maps.marks) != nullptr) {
        DS_ASSIGN(const auto marks, source.read_integers(maps.marks));
        marked = marked_tokens(marks);
        if (marked.empty())
            add_note(notes, "{}: {} marks no token, as if it was never set; it is not used", source.path(),
                     maps.marks);
    }
    Integers tokens;
    if (source.find(maps.to_target) != nullptr) {
        DS_ASSIGN(auto map, source.read_integers(maps.to_target));
        if (rows && static_cast<int>(map.size()) != *rows) {
            return bad_input("{}: {} has {} entries for {} rows of {}", source.path(), maps.to_target,
                             map.size(), *rows, maps.head);
        }
        const bool unset =
            map.size() > 1 && std::all_of(map.begin(), map.end(), [](auto x) { return x == 0; });
        if (unset && maps.offsets && static_cast<int>(map.size()) != vocab)
            add_note(notes, "{}: {} holds zeros only: rows 0 to {} are those tokens, or it was never set",
                     source.path(), maps.to_target, map.size() - 1);
        DS_ASSIGN(tokens,
                  (Readings{source, maps, std::move(map), std::move(marked), std::max(vocab, maps.own_vocab)}
                       .choose(notes)));
    } else if (!marked.empty() && (!rows || static_cast<int>(marked.size()) == *rows)) {
        add_note(notes, "{}: {} is missing; the rows are taken to be the tokens of {} in ascending order",
                 source.path(), maps.to_target, maps.marks);
        tokens = std::move(marked);
    } else if (rows && std::abs(*rows - vocab) <= max_vocab_difference) {
        tokens.resize(*rows);
        std::iota(tokens.begin(), tokens.end(), 0);
        if (*rows < vocab && *rows != maps.own_vocab)
            add_note(notes, "{}: {} has {} rows; tokens {} to {} of the target are never drafted",
                     source.path(), maps.head, *rows, *rows, vocab - 1);
    } else {
        return bad_input("{}: tensor '{}' is missing; {} has {} rows, and the target {} tokens",
                         source.path(), maps.to_target, maps.head, rows.value_or(0), vocab);
    }
    const auto out_of_vocab =
        std::count_if(tokens.begin(), tokens.end(), [&](auto id) { return id >= vocab; });
    if (out_of_vocab > 0)
        add_note(notes, "{}: {} has {} rows of tokens beyond the target's {}; they are not used",
                 source.path(), maps.head, out_of_vocab, vocab);
    return sorted_rows(tokens, vocab);
}

kernels::Matrix select_rows(kernels::Backend& backend, kernels::Matrix head, const HeadRows& vocab) {
    return vocab.rows.empty() ? std::move(head) : head.gather_rows(backend.pool(), vocab.rows);
}

}  // namespace draftscope
