#pragma once

#include <string>
#include <vector>

#include "engine/fit/adam.h"
#include "engine/fit/dense.h"
#include "kernels/rope.h"

/// Forward and backward pass of an EAGLE drafter over a text, unrolled as it drafts. This is the
/// training-time test of EAGLE-3 (arXiv 2503.01840), for both generations.
namespace draftscope::fit {

struct EagleShape {
    int hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
    int features = 0;  ///< width of a target feature: d (EAGLE-2) or aux layers * d (EAGLE-3)
    bool eagle3 = false;
    bool norm_before_residual = false;  ///< an EAGLE-3 variant
    float norm_eps = 1e-5f;
};

/// Weights in f32 under short names; norms are [1, d].
struct EagleWeights {
    Dense fc;       ///< EAGLE-2 [d, 2d], embedding columns first; EAGLE-3 [d, features]
    Dense fc_bias;  ///< [1, d] or empty
    Dense q, k, v, o, gate, up, down;
    Dense post_norm;
    Dense input_norm, hidden_norm, final_norm;  ///< EAGLE-3 only
    /// Name and tensor of all weights that are not empty, in a fixed order.
    std::vector<std::pair<std::string, Dense*>> all();
};

/// The pass over one text. Slot i has the target's feature of token i and the embedding of token i + 1 +
/// step; its output at step s predicts token i + 2 + s. Step s > 0 reads the hidden state of step s - 1, has
/// position i + s, and attends to the step-0 keys of slots 0..i and its own slot's keys of steps 1..s.
class EaglePass {
  public:
    /// `rope` has at least slots + steps positions.
    EaglePass(const EagleShape& shape, EagleWeights& weights, const kernels::RopeTable& rope);

    /// `embeddings` is [slots + steps, d]; row j is the embedding of token j + 1. `features` is [slots,
    /// features].
    void forward(kernels::Exec& exec, Rows<const float> features, Rows<const float> embeddings, int steps);
    /// The input of the LM head at a step, [slots, d].
    Rows<const float> lm_head_input(int step) const { return steps_[step].head.view(); }
    /// `d_head[s]` [slots, d] is the loss gradient of step s's LM head input. Computes the gradients of all
    /// weights.
    void backward(kernels::Exec& exec, std::span<const Dense> d_head);
    std::vector<Parameter> parameters();

  private:
    struct Step {
        Dense joined;             ///< EAGLE-2: [e ; h], EAGLE-3: [norm e ; norm h]
        Dense embedding, hidden;  ///< EAGLE-3: inputs of their norms
        Dense residual;           ///< h0
        Dense q, k, v;            ///< rotated
        Dense weights;            ///< attention weights [heads * slots, slots + step], step-0 keys first
        Dense mixed;              ///< attention output
        Dense after_attention, normed, gate, up, product, out, head;
    };
    void enter(kernels::Exec& exec, int step, Rows<const float> embeddings);
    void attend(kernels::Exec& exec, int step);
    void leave(kernels::Exec& exec, int step);
    void back_leave(kernels::Exec& exec, int step, Dense& d_out, Dense& d_after);
    void back_attend(kernels::Exec& exec, int step, const Dense& d_mixed);
    void back_project(kernels::Exec& exec, int step, Dense& d_input);
    void rotate(kernels::Exec& exec, Dense& rows, int heads, int step, bool back);

    EagleShape shape_;
    EagleWeights& weights_;
    EagleWeights gradients_;
    const kernels::RopeTable& rope_;
    kernels::RopeTable back_rope_;  ///< the inverse rotation
    Rows<const float> features_;
    std::vector<Step> steps_;
    std::vector<Dense> d_q_, d_k_, d_v_;  ///< per step
    int slots_ = 0;
};

}  // namespace draftscope::fit
