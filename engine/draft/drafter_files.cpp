#include "engine/draft/drafter_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/mapped_file.h"
#include "engine/formats/synthetic_model.h"
#include "engine/formats/tensor_file.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

bool path_exists(std::string_view path) {
    std::error_code ignored;
    return path.empty() || is_synthetic_model(path) || fs::exists(path, ignored);
}

/// Returns where the last ",key=value" before `end` begins; nullopt if the text does not end in one.
std::optional<std::size_t> last_option(std::string_view text, std::size_t end) {
    const std::size_t comma = end == 0 ? std::string_view::npos : text.rfind(',', end - 1);
    if (comma == std::string_view::npos) return std::nullopt;
    const std::string_view piece = text.substr(comma + 1, end - comma - 1);
    const std::string_view key = piece.substr(0, piece.find('='));
    const bool named = key.size() < piece.size() && !key.empty() &&
                       std::all_of(key.begin(), key.end(),
                                   [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
    return named ? std::optional(comma) : std::nullopt;
}

/// Returns where the options of `text` begin: behind the longest path that exists. If none exists, only known
/// keys are options.
std::size_t options_begin(std::string_view text, std::span<const std::string_view> known) {
    for (std::optional<std::size_t> end = text.size(); end; end = last_option(text, *end))
        if (path_exists(text.substr(0, *end))) return *end;
    std::size_t begin = text.size();
    while (const auto option = last_option(text, begin)) {
        const std::string_view key = text.substr(*option + 1, text.find('=', *option) - *option - 1);
        if (std::find(known.begin(), known.end(), key) == known.end()) break;
        begin = *option;
    }
    return begin;
}

}  // namespace

std::string parse_drafter_path(std::string_view text, std::span<const std::string_view> known) {
    return std::string(text.substr(0, options_begin(text, known)));
}

Result<DrafterSource> parse_drafter_source(std::string_view text, std::span<const std::string_view> known) {
    DrafterSource out;
    const std::size_t begin = options_begin(text, known);
    out.path = text.substr(0, begin);
    for (std::string_view rest = text.substr(begin); !rest.empty();) {
        rest.remove_prefix(1);
        const std::string_view piece = rest.substr(0, rest.find(','));
        rest.remove_prefix(piece.size());
        const std::size_t equals = piece.find('=');
        const std::string_view key = piece.substr(0, equals);
        if (std::find(known.begin(), known.end(), key) == known.end())
            return bad_input("drafter option '{}' in '{}' is unknown; known: {}", key, text,
                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
        if (!out.options.emplace(key, piece.substr(equals + 1)).second)
            return bad_input("drafter option '{}' in '{}' is given twice", key, text);
    }
    return out;
}

Result<std::string> DrafterSource::choice(std::string_view option,
                                          std::span<const std::string_view> values) const {
    const auto found = options.find(option);
    if (found == options.end()) return std::string(values.front());
    if (std::find(values.begin(), values.end(), found->second) != values.end()) return found->second;
    std::string text;
    for (const std::string_view value : values)
        text += fmt::format("{}{}={}", text.empty() ? "" : " or ", option, value);
    return bad_input("drafter option {}={} is unknown; use {}", option, found->second, text);
}

Result<DrafterFiles> open_drafter_files(const std::string& path, std::span<const std::string_view> names,
                                        Notes& notes) {
    std::error_code ignored;
    DrafterFiles out;
    const bool is_folder = fs::is_directory(path, ignored);
    const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
    const std::string file = is_folder ? find_tensor_file(path, names) : path;
    if (file.empty())
        return bad_input(
            "{}: contains none of {}; a drafter folder must have config.json and one of these files, or its "
            "index and shards",
            path, fmt::join(names, ", "));
    DS_ASSIGN(out.config, JsonFile::read_if_present((folder / "config.json").string()));
    auto weights = std::make_unique<TensorFile>(file);
    DS_TRY(weights->open(notes));
    out.weights = std::move(weights);
    return out;
}

Status check_all_used(const WeightSource& weights, const std::set<std::string, std::less<>>& used,
                      std::string_view kind, bool (*may_ignore)(std::string_view)) {
    for (const std::string& tensor : weights.names())
        if (!used.contains(tensor) && (may_ignore == nullptr || !may_ignore(tensor)))
            return bad_input("{}: tensor '{}' is not supported in {} checkpoints by this version",
                             weights.path(), tensor, kind);
    return {};
}

}  // namespace draftscope
