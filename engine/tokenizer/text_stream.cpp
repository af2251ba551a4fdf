#include "base/utf8.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

/// Moves completed text from `bytes` to the end of `out`; each invalid sequence becomes one U+FFFD. The bytes
/// of an incomplete character stay unless `is_end`.
void move_complete(std::string& bytes, bool is_end, std::string& out) {
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const Utf8Unit unit = next_utf8(rest);
        if (unit.kind == Utf8Unit::Kind::incomplete && !is_end) break;
        out += unit.kind == Utf8Unit::Kind::character ? rest.substr(0, unit.length) : replacement;
        rest.remove_prefix(unit.length);
    }
    bytes.erase(0, bytes.size() - rest.size());
}

}  // namespace

void TextStream::push(TokenId id, std::string& out) {
    if (!tokenizer_->is_control(id)) pending_ += tokenizer_->token_bytes(id);
    move_complete(pending_, false, out);
}

std::string TextStream::finish() {
    std::string out;
    move_complete(pending_, true, out);
    return out;
}

std::string valid_utf8(std::string_view bytes) {
    std::string held(bytes), out;
    move_complete(held, true, out);
    return out;
}

}  // namespace draftscope
