#include "engine/heads/static_vocab.h"

#include <algorithm>

#include "engine/formats/synthetic_model.h"
#include "engine/formats/tensor_file.h"
#include "engine/heads/synthetic_artefact.h"

namespace draftscope {

Result<StaticVocab> StaticVocab::make(kernels::Backend& backend, const HeadWeights& weights,
                                      const std::vector<TokenId>& ranking, int size, std::string_view head) {
    const std::size_t vocab = weights.vocab;
    if (size < 1 || size > weights.vocab)
        return bad_input("head {}: v={} does not fit the target, which has {} tokens; use v=1..{}", head,
                         size, weights.vocab, weights.vocab);
    StaticVocab result;
    std::vector<bool> member(vocab, false);
    const auto keep = [&](TokenId id) {
        if (!lm_head_has(weights, id)) return;
        if (member[id]) return;
        member[id] = true;
        result.ids_.push_back(id);
    };
    for (const TokenId id : weights.always_active)
        if (id >= 0 && id < weights.vocab) keep(id);
    for (const TokenId id : ranking) {
        if (id < 0 || id >= weights.vocab)
            return bad_input(
                "head {}: the ranking contains token {}, but the target "
                "has {} tokens; it was made for another vocabulary",
                head, id, weights.vocab);
        if (result.size() < size) keep(id);
    }
    if (result.size() < size)
        return bad_input("head {}: v={}, but the ranking has only {} distinct tokens", head, size,
                         result.size());
    std::sort(result.ids_.begin(), result.ids_.end());
    result.rows_ = weights.lm_head->gather_rows(backend.pool(), lm_head_row_indices(weights, result.ids_));
    return result;
}

int num_lm_head_tokens(const HeadWeights& weights) {
    return weights.row_ids.empty() ? weights.vocab : static_cast<int>(weights.row_ids.size());
}

ActiveSet tokens_of_lm_head(const HeadWeights& weights) {
    const auto ids = weights.row_ids;
    const auto at = [&](TokenId id) { return std::lower_bound(ids.begin(), ids.end(), id); };
    return {.all_below = weights.vocab, .ids = {at(0), at(weights.vocab)}};
}

bool lm_head_has(const HeadWeights& weights, TokenId id) {
    if (id < 0 || id >= weights.vocab) return false;
    return weights.row_ids.empty() || std::binary_search(weights.row_ids.begin(), weights.row_ids.end(), id);
}

std::vector<TokenId> lm_head_row_indices(const HeadWeights& weights, std::span<const TokenId> ids) {
    std::vector<TokenId> rows;
    const auto found = lm_head_row_indices(weights, ids, rows);
    if (weights.row_ids.empty()) rows.assign(found.begin(), found.end());
    return rows;
}

std::span<const TokenId> lm_head_row_indices(const HeadWeights& weights, std::span<const TokenId> ids,
                                             std::vector<TokenId>& rows) {
    if (weights.row_ids.empty()) return ids;
    rows.assign(ids.begin(), ids.end());
    for (TokenId& id : rows) {
        const auto found = std::lower_bound(weights.row_ids.begin(), weights.row_ids.end(), id);
        id = static_cast<TokenId>(found - weights.row_ids.begin());
    }
    return rows;
}

Result<std::unique_ptr<WeightSource>> open_ranking(const std::string& path) {
    return is_synthetic_model(path) ? make_synthetic_ranking(path) : open_tensor_file(path);
}

Result<std::vector<TokenId>> ranking_ids(const WeightSource& ranking, std::string_view head) {
    DS_ASSIGN(const auto values, ranking.read_integers("ids"));
    std::vector<TokenId> ids;
    ids.reserve(values.size());
    for (const std::int64_t value : values) {
        if (value < 0 || value > INT32_MAX)
            return bad_input("{}: tensor 'ids' contains {}, which is not a token id (head {})",
                             ranking.path(), value, head);
        ids.push_back(static_cast<TokenId>(value));
    }
    return ids;
}

Result<std::vector<TokenId>> load_ranking(const std::string& path, std::string_view head) {
    DS_ASSIGN(const auto file, open_ranking(path));
    return ranking_ids(*file, head);
}

}  // namespace draftscope
