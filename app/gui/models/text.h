#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gui/models/ui_state.h"
#include "capture/capture.h"

/// What the Text panel draws: prompt and output of one prompt as pieces with their origin.
namespace draftscope {

enum class PieceKind { prompt, prefill, draft, bonus };

struct TextPiece {
    std::string text;  ///< valid UTF-8; may hold line ends
    PieceKind kind = PieceKind::prompt;
    TokenId token_id = no_token;
    int position = -1;        ///< among the generated tokens
    int depth = 0;            ///< of the round at which it was emitted, from 1
    bool covered = true;      ///< was in the head's active set
    std::optional<int> rank;  ///< frequency rank
    std::optional<std::size_t>
        round_index;  ///< into Snapshot::rounds; none for the prompt and the first token
};

struct TextModel {
    RowId prompt_id = 0;
    std::string empty_text;  ///< said instead when there is nothing
    std::string caption;     ///< "prompt 3 of 24 · coding · 61 tokens · ended: length"
    std::vector<TextPiece> pieces;
    int drafted = 0, bonus = 0, uncovered = 0;
};

/// The prompt to show: that of the selected round; while following, the newest of the run.
RowId prompt_to_show(const Snapshot& snapshot, const UiState& ui);
TextModel build_text(const Snapshot& snapshot, RowId prompt_id);

/// Bytes that do not form UTF-8 yet wait for the next token's: so a sign split over tokens appears once, with
/// the last of them. What never becomes valid is shown as the replacement character.
class Utf8Joiner {
  public:
    std::string push(std::string_view bytes);
    std::string finish();

  private:
    std::string waiting_;
};

/// One laid-out piece of a line: part of a TextPiece between two breaks.
struct TextRun {
    std::uint32_t piece = 0;
    std::uint32_t first = 0, count = 0;  ///< bytes of its text, line end excluded
    float x = 0, width = 0;
    int line = 0;
    bool line_end = false;  ///< the piece holds a line end here: shown as a mark
};
/// Breaks pieces into lines of at most `width`. `measure(text)` gives a text's width. Breaks at line ends and
/// before a piece that does not fit; a piece wider than a line is cut.
template <typename Measure>
std::vector<TextRun> lay_out_text(const std::vector<TextPiece>& pieces, float width, Measure measure);

/// Two lines about a token for its tooltip.
std::string describe_piece(const TextPiece& piece);

/// Pieces whose text contains `wanted`, ignoring ASCII case; a match may span pieces (first piece returned).
std::vector<std::size_t> find_text(const TextModel& model, const std::string& wanted);

template <typename Measure>
std::vector<TextRun> lay_out_text(const std::vector<TextPiece>& pieces, float width, Measure measure) {
    std::vector<TextRun> runs;
    float x = 0;
    int line = 0;
    for (std::uint32_t p = 0; p < pieces.size(); ++p) {
        const std::string& text = pieces[p].text;
        std::uint32_t at = 0;
        while (at < text.size()) {
            const std::size_t newline = text.find('\n', at);
            const bool breaks = newline != std::string::npos;
            std::uint32_t end = static_cast<std::uint32_t>(breaks ? newline : text.size());
            // The prompt is one long piece: break it between words.
            std::uint32_t next = breaks ? end + 1 : end;
            bool line_end = breaks;
            const std::string_view view = text;
            float piece_width = measure(view.substr(at, end - at));
            if (x + piece_width > width) {
                std::uint32_t fits = at;
                for (std::size_t space = view.find(' ', at + 1);
                     space != std::string_view::npos && space < end; space = view.find(' ', space + 1)) {
                    const float partial = measure(view.substr(at, space - at));
                    if (x + partial > width) break;
                    fits = static_cast<std::uint32_t>(space);
                    piece_width = partial;
                }
                if (fits == at && x > 0) {
                    x = 0;
                    ++line;
                    continue;
                }
                if (fits > at) {
                    runs.push_back({p, at, fits - at, x, piece_width, line, false});
                    x = 0;
                    ++line;
                    at = fits + 1;
                    continue;
                }
                piece_width = measure(view.substr(at, end - at));
            }
            runs.push_back({p, at, end - at, x, piece_width, line, line_end});
            x += piece_width;
            if (line_end) {
                x = 0;
                ++line;
            }
            at = next;
        }
    }
    return runs;
}

}  // namespace draftscope
