#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "base/units.h"

namespace draftscope::fit {

/// Rows of floats stored as bf16, to which drafter features are rounded in any case.
class Bf16Rows {
  public:
    explicit Bf16Rows(int width = 0) : width_(width) {}
    void append(std::span<const float> row);
    void read(int row, std::span<float> out) const;
    int rows() const { return width_ > 0 ? static_cast<int>(data_.size()) / width_ : 0; }
    int width() const { return width_; }
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(data_)); }

  private:
    int width_;
    std::vector<std::uint16_t> data_;
};

/// Inputs of a drafter's LM head while it drafted over a recording. Text rows follow the text, so the
/// target's distribution is known. Drafted rows come from trees of the full head and include its best tokens.
struct SampleRows {
    explicit SampleRows(int width = 0, int topk_in = 0)
        : hidden(width), teacher(width), embedding(width), parent(width), topk(topk_in) {}

    Bf16Rows hidden;             ///< [n, d] inputs of the head
    Bf16Rows teacher;            ///< [n, d] text rows: the target's hidden state that predicts the same token
    Bf16Rows embedding, parent;  ///< [n, d] HeadCall::inputs, if routers are fitted
    int topk = 0;
    std::vector<TokenId> top;            ///< [n, topk] drafted rows: the full head's best tokens
    std::vector<TokenId> token;          ///< [n] text rows: the text's token
    std::vector<std::uint8_t> level;     ///< [n] draft level, 0 = catch-up
    std::vector<std::uint8_t> held_out;  ///< [n] 1 = row of a held-out prompt

    int rows() const { return hidden.rows(); }
    /// Indices of the rows of held-out prompts, or of the other rows.
    std::vector<int> indices(bool held) const;
};

/// All rows, or the maximum number of evenly spaced ones.
std::vector<int> pick_evenly(std::vector<int> rows, std::size_t max_count);

/// Maximum held-out rows of each kind for a report or an epoch's loss; our default. More would cost as much
/// as training on them and give the same result.
constexpr std::size_t max_eval_rows = 3000;

struct Samples {
    Samples(int width, int topk) : text(width), drafted(width, topk) {}
    SampleRows text;
    SampleRows drafted;
    int prompts = 0, held_out_prompts = 0;
    std::int64_t anchors = 0;  ///< positions at which a round was drafted
    int levels = 0;            ///< deepest draft level seen, plus 1
};

}  // namespace draftscope::fit
