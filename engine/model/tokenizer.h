#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/model/pretokenizer.h"
#include "engine/model/special_tokens.h"

namespace draftscope {

class BpeMerges;

/// When SentencePiece text gets a space in front.
enum class SpacePrefix {
    never,
    always,              ///< the start of a text and what follows a control token
    unless_there,        ///< the same, where no space stands already
    first_unless_there,  ///< only the start of a text, where no space stands already
};

/// What a tokenizer.json says about a token of its own that is found in text, where it is not the usual.
struct AddedToken {
    TokenId id = no_token;
    TokenEdges edges;
    bool normalised = false;  ///< found in what the others left, after normalisation
};

/// What a model file says about its tokenizer, whatever the file format.
struct TokenizerSpec {
    std::string file;                 ///< for messages
    std::string model;                ///< "gpt2" = byte-level BPE, "llama" = SentencePiece's BPE
    std::string pre;                  ///< splitting pattern: "smollm", ...
    std::vector<SplitStep> steps;     ///< splitting that has no name; `pre` then says it in words
    std::vector<std::string> tokens;  ///< in byte-to-unicode form, indexed by id
    std::vector<int> types;           ///< GGUF token types: 1 normal, 3 control, 4 user-defined, ...
    std::vector<std::string> merges;  ///< "left right", best first
    std::vector<float> scores;        ///< SentencePiece without merges: by id, the highest merges first
    SpacePrefix space_prefix = SpacePrefix::always;  ///< SentencePiece
    TokenId unknown = no_token;                      ///< SentencePiece: for what has no bytes either
    bool marks_by_normaliser =
        false;  ///< SentencePiece: spaces become U+2581 before added tokens are looked for
    std::vector<AddedToken> added;
    TokenId bos = no_token;
    std::vector<TokenId> eos;      ///< every id that ends a turn
    TokenId named_eos = no_token;  ///< the one that chat templates call eos_token, if the file names one
    bool add_bos = false;
    // What `pre` implies, where the file says something else.
    std::optional<bool> normalises;    ///< text is put into Unicode normal form C first
    std::optional<bool> whole_pieces;  ///< a piece that is a token is taken whole, whatever the merges say
};

/// Adds the control tokens that end a turn in every model that has them; files often name only some of
/// theirs.
void add_known_ends(TokenizerSpec& spec);
/// Takes from the spec what an embedding of `rows` rows does not hold. Added tokens beyond it (published
/// models have some, for tools or pictures) may stay, since no text need hold them; they end nothing. Other
/// tokens there are an error: any text may hold them.
Status fit_to_embedding(TokenizerSpec& spec, int rows);
/// The spec's merges by ids; one that does not join two tokens into a third is an error naming it.
Result<BpeMerges> read_merges(const TokenizerSpec& spec);

/// Byte-level BPE or SentencePiece's. Immutable after creation, safe to share between threads.
class Tokenizer {
  public:
    static Result<std::unique_ptr<Tokenizer>> create(TokenizerSpec spec);
    ~Tokenizer();

    /// Ids of `text`, any bytes; no beginning-of-text token is added. `parse_special`: control tokens written
    /// in the text become their ids (chat templates); otherwise they are spelt out like other text. Bytes for
    /// which the vocabulary has no token (SmolLM2 lacks 21, such as 0x04) are dropped, as the `tokenizers`
    /// library does; everything else survives decode(encode(text)), behind the space that SentencePiece puts
    /// in front (SpacePrefix).
    std::vector<TokenId> encode(std::string_view text, bool parse_special) const;
    /// Bytes of one token; "" for ids that have none (padding rows). Control tokens give their name.
    const std::string& token_bytes(TokenId id) const;
    std::string decode(const std::vector<TokenId>& ids, bool keep_special = false) const;
    int size() const;
    bool is_control(TokenId id) const;
    const std::vector<TokenId>& eos() const;
    bool is_eos(TokenId id) const;
    /// What chat templates call eos_token: the one that the file names, else the first that ends a turn.
    TokenId named_eos() const;
    TokenId bos() const;
    bool add_bos() const;
    /// FNV-1a over tokens, merges and pre-tokenizer name: names the vocabulary in artefacts and traces.
    std::uint64_t fingerprint() const;

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Turns a stream of token ids into valid UTF-8 pieces, holding back incomplete sequences. Control tokens
/// give no text, as in Tokenizer::decode. All pieces together are valid_utf8() of all bytes.
class TextStream {
  public:
    explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
    void push(TokenId id, std::string& out);  ///< appends what is decided
    std::string finish();                     ///< what was held back, invalid bytes replaced by U+FFFD

  private:
    const Tokenizer* tokenizer_;
    std::string held_;
};

/// Replaces invalid UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace draftscope
