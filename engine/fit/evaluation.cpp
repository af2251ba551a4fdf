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

/// Calls `use` with the held-out rows, chunk by chunk. Returns their number, 0 if none is held out.
template <typename Use>
double for_each_held_out(const SampleRows& samples, Use use) {
    const std::vector<int> rows = pick_evenly(samples.indices(true), max_eval_rows);
    for (std::size_t first = 0; first < rows.size(); first += chunk_rows)
        use(std::span(rows).subspan(first, std::min(chunk_rows, rows.size() - first)));
    return static_cast<double>(rows.size());
}

void read_rows(const Bf16Rows& from, std::span<const int> which, Dense& out) {
    out.resize(static_cast<int>(which.size()), from.width());
    for (int r = 0; r < out.rows; ++r) from.read(which[r], out.row(r));
}

/// One chunk of held-out rows with the logits of teacher and head.
class Scorer {
  public:
    Scorer(kernels::Backend& backend, const Teacher& teacher, const HeadFactors& head,
           const std::vector<TokenId>& support)
        : backend_(backend),
          teacher_(teacher),
          head_(head),
          support_(support),
          up_(pack_rows(backend, head.up.view())) {
        for (const Dense& down : head.down) down_.push_back(pack_rows(backend, down.view()));
    }

    void load(const SampleRows& rows, std::span<const int> which) {
        read_rows(rows.hidden, which, hidden_);
        if (!down_.empty()) apply_down(rows, which);
        multiply(backend_, up_, (down_.empty() ? hidden_ : inner_).view(), logits_);
    }
    /// Sum of KL(teacher || head), or of the full head if `of_full`; `hidden` is the teacher's.
    double kl_sum(const kernels::Matrix& teacher_rows, const Dense& hidden, bool of_full) {
        const Rows<const float> teacher = score(teacher_rows, hidden, teacher_logits_);
        return forward_kl_sum(backend_, teacher,
                              of_full ? score(*teacher_.drafter_rows, hidden_, full_logits_) : logits());
    }
    /// Tokens of the `k` best logits of each row, [rows, k].
    const std::vector<TokenId>& best(Rows<const float> logits, int k) {
        best_.find(backend_, logits, k);
        if (!support_.empty())
            for (std::int32_t& column : best_.ids) column = support_[column];
        return best_.ids;
    }
    Rows<const float> logits() const { return logits_.view(); }
    Rows<const float> full() const {
        return {full_logits_.data.data(), full_logits_.rows, teacher_.support, full_logits_.cols};
    }
    const Dense& hidden() const { return hidden_; }
    bool has(TokenId token) const {
        return support_.empty() || std::binary_search(support_.begin(), support_.end(), token);
    }

  private:
    /// Columns beyond a level's rank stay zero.
    void apply_down(const SampleRows& rows, std::span<const int> which) {
        inner_.resize(hidden_.rows, head_.rank());
        std::ranges::fill(inner_.values(), 0.0f);
        for (std::size_t slot = 0; slot < down_.size(); ++slot) {
            multiply(backend_, down_[slot], hidden_.view(), outputs_);
            for (int r = 0; r < hidden_.rows; ++r)
                if (head_.slot_for(rows.level[which[r]]) == static_cast<int>(slot))
                    std::ranges::copy(outputs_.row(r), inner_.row(r).begin());
        }
    }
    Rows<const float> score(const kernels::Matrix& rows, const Dense& hidden, Dense& out) {
        multiply(backend_, rows, hidden.view(), out);
        return {out.data.data(), hidden.rows, teacher_.support, rows.n()};
    }

    kernels::Backend& backend_;
    const Teacher& teacher_;
    const HeadFactors& head_;
    const std::vector<TokenId>& support_;
    kernels::Matrix up_;
    std::vector<kernels::Matrix> down_;
    Dense hidden_, inner_, outputs_, logits_, teacher_logits_, full_logits_;
    BestColumns best_;
};

void add_text_rows(Scorer& scorer, const SampleRows& rows, const Teacher& teacher, Report& report) {
    Dense teacher_hidden;
    double kl = 0, kl_full = 0, hits = 0, hits_full = 0, covered = 0;
    const double n = for_each_held_out(rows, [&](std::span<const int> which) {
        scorer.load(rows, which);
        read_rows(rows.teacher, which, teacher_hidden);
        kl += scorer.kl_sum(*teacher.target_rows, teacher_hidden, false);
        kl_full += scorer.kl_sum(*teacher.target_rows, teacher_hidden, true);
        const auto count_hits = [&](Rows<const float> logits) {
            const std::vector<TokenId>& best = scorer.best(logits, 1);
            double sum = 0;
            for (std::size_t i = 0; i < which.size(); ++i) sum += best[i] == rows.token[which[i]] ? 1 : 0;
            return sum;
        };
        hits += count_hits(scorer.logits());
        hits_full += count_hits(scorer.full());
        for (const int row : which) covered += scorer.has(rows.token[row]) ? 1 : 0;
    });
    if (n == 0) return;
    report["kl"] = kl / n;
    report["kl_full"] = kl_full / n;
    report["hits"] = hits / n;
    report["hits_full"] = hits_full / n;
    report["coverage"] = covered / n;
    report["text_rows"] = n;
}

void add_draft_rows(Scorer& scorer, const SampleRows& rows, const Teacher& teacher, Report& report) {
    if (rows.topk == 0) return;
    const int k = std::min({10, rows.topk, teacher.support});
    double kl = 0, top1 = 0, found = 0;
    const double n = for_each_held_out(rows, [&](std::span<const int> which) {
        scorer.load(rows, which);
        kl += scorer.kl_sum(*teacher.drafter_rows, scorer.hidden(), false);
        const std::vector<TokenId>& best = scorer.best(scorer.logits(), k);
        for (std::size_t i = 0; i < which.size(); ++i) {
            const TokenId* expected = rows.top.data() + numel(which[i], rows.topk);
            for (int c = 0; c < k; ++c)
                found += std::find(expected, expected + k, best[i * k + c]) != expected + k ? 1 : 0;
            top1 += best[i * k] == expected[0] ? 1 : 0;
        }
    });
    if (n == 0) return;
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
          chosen_(chosen),
          always_(always) {}
    void load(const SampleRows& rows, std::span<const int> which) {
        if (input_ == RouterInput::hidden) {
            read_rows(rows.hidden, which, inputs_);
        } else {
            const std::size_t d = rows.hidden.width();
            inputs_.resize(static_cast<int>(which.size()), router_.in.cols);
            for (int r = 0; r < inputs_.rows; ++r) {
                rows.embedding.read(which[r], inputs_.row(r).first(d));
                rows.parent.read(which[r], inputs_.row(r).last(d));
            }
        }
        multiply(backend_, in_, inputs_.view(), inner_, router_.in_bias.data());
        for (float& x : inner_.values()) x /= 1.0f + std::exp(-x);
        multiply(backend_, out_, inner_.view(), scores_, router_.out_bias.data());
        best_.find(backend_, scores_.view(), chosen_);
    }
    std::span<const std::int32_t> groups(std::size_t row) const {
        return std::span(best_.ids).subspan(row * chosen_, chosen_);
    }
    bool holds(std::size_t row, TokenId token) const {
        if (std::find(always_.begin(), always_.end(), token) != always_.end()) return true;
        const auto token_groups = groups(row);
        return std::find(token_groups.begin(), token_groups.end(), group_of_[token]) != token_groups.end();
    }

  private:
    kernels::Backend& backend_;
    const RouterWeights& router_;
    kernels::Matrix in_, out_;
    RouterInput input_;
    std::span<const std::int32_t> group_of_;
    int chosen_;
    std::span<const TokenId> always_;
    Dense inputs_, inner_, scores_;
    BestColumns best_;
};

}  // namespace

Report evaluate_head(kernels::Backend& backend, const Samples& samples, const Teacher& teacher,
                     const HeadFactors& head, const std::vector<TokenId>& support) {
    Report report;
    Scorer scorer(backend, teacher, head, support);
    add_text_rows(scorer, samples.text, teacher, report);
    add_draft_rows(scorer, samples.draft, teacher, report);
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
    const double text = for_each_held_out(samples.text, [&](std::span<const int> which) {
        choices.load(samples.text, which);
        for (std::size_t i = 0; i < which.size(); ++i)
            covered += choices.holds(i, samples.text.token[which[i]]) ? 1 : 0;
    });
    const int k = std::min(10, samples.draft.topk);
    const double n = for_each_held_out(samples.draft, [&](std::span<const int> which) {
        choices.load(samples.draft, which);
        for (std::size_t i = 0; i < which.size(); ++i) {
            const TokenId* expected = samples.draft.top.data() + numel(which[i], samples.draft.topk);
            for (int c = 0; c < k; ++c)
                found += expected[c] != no_token && choices.holds(i, expected[c]) ? 1 : 0;
            top1 += choices.holds(i, expected[0]) ? 1 : 0;
            for (const std::int32_t group : choices.groups(i)) active += sizes[group];
        }
    });
    if (text > 0) report["coverage"] = covered / text;
    report["text_rows"] = text;
    report["drafted_rows"] = n;
    if (n == 0) return report;
    report["top1"] = top1 / n;
    report["recall10"] = found / (n * k);
    report["active"] = active / n / static_cast<double>(group_of.size());
    return report;
}

}  // namespace draftscope::fit
