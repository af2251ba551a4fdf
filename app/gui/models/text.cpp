#include "app/gui/models/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

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

PieceKind to_piece_kind(TokenSource source) {
    switch (source) {
        case TokenSource::prefill:
            return PieceKind::prefill;
        case TokenSource::draft:
            return PieceKind::draft;
        case TokenSource::bonus:
            return PieceKind::bonus;
    }
    return PieceKind::bonus;
}

std::string make_caption(const Snapshot& snapshot, const PromptRow& prompt) {
    const auto begun = std::count_if(snapshot.prompts.begin(), snapshot.prompts.end(),
                                     [&](const auto& other) { return other->run_id == prompt.run_id; });
    // An older file does not say how many were planned; pooled shards have more than each of them.
    const std::int64_t in_run = std::max<std::int64_t>(planned_prompts(*snapshot.run(prompt.run_id)), begun);
    std::string text =
        in_run > 1 ? fmt::format("prompt {} of {}", prompt.ordinal + 1, in_run) : std::string("prompt");
    if (!prompt.category.empty()) text += " · " + prompt.category;
    text += fmt::format(" · {} + {} tokens", prompt.prompt_tokens, prompt.generated_tokens);
    if (prompt.finish == Finish::eos) text += " · ended at the end token";
    if (prompt.finish == Finish::length) text += " · ended at the length limit";
    if (prompt.finish == Finish::context) text += " · ended at the context limit";
    if (prompt.finish == Finish::cancelled) text += " · stopped";
    return text;
}

char lower(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

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
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const TokenRow* a, const TokenRow* b) { return a->position < b->position; });
    const std::size_t first = model.pieces.size();
    std::vector<std::string> bytes;
    for (const TokenRow* row : tokens) {
        const TokenRow& token = *row;
        TextPiece piece;
        bytes.push_back(token_bytes(snapshot, *run, token.token_id));
        piece.kind = to_piece_kind(token.source);
        piece.token_id = token.token_id;
        piece.position = token.position;
        piece.depth = token.depth;
        piece.covered = token.covered;
        piece.rank = token.rank;
        piece.round_index = round_index(snapshot, token.round_id);
        model.drafted += piece.kind == PieceKind::draft;
        model.bonus += piece.kind == PieceKind::bonus;
        model.uncovered += !piece.covered;
        model.pieces.push_back(std::move(piece));
    }
    join_pieces(bytes, std::span(model.pieces).subspan(first));
    return model;
}

std::string describe_piece(const TextPiece& piece) {
    std::string text;
    switch (piece.kind) {
        case PieceKind::prompt:
            return "prompt";
        case PieceKind::prefill:
            text = "first token, from prefill";
            break;
        case PieceKind::draft:
            text = fmt::format("drafted, accepted at depth {}", piece.depth);
            break;
        case PieceKind::bonus:
            text = fmt::format("from the target, at depth {}", piece.depth);
            break;
    }
    text += fmt::format("\ntoken {} at position {}", piece.token_id, piece.position);
    if (!piece.bytes.empty()) {
        text += fmt::format(", bytes {}", piece.bytes);
        if (piece.text.empty() || piece.shared_pieces > 0) text += ": part of a character";
    }
    if (piece.rank) text += fmt::format(", frequency rank {}", *piece.rank + 1);
    if (!piece.covered) text += "\nnot in the head's vocabulary: it could not have been drafted";
    if (piece.round_index) text += "\nclick: select its round";
    return text;
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
