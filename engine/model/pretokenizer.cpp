#include "engine/model/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

// Unicode's White_Space, spelt out: PCRE2's \s counts U+180E as well, which the libraries that trained these
// vocabularies do not.
#define DS_SPACE R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

namespace draftscope {
namespace {

constexpr const char* one_digit = R"(\p{N})";

constexpr const char* gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" DS_SPACE R"(\p{L}\p{N}]+|[)" DS_SPACE
    R"(]+(?![^)" DS_SPACE R"(])|[)" DS_SPACE R"(]+)";

constexpr const char* llama3_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^)" DS_SPACE
    R"(\p{L}\p{N}]+[\r\n]*|[)" DS_SPACE R"(]*[\r\n]+|[)" DS_SPACE R"(]+(?![^)" DS_SPACE R"(])|[)" DS_SPACE
    R"(]+)";

constexpr const char* qwen2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^)" DS_SPACE
    R"(\p{L}\p{N}]+[\r\n]*|[)" DS_SPACE R"(]*[\r\n]+|[)" DS_SPACE R"(]+(?![^)" DS_SPACE R"(])|[)" DS_SPACE
    R"(]+)";

/// Patterns apply one inside the pieces of the other; what a pattern does not match is a piece too.
struct Recipe {
    std::array<std::string_view, 3> names;
    std::array<const char*, 2> patterns;
    bool normalises;
    bool whole_pieces;
    bool adds_bos;
};

constexpr std::array recipes = {
    Recipe{{"smollm"}, {one_digit, gpt2_words}, false, false, false},
    Recipe{{"gpt-2", "gpt2"}, {gpt2_words}, false, false, false},
    Recipe{{"llama-bpe", "llama3", "llama-v3"}, {llama3_words}, false, true, true},
    Recipe{{"qwen2"}, {qwen2_words}, true, false, false},
    Recipe{{"dbrx"}, {llama3_words}, false, false, false},  // OLMo 2's, as its GGUF files call it
};

const Recipe* find_recipe(std::string_view name) {
    for (const Recipe& recipe : recipes) {
        if (!name.empty() && std::count(recipe.names.begin(), recipe.names.end(), name) != 0) return &recipe;
    }
    return nullptr;
}

std::string known_names() {
    std::string out;
    for (const Recipe& recipe : recipes) {
        for (const std::string_view name : recipe.names) {
            if (!name.empty()) out += (out.empty() ? "" : ", ") + std::string(name);
        }
    }
    return out;
}

struct CodeDeleter {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using Match = std::unique_ptr<pcre2_match_data, MatchDeleter>;

/// One match from `from` on; without the compiled form when that one runs out of stack.
int find_next(const pcre2_code* code, std::string_view text, std::size_t from, pcre2_match_data* match) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found;
    return pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
}

}  // namespace

struct PreTokenizer::Impl {
    const Recipe* recipe;
    std::vector<Code> codes;

    void split(std::string_view text, std::size_t stage, pcre2_match_data* match,
               std::vector<std::string_view>& pieces) const;
};

void PreTokenizer::Impl::split(std::string_view text, std::size_t stage, pcre2_match_data* match,
                               std::vector<std::string_view>& pieces) const {
    if (text.empty()) return;
    if (stage == codes.size()) {
        pieces.push_back(text);
        return;
    }
    std::size_t done = 0;
    std::size_t from = 0;
    while (from < text.size()) {
        // Any failure but "no match" leaves the rest as one piece: slower to merge, never lost.
        if (find_next(codes[stage].get(), text, from, match) < 0) break;
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match);
        const std::size_t begin = range[0];
        const std::size_t end = range[1];
        if (end <= begin) break;
        split(text.substr(done, begin - done), stage + 1, match, pieces);
        split(text.substr(begin, end - begin), stage + 1, match, pieces);
        done = from = end;
    }
    split(text.substr(done), stage + 1, match, pieces);
}

Result<PreTokenizer> PreTokenizer::create(std::string_view name, std::string_view file) {
    const Recipe* recipe = find_recipe(name);
    if (recipe == nullptr) {
        return bad_input("{}: pre-tokenizer '{}' is not supported by this version (supported: {})", file,
                         name, known_names());
    }
    auto impl = std::make_unique<Impl>();
    impl->recipe = recipe;
    for (const char* pattern : recipe->patterns) {
        if (pattern == nullptr) continue;
        int error = 0;
        PCRE2_SIZE offset = 0;
        Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
        if (code == nullptr)
            return failed("pre-tokenizer '{}': PCRE2 refuses the pattern at {} (error {})", name, offset,
                          error);
        // Only speed depends on it: without a just-in-time compiler matching is interpreted.
        pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
        impl->codes.push_back(std::move(code));
    }
    return PreTokenizer(std::move(impl));
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
    const Match match(pcre2_match_data_create(1, nullptr));
    if (match == nullptr) {
        pieces.push_back(text);
        return;
    }
    impl_->split(text, 0, match.get(), pieces);
}

bool PreTokenizer::normalises() const {
    return impl_->recipe->normalises;
}
bool PreTokenizer::whole_pieces() const {
    return impl_->recipe->whole_pieces;
}
bool PreTokenizer::adds_bos_by_default() const {
    return impl_->recipe->adds_bos;
}

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

}  // namespace draftscope
