#include "engine/decode/exact_check.h"

#include <algorithm>
#include <vector>

#include "engine/sequence/decode_context.h"

namespace draftscope {

Status check_exact(Target& target, kernels::Backend& backend, const Sampling& sampling,
                   std::uint64_t sequence, std::span<const TokenId> prompt, std::span<const TokenId> text,
                   ExactCheck& check) {
    if (prompt.empty() || text.empty()) return {};
    constexpr std::size_t chunk = 32;  // rows per forward pass
    const int columns = target.config().vocab, vocab = DecodeContext::real_vocab(target);
    std::vector<TokenId> all(prompt.begin(), prompt.end());
    all.insert(all.end(), text.begin(), text.end() - 1);
    KvCache cache = target.make_cache(static_cast<int>(all.size()));
    ForwardOutput out;
    const std::size_t read = prompt.size() - 1;
    if (read > 0) DS_TRY(target.prefill(cache, prompt.first(read), {}, out));
    std::int64_t mismatches = 0;
    std::vector<TokenPosition> positions;
    std::vector<TargetSample> choices;
    for (std::size_t first = read; first < all.size(); first += chunk) {
        const std::size_t rows = std::min(chunk, all.size() - first);
        const SequenceTokens chain{&cache, std::span(all).subspan(first, rows), {}, nullptr};
        ForwardRequest request;
        request.sequences = {&chain, 1};
        request.all_logits = true;
        DS_TRY(target.forward(request, out));
        cache.commit(static_cast<int>(rows));
        positions.clear();
        for (std::size_t r = 0; r < rows; ++r)
            positions.push_back({sequence, static_cast<std::int64_t>(first + r + 1)});
        sample_tokens(backend, {out.logits.data(), static_cast<int>(rows), columns}, vocab, sampling,
                      positions, choices);
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t token = first + r - read;
            if (choices[r].token == text[token]) continue;
            if (!check.first) check.first = ExactCheck::Position{sequence, static_cast<int>(token)};
            ++mismatches;
        }
    }
    ++check.texts;
    check.texts_with_mismatches += mismatches > 0 ? 1 : 0;
    check.tokens += static_cast<std::int64_t>(text.size());
    check.mismatches += mismatches;
    return {};
}

}  // namespace draftscope
