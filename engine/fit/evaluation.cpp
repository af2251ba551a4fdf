#include "engine/fit/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/numel.h"
#include "engine/fit/linalg.h"
#include "kernels/host_rows.h"

namespace draftscope::fit {
namespace {

constexpr std::size_t chunk_rows = 128;  ///< rows scored at once

/// Sum over rows of KL(teacher || student).
double forward_kl_sum(kernels::Backend& backend, Rows<const float> teacher, Rows<const float> student) {
    std::vector<float> teacher_sums(teacher.rows), student_sums(teacher.rows);
    kernels::logsumexp(backend.pool(), teacher, teacher_sums);
    kernels::logsumexp(backend.pool(), student, student_sums);
    std::vector<double> kl(teacher.rows);
    backend.pool().parallel(teacher.rows, [&](int r) {
        const auto t = teacher.row(r), s = student.row(r);
        for (std::size_t j = 0; j < t.size(); ++j) {
            const float logp = t[j] - teacher_sums[r];
            kl[r] += static_cast<double>(std::exp(logp) * (logp - (s[j] - student_sums[r])));
        }
    });
    return std::accumulate(kl.begin(), kl.end(), 0.0);
}

/// One chunk of held-out rows with the logits of teacher and head.
class Scorer {
  public:
    Scorer(kernels::Backend& backend, const Teacher& teacher, const HeadFactors& head)
        : backend_(backend), teacher_(teacher), head_(head), up_(pack_rows(backend, head.up.view())) {
        for (const Dense& down : head.down) down_.push_back(pack_rows(backend, down.view()));
    }

    void load(const SampleRows& rows, std::span<const int> which) {
        const int count = static_cast<int>(which.size());
        hidden_.resize(count, rows.hidden.width());
        for (int r = 0; r < count; ++r) rows.hidden.read(which[r], hidden_.row(r));
        logits_.resize(count, teacher_.support);
        if (!down_.empty()) apply_down(rows, which);
        kernels::matmul(backend_.pool(), up_, (down_.empty() ? hidden_ : inner_).view(), logits_.view());
    }
    /// Sum of KL(teacher || head), or of the full head if `of_full`; `hidden` is the teacher's.
    double kl_sum(const kernels::Matrix& teacher_rows, const Dense& hidden, bool of_full) {
        const Rows<const float> teacher = score(teacher_rows, hidden, teacher_logits_);
        return forward_kl_sum(backend_, teacher,
                              of_full ? score(*teacher_.drafter_rows, hidden_, full_logits_) : logits());
    }
    /// Columns of the `k` best logits of each row.
    const std::vector<std::int32_t>& best(Rows<const float> logits, int k) {
        best_.resize(numel(logits.rows, k));
        values_.resize(logits.rows, k);
        kernels::topk(backend_.pool(), logits, k, {best_.data(), logits.rows, k}, values_.view());
        return best_;
    }
    Rows<const float> logits() const { return logits_.view(); }
    Rows<const float> full() const {
        return {full_logits_.data.data(), full_logits_.rows, teacher_.support, full_logits_.cols};
    }
    const Dense& hidden() const { return hidden_; }

  private:
    /// Columns beyond a level's rank stay zero.
    void apply_down(const SampleRows& rows, std::span<const int> which) {
        inner_.resize(hidden_.rows, head_.rank());
        std::ranges::fill(inner_.values(), 0.0f);
        for (std::size_t slot = 0; slot < down_.size(); ++slot) {
            outputs_.resize(hidden_.rows, down_[slot].n());
            kernels::matmul(backend_.pool(), down_[slot], hidden_.view(), outputs_.view());
            for (int r = 0; r < hidden_.rows; ++r)
                if (head_.slot_for(rows.level[which[r]]) == static_cast<int>(slot))
                    std::ranges::copy(outputs_.row(r), inner_.row(r).begin());
        }
    }
    Rows<const float> score(const kernels::Matrix& rows, const Dense& hidden, Dense& out) {
        out.resize(hidden.rows, rows.n());
        kernels::matmul(backend_.pool(), rows, hidden.view(), out.view());
        return {out.data.data(), hidden.rows, teacher_.support, rows.n()};
    }

    kernels::Backend& backend_;
    const Teacher& teacher_;
    const HeadFactors& head_;
    kernels::Matrix up_;
    std::vector<kernels::Matrix> down_;
    Dense hidden_, inner_, outputs_, logits_, teacher_logits_, full_logits_, values_;
    std::vector<std::int32_t> best_;
};

template <typename Use>
void for_each_chunk(const std::vector<int>& rows, Use use) {
    for (std::size_t first = 0; first < rows.size(); first += chunk_rows)
        use(std::span(rows).subspan(first, std::min(chunk_rows, rows.size() - first)));
}

void add_text_rows(Scorer& scorer, const SampleRows& rows, const Teacher& teacher,
                   const std::vector<TokenId>& support, Report& report) {
    const std::vector<int> held = pick_evenly(rows.indices(true), max_eval_rows);
    if (held.empty()) return;
    Dense teacher_hidden;
    double kl = 0, kl_full = 0, hits = 0, hits_full = 0, covered = 0;
    const auto token_of = [&](std::int32_t column) { return support.empty() ? column : support[column]; };
    for_each_chunk(held, [&](std::span<const int> which) {
        scorer.load(rows, which);
        teacher_hidden.resize(static_cast<int>(which.size()), rows.teacher.width());
        for (std::size_t i = 0; i < which.size(); ++i)
            rows.teacher.read(which[i], teacher_hidden.row(static_cast<int>(i)));
        kl += scorer.kl_sum(*teacher.target_rows, teacher_hidden, false);
        kl_full += scorer.kl_sum(*teacher.target_rows, teacher_hidden, true);
        const auto count_hits = [&](Rows<const float> logits) {
            const auto& best = scorer.best(logits, 1);
            double sum = 0;
            for (std::size_t i = 0; i < which.size(); ++i)
                sum += token_of(best[i]) == rows.token[which[i]] ? 1 : 0;
            return sum;
        };
        hits += count_hits(scorer.logits());
        hits_full += count_hits(scorer.full());
        for (const int row : which) {
            const TokenId token = rows.token[row];
            covered += support.empty() || std::binary_search(support.begin(), support.end(), token) ? 1 : 0;
        }
    });
    const auto n = static_cast<double>(held.size());
    report["kl"] = kl / n;
    report["kl_full"] = kl_full / n;
    report["hits"] = hits / n;
    report["hits_full"] = hits_full / n;
    report["coverage"] = covered / n;
    report["text_rows"] = n;
}

void add_drafted_rows(Scorer& scorer, const SampleRows& rows, const Teacher& teacher,
                      const std::vector<TokenId>& support, Report& report) {
    const std::vector<int> held = pick_evenly(rows.indices(true), max_eval_rows);
    if (held.empty() || rows.topk == 0) return;
    const int k = std::min({10, rows.topk, teacher.support});
    double kl = 0, top1 = 0, found = 0;
    for_each_chunk(held, [&](std::span<const int> which) {
        scorer.load(rows, which);
        kl += scorer.kl_sum(*teacher.drafter_rows, scorer.hidden(), false);
        const auto& best = scorer.best(scorer.logits(), k);
        for (std::size_t i = 0; i < which.size(); ++i) {
            const TokenId* wanted = rows.top.data() + numel(which[i], rows.topk);
            for (int c = 0; c < k; ++c) {
                const std::int32_t column = best[i * k + c];
                const TokenId token = support.empty() ? column : support[column];
                found += std::find(wanted, wanted + k, token) != wanted + k ? 1 : 0;
                top1 += c == 0 && token == wanted[0] ? 1 : 0;
            }
        }
    });
    const auto n = static_cast<double>(held.size());
    report["kl_drafter"] = kl / n;
    report["top1"] = top1 / n;
    report["recall10"] = found / (n * k);
    report["drafted_rows"] = n;
}

/// Chooses groups for rows and tells whether they contain a token.
class GroupChoices {
  public:
    GroupChoices(kernels::Backend& backend, const RouterWeights& router, RouterInput input,
                 std::span<const std::int32_t> group_of, int chosen, std::span<const TokenId> always)
        : backend_(backend),
          router_(router),
          in_(pack_rows(backend, router.in.view())),
          out_(pack_rows(backend, router.out.view())),
          input_(input),
          group_of_(group_of),
          chosen_(chosen) {
        always_.assign(always.begin(), always.end());
    }
    void load(const SampleRows& rows, std::span<const int> which) {
        const int count = static_cast<int>(which.size());
        inputs_.resize(count, router_.in.cols);
        const std::size_t d = rows.hidden.width();
        for (int r = 0; r < count; ++r) {
            if (input_ == RouterInput::hidden) {
                rows.hidden.read(which[r], inputs_.row(r));
                continue;
            }
            rows.embedding.read(which[r], inputs_.row(r).first(d));
            rows.parent.read(which[r], inputs_.row(r).last(d));
        }
        inner_.resize(count, router_.in.rows);
        kernels::matmul(backend_.pool(), in_, inputs_.view(), inner_.view(), router_.in_bias.data());
        for (float& x : inner_.values()) x /= 1.0f + std::exp(-x);
        scores_.resize(count, router_.out.rows);
        kernels::matmul(backend_.pool(), out_, inner_.view(), scores_.view(), router_.out_bias.data());
        best_.resize(numel(count, chosen_));
        values_.resize(count, chosen_);
        kernels::topk(backend_.pool(), scores_.view(), chosen_, {best_.data(), count, chosen_},
                      values_.view());
    }
    std::span<const std::int32_t> groups(std::size_t row) const {
        return std::span(best_).subspan(row * chosen_, chosen_);
    }
    bool holds(std::size_t row, TokenId token) const {
        if (std::find(always_.begin(), always_.end(), token) != always_.end()) return true;
        const auto mine = groups(row);
        return std::find(mine.begin(), mine.end(), group_of_[token]) != mine.end();
    }

  private:
    kernels::Backend& backend_;
    const RouterWeights& router_;
    kernels::Matrix in_, out_;
    RouterInput input_;
    std::span<const std::int32_t> group_of_;
    int chosen_;
    std::vector<TokenId> always_;
    Dense inputs_, inner_, scores_, values_;
    std::vector<std::int32_t> best_;
};

}  // namespace

Report evaluate_head(kernels::Backend& backend, const Samples& samples, const Teacher& teacher,
                     const HeadFactors& head, const std::vector<TokenId>& support) {
    Report report;
    Scorer scorer(backend, teacher, head);
    add_text_rows(scorer, samples.text, teacher, support, report);
    add_drafted_rows(scorer, samples.drafted, teacher, support, report);
    return report;
}

Report evaluate_router(kernels::Backend& backend, const Samples& samples, const RouterWeights& router,
                       RouterInput input, std::span<const std::int32_t> group_of, int chosen,
                       std::span<const TokenId> always) {
    Report report;
    std::vector<double> sizes(router.out.rows);
    for (const std::int32_t group : group_of)
        if (group >= 0) ++sizes[group];
    GroupChoices choices(backend, router, input, group_of, chosen, always);
    double covered = 0, top1 = 0, found = 0, active = 0;
    const std::vector<int> text = pick_evenly(samples.text.indices(true), max_eval_rows);
    const std::vector<int> drafted = pick_evenly(samples.drafted.indices(true), max_eval_rows);
    for_each_chunk(text, [&](std::span<const int> which) {
        choices.load(samples.text, which);
        for (std::size_t i = 0; i < which.size(); ++i)
            covered += choices.holds(i, samples.text.token[which[i]]) ? 1 : 0;
    });
    const int k = std::min(10, samples.drafted.topk);
    for_each_chunk(drafted, [&](std::span<const int> which) {
        choices.load(samples.drafted, which);
        for (std::size_t i = 0; i < which.size(); ++i) {
            const TokenId* wanted = samples.drafted.top.data() + numel(which[i], samples.drafted.topk);
            for (int c = 0; c < k; ++c) found += wanted[c] != no_token && choices.holds(i, wanted[c]) ? 1 : 0;
            top1 += choices.holds(i, wanted[0]) ? 1 : 0;
            for (const std::int32_t group : choices.groups(i)) active += sizes[group];
        }
    });
    if (!text.empty()) report["coverage"] = covered / static_cast<double>(text.size());
    report["text_rows"] = static_cast<double>(text.size());
    report["drafted_rows"] = static_cast<double>(drafted.size());
    if (drafted.empty()) return report;
    const auto n = static_cast<double>(drafted.size());
    report["top1"] = top1 / n;
    report["recall10"] = found / (n * k);
    report["active"] = active / n / static_cast<double>(group_of.size());
    return report;
}

}  // namespace draftscope::fit
