#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftscope::jinja {

struct Token {
    enum class Kind {
        data,  ///< text between tags, whitespace control done
        output_begin,
        output_end,
        block_begin,
        block_end,
        name,
        text,  ///< a string literal, escapes resolved
        integer,
        floating,
        symbol,
        end,
    };
    Kind kind;
    std::string text;
    int line = 1;
};

/// The tokens of a template as Hugging Face's libraries set Jinja up: trim_blocks and lstrip_blocks on.
/// Throws a Failure on what is no token.
std::vector<Token> tokenise(std::string_view source);

}  // namespace draftscope::jinja
