#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "base/units.h"

namespace draftscope::fit {

struct HoldOut {
    int every = 10;      ///< one of so many usable texts is held out ...
    int max_texts = 60;  ///< ... but not more than this many
};

/// Splits texts into training and held-out ones. Rankings, rows and joint training share it, so that nothing
/// is evaluated on its training texts.
class TextSplit {
  public:
    /// `generated[t]` is the number of tokens after the prompt of text t. Texts with fewer than two are
    /// skipped. Of two or more usable texts at least one is held out.
    TextSplit(std::span<const int> generated, HoldOut hold_out);

    /// Indices into `generated`, ascending.
    const std::vector<int>& usable() const { return usable_; }
    /// Returns whether usable()[ordinal] is held out.
    bool held_out(int ordinal) const { return ordinal % every_ == every_ - 1; }
    std::vector<int> texts(bool held_out) const;

  private:
    std::vector<int> usable_;
    int every_ = 2;
};

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
    Bf16Rows teacher;            ///< [n, target's d] text rows: its hidden state that predicts the same token
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
    Samples(int width, int topk) : text(width), draft(width, topk) {}
    SampleRows text;
    SampleRows draft;
    int prompts = 0, held_out_prompts = 0;
    std::int64_t anchors = 0;  ///< positions at which a round was drafted
    int levels = 0;            ///< deepest draft level seen, plus 1
};

}  // namespace draftscope::fit
