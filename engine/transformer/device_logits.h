#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/spans.h"
#include "base/units.h"
#include "engine/transformer/tree_step.h"
#include "kernels/device_array.h"

namespace draftscope {

/// A query about the logits of a step's trees, and how their paths are accepted. By default a path follows
/// the target's choices. The results suffice for acceptance and for recording the drafts' target
/// probabilities, without the logits themselves.
struct LogitsQuery {
    int vocab = 0;  ///< columns without padding
    int best = 1;   ///< number of best tokens of each row; may be 0 if choices are sampled
    /// For sampled choices: 1 / temperature, then top-k and top-p as in Sampling. The random numbers are
    /// those of the TreeStep.
    float scale = 1;
    int top_k = 0;
    double top_p = 1;
    /// Accepts paths by typical acceptance; requires sampled choices and `drafts`.
    bool typical = false;
    double epsilon = 0, delta = 0;
    /// Accepts paths by rejection sampling of each node's drafts; node i is row i.
    bool rejections = false;
    bool first_children = false;  ///< accepts the first child of each node; see TreePlan::max_path
    /// Requests the logit of each row's token in its parent's row and, with `ranks`, its rank.
    bool drafts = false;
    bool ranks = true;
    bool complete = false;  ///< stores the logits, for DeviceLogits::rows()
};

/// Returns whether a device supports the query's `vocab` and `best`. The CPU supports all.
bool can_answer(const LogitsQuery& query);

/// The results of a LogitsQuery, in host memory.
struct LogitsResult {
    int best = 0;
    std::vector<std::int32_t> best_ids;  ///< [rows, best], descending, ties to the lower id
    std::vector<float> best_logits;      ///< [rows, best]
    std::vector<std::int32_t> choices;   ///< [rows]
    std::vector<float> choice_logits;    ///< [rows]
    std::vector<float> log_norm;         ///< [rows], log of the sum of exp(logit * scale) over kept tokens
    std::vector<float> lowest;           ///< [rows], smallest kept logit; -inf if all are kept
    // [rows] with `rejections`, else empty. The CPU sets the accepted path's rows only.
    std::vector<std::int32_t> bonus;  ///< token sampled if the node has drafts and none is accepted, else -1
    std::vector<float> bonus_logits;
    std::vector<float> logits;  ///< [rows] with `drafts`, else empty
    std::vector<std::int32_t> ranks;
    /// [trees, width of the step] probability of the token sets along each tree's path; empty without sets.
    std::vector<float> masses;
    int width = 0;
};

/// The logits of a forward pass in the backend's memory, f32 [rows, columns], and what is computed from them.
class DeviceLogits {
  public:
    /// Reserves memory for the logits of a pass. Returns false if out of memory.
    bool reserve(kernels::Backend& backend, int rows, int columns);
    float* data() const { return logits_.as<float>(); }

    /// Prepares the answers about the rows of `step`. Reserves memory for the logits if the query needs them
    /// or the backend prefers to store them. Returns false if out of memory.
    bool begin(kernels::Backend& backend, int columns, const LogitsQuery& query, const TreeStep& step);
    /// Returns whether the pass has to write the logits to data(). If not, it calls enqueue_best().
    bool stored() const { return stored_; }
    /// Enqueues the best tokens of `x` [rows of the step, columns of the matrix], without storing the logits.
    void enqueue_best(const kernels::Matrix& lm_head, kernels::Activations x);
    /// Enqueues the ops that answer the query and accept the paths of `step`. Returns false if out of memory.
    /// The caller holds Backend::submit_mutex(), calls TreeStep::enqueue_download(), and calls collect()
    /// after Backend::synchronize().
    bool enqueue_answers(TreeStep& step);
    void collect(LogitsResult& out);

    /// Returns rows [first, first + count) in host memory, with padding columns; valid until the next pass.
    /// Downloads rows at first use, for which it locks Backend::submit_mutex() and synchronizes.
    Rows<const float> rows(int first, int count);

  private:
    /// Positions of the arrays in the device and host buffers of results, in 4-byte values.
    struct Layout {
        std::size_t best_ids = 0, best_logits = 0, choices = 0, choice_logits = 0, log_norm = 0, lowest = 0,
                    last = 0, logits = 0, ranks = 0, masses = 0, bonus = 0, bonus_logits = 0, end = 0;
    };
    bool lay_out(const TreeStep& step);
    void enqueue_topk();
    void enqueue_samples(const double* uniforms);
    bool accept_by_rejection(TreeStep& step);
    bool accept_typical(TreeStep& step);
    void enqueue_drafts(const kernels::TreeRows& trees);
    void enqueue_masses(const TreeStep& step);
    std::int32_t* ints(std::size_t at) const { return d_answers_.data() + at; }
    float* floats(std::size_t at) const { return d_answers_.as<float>() + at; }
    const float* min_logits() const { return masked_ ? floats(at_.lowest) : nullptr; }

    kernels::Backend* backend_ = nullptr;
    int rows_ = 0, columns_ = 0;
    LogitsQuery query_;
    kernels::DeviceArray<std::byte> scratch_;
    kernels::DeviceArray<float> weights_, entropies_;
    kernels::DeviceArray<std::int32_t> d_answers_, accepted_;
    kernels::DeviceBuffer logits_;
    Layout at_;
    int best_ = 0, tokens_ = 0, trees_ = 0, width_ = 0;
    bool stored_ = false, sampled_ = false, masked_ = false, masses_ = false;
    std::vector<kernels::SetProbabilityOp> mass_ops_;
    std::vector<int> no_sets_;           ///< trees whose sets are not known
    std::vector<std::int32_t> answers_;  ///< downloaded results
    std::vector<float> host_;            ///< [rows, columns], downloaded rows only
    std::vector<char> here_;
};

}  // namespace draftscope
