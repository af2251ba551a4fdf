#include "engine/tokenizer/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/mapped_file.h"
#include "base/utf8.h"
#include "engine/tokenizer/bpe_merges.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/sentence_pieces.h"
#include "engine/tokenizer/special_tokens.h"

namespace draftscope {
namespace {

using Vocabulary = std::unordered_map<std::string_view, TokenId>;

/// FNV-1a, 64 bits. Lengths are hashed too, to distinguish "ab","c" from "a","bc".
class Fingerprint {
  public:
    void add(std::string_view text) {
        add_length(text.size());
        for (const char c : text) step(static_cast<std::uint8_t>(c));
    }
    void add_length(std::uint64_t length) {
        for (int byte = 0; byte < 8; ++byte) step(static_cast<std::uint8_t>(length >> (8 * byte)));
    }
    std::uint64_t value() const { return value_; }

  private:
    void step(std::uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
    std::uint64_t value_ = 0xcbf29ce484222325u;
};

std::uint64_t compute_fingerprint(const TokenizerSpec& spec) {
    Fingerprint out;
    out.add(spec.pre);
    out.add_length(spec.tokens.size());
    for (const std::string& token : spec.tokens) out.add(token);
    out.add_length(spec.merges.size());
    for (const std::string& merge : spec.merges) out.add(merge);
    if (spec.model == "gpt2") return out.value();
    for (const float score : spec.pieces.scores) out.add_length(std::bit_cast<std::uint32_t>(score));
    out.add_length(static_cast<std::uint64_t>(spec.pieces.space_prefix));
    return out.value();
}

/// Normalises to Unicode NFC; returns `text` unchanged if memory runs out.
std::string normalised(std::string_view text) {
    utf8proc_uint8_t* composed = nullptr;
    const utf8proc_ssize_t length = utf8proc_map(
        reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
        &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    std::string out(length < 0 ? text : std::string_view(reinterpret_cast<const char*>(composed), length));
    std::free(composed);
    return out;
}

Vocabulary index_vocabulary(const TokenizerSpec& spec) {
    Vocabulary out;
    out.reserve(spec.tokens.size());
    for (std::size_t id = 0; id < spec.tokens.size(); ++id) out[spec.tokens[id]] = static_cast<TokenId>(id);
    return out;
}

Status check_spec(const TokenizerSpec& spec) {
    if (spec.model != "gpt2" && spec.model != "llama") {
        return bad_input(
            "{}: tokenizer model '{}' is not supported by this version (supported: gpt2, byte-level BPE, and "
            "llama, SentencePiece BPE)",
            spec.file, printable(spec.model));
    }
    if (spec.tokens.empty()) return bad_input("{}: the tokenizer has no tokens", spec.file);
    if (spec.types.size() != spec.tokens.size()) {
        return bad_input("{}: {} tokens but {} token types", spec.file, spec.tokens.size(),
                         spec.types.size());
    }
    const auto count = static_cast<TokenId>(spec.tokens.size());
    if (spec.pieces.unknown != no_token && (spec.pieces.unknown < 0 || spec.pieces.unknown >= count))
        return bad_input("{}: unknown-token id {} is outside the {} tokens", spec.file, spec.pieces.unknown,
                         count);
    if (spec.bos != no_token && (spec.bos < 0 || spec.bos >= count))
        return bad_input("{}: beginning-of-text id {} is outside the {} tokens", spec.file, spec.bos, count);
    if (spec.add_bos && spec.bos == no_token)
        return bad_input("{}: text must start with a beginning-of-text token, but the file names none",
                         spec.file);
    for (const AddedToken& token : spec.added) {
        if (token.id < 0 || token.id >= count)
            return bad_input("{}: added token id {} is outside the {} tokens", spec.file, token.id, count);
    }
    for (const TokenId id : spec.eos) {
        if (id < 0 || id >= count)
            return bad_input("{}: end-of-text id {} is outside the {} tokens", spec.file, id, count);
    }
    return {};
}

}  // namespace

Result<BpeMerges> read_merges(const TokenizerSpec& spec) {
    const Vocabulary vocabulary = index_vocabulary(spec);
    BpeMerges out(spec.merges.size());
    std::string joined;
    for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
        const std::string_view line = spec.merges[rank];
        const std::size_t space = line.find(' ');
        const std::string_view left = line.substr(0, space);
        const std::string_view right = space == std::string_view::npos ? "" : line.substr(space + 1);
        joined.assign(left).append(right);
        const auto left_entry = vocabulary.find(left);
        const auto right_entry = vocabulary.find(right);
        const auto merged_entry = vocabulary.find(joined);
        if (left_entry == vocabulary.end() || right_entry == vocabulary.end() ||
            merged_entry == vocabulary.end()) {
            return bad_input("{}: tokenizer merge {} ('{}') does not join two tokens into a third", spec.file,
                             rank, printable(line));
        }
        out.add(left_entry->second, right_entry->second, static_cast<std::int32_t>(rank),
                merged_entry->second);
    }
    return out;
}

/// What turns text into ids.
struct Tokenizer::Encoder {
    struct Scratch {
        std::vector<std::string_view> pieces;
        std::vector<TokenId> bytes;
        BpeMerges::Scratch merging;
        SentencePieces::Scratch sentence;
    };
    /// Also fill the bytes of the tokens.
    Status make_byte_level(TokenizerSpec& spec, std::vector<std::string>& bytes);
    Status make_sentence_pieces(const TokenizerSpec& spec, std::vector<std::string>& bytes);
    void add_special(const TokenizerSpec& spec, TokenId id, bool control);
    void encode_segment(std::string_view text, bool at_start, bool parse_special, Scratch& scratch,
                        std::vector<TokenId>& out) const;
    void encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
    void encode_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

    std::optional<PreTokenizer> splitter;  ///< byte-level BPE
    std::optional<SentencePieces> sentence;
    BpeMerges merges = BpeMerges(0);
    SpecialTokens special;
    SpecialTokens normalised_tokens;      ///< matched in the text that `special` left
    std::array<TokenId, 256> byte_ids{};  ///< no_token: the vocabulary has no token for this byte
    std::unordered_map<std::string, TokenId> ids_by_bytes;  ///< by bytes; only if pieces may skip the merges
    bool normalises = false;
};

/// The splitting patterns cannot match invalid UTF-8, so each run of invalid bytes is a separate piece.
void Tokenizer::Encoder::encode_plain(std::string_view text, Scratch& scratch,
                                      std::vector<TokenId>& out) const {
    while (!text.empty()) {
        const std::size_t valid = valid_utf8_prefix(text);
        const std::string_view words = text.substr(0, valid);
        const std::string composed = normalises ? normalised(words) : std::string();
        scratch.pieces.clear();
        splitter->split(normalises ? composed : words, scratch.pieces);
        for (const std::string_view piece : scratch.pieces) encode_piece(piece, scratch, out);
        text.remove_prefix(valid);
        const std::size_t invalid = invalid_utf8_prefix(text);
        if (invalid != 0) encode_piece(text.substr(0, invalid), scratch, out);
        text.remove_prefix(invalid);
    }
}

void Tokenizer::Encoder::encode_piece(std::string_view piece, Scratch& scratch,
                                      std::vector<TokenId>& out) const {
    if (!ids_by_bytes.empty()) {
        if (const auto found = ids_by_bytes.find(std::string(piece)); found != ids_by_bytes.end()) {
            out.push_back(found->second);
            return;
        }
    }
    scratch.bytes.clear();
    for (const char c : piece) {
        const TokenId id = byte_ids[static_cast<std::uint8_t>(c)];
        if (id != no_token) scratch.bytes.push_back(id);
    }
    merges.apply(scratch.bytes, scratch.merging, out);
}

void add_eos(TokenizerSpec& spec, TokenId id) {
    if (id != no_token && std::count(spec.eos.begin(), spec.eos.end(), id) == 0) spec.eos.push_back(id);
}

void add_known_eos(TokenizerSpec& spec) {
    constexpr std::array<std::string_view, 5> names = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                                       "<|eom_id|>", "<|end_of_text|>"};
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
        if (spec.types[i] == type_control && std::count(names.begin(), names.end(), spec.tokens[i]) != 0)
            add_eos(spec, static_cast<TokenId>(i));
    }
}

Status Tokenizer::Encoder::make_byte_level(TokenizerSpec& spec, std::vector<std::string>& bytes) {
    DS_ASSIGN(PreTokenizer made, spec.steps.empty() ? PreTokenizer::create(spec.pre, spec.file)
                                                    : PreTokenizer::from_steps(spec.steps, spec.file));
    splitter.emplace(std::move(made));
    DS_ASSIGN(merges, read_merges(spec));
    const Vocabulary vocabulary = index_vocabulary(spec);
    for (int byte = 0; byte < 256; ++byte) {
        const auto found = vocabulary.find(encode_byte_level(std::string(1, static_cast<char>(byte))));
        byte_ids[byte] = found == vocabulary.end() ? no_token : found->second;
    }
    normalises = spec.normalises.value_or(splitter->defaults().normalises);
    const bool ignore_merges = spec.ignore_merges.value_or(splitter->defaults().ignore_merges);
    for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
        std::string& token = spec.tokens[id];
        const int type = spec.types[id];
        if (type == type_normal) {
            bytes.push_back(decode_byte_level(token).value_or(token));
            if (ignore_merges) ids_by_bytes[bytes.back()] = static_cast<TokenId>(id);
            continue;
        }
        if (type == type_control || type == type_unknown || type == type_user_defined)
            add_special(spec, static_cast<TokenId>(id), type != type_user_defined);
        bytes.push_back(type == type_unused ? std::string() : std::move(token));
    }
    return {};
}

void Tokenizer::Encoder::add_special(const TokenizerSpec& spec, TokenId id, bool control) {
    const std::string& token = spec.tokens[id];
    const auto found = std::find_if(spec.added.begin(), spec.added.end(),
                                    [&](const AddedToken& added) { return added.id == id; });
    if (found == spec.added.end()) return special.add(token, id, control);
    if (!found->normalised) return special.add(token, id, control, found->matching);
    if (!spec.normaliser_escapes_spaces) normalised_tokens.add(token, id, control, found->matching);
}

/// User-defined tokens are found inside the text (merging by score) or split it first (a tokenizer.json's
/// added tokens).
Status Tokenizer::Encoder::make_sentence_pieces(const TokenizerSpec& spec, std::vector<std::string>& bytes) {
    DS_ASSIGN(sentence, SentencePieces::create(spec));
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
        const std::string& token = spec.tokens[i];
        const int type = spec.types[i];
        const bool control = type == type_control || type == type_unknown;
        if (control || (type == type_user_defined && !spec.merges.empty()))
            add_special(spec, static_cast<TokenId>(i), control);
        bytes.push_back(control               ? token
                        : type == type_unused ? std::string()
                                              : SentencePieces::decode_token(token, type));
    }
    return {};
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(TokenizerSpec spec) {
    DS_TRY(check_spec(spec));
    std::unique_ptr<Tokenizer> out(new Tokenizer);
    out->fingerprint_ = compute_fingerprint(spec);
    out->bytes_.reserve(spec.tokens.size());
    DS_TRY(spec.model == "llama" ? out->encoder_->make_sentence_pieces(spec, out->bytes_)
                                 : out->encoder_->make_byte_level(spec, out->bytes_));
    out->types_ = std::move(spec.types);
    out->eos_ = std::move(spec.eos);
    out->bos_ = spec.bos;
    out->named_eos_ = spec.named_eos != no_token ? spec.named_eos
                      : out->eos_.empty()        ? no_token
                                                 : out->eos_.front();
    out->add_bos_ = spec.add_bos;
    out->add_bos_to_chat_ = spec.add_bos_to_chat;
    out->add_eos_ = spec.add_eos;
    out->bos_note_ = spec.bos_note;
    out->pre_ = spec.pre;
    return out;
}

void Tokenizer::Encoder::encode_segment(std::string_view text, bool at_start, bool parse_special,
                                        Scratch& scratch, std::vector<TokenId>& out) const {
    normalised_tokens.split(text, parse_special, out, [&](std::string_view plain, std::size_t begin) {
        if (sentence)
            sentence->encode(plain, at_start && begin == 0, parse_special, scratch.sentence, out);
        else
            encode_plain(plain, scratch, out);
    });
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool parse_special) const {
    std::vector<TokenId> out;
    Encoder::Scratch scratch;
    encoder_->special.split(text, parse_special, out, [&](std::string_view segment, std::size_t begin) {
        encoder_->encode_segment(segment, begin == 0, parse_special, scratch, out);
    });
    return out;
}

const std::string& Tokenizer::token_bytes(TokenId id) const {
    static const std::string none;
    return known(id) ? bytes_[id] : none;
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool keep_special) const {
    std::string out;
    for (const TokenId id : ids) {
        if (keep_special || !is_control(id)) out += token_bytes(id);
    }
    return out;
}

Tokenizer::Tokenizer() : encoder_(std::make_unique<Encoder>()) {}
Tokenizer::~Tokenizer() = default;

namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

/// Moves completed text from `bytes` to the end of `out`; each invalid sequence becomes one U+FFFD. The bytes
/// of an incomplete character stay unless `is_end`.
void move_complete(std::string& bytes, bool is_end, std::string& out) {
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const Utf8Unit unit = next_utf8(rest);
        if (unit.kind == Utf8Unit::Kind::incomplete && !is_end) break;
        out += unit.kind == Utf8Unit::Kind::character ? rest.substr(0, unit.length) : replacement;
        rest.remove_prefix(unit.length);
    }
    bytes.erase(0, bytes.size() - rest.size());
}

}  // namespace

void TextStream::push(TokenId id, std::string& out) {
    if (!tokenizer_->is_control(id)) pending_ += tokenizer_->token_bytes(id);
    move_complete(pending_, false, out);
}

std::string TextStream::finish() {
    std::string out;
    move_complete(pending_, true, out);
    return out;
}

std::string valid_utf8(std::string_view bytes) {
    std::string held(bytes), out;
    move_complete(held, true, out);
    return out;
}

}  // namespace draftscope
