#pragma once

#include <span>
#include <vector>

#include "engine/heads/head.h"

namespace draftscope::testing {

/// Candidates of `rows` hidden rows: at most k each, by descending logit, ties to the lower token id.
struct Proposal {
    int k = 0;
    std::vector<TokenId> ids;      ///< [rows, k] target ids
    std::vector<float> logits;     ///< [rows, k]
    std::vector<float> logsumexp;  ///< [rows], over the row's support
    std::vector<int> counts;       ///< [rows]; < k if the shortlist is smaller
};

/// The logits that a row's drafts are sampled from.
struct SparseLogits {
    std::vector<TokenId> ids;  ///< ascending; empty = logits[i] is of token i
    std::vector<float> logits;
};

/// Calls a head on the CPU for rows in host memory.
class HostCall {
  public:
    HostCall(kernels::Backend& exec, PhaseRecorder& phases) : exec_(exec), phases_(phases) {}
    /// Calls LmHead::begin() with the rows' inputs, each [rows, d]. states[r] is the state of row r's
    /// sequence; empty = all null.
    void begin(LmHead& head, int level, Rows<const float> embeddings, Rows<const float> hiddens,
               std::span<HeadState* const> states);
    /// Returns the candidates of the rows.
    Proposal propose(LmHead& head, int level, Rows<const float> hidden, std::span<HeadState* const> states,
                     int k);
    /// Returns the logits that drafts are sampled from at `temperature`, for each row.
    std::vector<SparseLogits> support(LmHead& head, int level, Rows<const float> hidden,
                                      std::span<HeadState* const> states, double temperature = 0);

  private:
    HeadCall make_call(LmHead& head, int level, int rows, int k, std::span<HeadState* const> states);
    void list_sequences(const LmHead& head, int level, int rows, std::span<HeadState* const> states);
    void run(LmHead& head, HeadCall& call, Rows<const float> hidden);

    static constexpr int max_candidates = 64;

    kernels::Backend& exec_;
    PhaseRecorder& phases_;
    bool begun_ = false;
    DeviceSpans spans_;
    std::vector<HeadSequence> sequences_;
    std::vector<std::int32_t> sizes_, downloads_, ids_;
    std::vector<TokenId> sets_;
    std::vector<float> inputs_, x_, logits_, sums_;
};

}  // namespace draftscope::testing
