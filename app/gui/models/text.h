#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/gui/models/ui_state.h"
#include "base/utf8.h"
#include "capture/capture.h"

/// Model of the Text panel: the tokens of one prompt and its output, each with its origin.
namespace draftscope {

enum class PieceKind { prompt, prefill, draft, bonus };

/// A token of the shown text.
struct TextPiece {
    std::string text;   ///< valid UTF-8, may contain line ends; "" if a later piece has the character
    std::string bytes;  ///< in hexadecimal, if the token's bytes are not whole characters
    /// Number of earlier pieces without text that hold bytes of this text's first character.
    std::uint32_t shared_pieces = 0;
    std::uint32_t shared_bytes = 0;  ///< length of that character in `text`
    PieceKind kind = PieceKind::prompt;
    TokenId token_id = no_token;
    int position = -1;        ///< index among the generated tokens
    int depth = 0;            ///< depth in its round's tree, from 1
    bool covered = true;      ///< in the head's active set
    std::optional<int> rank;  ///< frequency rank
    std::optional<std::size_t>
        round_index;  ///< into Snapshot::rounds; absent for the prompt and the first token
};

struct TextModel {
    RowId prompt_id = 0;
    std::string empty_text;  ///< shown if there is no text
    std::string caption;     ///< "prompt 3 of 24 · coding · 61 tokens · ended: length"
    std::vector<TextPiece> pieces;
    int drafted = 0, bonus = 0, uncovered = 0;
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
template <typename Measure>
std::vector<TextRun> lay_out_text(const std::vector<TextPiece>& pieces, float width, Measure measure);

/// Returns the lines of a token's tooltip.
std::string describe_piece(const TextPiece& piece);

/// Returns the pieces whose text contains `wanted`, ignoring ASCII case. For a match that spans pieces, it is
/// the first piece.
std::vector<std::size_t> find_text(const TextModel& model, const std::string& wanted);

/// State of `lay_out_text`: the current line.
template <typename Measure>
class TextFlow {
  public:
    TextFlow(const std::vector<TextPiece>& pieces, float width, Measure measure_text)
        : pieces_(pieces), width_(width), measure_(measure_text) {}

    /// Adds bytes [first, end) of a piece, which contain no line end.
    void add(std::uint32_t piece, std::uint32_t first, std::uint32_t end) {
        while (first < end) {
            std::uint32_t word = first + 1;
            while (word < end && text(piece)[word] != ' ') ++word;
            put(piece, first, word);
            first = word;
        }
    }
    void end_line(std::uint32_t piece, std::uint32_t at) {
        if (runs_.empty() || runs_.back().piece != piece || runs_.back().line != line_ ||
            runs_.back().line_end)
            runs_.push_back({piece, at, 0, x_, 0, line_, false});
        runs_.back().line_end = true;
        next_line();
    }
    std::vector<TextRun> take() { return std::move(runs_); }

  private:
    const std::string& text(std::uint32_t piece) const { return pieces_[piece].text; }
    float measure_range(std::uint32_t piece, std::uint32_t first, std::uint32_t end) {
        return measure_(std::string_view(text(piece)).substr(first, end - first));
    }
    void next_line() {
        x_ = 0;
        ++line_;
        line_start_ = word_start_ = runs_.size();
    }
    bool same_run(std::uint32_t piece, std::uint32_t first) const {
        return runs_.size() > line_start_ && runs_.back().piece == piece &&
               runs_.back().first + runs_.back().count == first;
    }
    /// Moves the runs since the last space to a new line, unless the line would become empty.
    void wrap() {
        const std::size_t moved_from = word_start_ > line_start_ ? word_start_ : runs_.size();
        x_ = 0;
        ++line_;
        line_start_ = word_start_ = moved_from;
        for (std::size_t i = moved_from; i < runs_.size(); ++i) {
            TextRun& run = runs_[i];
            if (i == moved_from) drop_space(run);
            run.line = line_;
            run.x = x_;
            x_ += run.width;
        }
    }
    void drop_space(TextRun& run) {
        if (run.count < 2 || text(run.piece)[run.first] != ' ') return;
        ++run.first;
        --run.count;
        run.width = measure_range(run.piece, run.first, run.first + run.count);
    }
    /// Adds a word, or the part of a word that a token holds.
    void put(std::uint32_t piece, std::uint32_t first, std::uint32_t end) {
        const bool space = text(piece)[first] == ' ';
        TextRun run{piece, first, end - first, x_, measure_range(piece, first, end), line_, false};
        // The first break moves the whole word, the second divides it.
        for (int breaks = 0; breaks < 2 && x_ + run.width > width_ && x_ > 0; ++breaks) {
            if (space) word_start_ = runs_.size();
            wrap();
            if (space) drop_space(run);
        }
        std::uint32_t at = run.first;
        while (run.width > width_ - x_) {
            const std::uint32_t fitting = fit(piece, at, end);
            if (fitting == end) break;
            append(piece, at, fitting, measure_range(piece, at, fitting), space);
            next_line();
            at = fitting;
            run.width = measure_range(piece, at, end);
        }
        append(piece, at, end, run.width, space);
    }
    /// Returns the end of the characters that fit on the line, at least one.
    std::uint32_t fit(std::uint32_t piece, std::uint32_t first, std::uint32_t end) {
        float used = 0;
        for (std::uint32_t at = first; at < end;) {
            const std::string_view rest = std::string_view(text(piece)).substr(at, end - at);
            const auto next = at + static_cast<std::uint32_t>(drawn_character_length(rest));
            used += measure_range(piece, at, next);
            if (x_ + used > width_) return at == first ? next : at;
            at = next;
        }
        return end;
    }
    void append(std::uint32_t piece, std::uint32_t first, std::uint32_t end, float width, bool space) {
        if (same_run(piece, first)) {
            runs_.back().count += end - first;
            runs_.back().width += width;
            if (space) word_start_ = runs_.size();
        } else {
            if (space) word_start_ = runs_.size();
            runs_.push_back({piece, first, end - first, x_, width, line_, false});
        }
        x_ += width;
    }

    const std::vector<TextPiece>& pieces_;
    float width_;
    Measure measure_;
    std::vector<TextRun> runs_;
    float x_ = 0;
    int line_ = 0;
    std::size_t line_start_ = 0;  ///< first run of the line
    std::size_t word_start_ = 0;  ///< first run after the last possible break
};

template <typename Measure>
std::vector<TextRun> lay_out_text(const std::vector<TextPiece>& pieces, float width, Measure measure) {
    TextFlow<Measure> flow(pieces, width, measure);
    for (std::uint32_t piece = 0; piece < pieces.size(); ++piece) {
        const std::string& text = pieces[piece].text;
        for (std::uint32_t at = 0; at < text.size();) {
            const auto end = static_cast<std::uint32_t>(std::min(text.find('\n', at), text.size()));
            flow.add(piece, at, end);
            if (end < text.size()) flow.end_line(piece, end);
            at = end + 1;
        }
    }
    return flow.take();
}

}  // namespace draftscope
