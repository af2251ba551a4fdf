#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/spans.h"
#include "base/units.h"
#include "engine/model/tree_step.h"
#include "kernels/device.h"

namespace draftscope {

/// What a round wants to know of the logits of a forward: enough to accept, and to record what the target
/// thought of the drafts, without the rows themselves. Spans stay alive during the forward.
struct RowQuestion {
    int vocab = 0;  ///< columns that count
    int best = 1;   ///< best tokens of each row; 1 at least
    /// Empty = the best token of each row is its choice; else [rows]: where in its distribution at
    /// temperature 1 / scale each row's choice lies.
    std::span<const double> uniforms;
    float scale = 1;
    /// Tokens whose logits and ranks are wanted, and in which rows; may be empty.
    std::span<const std::int32_t> rows, tokens;
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
    std::vector<float> log_norm;         ///< [rows], log of the sum of exp(logit * scale)
    std::vector<float> logits;           ///< of the question's tokens
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
        std::size_t best_ids = 0, best_logits = 0, choices = 0, choice_logits = 0, log_norm = 0, logits = 0,
                    ranks = 0, masses = 0, end = 0;
    };
    bool upload_question(const RowQuestion& question);
    bool lay_out(const RowQuestion& question, std::size_t tokens);
    void ask_choices(const RowQuestion& question, const double* uniforms);
    void ask_masses(const RowQuestion& question, const std::int32_t* rows, const std::int32_t* first,
                    const std::int32_t* size, const TokenId* ids);
    void ask_download();

    kernels::Device* device_ = nullptr;
    int rows_ = 0, columns_ = 0;
    kernels::DeviceBuffer logits_, scratch_, asked_there_, ids_there_, uniforms_there_, answers_there_;
    Layout at_;
    int best_ = 0, tokens_ = 0;
    bool drawn_ = false;
    std::vector<std::int32_t> asked_;    ///< rows, tokens; then of the sets: rows, first, size
    std::vector<int> mass_rows_;         ///< rows that have a set
    std::vector<std::int32_t> ids_;      ///< of the sets, one behind the other; as uploaded
    std::vector<std::int32_t> answers_;  ///< as downloaded
    std::vector<float> host_;            ///< [rows, columns], where `here_` says so
    std::vector<char> here_;
};

}  // namespace draftscope
