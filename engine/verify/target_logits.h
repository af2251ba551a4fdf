#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "engine/round/step.h"
#include "kernels/matrix.h"

namespace draftscope {

/// What a step asks about the target's logits after the nodes of its trees. The results suffice for
/// acceptance and for recording the drafts' target probabilities, without the logits themselves.
struct LogitsQuery {
    int vocab = 0;  ///< columns without padding
    int best = 1;   ///< number of best tokens of each row; may be 0 if choices are sampled
    /// For sampled choices: 1 / temperature, then top-k and top-p as in Sampling. The random numbers are
    /// those of the plan.
    float scale = 1;
    int top_k = 0;
    double top_p = 1;
    /// Requests the logit of each row's token in its parent's row and, with `ranks`, its rank.
    bool drafts = false;
    bool ranks = true;
    bool complete = false;  ///< stores the logits, for TargetLogits::download()
};

/// Returns an error if the backend's ops cannot answer the query.
Status check_query(const kernels::Backend& backend, const LogitsQuery& query);

/// The results of a LogitsQuery, in host memory.
struct LogitsResult {
    int best = 0;
    std::vector<std::int32_t> best_ids;  ///< [rows, best], descending, ties to the lower id
    std::vector<float> best_logits;      ///< [rows, best]
    std::vector<std::int32_t> choices;   ///< [rows]
    std::vector<float> choice_logits;    ///< [rows]
    std::vector<float> log_norm;         ///< [rows], log of the sum of exp(logit * scale) over kept tokens
    std::vector<float> min_logit;        ///< [rows], smallest kept logit; -inf if all are kept
    std::vector<float> logits;           ///< [rows] with `drafts`, else empty
    std::vector<std::int32_t> ranks;
    /// [trees, width of the step] probability of the token sets along each tree's path; empty without sets.
    std::vector<float> set_probs;
    int width = 0;
    std::vector<std::int32_t> by_rule;  ///< what the acceptance rule requested; see VerifyContext
};

/// The target's logits of a step in the backend's memory, f32 [rows, columns], and what is computed from
/// them.
class TargetLogits {
  public:
    /// Allocates memory for the answers about the rows of `step`. It also does so for the logits if the query
    /// needs them or the backend prefers to store them. `columns` are those of the LM head, with padding.
    /// Returns false if out of memory.
    bool begin(kernels::Backend& backend, RoundStep& step, const LogitsQuery& query, int columns);
    /// [rows, columns], which the target's pass has to write; null if best_op() is to be enqueued instead.
    float* data() const { return logits_; }
    std::int64_t columns() const { return columns_; }
    const LogitsQuery& query() const { return query_; }
    /// Returns the op for the best tokens of each row that replaces storing the logits, without its operands.
    kernels::MatmulTopKOp best_op() const;

    /// Enqueues the choices, best tokens and draft logits of the step's rows, which may be fewer than begin()
    /// planned for.
    void enqueue(const RoundStep& step);
    /// Enqueues the probability of the token sets along the accepted paths.
    void enqueue_set_probabilities(RoundStep& step);
    /// Requests the download of the results.
    void request(RoundStep& step);
    void collect(const RoundStep& step, LogitsResult& out) const;

    // Results in the backend's memory, indexed by the step's rows:
    bool sampled() const { return sampled_; }
    const std::int32_t* choices() const { return ints(sampled_ ? Field::choices : Field::best_ids); }
    std::int64_t choice_stride() const { return sampled_ ? 1 : best_; }
    const float* log_norm() const { return floats(Field::log_norm); }
    const float* min_logit() const { return masked_ ? floats(Field::min_logit) : nullptr; }
    const float* draft_logits() const { return floats(Field::logits); }
    float inverse_temperature() const { return sampled_ ? query_.scale : 1.0f; }

    /// Returns rows [first, first + count) in host memory, with padding columns; valid until the next step.
    /// Downloads rows at first use, for which it locks Backend::submit_mutex() and synchronizes.
    Rows<const float> download(int first, int count);

  private:
    /// Arrays of 4-byte values, one after another in results_.
    enum class Field {
        best_ids,
        best_logits,
        choices,
        choice_logits,
        log_norm,
        min_logit,
        last_tied_id,
        logits,
        ranks,
        set_probs,
        end
    };
    std::size_t at(Field field) const { return first_[static_cast<std::size_t>(field)]; }
    std::int32_t* ints(Field field) const { return results_ + at(field); }
    float* floats(Field field) const { return reinterpret_cast<float*>(ints(field)); }
    void enqueue_best();
    void enqueue_choices(const double* uniforms);

    kernels::Backend* backend_ = nullptr;
    LogitsQuery query_;
    int rows_ = 0;     ///< of the step: those of its plan, then of its trees
    int columns_ = 0;  ///< of a row of logits
    int best_ = 0;
    bool sampled_ = false, masked_ = false;
    float* logits_ = nullptr;
    std::int32_t* results_ = nullptr;
    std::array<std::size_t, static_cast<std::size_t>(Field::end) + 1> first_{};
    std::byte* topk_scratch_ = nullptr;
    std::size_t index_ = 0;            ///< of the results in RoundResults
    std::vector<float> downloaded_;    ///< [rows, columns]
    std::vector<char> is_downloaded_;  ///< [rows] whether downloaded_ has the row
};

}  // namespace draftscope
