#include "app/gui/models/dropped.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/gui/models/selection.h"
#include "app/gui/models/session.h"
#include "capture/head_traits.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

nlohmann::json read_json(const fs::path& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file, nullptr, false);
}

/// Tells a folder's checkpoint by the architecture that its config names, or by its size: a drafter has a
/// layer or two.
DroppedKind folder_kind(const fs::path& folder) {
    std::error_code error;
    if (fs::exists(folder / "trace.json", error)) return DroppedKind::recording;
    const nlohmann::json config = read_json(folder / "config.json");
    if (!config.is_object()) return DroppedKind::unknown;
    const std::string text = config.value("architectures", nlohmann::json::array()).dump() +
                             config.value("speculators_model_type", std::string()) +
                             config.value("model_type", std::string());
    for (const char* name : {"Eagle", "eagle", "Medusa", "medusa", "Hydra", "hydra"})
        if (text.find(name) != std::string::npos) return DroppedKind::drafter;
    const bool small = config.value("num_hidden_layers", 99) <= 1 || config.contains("medusa_num_heads");
    return small ? DroppedKind::drafter : DroppedKind::model;
}

}  // namespace

DroppedKind dropped_kind(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return folder_kind(path);
    const std::string ending = fs::path(path).extension().string();
    if (ending == ".gguf") return DroppedKind::model;
    if (ending == ".safetensors" || ending == ".txt") return DroppedKind::head_weights;
    if (ending == ".json") {
        const nlohmann::json document = read_json(path);
        if (document.is_object() && document.contains("costs") && document.contains("machine"))
            return DroppedKind::profile;
        return DroppedKind::capture;
    }
    if (ending != ".jsonl") return DroppedKind::capture;
    // Prompts and rounds of other engines are both JSON lines.
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const nlohmann::json first = nlohmann::json::parse(line, nullptr, false);
    const bool prompts = first.is_object() && (first.contains("prompt") || first.contains("turns"));
    return prompts ? DroppedKind::prompts : DroppedKind::capture;
}

std::string use_dropped(const std::string& path, DroppedKind kind, bool needs_weights, RunConfig& config) {
    const std::string name = short_name(path);
    switch (kind) {
        case DroppedKind::model:
            config.model = path;
            return fmt::format("{} is the model of the next run", name);
        case DroppedKind::drafter:
            config.drafter = fmt::format("{}:{}", needs_weights ? spec_name(config.drafter) : "eagle3", path);
            return fmt::format("{} is the drafter's checkpoint", name);
        case DroppedKind::head_weights: {
            const std::string head(spec_name(config.head));
            if (head == full_head_id || head == "auto")
                return "select the head that " + name + " belongs to, and drop it again";
            set_head_weights(config, head, path);
            return fmt::format("{} has the weights of {}", name, head);
        }
        case DroppedKind::prompts:
            config.prompts_file = path;
            return fmt::format("{} has the prompts of the next run", name);
        case DroppedKind::recording:
            return fmt::format("{} is the recording of the next search", name);
        case DroppedKind::profile:
            return fmt::format("{} has the costs of the next search", name);
        default:
            return name +
                   ": neither a capture, a model, a drafter, weights, prompts, a recording nor a profile";
    }
}

}  // namespace draftscope
