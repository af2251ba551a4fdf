#include "engine/replay/covered_probability.h"

#include <algorithm>
#include <limits>

#include "kernels/exp_sums.h"
#include "kernels/matmul.h"
#include "kernels/topk.h"

namespace draftscope {
namespace {

constexpr float negligible = 1e-9f;
constexpr int chunk = 32;  // rows of logits computed together

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
    auto& [hidden, logits, choices, best] = scratch;
    hidden.resize(static_cast<std::size_t>(chunk) * static_cast<std::size_t>(d));
    logits.resize(static_cast<std::size_t>(chunk) * static_cast<std::size_t>(columns));
    const auto above = [](float p) { return p > negligible; };
    for (int first = 0; first < generated; first += chunk) {
        const int rows = std::min(chunk, generated - first);
        const Rows<float> in(hidden.data(), rows, d), out(logits.data(), rows, columns);
        const std::int64_t at = prompt.first_row + mass.first_row_ + first;
        DS_TRY(trace.hidden(at, in));
        kernels::matmul(exec, ends.lm_head(), in, out);
        const std::vector<TokenPlace> places(static_cast<std::size_t>(rows));
        choose_tokens(exec, out, vocab, sampling, places, choices);
        best.resize(static_cast<std::size_t>(rows));
        kernels::argmax(exec, Rows<const float>(out.data, rows, vocab, out.stride), best);
        const float inverse = sampling.temperature > 0 ? inverse_temperature(sampling) : 1.0f;
        exec.parallel(rows, [&](int r) {
            const TargetChoice& choice = choices[static_cast<std::size_t>(r)];
            const std::span<float> row(out.row_data(r), static_cast<std::size_t>(vocab));
            // These are the tokens for which probability_of() returns 0.
            for (float& logit : row)
                if (!(logit >= choice.lowest)) logit = -std::numeric_limits<float>::infinity();
            kernels::exp_row(exec, row, choice.log_norm / inverse, inverse, row);
            auto& likely = mass.likely_[static_cast<std::size_t>(first + r)];
            likely.reserve(static_cast<std::size_t>(std::ranges::count_if(row, above)));
            for (TokenId id = 0; id < vocab; ++id)
                if (const float p = row[static_cast<std::size_t>(id)]; above(p))
                    likely.emplace_back(id, std::min(p, 1.0f));
        });
        for (int r = 0; r < rows; ++r)
            mass.agreed_ += trace.best(at + r, 1).front() == best[static_cast<std::size_t>(r)] ? 1 : 0;
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
