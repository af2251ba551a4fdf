#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Maps a byte to its printable character in GPT-2's byte-to-unicode table. Printable bytes map to
/// themselves, the other 68 to U+0100 and up in byte order (space: U+0120, newline: U+010A).
char32_t byte_to_unicode(std::uint8_t byte);
/// Maps a character back to its byte; nullopt for characters outside the table.
std::optional<std::uint8_t> unicode_to_byte(char32_t character);

/// Returns the characters of `bytes` in this table, as UTF-8.
std::string encode_byte_level(std::string_view bytes);
/// Decodes a vocabulary entry to bytes; nullopt if it is not valid UTF-8 or contains a character outside the
/// table.
std::optional<std::string> decode_byte_level(std::string_view text);

/// A step of a tokenizer.json that splits pieces of text into smaller ones.
struct SplitStep {
    /// What happens to a match: it becomes a piece, is removed, joins a neighbour, or joins adjacent matches.
    enum class Behaviour { isolated, removed, merged_with_previous, merged_with_next, contiguous };
    std::string pattern;  ///< an Oniguruma regular expression; "" = encode_byte_level
    Behaviour behaviour = Behaviour::isolated;
    bool inverted = false;  ///< swap matches and the text between them

    /// Whether this step replaces every byte by its byte-level BPE character for the following steps.
    bool is_byte_level() const { return pattern.empty(); }
};

/// Splitting patterns of tokenizer.json files: GPT-2's, which a ByteLevel step may include, and others.
inline constexpr const char* gpt2_split_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

inline constexpr const char* llama3_split_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* qwen2_split_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Splits text into the pieces within which byte-level BPE merges. Immutable, safe to share between threads.
class PreTokenizer {
  public:
    /// `name` is a GGUF file's tokenizer.ggml.pre; an unknown name is an error that lists the known ones.
    static Result<PreTokenizer> create(std::string_view name, std::string_view file);
    /// Compiles the steps of a tokenizer.json; an error names an unusable pattern.
    static Result<PreTokenizer> from_steps(const std::vector<SplitStep>& steps, std::string_view file);
    PreTokenizer(PreTokenizer&&) noexcept;
    ~PreTokenizer();

    /// Appends the pieces of `text`, which must be valid UTF-8. Concatenated, they are `text` without what
    /// the steps remove.
    void split(std::string_view text, std::vector<std::string_view>& pieces) const;
    /// What models of a named pre-tokenizer do, unless their file says otherwise.
    struct Defaults {
        bool normalises = false;     ///< text is normalised to Unicode NFC first (Qwen)
        bool ignore_merges = false;  ///< a piece that is a token skips the merges (Llama 3)
        bool adds_bos = false;       ///< text starts with the beginning-of-text token
    };
    const Defaults& defaults() const { return defaults_; }

  private:
    struct Impl;
    explicit PreTokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
    Defaults defaults_;
};

}  // namespace draftscope
