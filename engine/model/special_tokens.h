#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// How a token is found in text, beyond its own characters.
struct TokenEdges {
    bool takes_space_before = false;  ///< the white space on its left belongs to it ("lstrip")
    bool takes_space_behind = false;  ///< and on its right ("rstrip")
    bool whole_word = false;  ///< only where no letter, digit or underscore touches it ("single_word")
};

/// Tokens that are found in text before it is split: control tokens (on request) and user-defined ones.
class SpecialTokens {
  public:
    struct Hit {
        std::size_t begin = std::string_view::npos;  ///< npos: none
        std::size_t length = 0;
        TokenId id = no_token;
    };

    void add(std::string text, TokenId id, bool control, TokenEdges edges = {});
    /// The leftmost, and there the longest, at or after `from`.
    Hit find(std::string_view text, std::size_t from, bool with_control) const;

  private:
    struct Entry {
        std::string text;
        TokenId id;
        bool control;
        TokenEdges edges;
    };
    std::array<std::vector<Entry>, 256> by_first_byte_;  ///< longest first
};

}  // namespace draftscope
