#include "app/jobs/inspect/contents.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json_file.h"
#include "kernels/matrix.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> weight_files = {
    "model.safetensors", "pytorch_model.bin",       "medusa_lm_head.safetensors",
    "medusa_lm_head.pt", "medusa_head.safetensors", "hydra_lm_head.safetensors",
    "hydra_lm_head.pt"};

/// Keys of GGUF files behind the architecture, and the names in config.json.
constexpr const char* gguf_keys = R"(
    block_count num_hidden_layers  embedding_length hidden_size  feed_forward_length intermediate_size
    attention.head_count num_attention_heads  attention.head_count_kv num_key_value_heads
    attention.key_length head_dim  context_length max_position_embeddings  rope.freq_base rope_theta
    vocab_size vocab_size  rope.scaling.type rope_scaling  nextn_predict_layers num_nextn_predict_layers
    target_hidden_size target_hidden_size )";

Json config_of(const GgufFile& file) {
    const auto architecture = file.text("general.architecture");
    if (!architecture.ok() || !architecture.value()) return Json::object();
    const std::string prefix = **architecture + ".";
    const Json values = file.values_below(prefix);
    Json out = {{"architectures", {**architecture}}};
    std::istringstream words(gguf_keys);
    for (std::string key, field; words >> key >> field;) {
        const auto each = file.integer(prefix + key);  // also of a list with a value for each layer
        if (each.ok() && each.value())
            out[field] = *each.value();
        else if (values.contains(key))
            out[field] = values[key];
    }
    return out;
}

bool is_embedding(std::string_view name) {
    return name.find("embed_tokens") != name.npos || name.starts_with("token_embd");
}

const char* part_of(std::string_view name) {
    if (is_embedding(name)) return "embeddings";
    if (name.find("lm_head") != name.npos || name.starts_with("output.")) return "LM head";
    const auto has = [&](const char* word) { return name.find(word) != name.npos; };
    return has("layer") || has("blk.") ? "layers" : "other";
}

std::string count_text(double count) {
    for (const auto& [unit, name] : {std::pair{1e9, "B"}, {1e6, "M"}, {1e3, "k"}})
        if (count >= unit) return fmt::format("{:.{}f} {}", count / unit, count < 10 * unit ? 2 : 0, name);
    return fmt::format("{:.0f}", count);
}

std::string bytes_text(double bytes) {
    const double mib = 1 << 20, gib = 1 << 30;
    if (bytes >= gib) return fmt::format("{:.2f} GiB", bytes / gib);
    if (bytes >= mib) return fmt::format("{:.1f} MiB", bytes / mib);
    return bytes >= 1024 ? fmt::format("{:.1f} KiB", bytes / 1024) : fmt::format("{:.0f} B", bytes);
}

void add_parameters(const Contents& contents, bool tied, Inspection& out) {
    using kernels::Precision;
    const TensorFile& tensors = contents.tensors();
    std::map<std::string, double> parts, types;
    double total = 0, packed = 0, bytes = 0;
    for (const std::string& name : tensors.names()) {
        const StoredTensor& tensor = *tensors.find_stored(name);
        if (tensor.type->integers != nullptr && tensor.type->name == tensor.info.type) continue;
        double values = 1;
        for (const std::int64_t extent : tensor.info.shape) values *= static_cast<double>(extent);
        total += values, bytes += static_cast<double>(tensor.info.bytes);
        parts[part_of(name)] += values, types[tensor.info.type] += values;
        // Embeddings are read from the file, except as an LM head.
        if (tied || !is_embedding(name)) packed += values;
    }
    if (total == 0) return;
    std::string text = count_text(total), memory;
    for (const auto& [part, values] : parts) text += fmt::format(", {} {}", part, count_text(values));
    text += fmt::format("; {}", bytes_text(bytes));
    for (const auto& [type, values] : types) text += fmt::format(", {:.0f} % {}", 100 * values / total, type);
    out.facts.push_back({"parameters", text, {{"total", total}, {"bytes", bytes}, {"parts", parts}}});
    Json value = Json::object();
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8, Precision::int4}) {
        const double needed = packed * kernels::bytes_per_weight(precision);
        value[std::string(kernels::to_text(precision))] = needed;
        memory += fmt::format("{}{} {}", memory.empty() ? "" : ", ", kernels::to_text(precision),
                              bytes_text(needed));
    }
    out.facts.push_back({"memory", memory, value});
}

}  // namespace

const Json& Contents::layer_config() const {
    for (const char* section : {"transformer_layer_config", "text_config"})
        if (config.contains(section) && config[section].is_object()) return config[section];
    return config;
}

double Contents::number(const char* field) const {
    for (const Json* at : {&layer_config(), &config})
        if (at->contains(field) && (*at)[field].is_number()) return (*at)[field].get<double>();
    return 0;
}

const TensorInfo* Contents::part(std::string_view name, std::string_view gguf_name) const {
    if (gguf) return tensors().find(gguf_name);
    for (const std::string& one : tensors().names())
        if (one == name || one.ends_with("." + std::string(name))) return tensors().find(one);
    return nullptr;
}

int Contents::layers() const {
    int out = count("num_hidden_layers");
    for (const std::string& name : tensors().names())
        for (const std::string_view word : {"layers.", "midlayer.", "blk."})
            if (const std::size_t at = name.find(word); at != name.npos)
                out = std::max(out, 1 + number_at(name, at + word.size()));
    return out;
}

Result<Contents> open_contents(const std::string& path) {
    Contents out;
    out.path = path;
    std::string start(4, '\0');
    std::ifstream(path, std::ios::binary).read(start.data(), 4);
    if (start == "GGUF" || path.ends_with(".gguf")) {
        DS_ASSIGN(out.gguf, GgufFile::open_damaged(path, out.unread));
        out.config = config_of(*out.gguf);
        return out;
    }
    std::error_code ignored;
    const bool folder = fs::is_directory(path, ignored);
    const fs::path root = folder ? fs::path(path) : fs::path(path).parent_path();
    const auto config = JsonFile::read_if_present((root / "config.json").string());
    if (!config.ok()) out.unread.push_back(config.error().message);
    if (config.ok() && config.value()) out.config = (*config)->json();
    const std::string file = folder ? find_tensor_file(path, weight_files) : path;
    out.loaded = std::make_unique<TensorFile>(file);
    Status read = bad_input("{}: holds no weights", path);
    if (!file.empty()) read = out.loaded->open_damaged(out.unread);
    if (read.ok()) return out;
    if (out.config.empty()) return read.error();
    if (file.empty()) out.unread.push_back(read.error().message);
    out.loaded = std::make_unique<TensorFile>("");
    return out;
}

int number_at(const std::string& text, std::size_t position) {
    return std::atoi(text.substr(position, 6).c_str());
}

void add_sizes(const Contents& contents, bool tied, Inspection& out) {
    add_parameters(contents, tied, out);
    if (contents.config.empty() && contents.layers() > 0)
        add_note(out.unread, "{}: config.json is missing in the same folder", contents.path);
    const int hidden = contents.count("hidden_size"), heads = contents.count("num_attention_heads");
    if (hidden == 0 || heads == 0) return;
    int kv_heads = contents.count("num_key_value_heads"), width = contents.count("head_dim");
    if (kv_heads == 0) kv_heads = heads;
    const TensorInfo* query = contents.part("self_attn.q_proj.weight", "blk.0.attn_q.weight");
    if (width == 0) width = (query != nullptr ? static_cast<int>(query->rows()) : hidden) / heads;
    const int layers = contents.layers(), context = contents.count("max_position_embeddings");
    out.add("layers",
            fmt::format("{} of {} values; {} attention heads of {}, {} for keys and values; FFN {}", layers,
                        hidden, heads, width, kv_heads, contents.count("intermediate_size")));
    const double token = 4.0 * layers * kv_heads * width;  // keys and values in 16 bits
    std::string cache = bytes_text(token) + " a token";
    if (context > 4096) cache += fmt::format(", {} at 4096", bytes_text(4096 * token));
    if (context > 0) cache += fmt::format(", {} at {}, its context", bytes_text(context * token), context);
    out.facts.push_back({"KV cache", cache, token});
    const Json& config = contents.layer_config();
    const Json& rope =
        config.contains("rope_parameters") ? config["rope_parameters"] : config.value("rope_scaling", Json());
    const double theta = contents.number("rope_theta");
    out.add("rope", fmt::format("{}{}",
                                theta > 0 ? fmt::format("base {:g}", theta)
                                          : "base not named at the top (10000 is usual)",
                                rope.is_null() ? "" : ", scaling " + printable_json(rope)));
}

void compare(Inspection& out, const std::string& name, const Json& ours, const Json& theirs,
             const std::string& meaning) {
    if (out.differences.empty()) out.differences.push_back({"equal", "", Json::array()});
    Fact& equal = out.differences.front();
    if (ours == theirs) {
        equal.text += (equal.text.empty() ? "" : ", ") + name;
        return equal.value.push_back(name);
    }
    const auto text_of = [](const Json& value) {
        return value.is_string() ? value.get<std::string>() : printable_json(value);
    };
    const std::string values =
        fmt::format("{}, the target's {}{}", text_of(ours), text_of(theirs), meaning.empty() ? "" : ": ");
    const std::string text = (ours.is_boolean() ? "" : values) + meaning;
    out.differences.push_back({name, text, {{"this", ours}, {"target", theirs}}});
}

}  // namespace draftscope
