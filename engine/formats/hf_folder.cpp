#include "engine/formats/hf_folder.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace draftscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

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
    NamedTemplates own;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root / "additional_chat_templates", ignored))
        if (entry.path().extension() == ".jinja")
            DS_TRY(read_jinja_file(entry.path(), entry.path().stem().string(), own));
    DS_TRY(read_jinja_file(root / "chat_template.jinja", "default", own));
    std::string from = own.contains("default") ? "chat_template.jinja" : "additional_chat_templates";
    for (const char* file : {"tokenizer_config.json", "chat_template.json", "processor_config.json"}) {
        NamedTemplates other;
        DS_TRY(read_json_templates(root / file, other));
        if (other.empty()) continue;
        if (own.empty()) {
            own = std::move(other);
            from = file;
            if (from != "tokenizer_config.json")
                add_note(notes, "{}: the chat template is that of {}", root.string(), from);
        } else if (const auto a = own.find("default"), b = other.find("default");
                   a != own.end() && b != other.end() && a->second != b->second) {
            add_note(notes, "{}: {} and {} hold different chat templates; that of {} is used", root.string(),
                     from, file, from);
        }
    }
    return choose_template(own, root.string() + "/" + from, notes);
}

/// Returns the type of the largest part of the weights.
std::string dominant_type(const WeightSource& weights) {
    std::map<std::string, std::int64_t> elements;
    for (const std::string& name : weights.names()) {
        const TensorInfo& info = *weights.find(name);
        elements[info.type] += info.rows() * info.cols();
    }
    std::string best;
    for (const auto& [type, count] : elements) {
        if (best.empty() || count > elements[best]) best = type;
    }
    return best;
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
    DS_ASSIGN(out.weights, open_hf_weights(folder, hf, out.notes));
    out.config = std::move(hf.config);
    DS_ASSIGN(TokenizerSpec spec, read_hf_tokenizer(folder, config));
    DS_TRY(fit_to_embedding(spec, out.config.vocab));
    DS_ASSIGN(out.tokenizer, Tokenizer::create(std::move(spec)));
    // An unusable template does not prevent opening: raw prompts need none.
    Notes notes;
    DS_ASSIGN(const std::string source, read_template(root, notes));
    out.chat = ChatTemplate::from_source(source, folder, bos_eos_tokens(*out.tokenizer), std::move(notes));
    out.quantisation = dominant_type(*out.weights);
    return out;
}

}  // namespace draftscope
