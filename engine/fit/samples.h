#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/spans.h"
#include "base/units.h"

namespace draftscope::fit {

/// Rows of floats kept as bf16, which is what drafter features are rounded to anyway.
class HalfRows {
  public:
    explicit HalfRows(int width = 0) : width_(width) {}
    void append(std::span<const float> row);
    void read(int row, std::span<float> out) const;
    int rows() const { return width_ > 0 ? static_cast<int>(data_.size()) / width_ : 0; }
    int width() const { return width_; }

  private:
    int width_;
    std::vector<std::uint16_t> data_;
};

/// What a drafter showed its LM head while it drafted over a trace. Two kinds of rows:
/// *text* rows stand on the text itself (the drafter was fed the tokens that really came), so the target's
/// own distribution there is known; *drafted* rows come from trees as the full head grows them, and carry its
/// best tokens.
struct SampleRows {
    explicit SampleRows(int width = 0, int topk_in = 0)
        : hidden(width), teacher(width), embedding(width), parent(width), topk(topk_in) {}

    HalfRows hidden;             ///< [n, d] as the head gets them
    HalfRows teacher;            ///< [n, d] text rows: the target's hidden that predicts the same token
    HalfRows embedding, parent;  ///< [n, d] what begin_level showed, when routers are to be fitted
    int topk = 0;
    std::vector<TokenId> top;            ///< [n, topk] drafted rows: the full head's best tokens
    std::vector<TokenId> token;          ///< [n] text rows: the token that came
    std::vector<std::uint8_t> level;     ///< [n] draft level, 0 = catch-up
    std::vector<std::uint8_t> held_out;  ///< [n] 1 = of a prompt kept for the report

    int rows() const { return hidden.rows(); }
    /// Indices of rows of held-out prompts, or of the others.
    std::vector<int> of(bool held) const;
};

/// All of them when they are no more than `most`, else an even choice of so many.
std::vector<int> evenly(std::vector<int> rows, std::size_t most);

/// Held-out rows of each kind that a report or an epoch's loss looks at; our default. More would cost what
/// training them does and say the same.
constexpr std::size_t judged_rows = 3000;

struct Samples {
    Samples(int width, int topk) : text(width), drafted(width, topk) {}
    SampleRows text;
    SampleRows drafted;
    int prompts = 0, held_out_prompts = 0;
    std::int64_t anchors = 0;  ///< places in the text at which a round was drafted
    int levels = 0;            ///< deepest draft level seen, plus one
};

}  // namespace draftscope::fit
