#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "engine/formats/hf_folder.h"

// tokenizer.json describes a pipeline of steps. Splitting steps of byte-level BPE models are executed; Llama
// 2's SentencePiece pipelines are recognised by their exact steps. An unknown step is an error that names it.
namespace draftscope {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t max_vocab = std::int64_t{1} << 24;

std::string get_text(const Json& object, const char* field) {
    const auto found = object.find(field);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool get_flag(const Json& object, const char* field, bool fallback) {
    const auto found = object.find(field);
    return found != object.end() && found->is_boolean() ? found->get<bool>() : fallback;
}

/// Returns the steps of a Sequence (in field `list`), or the single step itself.
std::vector<Json> list_steps(const Json* root, const char* list) {
    std::vector<Json> out;
    if (root == nullptr) return out;
    if (!root->is_object() || get_text(*root, "type") != "Sequence") return {*root};
    const auto inner = root->find(list);
    if (inner == root->end() || !inner->is_array()) return {*root};
    for (const Json& step : *inner) {
        const auto nested = list_steps(&step, list);
        out.insert(out.end(), nested.begin(), nested.end());
    }
    return out;
}

/// Describes a step, e.g. "Split(PATTERN)". Settings that change its behaviour are part of the description.
std::string step_name(const Json& step) {
    if (!step.is_object()) return printable_json(step);
    const std::string type = get_text(step, "type");
    if (type == "Digits") return get_flag(step, "individual_digits", false) ? "Digits" : "Digits(grouped)";
    if (type == "ByteLevel") {
        if (get_flag(step, "add_prefix_space", true)) return "ByteLevel(add_prefix_space)";
        return get_flag(step, "use_regex", true) ? "ByteLevel(words)" : "ByteLevel";
    }
    if (type == "Prepend") return fmt::format("Prepend({})", get_text(step, "prepend"));
    if (type == "Metaspace") {
        const std::string scheme = get_text(step, "prepend_scheme");
        return fmt::format(
            "Metaspace({}, {}{})", get_text(step, "replacement"),
            scheme.empty() ? get_flag(step, "add_prefix_space", true) ? "always" : "never" : scheme,
            get_flag(step, "split", true) ? ", split" : "");
    }
    if (type == "Replace") {
        const auto from = step.find("pattern");
        return fmt::format("Replace({}, {})",
                           from != step.end() && from->is_object() ? get_text(*from, "String") : "",
                           get_text(step, "content"));
    }
    if (type != "Split") return type.empty() ? printable_json(step) : type;
    const auto pattern = step.find("pattern");
    const std::string regex =
        pattern != step.end() && pattern->is_object() ? get_text(*pattern, "Regex") : "";
    // Both keep every match as a separate piece, and these patterns match everything.
    const std::string behaviour = get_text(step, "behavior");
    const bool inverted = get_flag(step, "invert", false);
    const bool pieces = inverted ? behaviour == "Removed" : behaviour == "Isolated";
    return fmt::format("{}({})", pieces && !regex.empty() ? "Split" : "Split " + behaviour,
                       regex.empty() ? printable_json(step) : regex);
}

/// Describes the steps of a field, separated by " > ".
std::string step_names(const JsonFile& file, const char* field, const char* list) {
    std::string out;
    for (const Json& step : list_steps(file.find(field), list))
        out += (out.empty() ? "" : " > ") + step_name(step);
    return out;
}

/// Converts a step for PreTokenizer; nullopt for an unknown step.
std::optional<std::vector<SplitStep>> split_steps(const Json& step) {
    using Behaviour = SplitStep::Behaviour;
    const std::map<std::string, Behaviour> behaviours = {
        {"Isolated", Behaviour::isolated},
        {"Removed", Behaviour::removed},
        {"MergedWithPrevious", Behaviour::merged_with_previous},
        {"MergedWithNext", Behaviour::merged_with_next},
        {"Contiguous", Behaviour::contiguous}};
    if (!step.is_object()) return std::nullopt;
    const std::string type = get_text(step, "type");
    const auto named = behaviours.find(get_text(step, "behavior"));
    const Behaviour behaviour = named == behaviours.end() ? Behaviour::isolated : named->second;
    if (type == "Digits") {
        const bool single = get_flag(step, "individual_digits", false);
        return {{{R"(\p{N})", single ? Behaviour::isolated : Behaviour::contiguous, false}}};
    }
    if (type == "Punctuation") return {{{R"([!-/:-@\[-`{-~\p{P}])", behaviour, false}}};
    if (type == "ByteLevel" && !get_flag(step, "add_prefix_space", true)) {
        std::vector<SplitStep> out;
        if (get_flag(step, "use_regex", true))
            out.push_back({gpt2_split_pattern, Behaviour::isolated, false});
        out.push_back({"", Behaviour::isolated, false});
        return out;
    }
    const auto pattern = step.find("pattern");
    if (type != "Split" || named == behaviours.end() || pattern == step.end() || !pattern->is_object())
        return std::nullopt;
    std::string regex = get_text(*pattern, "Regex");
    if (regex.empty()) {
        for (const char c : get_text(*pattern, "String")) {
            const bool special = std::string_view(R"(\^$.[]|()?*+{}-#)").find(c) != std::string_view::npos;
            if (special) regex += '\\';
            regex += c;
        }
    }
    if (regex.empty()) return std::nullopt;
    return {{{regex, behaviour, get_flag(step, "invert", false)}}};
}

/// Names the pipelines of known families as GGUF does, so that their vocabularies have equal fingerprints.
/// Other pipelines are named by their steps.
Status read_splitting(const JsonFile& file, TokenizerSpec& spec) {
    const std::string found = step_names(file, "pre_tokenizer", "pretokenizers");
    const auto split = [](std::string_view pattern) { return fmt::format("Split({}) > ByteLevel", pattern); };
    spec.pre = found == "ByteLevel(words)" || found == split(gpt2_split_pattern) ? "gpt-2"
               : found == "Digits > ByteLevel(words)"                            ? "smollm"
               : found == split(llama3_split_pattern) ? (*spec.ignore_merges ? "llama-bpe" : "dbrx")
               : found == split(qwen2_split_pattern)  ? "qwen2"
                                                      : "";
    if (!spec.pre.empty()) return {};
    spec.pre = found;
    bool byte_level = false;
    for (const Json& step : list_steps(file.find("pre_tokenizer"), "pretokenizers")) {
        const auto steps = split_steps(step);
        if (!steps) {
            return bad_input(
                "{}: pre_tokenizer has the step '{}', which this version does not support (supported: Split, "
                "Digits, "
                "Punctuation and ByteLevel without a prefix space)",
                file.path(), printable(step_name(step)));
        }
        spec.steps.insert(spec.steps.end(), steps->begin(), steps->end());
        byte_level = byte_level || get_text(step, "type") == "ByteLevel";
    }
    if (byte_level) return {};
    return bad_input("{}: pre_tokenizer is {}, expected steps with ByteLevel among them", file.path(),
                     found.empty() ? "missing" : "'" + printable(found) + "'");
}

Result<bool> recognise_normaliser(const JsonFile& file) {
    bool composes = false;
    for (const Json& step : list_steps(file.find("normalizer"), "normalizers")) {
        const std::string name = step_name(step);
        if (name != "NFC") {
            return bad_input("{}: normalizer is '{}', which this version does not support (supported: NFC)",
                             file.path(), printable(name));
        }
        composes = true;
    }
    return composes;
}

/// Determines how a SentencePiece model handles spaces: by normalizers (older files) or by a Metaspace step.
Result<SpacePrefix> recognise_spaces(const JsonFile& file, TokenizerSpec& spec) {
    const std::string steps = step_names(file, "normalizer", "normalizers") + " | " +
                              step_names(file, "pre_tokenizer", "pretokenizers");
    spec.normaliser_escapes_spaces = steps.ends_with("Replace( , \u2581) | ");
    if (steps == "Prepend(\u2581) > Replace( , \u2581) | ") return SpacePrefix::always;
    if (steps == "Replace( , \u2581) | ") return SpacePrefix::never;
    if (steps == " | Metaspace(\u2581, always)") return SpacePrefix::unless_present;
    if (steps == " | Metaspace(\u2581, first)") return SpacePrefix::first_unless_present;
    if (steps == " | Metaspace(\u2581, never)") return SpacePrefix::never;
    return bad_input(
        "{}: normalizer and pre_tokenizer are '{}', which this version does not support with byte_fallback "
        "(supported: "
        "those of Llama 2, Prepend and Replace, or Metaspace without split)",
        file.path(), printable(steps));
}

class HfTokenizerReader {
  public:
    explicit HfTokenizerReader(const JsonFile& file) : file_(file) {}

    Status read();
    TokenizerSpec release_spec() { return std::move(spec_); }
    TokenizerSpec& spec() { return spec_; }
    TokenId find_id(std::string_view token) const {
        const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), token);
        return found == spec_.tokens.end() ? no_token : static_cast<TokenId>(found - spec_.tokens.begin());
    }

  private:
    Status read_model(const JsonFile& model);
    Status read_fallback(const JsonFile& model);
    Status read_merges(const JsonFile& model);
    Status read_added();
    Status read_template(const Json& step);
    Status store_token(const std::string& token, const Json& id, int type);

    const JsonFile& file_;
    TokenizerSpec spec_;
};

/// Stores a token at its id; ids may be unordered and have gaps.
Status HfTokenizerReader::store_token(const std::string& token, const Json& id, int type) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() >= max_vocab)
        return bad_input("{}: token '{}' has id {}, expected 0 to {}", file_.path(), printable(token),
                         printable_json(id), max_vocab - 1);
    const auto at = id.get<std::size_t>();
    if (at >= spec_.tokens.size()) {
        spec_.tokens.resize(at + 1);
        spec_.types.resize(at + 1, type_unused);
    }
    if (spec_.types[at] != type_unused && spec_.tokens[at] != token) {
        return bad_input("{}: id {} belongs to '{}' and to '{}'", file_.path(), at,
                         printable(spec_.tokens[at]), printable(token));
    }
    spec_.tokens[at] = token;
    spec_.types[at] = type;
    return {};
}

Status HfTokenizerReader::read_model(const JsonFile& model) {
    DS_ASSIGN(const auto type, model.text("type"));
    if (type.value_or("BPE") != "BPE") return model.field_error("type", "BPE (byte-level)");
    for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        DS_ASSIGN(const auto affix, model.text(field));
        if (affix && !affix->empty()) return model.field_error(field, "nothing");
    }
    DS_ASSIGN(const auto fallback, model.boolean("byte_fallback"));
    if (fallback.value_or(false)) spec_.model = "llama";
    DS_ASSIGN(spec_.ignore_merges, model.boolean("ignore_merges"));
    if (!spec_.ignore_merges) spec_.ignore_merges = false;
    DS_ASSIGN(const auto vocab, model.object("vocab"));
    if (!vocab) return model.field_error("vocab", "an object of token ids");
    for (const auto& [token, id] : model.find("vocab")->items()) DS_TRY(store_token(token, id, type_normal));
    if (spec_.model == "llama") DS_TRY(read_fallback(model));
    return read_merges(model);
}

/// Reads byte tokens and the unknown token of a SentencePiece model.
Status HfTokenizerReader::read_fallback(const JsonFile& model) {
    if (*spec_.ignore_merges) return model.field_error("ignore_merges", "false with byte_fallback");
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
        const std::string& token = spec_.tokens[i];
        if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) spec_.types[i] = type_byte;
    }
    DS_ASSIGN(const auto unknown, model.text("unk_token"));
    if (unknown) spec_.pieces.unknown = find_id(*unknown);
    return {};
}

/// Reads merges: "left right" in older files, ["left", "right"] in newer ones.
Status HfTokenizerReader::read_merges(const JsonFile& model) {
    const Json* merges = model.find("merges");
    if (merges == nullptr || !merges->is_array()) return model.field_error("merges", "a list");
    for (const Json& merge : *merges) {
        if (merge.is_string()) {
            spec_.merges.push_back(merge.get<std::string>());
            continue;
        }
        const bool pair =
            merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
        if (!pair || merge[0].get_ref<const std::string&>().find(' ') != std::string::npos)
            return bad_input("{}: merge {} is {}, expected two tokens", file_.path(), spec_.merges.size(),
                             printable_json(merge));
        spec_.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    return {};
}

Status HfTokenizerReader::read_added() {
    const Json* added = file_.find("added_tokens");
    if (added == nullptr) return {};
    if (!added->is_array()) return file_.field_error("added_tokens", "a list");
    for (const Json& token : *added) {
        if (!token.is_object() || get_text(token, "content").empty() || !token.contains("id"))
            return bad_input("{}: added token {} lacks content or id", file_.path(), printable_json(token));
        const int type = get_flag(token, "special", false) ? type_control : type_user_defined;
        DS_TRY(store_token(get_text(token, "content"), token["id"], type));
        const AddedToken found = {token["id"].get<TokenId>(),
                                  {.lstrip = get_flag(token, "lstrip", false),
                                   .rstrip = get_flag(token, "rstrip", false),
                                   .single_word = get_flag(token, "single_word", false)},
                                  get_flag(token, "normalized", false)};
        if (found.normalised || found.matching.lstrip || found.matching.rstrip || found.matching.single_word)
            spec_.added.push_back(found);
    }
    return {};
}

/// Reads the template of a TemplateProcessing step: no token, or one token in front of the text.
Status HfTokenizerReader::read_template(const Json& step) {
    const auto single = step.find("single");
    if (single == step.end() || !single->is_array())
        return bad_input("{}: the post_processor's template has no list 'single'", file_.path());
    for (std::size_t i = 0; i < single->size(); ++i) {
        const Json& item = (*single)[i];
        if (item.is_object() && item.contains("Sequence")) continue;
        const auto special = item.is_object() ? item.find("SpecialToken") : item.end();
        const std::string name = item.is_object() && special != item.end() && special->is_object()
                                     ? get_text(*special, "id")
                                     : std::string();
        if (i != 0 || find_id(name) == no_token) {
            return bad_input(
                "{}: the post_processor writes {} at position {} of a text, expected at most one "
                "token in front",
                file_.path(), printable_json(item), i);
        }
        spec_.bos = find_id(name);
        spec_.add_bos = true;
    }
    return {};
}

Status HfTokenizerReader::read() {
    spec_.file = file_.path();
    spec_.model = "gpt2";
    DS_ASSIGN(const auto model, file_.object("model"));
    if (!model) return file_.field_error("model", "an object");
    DS_TRY(read_model(*model));
    DS_TRY(read_added());
    if (spec_.model == "llama") {
        spec_.pre = "(none)";
        DS_ASSIGN(spec_.pieces.space_prefix, recognise_spaces(file_, spec_));
    } else {
        DS_TRY(read_splitting(file_, spec_));
        DS_ASSIGN(spec_.normalises, recognise_normaliser(file_));
    }
    for (const Json& step : list_steps(file_.find("post_processor"), "processors")) {
        const std::string type = step.is_object() ? get_text(step, "type") : "";
        if (type == "TemplateProcessing") {
            DS_TRY(read_template(step));
        } else if (type != "ByteLevel") {
            return bad_input("{}: post_processor '{}' is not supported by this version", file_.path(),
                             printable(step_name(step)));
        }
    }
    return {};
}

/// Reads an id or a list of ids.
Status add_ends(const JsonFile& file, TokenizerSpec& spec) {
    const Json* found = file.find("eos_token_id");
    if (found == nullptr) return {};
    const Json ids = found->is_array() ? *found : Json::array({*found});
    for (const Json& value : ids) {
        if (!value.is_number_integer() || value.get<double>() < 0 ||
            value.get<double>() >= static_cast<double>(spec.tokens.size()))
            return file.field_error("eos_token_id", fmt::format("ids of the {} tokens", spec.tokens.size()));
        add_eos(spec, value.get<TokenId>());
    }
    return {};
}

/// Returns the token that a field of tokenizer_config.json names, as a string or as an object with its
/// content.
TokenId named_token(const JsonFile& file, const char* field, const HfTokenizerReader& reader) {
    const Json* value = file.find(field);
    if (value == nullptr) return no_token;
    const std::string name = value->is_string()   ? value->get<std::string>()
                             : value->is_object() ? get_text(*value, "content")
                                                  : std::string();
    return name.empty() ? no_token : reader.find_id(name);
}

}  // namespace

Result<TokenizerSpec> read_hf_tokenizer(const std::string& folder, const JsonFile& config) {
    const std::filesystem::path root(folder);
    DS_ASSIGN(const JsonFile file,
              JsonFile::read((root / "tokenizer.json").string(), "turning text into ids"));
    HfTokenizerReader reader(file);
    DS_TRY(reader.read());
    TokenizerSpec& spec = reader.spec();
    DS_ASSIGN(const auto generation, JsonFile::read_if_present((root / "generation_config.json").string()));
    if (generation) DS_TRY(add_ends(*generation, spec));
    DS_TRY(add_ends(config, spec));
    DS_ASSIGN(const auto settings, JsonFile::read_if_present((root / "tokenizer_config.json").string()));
    if (settings) {
        spec.named_eos = named_token(*settings, "eos_token", reader);
        add_eos(spec, spec.named_eos);
        if (spec.bos == no_token) spec.bos = named_token(*settings, "bos_token", reader);
        DS_ASSIGN(const auto configured, settings->boolean("add_bos_token"));
        if (configured && spec.bos != no_token && *configured != spec.add_bos)
            spec.bos_note = fmt::format(
                "{}: add_bos_token is {}, but the post_processor of tokenizer.json puts {} token in front of "
                "a text; prompts of --raw have {}, as in transformers 5",
                settings->path(), *configured, spec.add_bos ? "a beginning-of-text" : "no",
                spec.add_bos ? "it" : "none");
    }
    add_known_eos(spec);
    return reader.release_spec();
}

}  // namespace draftscope
