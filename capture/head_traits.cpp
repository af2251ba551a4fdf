#include "capture/head_traits.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/parse.h"

namespace draftscope {
namespace {

using nlohmann::json;

struct PublishedHead {
    std::string_view id;
    HeadTraits traits;
};
// Published results and captures of earlier versions only name a head. A new head needs a row only for
// published results, because its runs state its traits.
constexpr PublishedHead published_heads[] = {
    {"full", {0xBFC5CB, HeadSupport::all}},
    {"eagle3-own", {0x999999, HeadSupport::fixed}},
    {"fr-spec", {0x0072B2, HeadSupport::fixed, true}},
    {"pa-fr", {0x4C9FD1, HeadSupport::fixed, true}},
    {"vocabtrim", {0x56B4E9, HeadSupport::fixed, true}},
    {"vocabtrim-t", {0x8FCBEB, HeadSupport::fixed}},
    {"bcl", {0xC9BE2C, HeadSupport::fixed, true}},
    {"coral", {0xF0E442, HeadSupport::dynamic}},
    {"dynaspec", {0xE69F00, HeadSupport::dynamic}},
    {"specvocab", {0x009E73, HeadSupport::dynamic}},
    {"slimspec", {0xD55E00, HeadSupport::all}},
    {"microspec", {0xCC79A7, HeadSupport::dynamic}},
};

constexpr std::string_view support_names[] = {"all", "fixed", "dynamic"};

std::optional<HeadSupport> support_from(std::string_view text) {
    for (const HeadSupport support : {HeadSupport::all, HeadSupport::fixed, HeadSupport::dynamic})
        if (support_names[static_cast<int>(support)] == text) return support;
    return std::nullopt;
}

/// Parses "#0072B2".
std::optional<std::uint32_t> rgb_from(std::string_view text) {
    if (text.size() != 7 || text.front() != '#') return std::nullopt;
    return parse_number<std::uint32_t>(text.substr(1), 16);
}

std::string string_at(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string to_json(const std::map<std::string, HeadTraits>& heads) {
    json out = json::object();
    for (const auto& [head, traits] : heads)
        out[head] = {{"rgb", fmt::format("#{:06X}", traits.rgb)},
                     {"support", support_names[static_cast<int>(traits.support)]},
                     {"ranked", traits.ranked},
                     {"tree_candidates", traits.tree_candidates}};
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

HeadTraits published_head_traits(std::string_view head) {
    const std::string_view id = head_id(head);
    HeadTraits traits;
    for (const PublishedHead& row : published_heads)
        if (row.id == id) traits = row.traits;
    if (head.ends_with("+rdk") && traits.support == HeadSupport::fixed) traits.support = HeadSupport::dynamic;
    return traits;
}

RunHeadTraits::RunHeadTraits(const RunRow& run) {
    const json config = json::parse(run.config_json, nullptr, false);
    if (!config.is_object()) return;
    const auto heads = config.find(head_traits_key);
    if (heads == config.end() || !heads->is_object()) return;
    for (const auto& [head, stated] : heads->items()) {
        if (!stated.is_object()) continue;
        const auto rgb = rgb_from(string_at(stated, "rgb"));
        const auto support = support_from(string_at(stated, "support"));
        const auto ranked = stated.find("ranked");
        if (rgb && support && ranked != stated.end() && ranked->is_boolean())
            heads_[head] = {*rgb, *support, ranked->get<bool>(),
                            stated.value("tree_candidates", json()) == json(true)};
    }
}

HeadTraits RunHeadTraits::of(const std::string& head) const {
    const auto found = heads_.find(head);
    return found == heads_.end() ? published_head_traits(head) : found->second;
}

}  // namespace draftscope
