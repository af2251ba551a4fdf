#include "app/jobs/resolve/published_drafters.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"

namespace draftscope {
namespace {

std::string letters_and_digits(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

/// The last part of a path that names a model. Snapshots of a local hub have it in a folder above.
std::string model_name(std::string_view model) {
    const std::filesystem::path path(model);
    for (const std::filesystem::path& part : path)
        if (part.string().starts_with("models--")) return part.string();
    const std::string last = path.filename().empty() ? path.parent_path().filename() : path.filename();
    return last;
}

}  // namespace

Result<std::vector<PublishedDrafter>> read_published_drafters() {
    const std::string path = find_asset("published_drafters.json");
    if (path.empty()) return bad_input("assets/published_drafters.json is missing; set DRAFTSCOPE_ASSETS");
    std::ifstream file(path);
    const auto document = nlohmann::json::parse(file, nullptr, false);
    if (document.is_discarded() || !document.contains("drafters"))
        return bad_input("{}: is not a JSON document with \"drafters\"", path);
    std::vector<PublishedDrafter> out;
    for (const auto& row : document["drafters"]) {
        PublishedDrafter& one = out.emplace_back();
        for (const auto& [name, value] :
             {std::pair{"target", &one.target}, std::pair{"drafter", &one.drafter}, std::pair{"at", &one.at},
              std::pair{"layout", &one.layout}, std::pair{"source", &one.source}}) {
            *value = row.value(name, "");
            if (value->empty()) return bad_input("{}: row {} has no \"{}\"", path, out.size(), name);
        }
        if (row.contains("billions")) one.billions = row["billions"].get<double>();
    }
    return out;
}

std::vector<PublishedDrafter> drafters_for(std::string_view model, const std::vector<PublishedDrafter>& all) {
    const std::string name = letters_and_digits(model_name(model));
    std::size_t longest = 0, longest_family = 0;
    const auto length = [&](const PublishedDrafter& one) {
        const std::string target = letters_and_digits(one.target);
        return name.find(target) == std::string::npos ? 0 : target.size();
    };
    const auto is_family = [](const PublishedDrafter& one) { return one.drafter == "draft-model"; };
    for (const PublishedDrafter& one : all) {
        std::size_t& best = is_family(one) ? longest_family : longest;
        best = std::max(best, length(one));
    }
    std::vector<PublishedDrafter> out;
    for (const bool family : {false, true})
        for (const PublishedDrafter& one : all) {
            const std::size_t size = length(one);
            const bool is_itself = name.find(letters_and_digits(model_name(one.at))) != std::string::npos;
            if (is_family(one) == family && size > 0 && size == (family ? longest_family : longest) &&
                !is_itself)
                out.push_back(one);
        }
    return out;
}

}  // namespace draftscope
