#include "engine/tokenizer/sentence_pieces.h"

#include <algorithm>
#include <charconv>

#include "base/mapped_file.h"
#include "base/utf8.h"

namespace draftscope {
namespace {

constexpr std::string_view space_mark = "\xe2\x96\x81";  // U+2581

std::string with_marks(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == ' ')
            out += space_mark;
        else
            out += c;
    }
    return out;
}

/// Returns the byte that "<0x0A>" denotes, or -1.
int parse_byte_token(std::string_view token) {
    int value = -1;
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
    return error == std::errc() && end == token.data() + 5 ? value : -1;
}

/// Heap order: the highest score is at the top, the leftmost position first for equal scores.
bool piece_has_lower_priority(const SentencePieces::Scratch::Candidate& a,
                              const SentencePieces::Scratch::Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.position > b.position;
}

/// Splits text into characters; each invalid byte is one symbol.
std::size_t next_length(std::string_view text) {
    const Utf8Unit unit = next_utf8(text);
    return unit.kind == Utf8Unit::Kind::character ? unit.length : 1;
}

}  // namespace

Result<SentencePieces> SentencePieces::create(const TokenizerSpec& spec) {
    const bool by_score = spec.merges.empty();
    if (by_score && spec.pieces.scores.size() != spec.tokens.size())
        return bad_input("{}: {} tokens but {} scores", spec.file, spec.tokens.size(),
                         spec.pieces.scores.size());
    DS_ASSIGN(BpeMerges merges, read_merges(spec));
    SentencePieces out(std::move(merges));
    out.spec_ = spec.pieces;
    if (!by_score) out.spec_.scores.clear();
    out.byte_ids_.fill(no_token);
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
        const std::string& token = spec.tokens[i];
        const auto id = static_cast<TokenId>(i);
        const int type = spec.types[i], byte = parse_byte_token(token);
        if (type == type_byte) {
            if (byte < 0)
                return bad_input("{}: byte token {} is '{}', expected <0x00> to <0xFF>", spec.file, i,
                                 printable(token));
            out.byte_ids_[byte] = id;
        }
        if (type == type_normal || type == type_user_defined) out.ids_.emplace(token, id);
        if (type == type_user_defined && by_score) out.user_defined_.add(with_marks(token), id, false);
    }
    for (const AddedToken& added : spec.added) {
        if (!added.normalised || !spec.normaliser_escapes_spaces) continue;
        const std::size_t i = added.id;
        const std::string front(spec.pieces.space_prefix == SpacePrefix::always ? space_mark : "");
        out.user_defined_.add(front + with_marks(spec.tokens[i]), added.id,
                              spec.types[i] != type_user_defined, added.matching);
    }
    return out;
}

std::string SentencePieces::decode_token(std::string_view token, int type) {
    if (type == type_byte) return {static_cast<char>(parse_byte_token(token))};
    std::string out;
    for (std::size_t at = 0; at < token.size();) {
        const bool mark = token.substr(at).starts_with(space_mark);
        out += mark ? ' ' : token[at];
        at += mark ? space_mark.size() : 1;
    }
    return out;
}

void SentencePieces::escape(std::string_view text, bool at_start, std::string& out) const {
    out.clear();
    const bool needs_space = spec_.space_prefix == SpacePrefix::always ||
                             (!text.starts_with(' ') && !text.starts_with(space_mark) &&
                              (spec_.space_prefix == SpacePrefix::unless_present ||
                               (spec_.space_prefix == SpacePrefix::first_unless_present && at_start)));
    if (needs_space) out += space_mark;
    out += with_marks(text);
}

void SentencePieces::append_ids(std::string_view piece, std::vector<TokenId>& out) const {
    const TokenId piece_id = find(piece);
    if (piece_id != no_token) return out.push_back(piece_id);
    const bool bytes = std::all_of(piece.begin(), piece.end(), [&](char c) {
        return byte_ids_[static_cast<std::uint8_t>(c)] != no_token;
    });
    if (bytes) {
        for (const char c : piece) out.push_back(byte_ids_[static_cast<std::uint8_t>(c)]);
    } else if (spec_.unknown != no_token && (out.empty() || out.back() != spec_.unknown)) {
        out.push_back(spec_.unknown);
    }
}

void SentencePieces::push_candidate(std::string_view text, std::int32_t position, Scratch& scratch) const {
    const Scratch::Symbol& left = scratch.symbols[position];
    if (left.next < 0) return;
    const std::size_t length = left.length + scratch.symbols[left.next].length;
    const TokenId id = find(text.substr(left.begin, length));
    if (id == no_token) return;
    scratch.queue.push_back({spec_.scores[id], position, length});
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), piece_has_lower_priority);
}

void SentencePieces::merge_by_score(std::string_view text, Scratch& scratch,
                                    std::vector<TokenId>& out) const {
    auto& symbols = scratch.symbols;
    symbols.clear();
    scratch.queue.clear();
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = next_length(text.substr(at));
        const auto index = static_cast<std::int32_t>(symbols.size());
        at += length;
        symbols.push_back({at - length, length, index - 1, at < text.size() ? index + 1 : -1});
    }
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        push_candidate(text, static_cast<std::int32_t>(i), scratch);
    while (!scratch.queue.empty()) {
        const Scratch::Candidate best = scratch.queue.front();
        std::pop_heap(scratch.queue.begin(), scratch.queue.end(), piece_has_lower_priority);
        scratch.queue.pop_back();
        Scratch::Symbol& left = symbols[best.position];
        if (left.length == 0 || left.next < 0) continue;
        Scratch::Symbol& right = symbols[left.next];
        if (left.length + right.length != best.length) continue;  // stale
        left.length = best.length;
        right.length = 0;
        left.next = right.next;
        if (left.next >= 0) symbols[left.next].previous = best.position;
        push_candidate(text, best.position, scratch);
        if (left.previous >= 0) push_candidate(text, left.previous, scratch);
    }
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
        const Scratch::Symbol& symbol = symbols[i];
        append_ids(text.substr(symbol.begin, symbol.length), out);
    }
}

void SentencePieces::merge_by_rank(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
    scratch.characters.clear();
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = next_length(text.substr(at));
        append_ids(text.substr(at, length), scratch.characters);
        at += length;
    }
    merges_.apply(scratch.characters, scratch.merging, out);
}

void SentencePieces::encode(std::string_view text, bool at_start, bool parse_special, Scratch& scratch,
                            std::vector<TokenId>& out) const {
    if (text.empty()) return;
    escape(text, at_start, scratch.escaped);
    user_defined_.split(scratch.escaped, parse_special, out, [&](std::string_view plain, std::size_t) {
        if (spec_.scores.empty())
            merge_by_rank(plain, scratch, out);
        else
            merge_by_score(plain, scratch, out);
    });
}

}  // namespace draftscope
