#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

/// Cuts text into the pieces inside which byte-level BPE merges. Immutable, safe to share between threads.
class PreTokenizer {
  public:
    /// `name` as GGUF files give it (tokenizer.ggml.pre); an unknown one is an error that lists the known.
    static Result<PreTokenizer> create(std::string_view name, std::string_view file);
    PreTokenizer(PreTokenizer&&) noexcept;
    ~PreTokenizer();

    /// Appends the pieces of `text`, which is valid UTF-8; together they are the text.
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
