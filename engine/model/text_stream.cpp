#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"

namespace draftscope {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

/// Moves what is decided from `bytes` to the result: characters as they are, each invalid sequence as one
/// U+FFFD. Bytes of a character that is not complete stay, unless `is_end`.
std::string take_decided(std::string& bytes, bool is_end) {
    std::string out;
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const Utf8Unit unit = next_utf8(rest);
        if (unit.kind == Utf8Unit::Kind::incomplete && !is_end) break;
        out += unit.kind == Utf8Unit::Kind::character ? rest.substr(0, unit.length) : replacement;
        rest.remove_prefix(unit.length);
    }
    bytes.erase(0, bytes.size() - rest.size());
    return out;
}

}  // namespace

std::string TextStream::push(TokenId id) {
    if (!tokenizer_->is_control(id)) held_ += tokenizer_->token_bytes(id);
    return take_decided(held_, false);
}

std::string TextStream::finish() {
    return take_decided(held_, true);
}

std::string valid_utf8(std::string_view bytes) {
    std::string held(bytes);
    return take_decided(held, true);
}

}  // namespace draftscope
