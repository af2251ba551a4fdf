#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "engine/heads/registry.h"

namespace draftscope {

using nlohmann::json;

namespace {

/// Reads {"rounds_committed": [[40, 71], ...]}, a pair for each conversation.
Result<std::vector<SweepUnit>> read_units(const json& tallies, const std::string& where) {
    std::vector<SweepUnit> units;
    const json pairs = tallies.is_object() ? tallies.value("rounds_committed", json()) : json();
    for (const json& pair : pairs) {
        const bool numbers =
            pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number();
        if (!numbers || pair[0] < 0 || pair[1] < pair[0])
            return bad_input("{}: {} is not [rounds, committed tokens], at least one token a round", where,
                             pair.dump());
        units.push_back({pair[0], pair[1]});
    }
    if (units.empty()) return bad_input("{}: has no list rounds_committed", where);
    return units;
}

}  // namespace

Result<ShippedAcceptance> read_acceptance(const std::string& path, const std::string& drafter) {
    std::ifstream file(path);
    const json document = json::parse(file, nullptr, false);
    if (document.is_discarded() || !document.is_object() || !document.contains("drafters") ||
        !document["drafters"].is_object())
        return bad_input("{}: is not an acceptance table; make one with tools/make_acceptance_table.py",
                         path);
    ShippedAcceptance table;
    if (!document["drafters"].contains(drafter)) return table;
    for (const auto& [head, trees] : document["drafters"][drafter].items()) {
        DS_ASSIGN(const HeadSpec spec, parse_head_spec(head));
        if (find_head(spec.id) == nullptr) return bad_input("{}: unknown head '{}'", path, head);
        if (!trees.is_object()) return bad_input("{}: {}: is not a list of trees", path, head);
        for (const auto& [tree, tallies] : trees.items()) {
            DS_ASSIGN(const TreeSpec shape, parse_tree_spec(tree));
            const std::string where = fmt::format("{}: {}: {}", path, head, tree);
            DS_ASSIGN(std::vector<SweepUnit> units, read_units(tallies, where));
            table[to_text(spec)].push_back({{shape.depth, shape.topk, shape.nodes}, std::move(units)});
        }
    }
    return table;
}

Result<ShippedAcceptance> load_shipped_acceptance(const std::string& drafter) {
    const std::string path = find_asset("demo_acceptance.json");
    if (path.empty()) return ShippedAcceptance();
    return read_acceptance(path, drafter);
}

}  // namespace draftscope
