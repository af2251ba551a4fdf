#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/special_tokens.h"

namespace draftscope {

class BpeMerges;

/// When a space is put in front of SentencePiece text.
enum class SpacePrefix {
    never,
    always,                ///< at the start of a text and after a control token
    unless_present,        ///< as `always`, unless a space is already there
    first_unless_present,  ///< only at the start of a text, unless a space is already there
};

/// Non-default properties of an added token of a tokenizer.json.
struct AddedToken {
    TokenId id = no_token;
    TokenMatching matching;
    bool normalised = false;  ///< matched after normalisation, in the text between the other tokens
};

/// GGUF's types of tokens.
inline constexpr int type_normal = 1;
inline constexpr int type_unknown = 2;
inline constexpr int type_control = 3;
inline constexpr int type_user_defined = 4;
inline constexpr int type_unused = 5;
inline constexpr int type_byte = 6;

/// What only SentencePiece's BPE has.
struct SentencePieceSpec {
    std::vector<float> scores;  ///< without merges: by id, highest merges first
    SpacePrefix space_prefix = SpacePrefix::always;
    TokenId unknown = no_token;  ///< for text without byte tokens
};

/// The tokenizer of a model file, in any file format.
struct TokenizerSpec {
    std::string file;                 ///< for messages
    std::string model;                ///< "gpt2" = byte-level BPE, "llama" = SentencePiece's BPE
    std::string pre;                  ///< splitting pattern: "smollm", ...
    std::vector<SplitStep> steps;     ///< splitting steps without a name; `pre` then describes them
    std::vector<std::string> tokens;  ///< in byte-to-unicode form, indexed by id
    std::vector<int> types;           ///< GGUF token types: 1 normal, 3 control, 4 user-defined, ...
    std::vector<std::string> merges;  ///< "left right", best first
    SentencePieceSpec pieces;
    bool normaliser_escapes_spaces = false;  ///< SentencePiece: replace spaces before matching added tokens
    std::vector<AddedToken> added;
    TokenId bos = no_token;
    std::vector<TokenId> eos;      ///< every id that ends a turn
    TokenId named_eos = no_token;  ///< eos_token of chat templates, if the file names one
    bool add_bos = false;          ///< in front of a raw text
    bool add_bos_to_chat = false;  ///< in front of a rendered chat that does not begin with it
    bool add_eos = false;          ///< named_eos follows every prompt
    std::string bos_note;          ///< the files disagree on add_bos
    // Override what `pre` implies.
    std::optional<bool> normalises;     ///< normalise text to Unicode NFC first
    std::optional<bool> ignore_merges;  ///< a piece that is a token skips the merges
};

/// Adds an id that ends a turn, unless the spec has it or it is no_token.
void add_eos(TokenizerSpec& spec, TokenId id);
/// Adds control tokens that end a turn in every model that has them. Files often list only some of them.
void add_known_eos(TokenizerSpec& spec);
/// Fits the spec to an embedding of `rows` rows. Added tokens beyond it are allowed (some published models
/// have them, for tools or images), because no text must contain them; they are removed from `eos`. Any other
/// token beyond it is an error.
Status fit_to_embedding(TokenizerSpec& spec, int rows);
/// Converts the spec's merges to ids. A merge that does not join two tokens into a third is an error that
/// names it.
Result<BpeMerges> read_merges(const TokenizerSpec& spec);

/// A byte-level BPE or SentencePiece tokenizer. Immutable after creation, safe to share between threads.
class Tokenizer {
  public:
    static Result<std::unique_ptr<Tokenizer>> create(TokenizerSpec spec);
    ~Tokenizer();

    /// Encodes `text` (any bytes) without adding a beginning-of-text token. If `parse_special`, control
    /// tokens in the text become their ids (chat templates); otherwise they are encoded like other text.
    /// Bytes without a token (SmolLM2 lacks 21, such as 0x04) are dropped, as in the `tokenizers` library.
    /// decode(encode(text)) restores everything else, after the space that SentencePiece puts in front
    /// (SpacePrefix).
    std::vector<TokenId> encode(std::string_view text, bool parse_special) const;
    /// Bytes of one token; "" for ids without bytes (padding rows). Control tokens return their name.
    const std::string& token_bytes(TokenId id) const;
    std::string decode(const std::vector<TokenId>& ids, bool keep_special = false) const;
    int size() const { return static_cast<int>(bytes_.size()); }
    bool is_control(TokenId id) const {
        return known(id) && (types_[id] == type_control || types_[id] == type_unknown);
    }
    const std::vector<TokenId>& eos() const { return eos_; }
    bool is_eos(TokenId id) const { return std::find(eos_.begin(), eos_.end(), id) != eos_.end(); }
    /// The eos_token of chat templates: the token that the file names, else the first of eos().
    TokenId named_eos() const { return named_eos_; }
    TokenId bos() const { return bos_; }
    bool add_bos(bool to_chat = false) const { return to_chat ? add_bos_to_chat_ : add_bos_; }
    /// Returns whether named_eos() follows every prompt that does not end with it.
    bool add_eos() const { return add_eos_; }
    const std::string& bos_note() const { return bos_note_; }
    const std::string& pretokenizer() const { return pre_; }  ///< its name, or its steps
    /// FNV-1a over tokens, merges and pre-tokenizer name; identifies the vocabulary in artefacts and
    /// recordings.
    std::uint64_t fingerprint() const { return fingerprint_; }

  private:
    struct Encoder;
    Tokenizer();
    bool known(TokenId id) const { return id >= 0 && id < size(); }

    std::unique_ptr<Encoder> encoder_;
    std::vector<std::string> bytes_;  ///< by id
    std::vector<int> types_;          ///< by id
    std::vector<TokenId> eos_;
    TokenId bos_ = no_token, named_eos_ = no_token;
    bool add_bos_ = false, add_bos_to_chat_ = false, add_eos_ = false;
    std::string bos_note_, pre_;
    std::uint64_t fingerprint_ = 0;
};

/// Converts a stream of token ids into valid UTF-8 and holds back incomplete sequences. Control tokens
/// produce no text, as in Tokenizer::decode(). The concatenated output equals valid_utf8() of all bytes.
class TextStream {
  public:
    explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
    void push(TokenId id, std::string& out);  ///< appends the completed text
    std::string finish();                     ///< flushes the rest; invalid bytes become U+FFFD

  private:
    const Tokenizer* tokenizer_;
    std::string pending_;
};

/// Replaces invalid UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace draftscope
