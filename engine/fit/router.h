#pragma once

#include <vector>

#include "engine/fit/adam.h"
#include "engine/fit/dense.h"
#include "engine/fit/hooks.h"
#include "engine/fit/samples.h"

/// Routers that choose groups of the vocabulary before the LM head is read: CORAL (arXiv 2502.16880) by the
/// drafter's hidden state, DynaSpec (arXiv 2510.13847) by token embedding and previous hidden state.
namespace draftscope::fit {

/// scores = out act(in x + in_bias) + out_bias, act = SiLU (our default: neither paper names one).
struct RouterWeights {
    Dense in;                     ///< [r, inputs]
    std::vector<float> in_bias;   ///< [r]
    Dense out;                    ///< [groups, r]
    std::vector<float> out_bias;  ///< [groups]
};

enum class RouterInput { hidden, embedding_and_parent };

/// [rows, inputs] of the chosen sample rows.
void router_inputs(const SampleRows& rows, std::span<const int> which, RouterInput input, Dense& out);
/// Labels [rows, groups]: 1 if a group contains at least one of the row's best tokens (DynaSpec, section
/// 3.3), else 0. group_of[token] is its group.
void router_labels(const SampleRows& rows, std::span<const int> which, std::span<const std::int32_t> group_of,
                   int groups, Dense& out);

/// Forward and backward pass of a router. The loss is the mean binary cross-entropy (BCE) over rows and
/// groups.
class RouterPass {
  public:
    explicit RouterPass(RouterWeights& router);
    Rows<const float> forward(kernels::Exec& exec, Rows<const float> inputs);
    /// Returns the mean BCE of the last forward() and computes the gradients.
    double backward(kernels::Exec& exec, Rows<const float> inputs, Rows<const float> labels);
    std::vector<Parameter> parameters();

  private:
    RouterWeights& router_;
    RouterWeights gradient_;
    Dense before_, inner_, scores_, d_inner_;
};

struct RouterOptions {
    int width = 128;  ///< r; our default
    int epochs = 4;   ///< our default
    int batch = 128;
    double rate = 2e-3;
    std::uint64_t seed = 0;
};

struct RouterReport {
    double bce_before = 0, bce_after = 0;  ///< on held-out rows
    int steps = 0;
};

/// Trains a router on the drafted rows that are not held out. The epoch with the best held-out loss stays.
/// Same bits for a seed at every thread count.
Result<RouterWeights> train_router(kernels::Exec& exec, const SampleRows& rows, RouterInput input,
                                   std::span<const std::int32_t> group_of, int groups,
                                   const RouterOptions& options, const Hooks& hooks, RouterReport& report);

}  // namespace draftscope::fit
