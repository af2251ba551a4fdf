#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "base/did_you_mean.h"
#include "base/parse.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {
namespace {

constexpr int max_depth = max_tree_levels - 1;

struct Preset {
    std::string_view name;
    TreeSpec spec;
};
// Published settings, converted to EAGLE-2's depth. FR-Spec counts every forward (its "depth 6" is 5 here,
// its "depth 3" for the 1B model is 2), and so do the 8 steps of SpecVocab's server. MicroSpec's "depth of 5"
// and its top-k are taken as EAGLE-2's. SlimSpec drafts chains of 6. Sources: FR-Spec arXiv 2502.14856
// section 4.1 and appendix A.2, MicroSpec arXiv 2605.26444 section 4, the others' evaluation sections.
// DynaSpec (arXiv 2510.13847, section 5.1) takes EAGLE-2's tree for models of 8B: depth 5, top-k 10, 60
// nodes.
const Preset presets[] = {
    {"fr-spec", {5, 10, 60}}, {"fr-spec-1b", {2, 10, 30}}, {"specvocab", {7, 10, 60}},
    {"slimspec", {5, 1, 7}},  {"microspec", {5, 10, 60}},  {"dynaspec", {5, 10, 60}},
};

Result<int> parse_field(std::string_view name, std::string_view value, int min_value, int max_value) {
    const auto number = parse_number<int>(value);
    if (!number)
        return bad_input("tree: {}={} is not a whole number; use {}={}..{}", name, value, name, min_value,
                         max_value);
    if (*number < min_value || *number > max_value)
        return bad_input("tree: {}={} is outside {}..{}", name, *number, min_value, max_value);
    return *number;
}

/// Maximum number of nodes for `depth` and `topk`, root included.
int possible_nodes(const TreeSpec& spec) {
    return 1 + spec.topk + spec.depth * spec.topk * spec.topk;
}

Result<TreeSpec> parse_preset(std::string_view name) {
    std::vector<std::string_view> known;
    for (const Preset& preset : presets) {
        if (preset.name == name) return preset.spec;
        known.push_back(preset.name);
    }
    return bad_input("tree: unknown preset paper:{}; known: {}{}", name, fmt::join(known, ", "),
                     did_you_mean(name, known));
}

Result<TreeSpec> parse_fields(std::string_view text) {
    struct Field {
        std::string_view name;
        int min_value, max_value;
        std::optional<int> value;
    };
    Field fields[] = {
        {"depth", 0, max_depth, {}}, {"topk", 1, max_tree_topk, {}}, {"nodes", 2, max_tree_nodes, {}}};
    std::string_view rest = text;
    while (true) {
        const auto comma = rest.find(',');
        const std::string_view piece = trim(rest.substr(0, comma));
        const auto equals = piece.find('=');
        const std::string_view name = trim(piece.substr(0, equals));
        const auto field = std::find_if(std::begin(fields), std::end(fields),
                                        [&](const Field& f) { return f.name == name; });
        if (field == std::end(fields) || equals == std::string_view::npos) {
            static constexpr std::string_view known[] = {"depth", "topk", "nodes", "order", "chain"};
            return bad_input(
                "tree: \"{}\" in \"{}\" is unknown; use depth=, topk=, nodes=, order=, chain=N, paper:NAME, "
                "choices:NAME, adaptive:POLICY{}",
                piece, text, did_you_mean(name, known));
        }
        if (field->value) return bad_input("tree: {} is given twice in \"{}\"", name, text);
        DS_ASSIGN(field->value,
                  parse_field(name, trim(piece.substr(equals + 1)), field->min_value, field->max_value));
        if (comma == std::string_view::npos) break;
        rest.remove_prefix(comma + 1);
    }
    const std::optional<int>&depth = fields[0].value, &topk = fields[1].value, &nodes = fields[2].value;
    TreeSpec spec;
    spec.depth = depth.value_or(spec.depth);
    spec.topk = topk.value_or(spec.topk);
    const int possible = std::min(possible_nodes(spec), max_tree_nodes);
    spec.nodes = nodes.value_or(std::min(spec.nodes, possible));
    if (spec.nodes > possible)
        return bad_input("tree: nodes={} exceeds what depth={},topk={} can propose; use nodes=2..{}",
                         spec.nodes, spec.depth, spec.topk, possible);
    return spec;
}

TreeSpec make_spec(TreeChoices choices) {
    TreeSpec spec;
    spec.depth = choices.levels() - 1;
    spec.topk = choices.max_rank() + 1;
    spec.nodes = static_cast<int>(choices.nodes.size()) + 1;
    spec.choices = std::make_shared<const TreeChoices>(std::move(choices));
    return spec;
}

/// Removes ",NAME=VALUE" from the end of `text` and returns VALUE.
std::optional<std::string_view> take_option(std::string_view& text, std::string_view name) {
    const auto comma = text.rfind(',');
    const std::string_view piece = trim(text.substr(comma == std::string_view::npos ? 0 : comma + 1));
    const auto equals = piece.find('=');
    if (equals == std::string_view::npos || trim(piece.substr(0, equals)) != name) return std::nullopt;
    text = trim(text.substr(0, comma == std::string_view::npos ? 0 : comma));
    return trim(piece.substr(equals + 1));
}

Result<TreeSpec> parse_choices(std::string_view text) {
    const auto levels = take_option(text, "levels");
    DS_ASSIGN(TreeChoices choices, find_tree_choices(text));
    if (!levels) return make_spec(std::move(choices));
    DS_ASSIGN(const int keep, parse_field("levels", *levels, 1, choices.levels()));
    return make_spec(truncate_choices(choices, keep));
}

/// Parses everything except the order.
Result<TreeSpec> parse_shape(std::string_view body) {
    if (body.starts_with("paper:")) return parse_preset(trim(body.substr(6)));
    if (body.starts_with("choices:")) return parse_choices(trim(body.substr(8)));
    if (body.starts_with("adaptive:")) {
        DS_ASSIGN(AdaptiveLength length, parse_adaptive_length(body.substr(9)));
        TreeSpec chain{length.max() - 1, 1, length.max() + 1};
        chain.adaptive = std::make_shared<const AdaptiveLength>(std::move(length));
        return chain;
    }
    if (body.starts_with("chain")) {
        const auto equals = body.find('=');
        if (trim(body.substr(0, equals)) == "chain" && equals != std::string_view::npos) {
            DS_ASSIGN(const int drafts,
                      parse_field("chain", trim(body.substr(equals + 1)), 1, max_depth + 1));
            return TreeSpec{drafts - 1, 1, drafts + 1};
        }
    }
    return parse_fields(body);
}

}  // namespace

bool TreeSpec::operator==(const TreeSpec& other) const {
    const bool same_choices = choices == nullptr || other.choices == nullptr ? choices == other.choices
                                                                             : *choices == *other.choices;
    const bool same_lengths = adaptive == nullptr || other.adaptive == nullptr ? adaptive == other.adaptive
                                                                               : *adaptive == *other.adaptive;
    return depth == other.depth && topk == other.topk && nodes == other.nodes && order == other.order &&
           same_choices && same_lengths;
}

Result<TreeSpec> parse_tree_spec(std::string_view text) {
    std::string_view body = trim(text);
    const auto order = take_option(body, "order");
    if (order && *order != "eagle" && *order != "fr")
        return bad_input("tree: order={} is unknown; use order=eagle or order=fr", *order);
    if (body.empty() && order) body = "depth=3";
    if (body.empty())
        return bad_input(
            "tree: empty; use depth=3,topk=4,nodes=12, chain=N, paper:NAME, choices:NAME_OR_FILE or "
            "adaptive:POLICY");
    DS_ASSIGN(TreeSpec spec, parse_shape(body));
    if (!order) return spec;
    if (spec.choices)
        return bad_input("tree: order={} with {}: a static tree has the order of its paths", *order, body);
    if (spec.topk == 1) return bad_input("tree: order={} with {}: a chain has only one order", *order, body);
    spec.order = *order == "fr" ? TreeOrder::fr : TreeOrder::eagle;
    return spec;
}

TreeSpec clip_tree(const TreeSpec& spec, int levels) {
    TreeSpec clipped = spec;
    if (levels <= 0) {
        clipped.depth = 0;
        clipped.nodes = 1;
    } else if (levels < spec.levels()) {
        if (spec.choices) return make_spec(truncate_choices(*spec.choices, levels));
        clipped.depth = levels - 1;
        clipped.nodes = std::min(spec.nodes, possible_nodes(clipped));
    }
    return clipped;
}

std::string to_text(const TreeSpec& spec) {
    if (spec.adaptive) return to_text(*spec.adaptive);
    if (spec.choices) {
        const std::string text = "choices:" + spec.choices->name;
        const bool complete = spec.choices->total_levels == spec.levels();
        return complete ? text : fmt::format("{},levels={}", text, spec.levels());
    }
    if (spec.topk == 1 && spec.nodes == spec.depth + 2) return fmt::format("chain={}", spec.depth + 1);
    return fmt::format("depth={},topk={},nodes={}{}", spec.depth, spec.topk, spec.nodes,
                       spec.order == TreeOrder::fr ? ",order=fr" : "");
}

}  // namespace draftscope
