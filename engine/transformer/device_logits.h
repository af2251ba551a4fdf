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

/// A query about the logits of a forward pass. The results suffice for acceptance and for recording the
/// drafts' target probabilities, without the logits themselves.
struct LogitsQuery {
    int vocab = 0;  ///< columns without padding
    int best = 1;   ///< number of best tokens of each row, at least 1
    /// For sampled choices: 1 / temperature, then top-k and top-p as in Sampling. The random numbers are
    /// those of the TreeStep.
    float scale = 1;
    int top_k = 0;
    double top_p = 1;
    /// Requests the entropy of each row, and has the thresholds of typical acceptance.
    bool entropies = false;
    double epsilon = 0, delta = 0;
    /// Requests rejection sampling of each node's drafts; node i is row i.
    bool residuals = false;
    /// Requests the logit of each row's token in its parent's row and, with `ranks`, its rank.
    bool drafts = false;
    bool ranks = true;
};

/// Returns whether a device supports the query's `vocab` and `best`.
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
    std::vector<float> entropies;        ///< [rows], empty if not requested
    // [rows] with `residuals`, else empty:
    std::vector<std::int32_t> accepted;  ///< index of the node's accepted draft, -1 = none
    std::vector<std::int32_t> bonus;     ///< token sampled if no draft is accepted, else -1
    std::vector<float> bonus_logits;
    std::vector<float> logits;  ///< [rows] with `drafts`, else empty
    std::vector<std::int32_t> ranks;
    std::vector<float> masses;  ///< [rows], probability of each row's token set, 0 if none; empty on the CPU
};

/// The logits of a forward pass in device memory, f32 [rows, columns]. Rows are downloaded on request.
class DeviceLogits {
  public:
    /// Reserves memory for the logits of a pass. Returns false if out of device memory.
    bool reserve(kernels::Device& device, int rows, int columns);
    float* data() const { return logits_.as<float>(); }

    /// Enqueues the ops that answer `question` for the rows of `step` and, if `accept`, those that accept its
    /// paths. Returns false if out of device memory. The caller holds Device::submit_mutex(), and calls
    /// collect() after Device::synchronize().
    bool enqueue_trees(const LogitsQuery& query, TreeStep& step, bool accept);
    void collect(LogitsResult& out);

    /// Returns rows [first, first + count) in host memory, with padding columns; valid until the next pass.
    /// Downloads rows at first use, for which it locks Device::submit_mutex() and synchronizes.
    Rows<const float> rows(int first, int count);

  private:
    /// Positions of the arrays in the device and host buffers of results, in 4-byte values.
    struct Layout {
        std::size_t best_ids = 0, best_logits = 0, choices = 0, choice_logits = 0, log_norm = 0, lowest = 0,
                    last = 0, entropies = 0, logits = 0, ranks = 0, masses = 0, accepted = 0, end = 0;
    };
    bool lay_out(const LogitsQuery& query);
    void enqueue_choices(const LogitsQuery& query, const double* uniforms);
    void enqueue_draws(const LogitsQuery& query, const double* uniforms);
    bool enqueue_residuals(const LogitsQuery& query, TreeStep& step);
    void enqueue_drafts(const LogitsQuery& query, const kernels::TreeRows& trees);
    void enqueue_masses(const LogitsQuery& query, const TreeStep& step);
    void enqueue_download();

    kernels::Device* device_ = nullptr;
    int rows_ = 0, columns_ = 0;
    kernels::DeviceArray<std::byte> scratch_;
    kernels::DeviceArray<float> weights_;
    kernels::DeviceArray<std::int32_t> d_answers_;
    kernels::DeviceBuffer logits_;
    int residual_nodes_ = 0;
    Layout at_;
    int best_ = 0, tokens_ = 0;
    bool drawn_ = false, cut_ = false, entropies_ = false, ranks_ = false, masses_ = false;
    std::vector<std::int32_t> answers_;  ///< downloaded results
    std::vector<float> host_;            ///< [rows, columns], downloaded rows only
    std::vector<char> here_;
};

}  // namespace draftscope
