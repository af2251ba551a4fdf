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

/// What rejection sampling wants of the rows after which there are drafts; spans as RejectionSampleOp has
/// them.
struct ResidualQuestion {
    std::vector<kernels::RejectionNode> nodes;
    std::vector<std::int32_t> drafts;
    std::vector<double> uniforms;  ///< of each draft
    std::vector<std::int32_t> ids;
    std::vector<float> probs;
};

/// What a round wants to know of the logits of a forward: enough to accept, and to record what the target
/// thought of the drafts, without the rows themselves. Spans stay alive during the forward.
struct RowQuestion {
    int vocab = 0;  ///< columns that count
    int best = 1;   ///< best tokens of each row; 1 at least
    /// Empty = the best token of each row is its choice; else [rows]: where in its distribution at
    /// temperature 1 / scale each row's choice lies.
    std::span<const double> uniforms;
    float scale = 1;
    /// What is cut from the rows before they are drawn from, as Sampling has it; only where they are.
    int top_k = 0;
    double top_p = 1;
    /// Is the entropy of each row wanted (typical acceptance)? For trees that are grown there, with the
    /// thresholds.
    bool entropies = false;
    double epsilon = 0, delta = 0;
    /// Which drafts are kept, and what follows them (rejection sampling); null = not wanted.
    const ResidualQuestion* residual = nullptr;
    /// The same of trees that are grown there, of drafts that were drawn there; node i is row i.
    bool residuals = false;
    /// Tokens whose logits and, with `ranks`, ranks are wanted, and in which rows; may be empty.
    std::span<const std::int32_t> rows, tokens;
    bool ranks = true;
    /// Sets of tokens whose probability is wanted, [rows]: null = not this row's. May be empty.
    std::span<const std::vector<TokenId>* const> sets;
    /// Of rows that are trees grown there (TreeStep), which then has uniforms and sets: are the logits and
    /// ranks of the drafts wanted? Row r's is of its token in its parent's row.
    bool drafts = false;
};

/// Can a device answer it?
bool can_answer(const RowQuestion& question);

struct RowAnswers {
    int best = 0;
    std::vector<std::int32_t> best_ids;  ///< [rows, best], descending, ties to the lower id
    std::vector<float> best_logits;      ///< [rows, best]
    std::vector<std::int32_t> choices;   ///< [rows]
    std::vector<float> choice_logits;    ///< [rows]
    std::vector<float> log_norm;         ///< [rows], log of the sum of exp(logit * scale) over what is kept
    std::vector<float> lowest;           ///< [rows], smallest logit that is kept; -inf where nothing is cut
    std::vector<float> entropies;        ///< [rows], where they were asked for
    // Of the nodes of the residual question.
    std::vector<std::int32_t> accepted;  ///< which of its drafts is kept, -1 = none
    std::vector<std::int32_t> bonus;     ///< -1 where one is
    std::vector<float> bonus_logits;
    std::vector<float> logits;  ///< of the question's tokens
    std::vector<std::int32_t> ranks;
    std::vector<float> masses;  ///< [rows]; 0 where none was asked for
};

/// The logits of a forward on the device that made them. Whoever needs a row in full gets a copy then.
class DeviceLogits {
  public:
    /// Memory for `rows` rows of `columns` logits; false when the device has none left.
    bool reserve(kernels::Device& device, int rows, int columns);
    float* data() const { return logits_.as<float>(); }

    /// Asks for the ops that answer `question` about the rows to come. `collect` after the device's
    /// finish(). The caller holds Device::busy().
    bool ask(const RowQuestion& question);
    /// The same about the rows of `step`, which also gets the path that the choices accept where `accept`.
    bool ask_trees(const RowQuestion& question, TreeStep& step, bool accept);
    void collect(RowAnswers& out);

    /// Rows [first, first + count) in host memory, padding columns included; downloads those that are not
    /// there yet.
    Rows<const float> rows(int first, int count);

  private:
    /// Places of the arrays in the two buffers, in values of four bytes.
    struct Layout {
        std::size_t best_ids = 0, best_logits = 0, choices = 0, choice_logits = 0, log_norm = 0, lowest = 0,
                    last = 0, entropies = 0, logits = 0, ranks = 0, masses = 0, accepted = 0, end = 0;
    };
    bool upload_question(const RowQuestion& question);
    bool lay_out(const RowQuestion& question, std::size_t tokens);
    void ask_choices(const RowQuestion& question, const double* uniforms);
    void ask_draws(const RowQuestion& question, const double* uniforms);
    bool ask_residual(const RowQuestion& question);
    bool ask_residual_of(const RowQuestion& question, TreeStep& step);
    bool ask_in_pieces(const RowQuestion& question, kernels::RejectionSampleOp op);
    void ask_tokens(const RowQuestion& question, const std::int32_t* rows, const std::int32_t* tokens);
    void ask_masses(const RowQuestion& question, const std::int32_t* rows, const std::int32_t* first,
                    const std::int32_t* size, const TokenId* ids);
    void ask_download();

    kernels::Device* device_ = nullptr;
    int rows_ = 0, columns_ = 0;
    kernels::DeviceArray<std::byte> residual_there_, scratch_;
    kernels::DeviceArray<float> probs_of_q_, weights_;
    kernels::DeviceArray<std::int32_t> ids_of_q_, asked_there_, ids_there_, answers_there_;
    kernels::DeviceArray<double> uniforms_there_;
    kernels::DeviceBuffer logits_;
    int residual_nodes_ = 0;
    Layout at_;
    int best_ = 0, tokens_ = 0;
    bool drawn_ = false, cut_ = false, entropies_ = false, ranks_ = false;
    std::vector<std::int32_t> asked_;    ///< rows, tokens; then of the sets: rows, first, size
    std::vector<int> mass_rows_;         ///< rows that have a set
    std::vector<std::int32_t> ids_;      ///< of the sets, one behind the other; as uploaded
    std::vector<std::int32_t> answers_;  ///< as downloaded
    std::vector<float> host_;            ///< [rows, columns], where `here_` says so
    std::vector<char> here_;
};

}  // namespace draftscope
