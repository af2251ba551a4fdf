#include "engine/tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "base/utf8.h"

namespace draftscope {
namespace {

constexpr char32_t first_stand_in = 0x100;

constexpr bool prints(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Table {
    std::array<char32_t, 256> characters{};
    std::array<std::uint8_t, 68> stand_ins{};
};

constexpr Table make_table() {
    Table table;
    std::size_t stand_ins = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
        if (prints(byte)) {
            table.characters[byte] = byte;
        } else {
            table.characters[byte] = first_stand_in + static_cast<char32_t>(stand_ins);
            table.stand_ins[stand_ins++] = static_cast<std::uint8_t>(byte);
        }
    }
    return table;
}

constexpr Table table = make_table();

}  // namespace

char32_t byte_to_unicode(std::uint8_t byte) {
    return table.characters[byte];
}

std::optional<std::uint8_t> unicode_to_byte(char32_t character) {
    if (character < first_stand_in) {
        if (!prints(character)) return std::nullopt;
        return static_cast<std::uint8_t>(character);
    }
    const char32_t index = character - first_stand_in;
    if (index >= table.stand_ins.size()) return std::nullopt;
    return table.stand_ins[index];
}

std::string encode_byte_level(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) append_utf8(byte_to_unicode(static_cast<std::uint8_t>(c)), out);
    return out;
}

std::optional<std::string> decode_byte_level(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const Utf8Unit unit = next_utf8(text);
        if (unit.kind != Utf8Unit::Kind::character) return std::nullopt;
        const auto byte = unicode_to_byte(unit.character);
        if (!byte) return std::nullopt;
        out += static_cast<char>(*byte);
        text.remove_prefix(unit.length);
    }
    return out;
}

namespace {

// Unicode's White_Space, listed: PCRE2's \s also includes U+180E, unlike the libraries that trained these
// vocabularies.
constexpr std::string_view space_class =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr const char* one_digit = R"(\p{N})";
constexpr const char* tekken_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* deepseek3_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Each pattern splits the pieces of the previous one. Text between matches is a piece, too.
struct Recipe {
    std::array<std::string_view, 6> names;
    std::array<const char*, 5> patterns;
    PreTokenizer::Defaults defaults = {};
};
constexpr PreTokenizer::Defaults like_llama3 = {.ignore_merges = true, .adds_bos = true};

// From the models' tokenizer.json files. "dbrx" is the name in OLMo 2's GGUF files.
constexpr std::array recipes = {
    Recipe{{"smollm", "starcoder", "refact", "command-r", "codeshell"}, {one_digit, gpt2_split_pattern}},
    // llama.cpp's, for files that name none.
    Recipe{{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_split_pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    Recipe{{"gpt-2", "gpt2", "phi-2"}, {gpt2_split_pattern}},
    Recipe{{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"}, {llama3_split_pattern}, like_llama3},
    Recipe{{"qwen2", "deepseek-r1-qwen", "megrez"}, {qwen2_split_pattern}, {.normalises = true}},
    Recipe{{"dbrx"}, {llama3_split_pattern}},
    Recipe{{"tekken"}, {tekken_words}, like_llama3},
    Recipe{{"deepseek-v3"}, {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", deepseek3_words}},
    Recipe{{"deepseek-coder"},
           {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
            one_digit}},
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

/// Translates an Oniguruma pattern to PCRE2; nullopt if it contains a construct with another meaning.
std::optional<std::string> translated(std::string_view pattern) {
    std::string out;
    bool in_class = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '[' || c == ']') in_class = c == '[' || (in_class && pattern[i - 1] == '[');
        if (c != '\\' || i + 1 == pattern.size()) {
            out += c;
            continue;
        }
        const char escaped = pattern[++i];
        if (escaped == 's') {
            out += in_class ? std::string(space_class) : "[" + std::string(space_class) + "]";
        } else if (escaped == 'S' && !in_class) {
            out += "[^" + std::string(space_class) + "]";
        } else if (escaped == 'S' || escaped == 'h' || escaped == 'H') {
            return std::nullopt;
        } else {
            out.append({'\\', escaped});
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

/// Finds one match at or after `from`. Retries without JIT if the JIT stack overflows.
int find_next(const pcre2_code* code, std::string_view text, std::size_t from, pcre2_match_data* match) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found;
    return pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
}

struct Stage {
    Code code;  ///< null: replaces bytes by their characters
    SplitStep::Behaviour behaviour;
    bool inverted;
};

struct Part {
    std::size_t begin, end;
    bool hit;
};

/// The matches of `stage` in `text` and the text between them, before its behaviour joins any.
void find_parts(const Stage& stage, std::string_view text, pcre2_match_data* match,
                std::vector<Part>& parts) {
    std::size_t done = 0;
    while (done < text.size()) {
        // On any error other than "no match", the rest becomes one piece: merging is slower, but no text is
        // lost.
        if (find_next(stage.code.get(), text, done, match) < 0) break;
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match);
        if (range[1] <= range[0]) break;
        if (range[0] > done) parts.push_back({done, range[0], stage.inverted});
        parts.push_back({range[0], range[1], !stage.inverted});
        done = range[1];
    }
    if (done < text.size()) parts.push_back({done, text.size(), stage.inverted});
}

void join_parts(SplitStep::Behaviour behaviour, std::vector<Part>& parts) {
    using Behaviour = SplitStep::Behaviour;
    if (behaviour == Behaviour::isolated) return;
    std::vector<Part> out;
    bool last_hit = false;  // whether the previous part was a match, joined or not
    for (const Part& part : parts) {
        const bool first = out.empty();
        const bool joins = behaviour == Behaviour::merged_with_previous ? part.hit && !first && !last_hit
                           : behaviour == Behaviour::merged_with_next   ? !part.hit && !first && last_hit
                           : behaviour == Behaviour::contiguous         ? !first && part.hit == last_hit
                                                                        : false;
        last_hit = part.hit;
        if (behaviour == Behaviour::removed && part.hit) continue;
        if (joins)
            out.back().end = part.end;
        else
            out.push_back(part);
    }
    parts = std::move(out);
}

}  // namespace

struct PreTokenizer::Impl {
    std::vector<Stage> stages;

    Status add(const SplitStep& step, std::string_view file);
    void split(std::string_view text, std::size_t stage, pcre2_match_data* match,
               std::vector<std::string_view>& pieces) const;
};

Status PreTokenizer::Impl::add(const SplitStep& step, std::string_view file) {
    if (step.is_byte_level()) {
        stages.push_back({nullptr, step.behaviour, false});
        return {};
    }
    const auto pattern = translated(step.pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    // In Oniguruma, ^ and $ match at line ends.
    Code code(!pattern ? nullptr
                       : pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern->data()), pattern->size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr));
    if (code == nullptr) {
        return bad_input("{}: the splitting pattern '{}' cannot be used by this version ({})", file,
                         printable(step.pattern),
                         pattern ? fmt::format("at {}, error {} of PCRE2", offset, error)
                                 : "it has \\S in a class, \\h or \\H");
    }
    // If JIT compilation fails, matching is interpreted and slower.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    stages.push_back({std::move(code), step.behaviour, step.inverted});
    return {};
}

void PreTokenizer::Impl::split(std::string_view text, std::size_t stage, pcre2_match_data* match,
                               std::vector<std::string_view>& pieces) const {
    if (text.empty()) return;
    if (stage == stages.size()) {
        pieces.push_back(text);
        return;
    }
    if (stages[stage].code == nullptr) {
        if (stage + 1 == stages.size()) return pieces.push_back(text);
        // The following steps see one character per byte of the text.
        const std::string spelt = encode_byte_level(text);
        std::vector<std::string_view> inner;
        split(spelt, stage + 1, match, inner);
        std::size_t byte = 0, at = 0;
        const auto bytes_to = [&](std::size_t end) {
            for (; at < end; at += next_utf8(std::string_view(spelt).substr(at)).length) ++byte;
            return byte;
        };
        for (const std::string_view piece : inner) {
            const std::size_t begin = piece.data() - spelt.data();
            const std::size_t first = bytes_to(begin);
            pieces.push_back(text.substr(first, bytes_to(begin + piece.size()) - first));
        }
        return;
    }
    std::vector<Part> parts;
    find_parts(stages[stage], text, match, parts);
    join_parts(stages[stage].behaviour, parts);
    for (const Part& part : parts)
        split(text.substr(part.begin, part.end - part.begin), stage + 1, match, pieces);
}

Result<PreTokenizer> PreTokenizer::create(std::string_view name, std::string_view file) {
    const Recipe* recipe = find_recipe(name);
    if (recipe == nullptr) {
        return bad_input("{}: pre-tokenizer '{}' is not supported by this version (supported: {})", file,
                         printable(name), known_names());
    }
    auto impl = std::make_unique<Impl>();
    for (const char* pattern : recipe->patterns) {
        if (pattern != nullptr) DS_TRY(impl->add({pattern, SplitStep::Behaviour::isolated, false}, file));
    }
    PreTokenizer out(std::move(impl));
    out.defaults_ = recipe->defaults;
    return out;
}

Result<PreTokenizer> PreTokenizer::from_steps(const std::vector<SplitStep>& steps, std::string_view file) {
    auto impl = std::make_unique<Impl>();
    for (const SplitStep& step : steps) DS_TRY(impl->add(step, file));
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

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

}  // namespace draftscope
