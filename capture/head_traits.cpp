#include "capture/head_traits.h"

#include <fmt/format.h>

#include <optional>

#include "base/enum_text.h"
#include "base/fields.h"
#include "base/parse.h"

namespace draftscope {

static constexpr std::string_view support_texts[] = {"all", "fixed", "dynamic"};

static std::string_view to_text(HeadSupport support) {
    return enum_text(support_texts, support);
}
static std::string read_text(std::string_view text, HeadSupport& support) {
    return read_enum(support_texts, text, support);
}

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

/// Parses "#0072B2".
std::optional<std::uint32_t> rgb_from(std::string_view text) {
    if (text.size() != 7 || text.front() != '#') return std::nullopt;
    return parse_number<std::uint32_t>(text.substr(1), 16);
}

constexpr auto traits_fields = join(required(DS_FIELDS(HeadTraits, support, ranked)),
                                    field("tree_candidates", &HeadTraits::replay_estimate));

}  // namespace

std::string to_json(const std::map<std::string, HeadTraits>& heads) {
    json out = json::object();
    for (const auto& [head, traits] : heads) {
        out[head] = write_fields(traits_fields, traits);
        out[head]["rgb"] = fmt::format("#{:06X}", traits.rgb);
    }
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
    const auto config = JsonFile::parse(run.config_json, "config_json");
    if (!config) return;
    const auto heads = config->object(head_traits_key.data());
    if (!heads.ok() || !*heads) return;
    for (const auto& [head, stated] : (*heads)->json().items()) {
        const auto one = (*heads)->object(head.c_str());
        if (!one.ok() || !*one) continue;
        const auto text = (*one)->text("rgb");
        const auto rgb = rgb_from(text.ok() ? text->value_or("") : "");
        HeadTraits traits;
        if (!rgb || !read_fields(traits_fields, **one, traits).ok()) continue;
        traits.rgb = *rgb;
        heads_[head] = traits;
    }
}

HeadTraits RunHeadTraits::of(const std::string& head) const {
    const auto found = heads_.find(head);
    return found == heads_.end() ? published_head_traits(head) : found->second;
}

}  // namespace draftscope
