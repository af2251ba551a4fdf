#include "app/gui/models/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "app/gui/models/selection.h"
#include "base/utf8.h"
#include "capture/queries.h"
#include "capture/run_setting.h"
#include "capture/token_text.h"

namespace draftscope {
namespace {

std::string token_bytes(const Snapshot& snapshot, const RunRow& run, TokenId token) {
    const Vocab* vocab = snapshot.vocab(run.vocab_id);
    if (vocab != nullptr && token >= 0 && static_cast<std::size_t>(token) < vocab->rows.size()) {
        const VocabRow& row = vocab->rows[token];
        return row.bytes.empty() ? row.text : row.bytes;
    }
    return fmt::format("⟨{}⟩", token);
}

std::string make_caption(const Snapshot& snapshot, const PromptRow& prompt) {
    const auto begun = std::count_if(snapshot.prompts.begin(), snapshot.prompts.end(),
                                     [&](const auto& other) { return other->run_id == prompt.run_id; });
    // An older file does not say how many were planned; pooled shards have more than each of them.
    const std::int64_t in_run = std::max<std::int64_t>(planned_prompts(*snapshot.run(prompt.run_id)), begun);
    std::string text =
        in_run > 1 ? fmt::format("prompt {} of {}", prompt.ordinal + 1, in_run) : std::string("prompt");
    if (!prompt.category.empty()) text += " · " + prompt.category;
    text += prompt.prompt_tokens < 0
                ? fmt::format(" · {} tokens", prompt.generated_tokens)
                : fmt::format(" · {} + {} tokens", prompt.prompt_tokens, prompt.generated_tokens);
    static constexpr const char* ends[] = {"", " · ended at the end token", " · ended at the length limit",
                                           " · ended at the context limit", " · stopped"};
    return text + ends[static_cast<std::size_t>(prompt.finish)];
}

char lower(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

/// State of `lay_out_text`: the current line.
class TextFlow {
  public:
    TextFlow(const std::vector<TextPiece>& pieces, float width,
             const std::function<float(std::string_view)>& measure)
        : pieces_(pieces), width_(width), measure_(measure) {}

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
        if (space) word_start_ = runs_.size();
        const bool continues = runs_.size() > line_start_ && runs_.back().piece == piece &&
                               runs_.back().first + runs_.back().count == first;
        if (continues) {
            runs_.back().count += end - first;
            runs_.back().width += width;
        } else {
            runs_.push_back({piece, first, end - first, x_, width, line_, false});
        }
        x_ += width;
    }

    const std::vector<TextPiece>& pieces_;
    float width_;
    const std::function<float(std::string_view)>& measure_;
    std::vector<TextRun> runs_;
    float x_ = 0;
    int line_ = 0;
    std::size_t line_start_ = 0;  ///< first run of the line
    std::size_t word_start_ = 0;  ///< first run after the last possible break
};

}  // namespace

void join_pieces(const std::vector<std::string>& bytes, std::span<TextPiece> pieces) {
    std::string all;
    std::vector<std::size_t> end_of;  // of each token in `all`
    for (const std::string& token : bytes) {
        all += token;
        end_of.push_back(all.size());
    }
    const std::string_view rest = all;
    std::size_t piece = 0;
    for (std::size_t at = 0; at < all.size();) {
        while (end_of[piece] <= at) ++piece;
        const Utf8Unit unit = next_utf8(rest.substr(at));
        if (unit.kind != Utf8Unit::Kind::character) {  // this token's part of the unit
            const std::size_t run = std::min(invalid_utf8_prefix(rest.substr(at)), end_of[piece] - at);
            pieces[piece].text += format_bytes(rest.substr(at, run));
            at += run;
            continue;
        }
        std::size_t last = piece;
        while (end_of[last] < at + unit.length) ++last;
        pieces[last].text += rest.substr(at, unit.length);
        if (last > piece) {
            pieces[last].shared_pieces = static_cast<std::uint32_t>(last - piece);
            pieces[last].shared_bytes = static_cast<std::uint32_t>(unit.length);
        }
        at += unit.length;
    }
    for (std::size_t i = 0; i < pieces.size(); ++i)
        if (invalid_utf8_prefix(bytes[i]) > 0 || valid_utf8_prefix(bytes[i]) < bytes[i].size())
            pieces[i].bytes = format_bytes(bytes[i]);
}

void replace_missing_glyphs(TextModel& model, const std::function<bool(char32_t)>& has_glyph) {
    for (TextPiece& piece : model.pieces) {
        const std::string_view text = piece.text;
        const std::string shared = replace_missing_glyphs(text.substr(0, piece.shared_bytes), has_glyph);
        piece.text = shared + replace_missing_glyphs(text.substr(piece.shared_bytes), has_glyph);
        piece.shared_bytes = static_cast<std::uint32_t>(shared.size());
    }
}

RowId prompt_to_show(const Snapshot& snapshot, const UiState& ui) {
    if (in_flight_selected(snapshot, ui)) return snapshot.in_flight->rounds[0].row.prompt_id;
    RowId newest = 0;
    for (auto prompt = snapshot.prompts.rbegin(); prompt != snapshot.prompts.rend() && newest == 0; ++prompt)
        if ((*prompt)->run_id == ui.run_id) newest = (*prompt)->id;
    if ((ui.follow && ui.stopped_prompt == 0) || !ui.round || *ui.round >= snapshot.rounds.size())
        return newest;
    return snapshot.rounds[*ui.round].row.prompt_id;
}

TextModel build_text(const Snapshot& snapshot, RowId prompt_id) {
    TextModel model;
    const PromptRow* prompt = snapshot.prompt(prompt_id);
    const RunRow* run = prompt == nullptr ? nullptr : snapshot.run(prompt->run_id);
    if (run == nullptr) {
        model.empty_text =
            "The output appears here when a run starts. Colours show whether a token was drafted or "
            "came from the target.";
        return model;
    }
    model.prompt_id = prompt_id;
    model.caption = make_caption(snapshot, *prompt);
    if (!prompt->text.empty()) model.pieces.emplace_back().text = prompt->text + "\n";
    std::vector<const TokenRow*> tokens;
    for (const TokenRow& token : snapshot.tokens)
        if (token.prompt_id == prompt_id) tokens.push_back(&token);
    std::ranges::stable_sort(tokens, {}, &TokenRow::position);
    if (run->acceptance == imported_acceptance && tokens.empty()) {
        model.caption += " · the imported file has no token ids";
        if (!prompt->output.empty()) model.pieces.emplace_back().text = prompt->output;
    }
    const std::size_t first = model.pieces.size();
    std::vector<std::string> bytes;
    for (const TokenRow* token : tokens) {
        bytes.push_back(token_bytes(snapshot, *run, token->token_id));
        TextPiece& piece = model.pieces.emplace_back();
        static_cast<TokenRow&>(piece) = *token;
        piece.round_index = round_index(snapshot, token->round_id);
    }
    join_pieces(bytes, std::span(model.pieces).subspan(first));
    return model;
}

std::vector<TextRun> lay_out_text(const std::vector<TextPiece>& pieces, float width,
                                  const std::function<float(std::string_view)>& measure) {
    TextFlow flow(pieces, width, measure);
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

std::string describe_piece(const TextPiece& piece) {
    if (piece.is_prompt()) return "prompt";
    std::string text = piece.source == TokenSource::prefill ? "first token, from prefill"
                       : piece.source == TokenSource::draft
                           ? fmt::format("drafted, accepted at depth {}", piece.depth)
                           : fmt::format("from the target, at depth {}", piece.depth);
    text += fmt::format("\ntoken {} at position {}", piece.token_id, piece.position);
    if (!piece.bytes.empty()) {
        text += fmt::format(", bytes {}", piece.bytes);
        if (piece.text.empty() || piece.shared_pieces > 0) text += ": part of a character";
    }
    if (piece.rank) text += fmt::format(", frequency rank {}", *piece.rank + 1);
    if (piece.covered == false) text += "\nnot in the head's vocabulary: it could not have been drafted";
    if (piece.round_index) text += "\nclick: select its round";
    return text;
}

std::optional<std::size_t> find_in_other_prompts(const Snapshot& snapshot, RowId prompt_id,
                                                 const std::string& wanted) {
    const PromptRow* now = snapshot.prompt(prompt_id);
    if (now == nullptr || wanted.empty()) return std::nullopt;
    std::vector<RowId> others;
    for (const auto& prompt : snapshot.prompts)
        if (prompt->run_id == now->run_id && prompt->id != prompt_id) others.push_back(prompt->id);
    std::ranges::stable_partition(others, [&](RowId id) { return id > prompt_id; });
    for (const RowId id : others) {
        const TextModel model = build_text(snapshot, id);
        for (const std::size_t piece : find_text(model, wanted))
            if (model.pieces[piece].round_index) return model.pieces[piece].round_index;
    }
    return std::nullopt;
}

std::vector<std::size_t> find_text(const TextModel& model, const std::string& wanted) {
    std::vector<std::size_t> found;
    if (wanted.empty()) return found;
    std::string all, needle;
    std::vector<std::size_t> start_of;
    for (const TextPiece& piece : model.pieces) {
        start_of.push_back(all.size());
        for (char c : piece.text) all += lower(c);
    }
    for (char c : wanted) needle += lower(c);
    for (std::size_t at = all.find(needle); at != std::string::npos; at = all.find(needle, at + 1)) {
        const auto after = std::upper_bound(start_of.begin(), start_of.end(), at);
        const auto piece = static_cast<std::size_t>(after - start_of.begin()) - 1;
        if (found.empty() || found.back() != piece) found.push_back(piece);
    }
    return found;
}

}  // namespace draftscope
