#include <algorithm>
#include <array>
#include <charconv>

#include "base/utf8.h"
#include "engine/chat_template/template.h"

namespace draftscope::jinja {
namespace {

constexpr std::string_view blanks = " \t\n\r\v\f";

bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string with_plain_newlines(std::string_view source) {
    std::string out;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r')
            out += source[i];
        else if (!source.substr(i + 1).starts_with('\n'))
            out += '\n';
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

class Lexer {
  public:
    explicit Lexer(std::string source) : source_(std::move(source)) {}

    std::vector<Token> run() {
        while (at_ < source_.size()) {
            const std::size_t tag = next_tag(at_);
            data(tag);
            if (tag == std::string::npos) break;
            if (source_[tag + 1] == '#')
                comment();
            else if (source_[tag + 1] == '{')
                inside(Token::Kind::output_begin, "}}", Token::Kind::output_end);
            else if (!raw())
                inside(Token::Kind::block_begin, "%}", Token::Kind::block_end);
        }
        push(Token::Kind::end, "");
        return std::move(tokens_);
    }

  private:
    std::size_t next_tag(std::size_t from) const {
        for (std::size_t at = source_.find('{', from); at != std::string::npos;
             at = source_.find('{', at + 1)) {
            const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
            if (next == '{' || next == '%' || next == '#') return at;
        }
        return std::string::npos;
    }

    /// The text up to a tag, with the whitespace control of both neighbouring tags applied.
    void data(std::size_t tag) {
        std::string_view text =
            std::string_view(source_).substr(at_, tag == std::string::npos ? tag : tag - at_);
        const std::string_view input = text;
        if (tag != std::string::npos) {
            const char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
            if (mark == '-') {
                text = text.substr(0, text.find_last_not_of(blanks) + 1);
            } else if (mark != '+' && source_[tag + 1] != '{') {
                const std::size_t line = text.rfind('\n') + 1;
                if ((line > 0 || at_line_start_) &&
                    text.find_first_not_of(blanks, line) == std::string_view::npos)
                    text = text.substr(0, line);
            }
        }
        if (!text.empty()) push(Token::Kind::data, std::string(text));
        advance(input.size());
    }

    void advance(std::size_t count) {
        line_ +=
            static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                        source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
        at_ += count;
    }

    /// Whitespace control after a tag: `-` strips all white space, a block strips one newline.
    void close(bool minus, bool strips_newline) {
        std::size_t end = at_;
        if (minus)
            end = std::min(source_.find_first_not_of(blanks, at_), source_.size());
        else if (strips_newline && end < source_.size() && source_[end] == '\n')
            ++end;
        at_line_start_ = end > at_ && source_[end - 1] == '\n';
        advance(end - at_);
    }

    void comment() {
        const std::size_t end = source_.find("#}", at_ + 2);
        if (end == std::string::npos) fail(where(), "a comment is not closed");
        const char mark = source_[end - 1];
        advance(end + 2 - at_);
        close(mark == '-', mark != '+');
    }

    /// `{% raw %} ... {% endraw %}`.
    bool raw() {
        const auto tag_at = [&](std::size_t at, std::string_view word, std::size_t& end, bool& minus) {
            std::size_t i = at + 2;
            if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
            i = source_.find_first_not_of(blanks, i);
            if (i == std::string::npos || source_.compare(i, word.size(), word) != 0) return false;
            i = source_.find_first_not_of(blanks, i + word.size());
            if (i == std::string::npos) return false;
            minus = source_[i] == '-';
            if (minus || source_[i] == '+') ++i;
            if (source_.compare(i, 2, "%}") != 0) return false;
            end = i + 2;
            return true;
        };
        std::size_t end = 0;
        bool minus = false;
        if (!tag_at(at_, "raw", end, minus)) return false;
        advance(end - at_);
        close(minus, false);
        for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
             tag = source_.find("{%", tag + 1)) {
            if (!tag_at(tag, "endraw", end, minus)) continue;
            data(tag);
            advance(end - at_);
            close(minus, true);
            return true;
        }
        fail(where(), "{% raw %} is not closed");
    }

    void inside(Token::Kind begin, std::string_view close_mark, Token::Kind end) {
        push(begin, "");
        advance(2);
        if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) {
            // A minus after the opening is whitespace control, never a sign.
            advance(1);
        }
        int open = 0;
        while (true) {
            advance(std::min(source_.find_first_not_of(blanks, at_), source_.size()) - at_);
            if (at_ >= source_.size()) fail(where(), "a tag is not closed");
            const std::string_view rest = std::string_view(source_).substr(at_);
            const char mark = rest[0];
            const bool marked = (mark == '-' || mark == '+') && rest.substr(1).starts_with(close_mark);
            if (open == 0 && (marked || rest.starts_with(close_mark))) {
                push(end, "");
                advance(close_mark.size() + (marked ? 1 : 0));
                close(marked && mark == '-', end == Token::Kind::block_end && !(marked && mark == '+'));
                return;
            }
            token(rest, open);
        }
    }

    void token(std::string_view rest, int& open) {
        const char c = rest[0];
        if (is_name_start(c)) {
            std::size_t length = 1;
            while (length < rest.size() && (is_name_start(rest[length]) || is_digit(rest[length]))) ++length;
            push(Token::Kind::name, std::string(rest.substr(0, length)));
            return advance(length);
        }
        if (is_digit(c)) return number(rest);
        if (c == '\'' || c == '"') return literal(rest);
        constexpr std::array<std::string_view, 6> two = {"==", "!=", "<=", ">=", "//", "**"};
        for (const std::string_view symbol : two) {
            if (rest.starts_with(symbol)) {
                push(Token::Kind::symbol, std::string(symbol));
                return advance(2);
            }
        }
        if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos)
            fail(where(), "'", std::string(1, c), "' is not allowed in an expression");
        if (c == '(' || c == '[' || c == '{') ++open;
        if (c == ')' || c == ']' || c == '}') --open;
        push(Token::Kind::symbol, std::string(1, c));
        advance(1);
    }

    void number(std::string_view rest) {
        std::size_t length = 0;
        std::string digits;
        bool floating = false;
        while (length < rest.size()) {
            const char c = rest[length];
            const bool point =
                c == '.' && !floating && length + 1 < rest.size() && is_digit(rest[length + 1]);
            const bool exponent = (c == 'e' || c == 'E') && digits.find('e') == std::string::npos;
            const bool sign = (c == '-' || c == '+') && digits.ends_with('e');
            if (!is_digit(c) && c != '_' && !point && !exponent && !sign) break;
            floating = floating || point || exponent;
            if (c != '_') digits += exponent ? 'e' : c;
            ++length;
        }
        push(floating ? Token::Kind::floating : Token::Kind::integer, digits);
        advance(length);
    }

    void literal(std::string_view rest) {
        const char quote = rest[0];
        std::string out;
        std::size_t i = 1;
        for (; i < rest.size() && rest[i] != quote; ++i) {
            if (rest[i] == '\\' && i + 1 < rest.size())
                i = escape(rest, i + 1, out);
            else
                out += rest[i];
        }
        if (i >= rest.size()) fail(where(), "a string literal is not closed");
        push(Token::Kind::text, std::move(out));
        advance(i + 1);
    }

    /// Resolves the escape at `i` and returns the index of its last character.
    static std::size_t escape(std::string_view rest, std::size_t i, std::string& out) {
        constexpr std::string_view letters = "ntrabfv\\'\"", values = "\n\t\r\a\b\f\v\\'\"";
        const char c = rest[i];
        if (const std::size_t found = letters.find(c); found != std::string_view::npos) {
            out += values[found];
            return i;
        }
        if (c == '\n') return i;
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        unsigned code = 0;
        if (digits != 0 && i + digits < rest.size()) {
            const char* begin = rest.data() + i + 1;
            const auto [end, error] = std::from_chars(begin, begin + digits, code, 16);
            if (error == std::errc() && end == begin + digits && code <= 0x10ffff) {
                append_utf8(code, out);
                return i + digits;
            }
        }
        if (c >= '0' && c <= '7') {
            std::size_t end = i;
            while (end < i + 3 && end < rest.size() && rest[end] >= '0' && rest[end] <= '7')
                code = code * 8 + static_cast<unsigned>(rest[end++] - '0');
            append_utf8(code, out);
            return end - 1;
        }
        out.append({'\\', c});
        return i;
    }

    void push(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
    std::string where() const { return "line " + std::to_string(line_) + ": "; }

    std::string source_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool at_line_start_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenise(std::string_view source) {
    return Lexer(with_plain_newlines(source)).run();
}

}  // namespace draftscope::jinja
