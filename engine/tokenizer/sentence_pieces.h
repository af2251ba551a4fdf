#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/bpe_merges.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/tokenizer.h"

namespace draftscope {

/// SentencePiece's BPE (Kudo and Richardson 2018) as used by Llama 2. Spaces become U+2581, and a text gets
/// one more in front. Characters merge into pieces by score, or by the merges of a tokenizer.json. Characters
/// outside the vocabulary become byte tokens. Immutable after creation.
class SentencePieces {
  public:
    /// Requires `spec.model` = "llama" and checked lengths of tokens, types and scores or merges.
    static Result<SentencePieces> create(const TokenizerSpec& spec);

    struct Scratch {
        struct Symbol {
            std::size_t begin, length;  ///< in bytes of the escaped text; length 0 = merged
            std::int32_t previous, next;
        };
        struct Candidate {
            float score;
            std::int32_t position;
            std::size_t length;
        };
        std::string escaped;
        std::vector<Symbol> symbols;
        std::vector<Candidate> queue;
        std::vector<TokenId> characters;
        BpeMerges::Scratch merging;
    };
    /// Appends the ids of `text` (any bytes). `at_start` means that no text precedes it. Control tokens are
    /// found only if the file matches them after spaces became U+2581.
    void encode(std::string_view text, bool at_start, bool parse_special, Scratch& scratch,
                std::vector<TokenId>& out) const;

    /// Returns the bytes of a token: its text with spaces, or its byte.
    static std::string decode_token(std::string_view token, int type);

  private:
    explicit SentencePieces(BpeMerges merges) : merges_(std::move(merges)) {}

    void escape(std::string_view text, bool at_start, std::string& out) const;
    void merge_by_score(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
    void merge_by_rank(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
    void push_candidate(std::string_view text, std::int32_t position, Scratch& scratch) const;
    /// Appends the piece's id, the ids of its bytes, or the unknown token.
    void append_ids(std::string_view piece, std::vector<TokenId>& out) const;
    TokenId find(std::string_view piece) const {
        const auto found = ids_.find(std::string(piece));
        return found == ids_.end() ? no_token : found->second;
    }

    std::unordered_map<std::string, TokenId> ids_;  ///< pieces that text may become
    SentencePieceSpec spec_;                        ///< without scores = merge by rank
    BpeMerges merges_;
    SpecialTokens user_defined_;  ///< escaped; found inside escaped text
    std::array<TokenId, 256> byte_ids_{};
};

}  // namespace draftscope
