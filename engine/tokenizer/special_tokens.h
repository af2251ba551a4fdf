#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace draftscope {

/// Unicode's White_Space.
bool is_white_space(char32_t c);

/// Conditions on the text around a token.
struct TokenMatching {
    bool lstrip = false;       ///< the match includes the white space on its left
    bool rstrip = false;       ///< the match includes the white space on its right
    bool single_word = false;  ///< matches only without adjacent letters, digits or underscores
};

/// Tokens that are matched in text before it is split: control tokens (on request) and user-defined tokens.
class SpecialTokens {
  public:
    struct Hit {
        std::size_t begin = std::string_view::npos;  ///< npos: no match
        std::size_t length = 0;
        TokenId id = no_token;
    };

    void add(std::string text, TokenId id, bool control, TokenMatching matching = {});
    /// Returns the leftmost match at or after `from`, the longest one if several start at the same byte.
    Hit find(std::string_view text, std::size_t from, bool with_control) const;

    /// Calls `plain(text, begin)` for the text around the matches, and appends the matches' ids to `out`.
    template <typename Plain>
    void split(std::string_view text, bool with_control, std::vector<TokenId>& out, Plain plain) const {
        for (std::size_t done = 0; done < text.size();) {
            const Hit hit = find(text, done, with_control);
            const std::size_t end = hit.id == no_token ? text.size() : hit.begin;
            plain(text.substr(done, end - done), done);
            if (hit.id != no_token) out.push_back(hit.id);
            done = end + hit.length;
        }
    }

  private:
    struct Entry {
        std::string text;
        TokenId id;
        bool control;
        TokenMatching matching;
    };
    std::array<std::vector<Entry>, 256> by_first_byte_;  ///< longest first
};

}  // namespace draftscope
