#include "engine/replay/target_mass.h"

#include <algorithm>
#include <cmath>

#include "kernels/matmul.h"

namespace draftscope {
namespace {

constexpr float negligible = 1e-9f;
constexpr int chunk = 32;  // rows of logits held at once

}  // namespace

Result<TargetMass> TargetMass::make(const Trace& trace, const Target& ends, kernels::Exec& exec,
                                    const TracePrompt& prompt, int generated, Scratch& scratch) {
    TargetMass mass;
    mass.first_row_ = prompt.prompt_tokens - 1;
    mass.likely_.resize(static_cast<std::size_t>(generated));
    const int d = trace.info().target.hidden, vocab = trace.info().target.tokens,
              columns = ends.lm_head().n();
    mass.active_.resize(static_cast<std::size_t>(vocab));
    const Sampling& sampling = trace.info().sampling;
    auto& [hidden, logits, choices] = scratch;
    hidden.resize(static_cast<std::size_t>(chunk) * static_cast<std::size_t>(d));
    logits.resize(static_cast<std::size_t>(chunk) * static_cast<std::size_t>(columns));
    for (int first = 0; first < generated; first += chunk) {
        const int rows = std::min(chunk, generated - first);
        const Rows<float> in(hidden.data(), rows, d), out(logits.data(), rows, columns);
        const std::int64_t at = prompt.first_row + mass.first_row_ + first;
        DS_TRY(trace.hidden(at, in));
        kernels::matmul(exec, ends.lm_head(), in, out);
        const std::vector<TokenPlace> places(static_cast<std::size_t>(rows));
        choose_tokens(exec, out, vocab, sampling, places, choices);
        std::vector<char> same(static_cast<std::size_t>(rows));
        exec.parallel(rows, [&](int r) {
            const auto i = static_cast<std::size_t>(r);
            const float* row = out.row_data(r);
            auto& likely = mass.likely_[static_cast<std::size_t>(first + r)];
            // Most tokens have no mass worth an exponential; the bound leaves room for rounding.
            const float scale = sampling.temperature > 0 ? static_cast<float>(sampling.temperature) : 1.0f;
            const float bound = (choices[i].log_norm + std::log(negligible) - 0.01f) * scale;
            likely.reserve(static_cast<std::size_t>(
                std::count_if(row, row + vocab, [&](float logit) { return logit >= bound; })));
            for (TokenId id = 0; id < vocab; ++id) {
                if (row[id] < bound) continue;
                const float p = probability_of(choices[i], sampling, row[id]);
                if (p > negligible) likely.emplace_back(id, p);
            }
            const auto best = std::max_element(row, row + vocab) - row;
            same[i] = trace.best(at + r, 1).front() == static_cast<TokenId>(best) ? 1 : 0;
        });
        mass.agreed_ += std::count(same.begin(), same.end(), 1);
    }
    return mass;
}

double TargetMass::on(int row, const Head& head, const HeadState* state, int level) {
    const auto& likely = likely_[static_cast<std::size_t>(row - first_row_)];
    double sum = 0;
    ids_.clear();
    if (!head.active_ids(state, level, ids_)) {
        for (const auto& [id, p] : likely)
            if (head.covers(state, id, level)) sum += static_cast<double>(p);
        return std::min(sum, 1.0);
    }
    for (const TokenId id : ids_) active_[static_cast<std::size_t>(id)] = true;
    for (const auto& [id, p] : likely)
        if (active_[static_cast<std::size_t>(id)]) sum += static_cast<double>(p);
    for (const TokenId id : ids_) active_[static_cast<std::size_t>(id)] = false;
    return std::min(sum, 1.0);
}

}  // namespace draftscope
