#include "app/jobs/resolve/shipped_acceptance.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/run/run_job.h"
#include "engine/heads/registry.h"
#include "engine/tree/draft_tree.h"

namespace draftscope {

using nlohmann::json;

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
        for (const auto& [tree, tau] : trees.items()) {
            DS_ASSIGN(const TreeSpec shape, parse_tree_spec(tree));
            if (!tau.is_number() || tau.get<double>() < 1)
                return bad_input("{}: {}: {}: its tau is {}; must be at least 1", path, head, tree,
                                 tau.dump());
            table[to_text(spec)].push_back({{shape.depth, shape.topk, shape.nodes}, tau.get<double>()});
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
