#include "engine/tokenizer/special_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

#include "base/mapped_file.h"
#include "base/utf8.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {
namespace {

bool is_word(char32_t c) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) ||
           category == UTF8PROC_CATEGORY_PC;
}

/// Returns the character that ends at `end`; its first byte is at or after `from`.
Utf8Unit last_before(std::string_view text, std::size_t from, std::size_t end) {
    std::size_t at = end - 1;
    while (at > from && (static_cast<std::uint8_t>(text[at]) & 0xc0) == 0x80) --at;
    return next_utf8(text.substr(at, end - at));
}

bool has_word_before(std::string_view text, std::size_t at) {
    if (at == 0) return false;
    const Utf8Unit unit = last_before(text, 0, at);
    return unit.kind == Utf8Unit::Kind::character && is_word(unit.character);
}

bool has_word_at(std::string_view text, std::size_t at) {
    if (at >= text.size()) return false;
    const Utf8Unit unit = next_utf8(text.substr(at));
    return unit.kind == Utf8Unit::Kind::character && is_word(unit.character);
}

}  // namespace

bool is_white_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

void SpecialTokens::add(std::string text, TokenId id, bool control, TokenMatching matching) {
    if (text.empty()) return;
    std::vector<Entry>& entries = by_first_byte_[static_cast<std::uint8_t>(text[0])];
    const auto shorter = std::find_if(entries.begin(), entries.end(),
                                      [&](const Entry& entry) { return entry.text.size() < text.size(); });
    entries.insert(shorter, {std::move(text), id, control, matching});
}

SpecialTokens::Hit SpecialTokens::find(std::string_view text, std::size_t from, bool with_control) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        for (const Entry& entry : by_first_byte_[static_cast<std::uint8_t>(text[at])]) {
            if ((!with_control && entry.control) || !text.substr(at).starts_with(entry.text)) continue;
            std::size_t begin = at, end = at + entry.text.size();
            if (entry.matching.single_word && (has_word_before(text, begin) || has_word_at(text, end)))
                continue;
            while (entry.matching.lstrip && begin > from) {
                const Utf8Unit unit = last_before(text, from, begin);
                if (unit.kind != Utf8Unit::Kind::character || !is_white_space(unit.character)) break;
                begin -= unit.length;
            }
            while (entry.matching.rstrip && end < text.size()) {
                const Utf8Unit unit = next_utf8(text.substr(end));
                if (unit.kind != Utf8Unit::Kind::character || !is_white_space(unit.character)) break;
                end += unit.length;
            }
            return {begin, end - begin, entry.id};
        }
    }
    return {};
}

Status fit_to_embedding(TokenizerSpec& spec, int rows) {
    // create() reports this error.
    if (spec.types.size() != spec.tokens.size()) return {};
    const auto is_out_of_range = [&](TokenId id) {
        return id >= rows && id < static_cast<int>(spec.tokens.size());
    };
    for (std::size_t id = rows; id < spec.tokens.size(); ++id) {
        if (spec.types[id] >= type_control && spec.types[id] <= type_unused) continue;
        return bad_input(
            "{}: the tokenizer has {} tokens, the embedding only {} rows, and token {} '{}' beyond them "
            "can occur in any text",
            spec.file, spec.tokens.size(), rows, id, printable(spec.tokens[id]));
    }
    std::erase_if(spec.eos, is_out_of_range);
    if (is_out_of_range(spec.named_eos)) spec.named_eos = no_token;
    return {};
}

}  // namespace draftscope
