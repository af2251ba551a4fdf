#include "engine/formats/hf_folder.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "base/mapped_file.h"
#include "engine/formats/architecture.h"
#include "engine/formats/config_keys.h"
#include "engine/formats/rope_config.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

Result<const Architecture*> find_architecture(const JsonFile& file) {
    const Json* names = file.find("architectures");
    if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string())
        return file.field_error("architectures", "the name of a model class");
    const auto name = names->front().get<std::string>();
    if (const Architecture* found = architecture_by_hf_class(name)) return found;
    return bad_input("{}: architecture '{}' is not supported by this version (supported: {})", file.path(),
                     printable(name), known_hf_classes());
}

/// Refuses, by the name of the field, settings that this version would have to compute differently.
Status reject_variants(const JsonFile& file, const Architecture& architecture) {
    DS_ASSIGN(const auto activation, file.text("hidden_act"));
    if (activation.value_or("silu") != "silu") return file.field_error("hidden_act", "silu");
    // Qwen 2 always has biases; its config does not mention them.
    for (const char* field : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
        DS_ASSIGN(const auto on, file.boolean(field));
        if (on.value_or(false)) {
            return file.field_error(
                field, fmt::format("false: this version does not compute it for {}", architecture.hf_class));
        }
    }
    if (file.find("quantization_config") != nullptr) {
        return bad_input(
            "{}: the weights are quantised (quantization_config); this version reads folders of f32, f16 and "
            "bf16 weights, and quantised models as GGUF",
            file.path());
    }
    return {};
}

/// A window as long as the context has no effect. Qwen's configs have a window that is disabled by default.
Status reject_window(const JsonFile& file, const ModelConfig& config) {
    const int context = config.context;
    DS_ASSIGN(const auto window, file.count("sliding_window", INT32_MAX));
    DS_ASSIGN(const auto used, file.boolean("use_sliding_window"));
    const Json* types = file.find("layer_types");
    if (types != nullptr && !types->is_array())
        return file.field_error("layer_types", "a list of layer types");
    const bool is_windowed = window && *window < context;
    for (const Json& type : types == nullptr ? Json::array() : *types)
        if (type != "full_attention" && (type != "sliding_attention" || is_windowed || !window))
            return bad_input(
                "{}: layer_types contains {}, expected full_attention: this version attends to the whole "
                "context",
                file.path(), printable_json(type));
    if (!is_windowed || used.has_value() || config.architecture.starts_with("qwen")) return {};
    return bad_input(
        "{}: sliding_window is {}, shorter than max_position_embeddings {}; this version attends to the "
        "whole context. Set max_position_embeddings to the window to use the model within it, where both are "
        "the same",
        file.path(), *window, context);
}

Status read_heads(const JsonFile& file, ModelConfig& config) {
    DS_ASSIGN(config.heads, file.required_count("num_attention_heads", max_extent));
    DS_ASSIGN(const auto kv_heads, file.count("num_key_value_heads", max_extent));
    config.kv_heads = kv_heads.value_or(config.heads);
    DS_ASSIGN(const auto head_dim, file.count("head_dim", max_extent));
    // Qwen 3's class has its own default.
    const int fallback = config.architecture == "qwen3" ? 128 : config.hidden / config.heads;
    if (!head_dim && config.architecture != "qwen3" && config.hidden % config.heads != 0) {
        return bad_input("{}: hidden_size {} is not a multiple of {} heads", file.path(), config.hidden,
                         config.heads);
    }
    config.head_dim = head_dim.value_or(fallback);
    return check_head_sizes(file.path(), config.heads, config.kv_heads, config.head_dim);
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonFile& file, Notes& notes) {
    DS_ASSIGN(const Architecture* architecture, find_architecture(file));
    DS_TRY(reject_variants(file, *architecture));
    DS_TRY(check_keys(file, target_keys, notes));
    HfConfig out;
    ModelConfig& config = out.config;
    apply_architecture(*architecture, config);
    DS_ASSIGN(config.layers, file.required_count("num_hidden_layers", max_layers));
    DS_ASSIGN(config.hidden, file.required_count("hidden_size", max_extent));
    DS_ASSIGN(config.ffn, file.required_count("intermediate_size", max_extent));
    DS_ASSIGN(config.context, file.required_count("max_position_embeddings", max_extent));
    DS_TRY(reject_window(file, config));
    DS_ASSIGN(config.vocab, file.required_count("vocab_size", max_extent));
    DS_TRY(read_heads(file, config));
    DS_ASSIGN(config.rotation, read_hf_rope(file, config.head_dim, notes));
    DS_ASSIGN(const auto eps, file.positive("rms_norm_eps"));
    if (!eps) return file.field_error("rms_norm_eps", "a positive number");
    config.norm_eps = static_cast<float>(*eps);
    DS_ASSIGN(out.tied, file.boolean("tie_word_embeddings"));
    return out;
}

namespace {

namespace fs = std::filesystem;

/// Returns the folder's name, or NAME for a download cache's ".../models--ORG--NAME/snapshots/HASH".
std::string display_name(const std::string& folder) {
    fs::path path = fs::path(folder).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    if (path.filename().empty() || path.filename() == ".") path = fs::absolute(path).lexically_normal();
    const std::string cached = path.parent_path().parent_path().filename().string();
    const std::size_t cut = cached.rfind("--");
    if (path.parent_path().filename() == "snapshots" && cut != std::string::npos)
        return cached.substr(cut + 2);
    return path.filename().string();
}

using NamedTemplates = std::map<std::string, std::string>;

/// Reads the templates of a JSON file's chat_template: a string, a list of {name, template} or a mapping.
Status read_json_templates(const fs::path& path, NamedTemplates& out) {
    DS_ASSIGN(const auto file, JsonFile::read_if_present(path.string()));
    const Json* found = file ? file->find("chat_template") : nullptr;
    if (found == nullptr) return {};
    if (found->is_string()) out["default"] = found->get<std::string>();
    if (found->is_object())
        for (const auto& [name, text] : found->items())
            if (text.is_string()) out[name] = text.get<std::string>();
    if (found->is_array())
        for (const Json& entry : *found) {
            const Json name = entry.is_object() ? entry.value("name", Json()) : Json();
            const Json text = entry.is_object() ? entry.value("template", Json()) : Json();
            if (name.is_string() && text.is_string()) out[name.get<std::string>()] = text.get<std::string>();
        }
    if (found->is_structured() || found->is_string()) return {};
    return file->field_error("chat_template", "a string or a list");
}

Status read_jinja_file(const fs::path& path, const std::string& name, NamedTemplates& out) {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return {};
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    if (!file || (!text && file.peek() != EOF)) return bad_input("{}: cannot be read", path.string());
    out[name] = text.str();
    return {};
}

/// Returns the chat template that transformers would use, and says so if there is a choice: .jinja files
/// come before the tokenizer's settings, and those before the settings of processors.
Result<std::string> read_template(const fs::path& root, Notes& notes) {
    NamedTemplates templates;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root / "additional_chat_templates", ignored))
        if (entry.path().extension() == ".jinja")
            DS_TRY(read_jinja_file(entry.path(), entry.path().stem().string(), templates));
    DS_TRY(read_jinja_file(root / "chat_template.jinja", "default", templates));
    std::string from = templates.contains("default") ? "chat_template.jinja" : "additional_chat_templates";
    for (const char* file : {"tokenizer_config.json", "chat_template.json", "processor_config.json"}) {
        NamedTemplates other;
        DS_TRY(read_json_templates(root / file, other));
        if (other.empty()) continue;
        if (templates.empty()) {
            templates = std::move(other);
            from = file;
            if (from != "tokenizer_config.json")
                add_note(notes, "{}: the chat template is that of {}", root.string(), from);
        } else if (const auto a = templates.find("default"), b = other.find("default");
                   a != templates.end() && b != other.end() && a->second != b->second) {
            add_note(notes, "{}: {} and {} hold different chat templates; that of {} is used", root.string(),
                     from, file, from);
        }
    }
    return choose_template(templates, root.string() + "/" + from, notes);
}

}  // namespace

std::string other_contents(const std::string& folder) {
    std::error_code ignored;
    const fs::path root(folder);
    if (fs::exists(root / "adapter_config.json", ignored))
        return "; the folder holds a LoRA adapter: merge it into its base model and name the merged folder";
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
        if (fs::exists(root / name, ignored)) return fmt::format("; convert {} to safetensors first", name);
    std::set<fs::path> models;
    for (fs::directory_iterator at(root, ignored), end; !ignored && at != end; at.increment(ignored))
        if (at->path().extension() == ".gguf") models.insert(at->path());
    return models.empty() ? "" : fmt::format("; name the GGUF file itself: {}", models.begin()->string());
}

Result<ModelFile> open_hf_folder(const std::string& folder) {
    const fs::path root(folder);
    ModelFile out;
    DS_ASSIGN(const JsonFile config,
              JsonFile::read((root / "config.json").string(),
                             "a model folder (config.json, model.safetensors, tokenizer.json)" +
                                 other_contents(folder)));
    DS_ASSIGN(HfConfig hf, read_hf_config(config, out.notes));
    hf.config.name = display_name(folder);
    DS_ASSIGN(auto weights, open_hf_weights(folder, hf, out.notes));
    out.quantisation = weights->dominant_type()->name;
    out.weights = std::move(weights);
    out.config = std::move(hf.config);
    DS_ASSIGN(TokenizerSpec spec, read_hf_tokenizer(folder, config));
    DS_TRY(fit_to_embedding(spec, out.config.vocab));
    DS_ASSIGN(out.tokenizer, Tokenizer::create(std::move(spec)));
    // An unusable template does not prevent opening: raw prompts need none.
    Notes notes;
    DS_ASSIGN(const std::string source, read_template(root, notes));
    out.chat = ChatTemplate::from_source(source, folder, bos_eos_tokens(*out.tokenizer), std::move(notes));
    return out;
}

}  // namespace draftscope
