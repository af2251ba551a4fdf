#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace draftscope::jinja {

struct Token {
    enum class Kind {
        data,  ///< text between tags, after whitespace control
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

/// Splits a template into tokens with trim_blocks and lstrip_blocks on, as in Hugging Face's libraries.
/// Throws a Failure on invalid input.
std::vector<Token> tokenise(std::string_view source);

}  // namespace draftscope::jinja
