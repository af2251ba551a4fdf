#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// Tokens that are found in text before it is split: control tokens (on request) and user-defined ones.
class SpecialTokens {
  public:
    struct Hit {
        std::size_t begin = std::string_view::npos;  ///< npos: none
        std::size_t length = 0;
        TokenId id = no_token;
    };

    void add(std::string text, TokenId id, bool control);
    /// The leftmost, and there the longest, at or after `from`.
    Hit find(std::string_view text, std::size_t from, bool with_control) const;

  private:
    struct Entry {
        std::string text;
        TokenId id;
        bool control;
    };
    std::array<std::vector<Entry>, 256> by_first_byte_;  ///< longest first
};

}  // namespace draftscope
