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

/// The default template in a list of named templates.
std::string default_template(const Json& templates) {
    for (const Json& entry : templates) {
        if (!entry.is_object() || entry.value("name", Json()) != "default") continue;
        const auto text = entry.find("template");
        if (text != entry.end() && text->is_string()) return text->get<std::string>();
    }
    return {};
}

Result<std::string> read_template(const fs::path& root) {
    std::error_code ignored;
    const fs::path template_path = root / "chat_template.jinja";
    if (fs::exists(template_path, ignored)) {
        std::ifstream file(template_path, std::ios::binary);
        std::stringstream text;
        text << file.rdbuf();
        if (!file || !text) return bad_input("{}: cannot be read", template_path.string());
        return text.str();
    }
    DS_ASSIGN(const auto settings, JsonFile::read_if_present((root / "tokenizer_config.json").string()));
    const Json* found = settings ? settings->find("chat_template") : nullptr;
    if (found == nullptr) return std::string();
    if (found->is_array()) return default_template(*found);
    if (!found->is_string()) return settings->field_error("chat_template", "a string or a list");
    return found->get<std::string>();
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
    DS_ASSIGN(const std::string source, read_template(root));
    auto chat = ChatTemplate::from_source(source, folder, bos_eos_tokens(*out.tokenizer));
    out.chat = chat.ok() ? std::move(chat).value() : ChatTemplate::raw_with_problem(chat.error().message);
    out.quantisation = dominant_type(*out.weights);
    return out;
}

}  // namespace draftscope
