#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// One step that cuts pieces into smaller ones, as a tokenizer.json describes it.
struct SplitStep {
    /// What becomes of the matches: pieces of their own, left out, joined with the neighbour, or with
    /// neighbouring matches.
    enum class Behaviour { isolated, removed, merged_with_previous, merged_with_next, contiguous };
    std::string
        pattern;  ///< a regular expression in the syntax of these files (Oniguruma's); "" = spell_bytes
    Behaviour behaviour = Behaviour::isolated;
    bool inverted = false;  ///< what lies between the matches counts as the match

    /// From here on the steps see every byte as the character that byte-level BPE writes for it.
    bool spells_bytes() const { return pattern.empty(); }
};

/// The splitting of GPT-2, which a tokenizer.json's ByteLevel step may contain.
inline constexpr const char* gpt2_split_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Cuts text into the pieces inside which byte-level BPE merges. Immutable, safe to share between threads.
class PreTokenizer {
  public:
    /// `name` as GGUF files give it (tokenizer.ggml.pre); an unknown one is an error that lists the known.
    static Result<PreTokenizer> create(std::string_view name, std::string_view file);
    /// The steps of a tokenizer.json; an error names a pattern that cannot be used.
    static Result<PreTokenizer> from_steps(const std::vector<SplitStep>& steps, std::string_view file);
    PreTokenizer(PreTokenizer&&) noexcept;
    ~PreTokenizer();

    /// Appends the pieces of `text`, which is valid UTF-8; together they are the text, less what steps
    /// remove.
    void split(std::string_view text, std::vector<std::string_view>& pieces) const;
    /// Text is put into Unicode normal form C first (Qwen).
    bool normalises() const;
    /// A piece that is a token as a whole is taken as it is, whatever the merges say (Llama 3).
    bool whole_pieces() const;
    /// What a file means that does not say whether text starts with the beginning-of-text token.
    bool adds_bos_by_default() const;

  private:
    struct Impl;
    explicit PreTokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace draftscope
