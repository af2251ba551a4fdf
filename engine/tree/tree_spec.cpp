#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "engine/tree/draft_tree.h"

namespace draftscope {
namespace {

constexpr int max_depth = 63;
constexpr int max_topk = 64;

struct Preset {
    std::string_view name;
    TreeSpec spec;
};
// Published set-ups in EAGLE-2's meaning of depth. FR-Spec counts every forward (its "depth 6" is 5 here, its
// "depth 3" for the 1B model is 2), and so do the 8 steps of SpecVocab's server. MicroSpec's "depth of 5" is
// read as EAGLE-2's own. SlimSpec drafts chains of 6. MicroSpec's top-k: EAGLE-2's own. Sources: FR-Spec
// arXiv 2502.14856 section 3.1 and tables 1 and 7, MicroSpec arXiv 2605.26444 section 4, the others'
// evaluation sections.
constexpr Preset presets[] = {
    {"fr-spec", {5, 10, 60}}, {"fr-spec-1b", {2, 10, 30}}, {"specvocab", {7, 10, 60}},
    {"slimspec", {5, 1, 7}},  {"microspec", {5, 10, 60}},
};

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Result<int> parse_field(std::string_view name, std::string_view value, int lowest, int highest) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
        return bad_input("tree: {}={} is not a whole number; use {}={}..{}", name, value, name, lowest,
                         highest);
    if (number < lowest || number > highest)
        return bad_input("tree: {}={} is outside {}..{}", name, number, lowest, highest);
    return number;
}

/// Most nodes that `depth` and `topk` can propose, root included.
int possible_nodes(const TreeSpec& spec) {
    return 1 + spec.topk + spec.depth * spec.topk * spec.topk;
}

Result<TreeSpec> parse_preset(std::string_view name) {
    std::string known;
    for (const Preset& preset : presets) {
        if (preset.name == name) return preset.spec;
        known += (known.empty() ? "" : ", ") + std::string(preset.name);
    }
    return bad_input("tree: unknown preset paper:{}; known: {}", name, known);
}

Result<TreeSpec> parse_fields(std::string_view text) {
    struct Field {
        std::string_view name;
        int lowest, highest;
        std::optional<int> value;
    };
    Field fields[] = {
        {"depth", 0, max_depth, {}}, {"topk", 1, max_topk, {}}, {"nodes", 2, max_tree_nodes, {}}};
    std::string_view rest = text;
    while (true) {
        const auto comma = rest.find(',');
        const std::string_view piece = trim(rest.substr(0, comma));
        const auto equals = piece.find('=');
        const std::string_view name = trim(piece.substr(0, equals));
        const auto field = std::find_if(std::begin(fields), std::end(fields),
                                        [&](const Field& f) { return f.name == name; });
        if (field == std::end(fields) || equals == std::string_view::npos)
            return bad_input(
                "tree: \"{}\" in \"{}\" is not one of depth=, topk=, nodes=, chain=N, paper:NAME", piece,
                text);
        if (field->value) return bad_input("tree: {} is given twice in \"{}\"", name, text);
        DS_ASSIGN(field->value,
                  parse_field(name, trim(piece.substr(equals + 1)), field->lowest, field->highest));
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
        return bad_input("tree: nodes={} is more than depth={},topk={} can propose; use nodes=2..{}",
                         spec.nodes, spec.depth, spec.topk, possible);
    return spec;
}

}  // namespace

Result<TreeSpec> parse_tree_spec(std::string_view text) {
    const std::string_view body = trim(text);
    if (body.empty()) return bad_input("tree: empty; use depth=3,topk=4,nodes=12, chain=N or paper:NAME");
    if (body.starts_with("paper:")) return parse_preset(trim(body.substr(6)));
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

TreeSpec clip_tree(const TreeSpec& spec, int levels) {
    TreeSpec clipped = spec;
    if (levels <= 0) {
        clipped.depth = 0;
        clipped.nodes = 1;
    } else if (levels < spec.levels()) {
        clipped.depth = levels - 1;
        clipped.nodes = std::min(spec.nodes, possible_nodes(clipped));
    }
    return clipped;
}

std::string to_text(const TreeSpec& spec) {
    if (spec.topk == 1 && spec.nodes == spec.depth + 2) return fmt::format("chain={}", spec.depth + 1);
    return fmt::format("depth={},topk={},nodes={}", spec.depth, spec.topk, spec.nodes);
}

}  // namespace draftscope
