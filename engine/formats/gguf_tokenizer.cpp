#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "engine/formats/config_keys.h"
#include "engine/formats/gguf_model.h"
#include "engine/tokenizer/pretokenizer.h"

namespace draftscope {
namespace {

/// Keys of the ids that end a turn or a text.
constexpr std::array eos_keys = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                 "tokenizer.ggml.eom_token_id"};

Result<TokenId> read_id(const GgufFile& file, std::string_view key) {
    DS_ASSIGN(const auto value, file.integer(key));
    if (!value) return no_token;
    // Some writers encode "none" as all bits set.
    if (*value == std::numeric_limits<std::uint32_t>::max() || *value == -1) return no_token;
    if (*value < 0 || *value > std::numeric_limits<TokenId>::max())
        return bad_input("{}: metadata '{}' is {}, which is not a token id", file.path(), key, *value);
    return static_cast<TokenId>(*value);
}

template <typename T>
Result<std::vector<T>> required(Result<std::optional<std::vector<T>>> found, const GgufFile& file,
                                std::string_view key) {
    DS_ASSIGN(auto value, std::move(found));
    if (!value)
        return bad_input("{}: metadata '{}' is missing; the tokenizer is incomplete", file.path(), key);
    return std::move(*value);
}

Status read_ends(const GgufFile& file, TokenizerSpec& spec) {
    for (const char* key : eos_keys) {
        DS_ASSIGN(const TokenId id, read_id(file, key));
        add_eos(spec, id);
    }
    add_known_eos(spec);
    return {};
}

/// llama.cpp's server puts the token behind every prompt, also behind a rendered chat.
Status read_add_eos(const GgufFile& file, TokenizerSpec& spec, Notes& notes) {
    DS_ASSIGN(const auto add_eos, file.boolean("tokenizer.ggml.add_eos_token"));
    if (!add_eos.value_or(false)) return {};
    if (spec.named_eos < 0 || static_cast<std::size_t>(spec.named_eos) >= spec.tokens.size())
        return bad_input(
            "{}: tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id names no token",
            file.path());
    spec.add_eos = true;
    add_note(
        notes,
        "{}: tokenizer.ggml.add_eos_token is true: the end-of-text token '{}' follows every prompt, as in "
        "llama.cpp's server; texts may differ from those of other programs",
        file.path(), printable(spec.tokens[spec.named_eos]));
    return {};
}

/// Reads SentencePiece's scores. Missing ids and settings default to Llama 2's, as in llama.cpp.
Status read_sentence_pieces(const GgufFile& file, TokenizerSpec& spec) {
    DS_ASSIGN(spec.pieces.scores,
              required(file.floats("tokenizer.ggml.scores"), file, "tokenizer.ggml.scores"));
    spec.pre = "(none)";
    const auto id_or = [&](const char* key, TokenId fallback) -> Result<TokenId> {
        if (file.has(key)) return read_id(file, key);
        return static_cast<std::size_t>(fallback) < spec.tokens.size() ? fallback : no_token;
    };
    DS_ASSIGN(spec.pieces.unknown, id_or("tokenizer.ggml.unknown_token_id", 0));
    DS_ASSIGN(spec.bos, id_or("tokenizer.ggml.bos_token_id", 1));
    DS_ASSIGN(const TokenId end, id_or("tokenizer.ggml.eos_token_id", 2));
    add_eos(spec, end);
    spec.named_eos = end;
    DS_TRY(read_ends(file, spec));
    DS_ASSIGN(const auto prefix, file.boolean("tokenizer.ggml.add_space_prefix"));
    spec.pieces.space_prefix = prefix.value_or(true) ? SpacePrefix::always : SpacePrefix::never;
    DS_ASSIGN(const auto add_bos, file.boolean("tokenizer.ggml.add_bos_token"));
    spec.add_bos = spec.add_bos_to_chat = add_bos.value_or(true) && spec.bos != no_token;
    return {};
}

}  // namespace

Result<TokenizerSpec> read_gguf_tokenizer(const GgufFile& file, Notes& notes) {
    DS_TRY(
        check_keys(file.path(), "tokenizer.", file.values_below("tokenizer."), gguf_tokenizer_keys, notes));
    TokenizerSpec spec;
    spec.file = file.path();
    DS_ASSIGN(const auto model, file.text("tokenizer.ggml.model"));
    if (!model)
        return bad_input("{}: metadata 'tokenizer.ggml.model' is missing; the file holds no tokenizer",
                         file.path());
    spec.model = *model;
    DS_ASSIGN(const auto pre, file.text("tokenizer.ggml.pre"));
    spec.pre = pre.value_or("(none)");
    DS_ASSIGN(spec.tokens, required(file.texts("tokenizer.ggml.tokens"), file, "tokenizer.ggml.tokens"));
    DS_ASSIGN(const auto types, file.integers("tokenizer.ggml.token_type"));
    if (types)
        for (const std::int64_t type : *types) spec.types.push_back(static_cast<int>(type));
    else
        spec.types.assign(spec.tokens.size(), 1);
    if (spec.types.size() != spec.tokens.size())
        return bad_input("{}: {} tokens but {} token types", file.path(), spec.tokens.size(),
                         spec.types.size());
    if (spec.model == "llama") {
        DS_TRY(read_sentence_pieces(file, spec));
        DS_TRY(read_add_eos(file, spec, notes));
        return spec;
    }
    // An unsupported model is reported by create(), whose message is clearer than one about missing merges.
    if (spec.model != "gpt2") return spec;
    if (!pre) {
        spec.pre = "default";
        add_note(notes, "{}: metadata 'tokenizer.ggml.pre' is missing; text is split by llama.cpp's default",
                 file.path());
    }
    DS_ASSIGN(spec.merges, required(file.texts("tokenizer.ggml.merges"), file, "tokenizer.ggml.merges"));
    DS_ASSIGN(spec.bos, read_id(file, "tokenizer.ggml.bos_token_id"));
    DS_ASSIGN(spec.named_eos, read_id(file, "tokenizer.ggml.eos_token_id"));
    DS_TRY(read_ends(file, spec));
    DS_TRY(read_add_eos(file, spec, notes));
    DS_ASSIGN(const auto add_bos, file.boolean("tokenizer.ggml.add_bos_token"));
    if (add_bos) {
        spec.add_bos = *add_bos;
    } else {
        DS_ASSIGN(const PreTokenizer splitter, PreTokenizer::create(spec.pre, spec.file));
        spec.add_bos = splitter.defaults().adds_bos && spec.bos != no_token;
    }
    spec.add_bos_to_chat = spec.add_bos;
    return spec;
}

}  // namespace draftscope
