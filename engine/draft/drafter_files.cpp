#include "engine/draft/drafter_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/mapped_file.h"
#include "engine/formats/tensor_file.h"
#include "engine/weights/memory_check.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Returns where the options of `text` begin: at the first comma that only key=value pieces follow.
std::size_t options_begin(std::string_view text) {
    std::size_t begin = text.size();
    while (true) {
        const std::size_t comma = text.substr(0, begin).rfind(',');
        if (comma == std::string_view::npos) return begin;
        const std::string_view piece = text.substr(comma + 1, begin - comma - 1);
        const std::size_t equals = piece.find('=');
        const std::string_view key = piece.substr(0, equals);
        const bool is_option =
            equals != std::string_view::npos && !key.empty() &&
            std::all_of(key.begin(), key.end(), [](char c) { return c >= 'a' && c <= 'z'; });
        if (!is_option) return begin;
        begin = comma;
    }
}

}  // namespace

std::string parse_drafter_path(std::string_view text) {
    return std::string(text.substr(0, options_begin(text)));
}

Result<DrafterSource> parse_drafter_source(std::string_view text, std::span<const std::string_view> known) {
    DrafterSource out;
    const std::size_t begin = options_begin(text);
    out.path = text.substr(0, begin);
    for (std::string_view rest = text.substr(begin); !rest.empty();) {
        rest.remove_prefix(1);
        const std::string_view piece = rest.substr(0, rest.find(','));
        rest.remove_prefix(piece.size());
        const std::size_t equals = piece.find('=');
        const std::string_view key = piece.substr(0, equals);
        if (std::find(known.begin(), known.end(), key) == known.end())
            return bad_input("drafter option '{}' in '{}' is unknown; known: {}", key, text,
                             fmt::join(known, ", "));
        out.options.emplace(key, piece.substr(equals + 1));
    }
    return out;
}

Result<DrafterFiles> open_drafter_files(const std::string& path, std::span<const std::string_view> names) {
    std::error_code ignored;
    DrafterFiles out;
    fs::path folder = path;
    if (fs::is_directory(path, ignored)) {
        for (const std::string_view name : names) {
            if (out.weights_path.empty() && fs::exists(folder / name, ignored))
                out.weights_path = (folder / name).string();
        }
        if (out.weights_path.empty()) {
            const bool sharded = fs::exists(folder / "model.safetensors.index.json", ignored);
            return bad_input(
                "{}: contains none of {}; a drafter folder "
                "must have config.json and one of these files{}",
                path, fmt::join(names, ", "),
                sharded ? "; sharded weights are not supported, merge them into one file" : "");
        }
    } else {
        out.weights_path = path;
        folder = folder.parent_path();
    }
    DS_ASSIGN(out.config, JsonFile::read_if_present((folder / "config.json").string()));
    DS_ASSIGN(out.weights, open_tensor_file(out.weights_path));
    return out;
}

Status check_drafter_memory(const WeightSource& weights, kernels::Precision precision) {
    double elements = 0;
    for (const std::string& name : weights.names()) {
        // Embedding rows are read from the file on demand, so they take no memory.
        if (name.find("embed_tokens") != std::string::npos || name == "token_embd.weight") continue;
        const TensorInfo& info = *weights.find(name);
        elements += static_cast<double>(info.rows()) * static_cast<double>(info.cols());
    }
    const double bytes = kernels::bytes_per_weight(precision);
    const auto available = available_memory();
    constexpr double gib = 1024.0 * 1024.0 * 1024.0;
    if (!available || elements * bytes <= static_cast<double>(*available)) return {};
    return failed("{}: the drafter needs {:.1f} GiB as {}, but {}; choose a smaller --precision",
                  weights.path(), elements * bytes / gib, kernels::to_text(precision),
                  available_text(*available));
}

}  // namespace draftscope
