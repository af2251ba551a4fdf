#include "engine/fit/kl_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/numel.h"
#include "base/rng.h"
#include "kernels/gemm.h"
#include "kernels/matmul.h"

namespace draftscope::fit {
namespace {

using kernels::Operand;

class LowRankStudent final : public Student {
  public:
    explicit LowRankStudent(LowRankWeights& factors)
        : factors_(factors), d_up_(factors.up.rows, factors.up.cols) {
        for (const Dense& down : factors.down) d_down_.emplace_back(down.rows, down.cols);
    }

    int support() const override { return factors_.up.rows; }
    void forward(kernels::Exec& exec, Rows<const float> hidden, std::span<const std::uint8_t> levels,
                 Rows<float> logits) override {
        inner_.resize(hidden.rows, factors_.rank());
        std::fill(inner_.values().begin(), inner_.values().end(), 0.0f);
        for_each_run(levels, [&](int first, int count, int slot) {
            kernels::gemm(exec, Operand::plain, hidden.slice(first, count), Operand::transposed,
                          factors_.down[slot].view(), part(inner_, first, count, slot));
        });
        kernels::gemm(exec, Operand::plain, inner_.view(), Operand::transposed, factors_.up.view(), logits);
    }
    void backward(kernels::Exec& exec, Rows<const float> hidden, std::span<const std::uint8_t> levels,
                  Rows<const float> d_logits, Rows<float> d_hidden) override {
        kernels::gemm(exec, Operand::transposed, d_logits, Operand::plain, inner_.view(), d_up_.view());
        d_inner_.resize(hidden.rows, factors_.rank());
        kernels::gemm(exec, Operand::plain, d_logits, Operand::plain, factors_.up.view(), d_inner_.view());
        for (Dense& gradient : d_down_) std::fill(gradient.data.begin(), gradient.data.end(), 0.0f);
        for_each_run(levels, [&](int first, int count, int slot) {
            const std::size_t s = slot;
            const Rows<float> d_mine = part(d_inner_, first, count, slot);
            kernels::gemm(exec, Operand::transposed, d_mine, Operand::plain, hidden.slice(first, count),
                          d_down_[s].view(), true);
            if (d_hidden.rows == 0) return;
            kernels::gemm(exec, Operand::plain, d_mine, Operand::plain, factors_.down[s].view(),
                          d_hidden.slice(first, count));
        });
    }
    std::vector<Parameter> parameters() override {
        std::vector<Parameter> all{{factors_.up.values(), d_up_.values()}};
        for (std::size_t s = 0; s < d_down_.size(); ++s)
            all.push_back({factors_.down[s].values(), d_down_[s].values()});
        return all;
    }

  private:
    /// Calls use(first, count, slot) for runs of adjacent rows with the same `down`.
    template <typename Use>
    void for_each_run(std::span<const std::uint8_t> levels, Use use) const {
        for (std::size_t first = 0; first < levels.size();) {
            const int slot = factors_.slot_for(levels[first]);
            std::size_t last = first + 1;
            while (last < levels.size() && factors_.slot_for(levels[last]) == slot) ++last;
            use(static_cast<int>(first), static_cast<int>(last - first), slot);
            first = last;
        }
    }
    /// The first columns of the rows, as many as the slot's rank.
    Rows<float> part(Dense& inner, int first, int count, int slot) const {
        return {inner.row(first).data(), count, factors_.down[slot].rows, inner.cols};
    }

    LowRankWeights& factors_;
    std::vector<Dense> d_down_;
    Dense d_up_, inner_, d_inner_;
};

class DenseStudent final : public Student {
  public:
    explicit DenseStudent(Dense& weights) : weights_(weights), gradient_(weights.rows, weights.cols) {}

    int support() const override { return weights_.rows; }
    void forward(kernels::Exec& exec, Rows<const float> hidden, std::span<const std::uint8_t>,
                 Rows<float> logits) override {
        kernels::gemm(exec, Operand::plain, hidden, Operand::transposed, weights_.view(), logits);
    }
    void backward(kernels::Exec& exec, Rows<const float> hidden, std::span<const std::uint8_t>,
                  Rows<const float> d_logits, Rows<float> d_hidden) override {
        kernels::gemm(exec, Operand::transposed, d_logits, Operand::plain, hidden, gradient_.view());
        if (d_hidden.rows > 0) {
            kernels::gemm(exec, Operand::plain, d_logits, Operand::plain, weights_.view(), d_hidden);
        }
    }
    std::vector<Parameter> parameters() override { return {{weights_.values(), gradient_.values()}}; }

  private:
    Dense& weights_;
    Dense gradient_;
};

/// A text row or a drafted row, by index.
struct RowRef {
    int index;
    bool text;
};

/// Loads rows and scores them with teacher and student.
class Batch {
  public:
    Batch(kernels::Exec& exec, const Samples& samples, const Teacher& teacher, double level_decay)
        : exec_(exec), samples_(samples), teacher_(teacher), level_decay_(level_decay) {}

    /// Sorts text rows first, so that each teacher runs once, and then by level.
    void load(std::vector<RowRef> rows) {
        const auto level_of = [&](const RowRef& row) {
            const SampleRows& from = row.text ? samples_.text : samples_.drafted;
            return from.level[row.index];
        };
        std::stable_sort(rows.begin(), rows.end(), [&](const RowRef& a, const RowRef& b) {
            return a.text != b.text ? a.text : level_of(a) < level_of(b);
        });
        levels_.clear();
        for (const RowRef& row : rows) levels_.push_back(level_of(row));
        const int d = samples_.text.hidden.width();
        const int count = static_cast<int>(rows.size());
        hidden_.resize(count, d);
        teacher_hidden_.resize(count, d);
        weights_.assign(rows.size(), 0.0f);
        int text = 0;
        double total = 0;
        for (int r = 0; r < count; ++r) {
            const RowRef& row = rows[r];
            const SampleRows& from = row.text ? samples_.text : samples_.drafted;
            from.hidden.read(row.index, hidden_.row(r));
            (row.text ? from.teacher : from.hidden).read(row.index, teacher_hidden_.row(r));
            const double weight = std::pow(level_decay_, levels_[r]);
            weights_[r] = static_cast<float>(weight);
            total += weight;
            text += row.text ? 1 : 0;
        }
        for (float& weight : weights_) weight /= static_cast<float>(total);
        score_teacher(0, text, *teacher_.target_rows);
        score_teacher(text, count - text, *teacher_.drafter_rows);
    }
    Rows<const float> hidden() const { return hidden_.view(); }
    std::span<const std::uint8_t> levels() const { return levels_; }
    /// Returns the weighted mean KL and replaces the logits by its gradient.
    double loss(Student& student) {
        logits_.resize(hidden_.rows, teacher_.support);
        student.forward(exec_, hidden_.view(), levels_, logits_.view());
        kl_.resize(weights_.size());
        const Rows<const float> teacher(teacher_logits_.data.data(), hidden_.rows, teacher_.support,
                                        teacher_logits_.cols);
        kernels::forward_kl(exec_, teacher, logits_.view(), weights_, kl_, logits_.view());
        double sum = 0;
        for (std::size_t r = 0; r < kl_.size(); ++r)
            sum += static_cast<double>(kl_[r]) * static_cast<double>(weights_[r]);
        return sum;
    }
    Rows<const float> gradient() const { return logits_.view(); }

  private:
    void score_teacher(int first, int count, const kernels::Matrix& rows) {
        const int width = std::max(teacher_.target_rows->n(), teacher_.drafter_rows->n());
        if (first == 0) teacher_logits_.resize(hidden_.rows, width);
        if (count == 0) return;
        const Rows<float> out(teacher_logits_.row(first).data(), count, rows.n(), width);
        kernels::matmul(exec_, rows, Rows<const float>(teacher_hidden_.view()).slice(first, count), out);
    }

    kernels::Exec& exec_;
    const Samples& samples_;
    const Teacher& teacher_;
    double level_decay_;
    Dense hidden_, teacher_hidden_, teacher_logits_, logits_;
    std::vector<float> weights_, kl_;
    std::vector<std::uint8_t> levels_;
};

std::vector<RowRef> refs(std::span<const int> text, std::span<const int> drafted) {
    std::vector<RowRef> rows;
    for (const int index : text) rows.push_back({index, true});
    for (const int index : drafted) rows.push_back({index, false});
    return rows;
}

void shuffle(std::vector<RowRef>& rows, Rng& rng) {
    for (std::size_t i = rows.size(); i > 1; --i)
        std::swap(rows[i - 1], rows[rng.below(static_cast<std::uint32_t>(i))]);
}

class Trainer {
  public:
    Trainer(kernels::Exec& exec, const Samples& samples, const Teacher& teacher, Student& student,
            const KlOptions& options, const Hooks& hooks)
        : options_(options),
          hooks_(hooks),
          exec_(exec),
          student_(student),
          batch_(exec, samples, teacher, options.level_decay) {
        const auto rows_of = [&](bool held) {
            std::vector<int> text = samples.text.indices(held);
            if (held) text = pick_evenly(std::move(text), max_eval_rows);
            const double wanted = options.drafted_share * static_cast<double>(text.size());
            return refs(text, pick_evenly(samples.drafted.indices(held),
                                          static_cast<std::size_t>(std::max(wanted, 0.0))));
        };
        train_ = rows_of(false);
        held_ = rows_of(true);
    }

    Result<KlReport> run();

  private:
    int batches(std::size_t rows) const {
        return static_cast<int>((rows + options_.batch - 1) / options_.batch);
    }
    std::vector<RowRef> slice(const std::vector<RowRef>& rows, int batch) const {
        const std::size_t size = options_.batch;
        const std::size_t first = numel(batch, size);
        const std::size_t last = std::min(rows.size(), first + size);
        return {rows.begin() + static_cast<std::ptrdiff_t>(first),
                rows.begin() + static_cast<std::ptrdiff_t>(last)};
    }
    Result<double> held_out_loss() {
        double sum = 0;
        for (int b = 0; b < batches(held_.size()); ++b) {
            DS_TRY(hooks_.check());
            std::vector<RowRef> rows = slice(held_, b);
            const auto share = static_cast<double>(rows.size()) / static_cast<double>(held_.size());
            batch_.load(std::move(rows));
            sum += share * batch_.loss(student_);
        }
        return sum;
    }
    void keep() {
        kept_.clear();
        for (const Parameter& p : student_.parameters()) kept_.emplace_back(p.values.begin(), p.values.end());
    }
    void restore() {
        const std::vector<Parameter> parameters = student_.parameters();
        for (std::size_t i = 0; i < kept_.size(); ++i)
            std::copy(kept_[i].begin(), kept_[i].end(), parameters[i].values.begin());
    }

    KlOptions options_;
    const Hooks& hooks_;
    kernels::Exec& exec_;
    Student& student_;
    Batch batch_;
    std::vector<RowRef> train_, held_;
    std::vector<std::vector<float>> kept_;
};

Result<KlReport> Trainer::run() {
    if (train_.empty() || held_.empty()) {
        return bad_input(
            "fit: {} rows to train on and {} held out; the recording is too small, record more prompts",
            train_.size(), held_.size());
    }
    KlReport report;
    const int per_epoch = batches(train_.size());
    AdamOptions adam_options;
    adam_options.rate = options_.rate;
    adam_options.clip = options_.clip;
    adam_options.steps = per_epoch * options_.epochs;
    adam_options.warmup = std::min(options_.warmup, adam_options.steps / 4);
    Adam adam(adam_options);
    Rng rng(options_.seed, 1);
    DS_ASSIGN(report.kl_before, held_out_loss());
    report.kl_after = report.kl_before;
    keep();
    for (int epoch = 1; epoch <= options_.epochs; ++epoch) {
        shuffle(train_, rng);
        for (int b = 0; b < per_epoch; ++b) {
            DS_TRY(hooks_.check());
            batch_.load(slice(train_, b));
            const double loss = batch_.loss(student_);
            student_.backward(exec_, batch_.hidden(), batch_.levels(), batch_.gradient(), {});
            adam.step(exec_, student_.parameters());
            hooks_.report(static_cast<double>(report.steps) / adam_options.steps,
                          fmt::format("training, epoch {} of {}, KL {:.3f}", epoch, options_.epochs, loss));
            ++report.steps;
        }
        DS_ASSIGN(const double kl, held_out_loss());
        if (kl < report.kl_after) {
            report.kl_after = kl;
            report.best_epoch = epoch;
            keep();
        }
    }
    restore();
    return report;
}

}  // namespace

std::unique_ptr<Student> make_low_rank_student(LowRankWeights& factors) {
    return std::make_unique<LowRankStudent>(factors);
}

std::unique_ptr<Student> make_dense_student(Dense& weights) {
    return std::make_unique<DenseStudent>(weights);
}

Result<KlReport> train_kl(kernels::Exec& exec, const Samples& samples, const Teacher& teacher,
                          Student& student, const KlOptions& options, const Hooks& hooks) {
    return Trainer(exec, samples, teacher, student, options, hooks).run();
}

}  // namespace draftscope::fit
