#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/models/selection.h"
#include "capture/capture.h"

/// Model of the Text panel: the tokens of one prompt and its output, each with its origin.
namespace draftscope {

/// A token of the output with its text, or the prompt.
struct TextPiece : TokenRow {
    std::string text;   ///< valid UTF-8, may contain line ends; "" if a later piece has the character
    std::string bytes;  ///< in hexadecimal, if the token's bytes are not whole characters
    /// Number of earlier pieces without text that hold bytes of this text's first character.
    std::uint32_t shared_pieces = 0;
    std::uint32_t shared_bytes = 0;  ///< length of that character in `text`
    std::optional<std::size_t>
        round_index;  ///< into Snapshot::rounds; absent for the prompt and the first token

    bool is_prompt() const { return token_id == no_token; }
};

struct TextModel {
    RowId prompt_id = 0;
    std::string empty_text;  ///< shown if there is no text
    std::string caption;     ///< "prompt 3 of 24 · coding · 61 tokens · ended: length"
    std::vector<TextPiece> pieces;
};

/// Returns the prompt to show: the selected round's, or the run's newest while following.
RowId prompt_to_show(const Snapshot& snapshot, const UiState& ui);
TextModel build_text(const Snapshot& snapshot, RowId prompt_id);

/// Sets each piece's text from its token's bytes. A character split over several tokens goes to the last of
/// them. Bytes that form no character are shown in hexadecimal.
void join_pieces(const std::vector<std::string>& bytes, std::span<TextPiece> pieces);
/// Replaces characters without a glyph by their code points.
void replace_missing_glyphs(TextModel& model, const std::function<bool(char32_t)>& has_glyph);

/// Part of a TextPiece on one line.
struct TextRun {
    std::uint32_t piece = 0;
    std::uint32_t first = 0, count = 0;  ///< byte range of the piece's text, without line ends
    float x = 0, width = 0;
    int line = 0;
    bool line_end = false;  ///< ends with a line end, shown as a mark
};
/// Breaks pieces into lines. `measure(text)` returns a text's width. Lines break at line ends and before
/// words that do not fit in `width`, also inside a piece. A word wider than `width` breaks between its
/// pieces, or between the characters of a piece. The space at a break is not shown.
std::vector<TextRun> lay_out_text(const std::vector<TextPiece>& pieces, float width,
                                  const std::function<float(std::string_view)>& measure);

/// Returns the lines of a token's tooltip.
std::string describe_piece(const TextPiece& piece);

/// Returns the first round of the run whose text contains `wanted`, outside of a prompt. The prompts after it
/// are searched first. Absent if no other prompt has the text.
std::optional<std::size_t> find_in_other_prompts(const Snapshot& snapshot, RowId prompt_id,
                                                 const std::string& wanted);

/// Returns the pieces whose text contains `wanted`, ignoring ASCII case. For a match that spans pieces, it is
/// the first piece.
std::vector<std::size_t> find_text(const TextModel& model, const std::string& wanted);

}  // namespace draftscope
